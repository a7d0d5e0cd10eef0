"""Images that no node can be made of, on a real engine: one clear line, and nothing is changed or sent."""

import uuid

import pytest
from tests.support.small_images import SmallImages

from holdfast.containers.containers import find_container
from holdfast.containers.engine import connect
from holdfast.containers.labels import CONTRACT
from holdfast.containers.networks import find_network, find_volume
from holdfast.errors import ImageUnfitError
from holdfast.events import Bus
from holdfast.gateway import commands
from holdfast.gateway.profile import CONTRACT as VERSION
from holdfast.gateway.remote_image import bring_image
from holdfast.gateway.settings import resolve
from holdfast.gateway.steps.image import check_node_image
from holdfast.gateway.work import Work

pytestmark = pytest.mark.engine

OTHER = {"amd64": "arm64", "arm64": "amd64"}


@pytest.fixture(scope="module")
def engine():
    return connect()


@pytest.fixture(scope="module")
def foreign(engine):
    """A node image by its label, for a kind of machine that the engine's is not."""
    made = SmallImages(engine)
    yield made.make([{"x": b"x"}], architecture=OTHER[engine.architecture], labels={CONTRACT: VERSION})
    made.remove()


def test_an_image_for_another_architecture_is_refused_before_anything_is_made(
    engine, foreign, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    name = f"t-unfit-{uuid.uuid4().hex[:6]}"
    with pytest.raises(ImageUnfitError) as refused:
        commands.up(name, Bus(), resolved=resolve({"image": foreign}))
    words = f"{foreign} is for {OTHER[engine.architecture]}, and this engine runs {engine.architecture}"
    assert (refused.value.message, refused.value.exit_code) == (words, 3)
    made = Work(name).object
    assert find_container(engine, made) is None
    assert find_network(engine, made) is None
    assert find_volume(engine, made) is None


def test_nothing_is_sent_to_a_host_that_has_no_use_for_it(engine, foreign):
    told = []

    def check(image):
        check_node_image(foreign, image, engine.architecture)

    with pytest.raises(ImageUnfitError, match="this engine runs"):
        bring_image(lambda: engine, engine, foreign, check, lambda *words: told.append(words))
    assert told == []
    assert not bring_image(lambda: engine, engine, "t-unfit/none:1", check, lambda *words: None)
