"""How a wait for the node ends: the words of the node's log never decide whether it is tried again."""

from types import SimpleNamespace

import pytest

from holdfast.containers.commands import Outcome
from holdfast.errors import (
    EngineCallError,
    NodeRefusedError,
    NodeStoppedError,
    WaitTimeoutError,
)
from holdfast.gateway import push_node
from holdfast.gateway.settings import resolve
from holdfast.gateway.steps import node_end
from holdfast.gateway.steps.base import may_pass
from holdfast.gateway.steps.readiness import WaitRuntime
from holdfast.gateway.work import Work

NOT_YET = 'ctr: failed to dial "/run/containerd/containerd.sock": context deadline exceeded'
LOG = "dial tcp 127.0.0.1:6443: connection refused"


class Told:
    """What a step says, and a stop that nobody asks for."""

    stop = None

    def __init__(self):
        self.notes = []

    def note(self, words):
        self.notes.append(words)


@pytest.fixture
def node(monkeypatch):
    """A node whose container and runtime are what a test says: engines are asked in the end-to-end tests."""
    seen = SimpleNamespace(state="running", exit_code=0, answers=[])
    monkeypatch.setattr(
        Work,
        "container",
        lambda _: SimpleNamespace(
            state=seen.state, exit_code=seen.exit_code, running=seen.state == "running", started_second=0
        ),
    )
    monkeypatch.setattr(Work, "engine", None)
    monkeypatch.setattr(node_end, "container_logs", lambda *_, **__: LOG)
    monkeypatch.setattr(node_end, "short_of_disk", lambda _: None)

    def run_in(*_):
        answer = seen.answers.pop(0) if len(seen.answers) > 1 else seen.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(push_node, "run_in", run_in)
    return seen


def waited(**settings):
    told = Told()
    WaitRuntime(Work("dev", resolve(settings))).run(told)
    return told.notes


def test_a_runtime_that_comes_is_waited_for(node):
    node.answers = [Outcome(exit_code=1, output=NOT_YET)] * 2 + [Outcome(exit_code=0, output="ok")]
    assert waited() == ["containerd answers"]


@pytest.mark.parametrize(
    ("exit_code", "expected"), [(1, NodeStoppedError), (3, NodeRefusedError)], ids=["ended", "refuses"]
)
def test_a_node_that_ended_is_told_with_its_log(node, exit_code, expected):
    node.answers = [EngineCallError("container is not running")]
    node.state, node.exit_code = "exited", exit_code
    with pytest.raises(expected, match="connection refused") as raised:
        waited()
    assert not may_pass(raised.value)


def test_a_runtime_that_never_comes_ends_in_time_and_is_not_waited_for_again(node):
    node.answers = [Outcome(exit_code=1, output=NOT_YET)]
    with pytest.raises(WaitTimeoutError, match="was not ready within 1 s") as raised:
        waited(**{"timeouts.node_ready": 1})
    assert not may_pass(raised.value)


def test_a_cut_connection_may_pass(node):
    node.answers = [EngineCallError("running ctr in x: connection broken before the command ended")]
    with pytest.raises(EngineCallError) as raised:
        waited()
    assert may_pass(raised.value)
