"""A tunnel that is cut alone: calls through it open it again, and a run that ended by it is begun again.

That it is so with a real ssh and a real host is in e2e/test_remote.py.
"""

import shutil
from types import SimpleNamespace

import pytest

from holdfast.containers.ssh import parse_target
from holdfast.containers.ssh_master import LONGEST_SILENCE
from holdfast.engine import CommandLock, Step
from holdfast.engine.commandlock import SILENCE
from holdfast.errors import (
    ConnectionCutError,
    HostUnreachableError,
    HostUnusableError,
    ImageMissingError,
    WaitTimeoutError,
)
from holdfast.events import Bus, RetryScheduled
from holdfast.gateway import commands, remote, unbroken
from holdfast.gateway.settings import Settings
from holdfast.gateway.steps.cluster import ClusterStep
from holdfast.gateway.steps.kubeconfig import WaitApiReady
from holdfast.gateway.steps.nodes import NodeStep
from holdfast.gateway.tunnel import Tunnel
from holdfast.gateway.upgrade import flow
from holdfast.kube.reach import ApiUnreachableError
from holdfast.retry import Policy, constant

needs_flock = pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock of util-linux")
ATTEMPTS = Settings().attempts.engine_call


class Far:
    """A place with a real lock, and a tunnel that was open in this run unless said otherwise."""

    remote = "far"

    def __init__(self, folder):
        self.path = folder / "far.lock"
        self.tunnel = SimpleNamespace(was_open=True, was_cut=False, has_gone=lambda: True)

    def lock(self, _name):
        return CommandLock(str(self.path))


@pytest.fixture
def work(tmp_path):
    files = SimpleNamespace(state=tmp_path / "state" / "runs.db")
    return SimpleNamespace(name="dev", place=Far(tmp_path), files=files, settings=Settings())


def reached(monkeypatch, module, *answers):
    """What opening the tunnel comes to, one time after the other; those that are left are returned."""
    left = list(answers)

    def reach(_work):
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module, "reach", reach)
    return left


def up(work, *ends):
    """A command that ends with these, one after the other; what it told is returned."""
    left, told = list(ends), []

    def act(_ctx):
        end = left.pop(0)
        if isinstance(end, Exception):
            raise end

    def do(work, bus):
        return commands._run("up", work, [Step("run-probe", run=act, repeat="safe")], bus)

    unbroken.unbroken(lambda: work, do, Bus(told.append))
    return [event.reason for event in told if isinstance(event, RetryScheduled)]


@needs_flock
@pytest.mark.parametrize("opened", [True, HostUnreachableError("not yet")])
def test_a_run_that_ended_with_its_tunnel_down_is_begun_again(monkeypatch, work, opened):
    reached(monkeypatch, unbroken, opened)
    assert up(work, WaitTimeoutError("not healthy within 360 s"), "well") == [
        "the connection to far was cut; it is made anew, and the command goes on"
    ]


@needs_flock
def test_a_tunnel_that_was_opened_again_between_two_tries_was_down_too_and_counts_once(monkeypatch, work):
    work.place.tunnel.was_cut = True
    reached(monkeypatch, unbroken, False, False)
    with pytest.raises(WaitTimeoutError, match="still not"):
        up(work, WaitTimeoutError("no time left"), WaitTimeoutError("still not healthy"))


@needs_flock
def test_with_the_tunnel_up_an_error_stays_what_it_is(monkeypatch, work):
    reached(monkeypatch, unbroken, False)
    with pytest.raises(WaitTimeoutError, match="not healthy"):
        up(work, WaitTimeoutError("not healthy"))


@needs_flock
def test_a_tunnel_that_was_not_open_yet_was_not_cut(monkeypatch, work):
    work.place.tunnel.was_open = False
    reached(monkeypatch, unbroken)
    with pytest.raises(WaitTimeoutError, match="no image yet"):
        up(work, WaitTimeoutError("no image yet"))


@needs_flock
@pytest.mark.parametrize(
    ("error", "opened"),
    [(ImageMissingError("no such image"), []), (WaitTimeoutError("no"), [HostUnusableError("a new key")])],
)
def test_what_a_person_has_to_change_is_not_tried_again(monkeypatch, work, error, opened):
    left = reached(monkeypatch, unbroken, *opened)
    with pytest.raises(type((opened or [error])[0])) as caught:
        up(work, error, "never reached")
    assert left == []
    goes_back = any(flow.is_unwell(caught.value, step) for step in flow._GATE)
    assert not (opened and goes_back), "nobody saw the gateway, so no upgrade is taken back"


@needs_flock
def test_a_tunnel_that_is_cut_for_ever_ends_the_command_and_takes_no_upgrade_back(monkeypatch, work):
    reached(monkeypatch, unbroken, *[True] * ATTEMPTS)
    with pytest.raises(ConnectionCutError, match="the tunnel to far was cut: not ready") as caught:
        up(work, *[WaitTimeoutError("not ready")] * ATTEMPTS)
    assert caught.value.exit_code == 1
    assert not any(flow.is_unwell(caught.value, step) for step in flow._GATE)


def test_a_call_opens_the_tunnel_again_before_its_next_try(monkeypatch, work):
    left, told, tries = reached(monkeypatch, remote, True, HostUnreachableError("not yet"), False), [], []

    def ask():
        tries.append(len(left))
        if len(tries) < 4:
            raise ApiUnreachableError("refused")
        return "answered"

    calls = Policy(
        attempts=4,
        backoff=constant(0.0),
        retry_on=ApiUnreachableError,
        on_retry=remote.reopening(work, told.append),
    )
    assert calls.call(ask) == "answered"
    assert tries == [3, 2, 1, 0], "it was opened before each of them but the first"
    assert ["refused" in event.reason for event in told] == [True] * 3


def test_a_tunnel_that_is_only_slow_is_left_to_those_who_use_it(monkeypatch, work):
    work.place.tunnel.has_gone = lambda: False
    reached(monkeypatch, remote)
    remote.reopening(work)(None)


def test_on_this_machine_there_is_nothing_to_open(work):
    work.place.tunnel = None
    assert remote.reopening(work) is None
    assert remote.reopening(work, print) is print


def test_everything_that_goes_through_the_tunnel_opens_it_again(monkeypatch, work):
    """The wait for the API, the calls to the cluster, and those of the steps on nodes."""
    opened = []
    monkeypatch.setattr(remote, "reach", opened.append)
    work.api_client = None
    seen = {}
    monkeypatch.setattr(
        "holdfast.gateway.nodes.cluster.NodeCluster", lambda _, calls, __: seen.update(nodes=calls)
    )
    ctx = SimpleNamespace(previewing=False, retry=lambda policy: policy)
    NodeStep(work).cluster(ctx)
    for policy in (WaitApiReady(work).policy, ClusterStep(work).calls(ctx), seen["nodes"]):
        policy.on_retry(None)
    assert opened == [work] * 3


def test_a_line_counts_as_cut_long_before_its_lock_is_given_to_others():
    assert LONGEST_SILENCE <= SILENCE / 2


def test_a_tunnel_knows_whether_this_command_saw_it_open(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    tunnel = Tunnel("x", parse_target("me@far"))
    assert not tunnel.is_open((26443,), "127.0.0.1")
    assert not tunnel.was_open
    tunnel.was_open = True
    assert not tunnel.is_open((26443,), "127.0.0.1")
    assert tunnel.was_open, "that is a cut"
    tunnel.close()
    assert not tunnel.was_open, "that is none"
