"""`--wipe` on a real engine, after one that was carried out and whose command then failed."""

import uuid

import pytest

from holdfast.containers.engine import connect
from holdfast.containers.labels import GATEWAY
from holdfast.containers.networks import find_volume, remove_volume
from holdfast.engine import Step
from holdfast.errors import TemporaryError
from holdfast.events import Bus
from holdfast.gateway import commands
from holdfast.gateway.plan import up_steps
from holdfast.gateway.work import Asked, Work

pytestmark = pytest.mark.engine

MARK = "dev.holdfast.test"


@pytest.fixture
def name(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    made = f"t-wipe-{uuid.uuid4().hex[:6]}"
    yield made
    commands.destroy(made, with_data=True, bus=Bus())


def fail(ctx):
    raise TemporaryError("the test wants it so")


def up_that_fails(name, monkeypatch, **asked):
    """The plan of `up` as far as the volume, and a failure after it."""

    def steps(work):
        whole = up_steps(work)
        last = next(index for index, step in enumerate(whole) if step.name == "ensure-volume")
        return [*whole[: last + 1], Step("later", run=fail, needs=("ensure-volume",), repeat="safe")]

    monkeypatch.setattr(commands, "up_steps", steps)
    with pytest.raises(TemporaryError, match="the test wants it so"):
        commands.up(name, Bus(), asked=Asked(**asked))


def put_data(name):
    """A volume that can be told from one that was made anew."""
    engine, volume = connect(), Work(name).object
    remove_volume(engine, volume)
    engine.client.create_volume(volume, labels={GATEWAY: name, MARK: "data"})


def has_data(name):
    return MARK in find_volume(connect(), Work(name).object).labels


def test_the_same_command_again_leaves_alone_what_it_made(name, monkeypatch):
    up_that_fails(name, monkeypatch, wipe=True)
    put_data(name)
    up_that_fails(name, monkeypatch, wipe=True)
    assert has_data(name)


def test_after_another_command_the_same_words_are_a_new_wish(name, monkeypatch):
    up_that_fails(name, monkeypatch, wipe=True)
    up_that_fails(name, monkeypatch)
    put_data(name)
    up_that_fails(name, monkeypatch, wipe=True)
    assert not has_data(name)
    put_data(name)
    commands.destroy(name, with_data=False, bus=Bus())
    up_that_fails(name, monkeypatch, wipe=True)
    assert not has_data(name)
