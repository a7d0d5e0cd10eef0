"""How a wait for the node ends; the text of the node's log never decides whether it is retried."""

import subprocess
from types import SimpleNamespace

import pytest
from tests.support.stubs import stub

from holdfast.containers import CommandResult
from holdfast.errors import (
    ContainerEngineError,
    NodeConfigurationError,
    NodeStoppedError,
    WaitTimeoutError,
)
from holdfast.gateway.base_steps import is_retryable_engine_error
from holdfast.gateway.context import GatewayContext
from holdfast.gateway.image_push import containerd_images
from holdfast.gateway.node import WaitNodeReady, WaitRuntime, read_node_logs, readiness
from holdfast.gateway.settings import resolve_settings
from holdfast.gateway.upgrade.state_machine import is_health_failure

NOT_YET = 'ctr: failed to dial "/run/containerd/containerd.sock": context deadline exceeded'
LOG = "dial tcp 127.0.0.1:6443: connection refused"


class FakeStepContext:
    """Collects notes; is never stopped."""

    stop = None

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)

    def progress(self, message):
        self.notes.append(message)

    def check_stop(self):
        """Not stopped."""


class FakeCommand:
    """The engine's part of a command in a container; its connection is cut after the output."""

    def __init__(self, *chunks):
        self.chunks, self.argv, self.stdin = chunks, [], False
        self.client, self.address = self, ""

    def exec_create(self, _container, argv, *, stdin):
        self.argv, self.stdin = argv, stdin
        return {"Id": "e"}

    def exec_start(self, _exec_id, *, stream):
        assert stream
        return (chunk for chunk in self.chunks)

    def exec_inspect(self, _exec_id):
        return {"ExitCode": None}


@pytest.fixture
def node(monkeypatch):
    """The state of a fake container, and the answers of its runtime."""
    seen = SimpleNamespace(state="running", exit_code=0, health="starting", answers=[])
    monkeypatch.setattr(
        GatewayContext,
        "container",
        lambda _: SimpleNamespace(
            state=seen.state,
            exit_code=seen.exit_code,
            is_running=seen.state == "running",
            health=seen.health,
            started_at_epoch=0,
        ),
    )
    monkeypatch.setattr(GatewayContext, "engine", None)
    stub(monkeypatch, readiness, "container_logs", lambda *_, **__: LOG)
    monkeypatch.setattr(readiness, "disk_pressure_error", lambda _: None)

    def run_in(*_):
        answer = seen.answers.pop(0) if len(seen.answers) > 1 else seen.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(containerd_images, "run_in_container", run_in)
    return seen


def run_wait_runtime(**settings):
    ctx = FakeStepContext()
    WaitRuntime(GatewayContext("dev", resolve_settings(settings))).run(ctx)
    return ctx.notes


def test_starting_runtime_is_arun_wait_runtime(node):
    node.answers = [CommandResult(exit_code=1, output=NOT_YET)] * 2 + [
        CommandResult(exit_code=0, output="ok")
    ]
    assert run_wait_runtime() == ["containerd answers"]


@pytest.mark.parametrize(
    ("exit_code", "expected"), [(1, NodeStoppedError), (3, NodeConfigurationError)], ids=["ended", "refuses"]
)
def test_exited_node_is_reported_with_log(node, exit_code, expected):
    node.answers = [ContainerEngineError("container is not running")]
    node.state, node.exit_code = "exited", exit_code
    with pytest.raises(expected, match="connection refused") as raised:
        run_wait_runtime()
    assert not is_retryable_engine_error(raised.value)


def test_runtime_timeout_is_permanent(node):
    node.answers = [CommandResult(exit_code=1, output=NOT_YET)]
    with pytest.raises(WaitTimeoutError, match="was not ready within 1 s") as raised:
        run_wait_runtime(**{"timeouts.node_ready": 1})
    assert not is_retryable_engine_error(raised.value)


def test_cut_connection_is_transient(node):
    node.answers = [ContainerEngineError("running ctr in x: connection broken before the command ended")]
    with pytest.raises(ContainerEngineError) as raised:
        run_wait_runtime()
    assert is_retryable_engine_error(raised.value)


def test_cut_wait_is_retried_and_causes_no_rollback(node, monkeypatch):
    del node
    monkeypatch.setattr(GatewayContext, "engine", FakeCommand(b'{"component": "etcd", "state": "ready"}\n'))
    with pytest.raises(ContainerEngineError, match="gateway dev: connection broken") as raised:
        WaitNodeReady(GatewayContext("dev", resolve_settings({}))).run(FakeStepContext())
    assert is_retryable_engine_error(raised.value)
    assert not is_health_failure(raised.value, "wait-node-ready")


def test_followed_component_log_ends_with_its_client(node, monkeypatch, tmp_path):
    """The engine closes the stdin of a command whose client disconnects, but does not end the command."""
    del node
    command = FakeCommand(b"last li", b"ne")
    monkeypatch.setattr(GatewayContext, "engine", command)
    lines = read_node_logs(GatewayContext("dev"), component="kubelet", tail=2, follow=True)
    assert list(lines) == ["last line"]
    assert command.stdin
    log = tmp_path / "kubelet.log"
    log.write_text("one\ntwo\nthree\n")
    argv = [str(log) if argument.endswith("/kubelet.log") else argument for argument in command.argv]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert [process.stdout.readline(), process.stdout.readline()] == ["two\n", "three\n"]
        with log.open("a") as file:
            file.write("four\n")
        assert process.stdout.readline() == "four\n"
        process.stdin.close()
        # The pipe ends with its last writer: both the shell and `tail` have ended.
        assert process.stdout.read() == ""
