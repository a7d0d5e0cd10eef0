"""A lost tunnel: calls through it reopen it, and a run that failed because of it restarts.

e2e/test_remote_gateway.py tests the same with a real host.
"""

import shutil
import threading
from types import SimpleNamespace

import pytest
from tests.support.stubs import stub

from holdfast.errors import (
    ApiUnreachableError,
    ConnectionLostError,
    HostAccessError,
    HostUnreachableError,
    ImageNotFoundError,
    WaitTimeoutError,
)
from holdfast.events import EventBus, RetryScheduled
from holdfast.gateway import commands, connection, reconnect
from holdfast.gateway.base_steps import ClusterStep
from holdfast.gateway.connection import WaitApiReady
from holdfast.gateway.pv_migration.stale_nodes import NodesStep
from holdfast.gateway.settings import Settings
from holdfast.gateway.spec import GatewaySpec
from holdfast.gateway.tunnel import Tunnel
from holdfast.gateway.upgrade import state_machine
from holdfast.remote import HEARTBEAT_TIMEOUT_SECONDS, RemoteLock, parse_target
from holdfast.remote.control_master import MAX_SILENCE_SECONDS
from holdfast.retry import Policy, constant
from holdfast.workflow import Step, Workflow

needs_flock = pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock of util-linux")
ATTEMPTS = Settings().attempts.engine_call


class TunnelHost:
    """A remote host with a real lock, whose tunnel was open in this run."""

    remote = "far"

    def __init__(self, folder):
        self.path = folder / "far.lock"
        self.tunnel = SimpleNamespace(
            seen_open=True,
            was_reopened=False,
            has_exited=lambda: True,
            check_forwarding_allowed=lambda: None,
        )

    def lock(self, _name):
        return RemoteLock(str(self.path))


@pytest.fixture
def gateway(tmp_path):
    files = SimpleNamespace(state=tmp_path / "state" / "runs.db")
    return SimpleNamespace(
        parameters=dict,
        name="dev",
        host=TunnelHost(tmp_path),
        files=files,
        settings=Settings(),
        stop=threading.Event(),
    )


def set_tunnel_results(monkeypatch, module, *results):
    """Set the results of opening the tunnel in order; returns the list of unused ones."""
    unused = list(results)

    def ensure_tunnel(_gateway):
        answer = unused.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module, "ensure_tunnel", ensure_tunnel)
    return unused


def up(gateway, *outcomes):
    """Run a command whose attempts have these outcomes; returns the reasons of its retries."""
    unused, events = list(outcomes), []

    def act(_ctx):
        outcome = unused.pop(0)
        if isinstance(outcome, Exception):
            raise outcome

    def do(gateway, bus):
        return commands._run_workflow("up", gateway, [Step("run-probe", run=act, repeat="safe")], bus)

    reconnect.run_with_reconnect(lambda: gateway, do, EventBus(events.append))
    return [event.reason for event in events if isinstance(event, RetryScheduled)]


@needs_flock
@pytest.mark.parametrize("opened", [True, HostUnreachableError("not yet")])
def test_run_restarts_after_tunnel_was_down(monkeypatch, gateway, opened):
    set_tunnel_results(monkeypatch, reconnect, opened)
    assert up(gateway, WaitTimeoutError("not healthy within 360 s"), "well") == [
        "lost the connection to far; reconnecting to continue the command"
    ]


@needs_flock
def test_tunnel_reopened_between_attempts_counts_once(monkeypatch, gateway):
    gateway.host.tunnel.was_reopened = True
    set_tunnel_results(monkeypatch, reconnect, False, False)
    with pytest.raises(WaitTimeoutError, match="still not"):
        up(gateway, WaitTimeoutError("no time left"), WaitTimeoutError("still not healthy"))


@needs_flock
def test_error_with_open_tunnel_is_unchanged(monkeypatch, gateway):
    set_tunnel_results(monkeypatch, reconnect, False)
    with pytest.raises(WaitTimeoutError, match="not healthy"):
        up(gateway, WaitTimeoutError("not healthy"))


@needs_flock
def test_unopened_tunnel_was_not_cut(monkeypatch, gateway):
    gateway.host.tunnel.seen_open = False
    set_tunnel_results(monkeypatch, reconnect)
    with pytest.raises(WaitTimeoutError, match="no image yet"):
        up(gateway, WaitTimeoutError("no image yet"))


@needs_flock
@pytest.mark.parametrize(
    ("error", "opened"),
    [(ImageNotFoundError("no such image"), []), (WaitTimeoutError("no"), [HostAccessError("a new key")])],
)
def test_user_errors_are_not_retried(monkeypatch, gateway, error, opened):
    unused = set_tunnel_results(monkeypatch, reconnect, *opened)
    with pytest.raises(type((opened or [error])[0])) as caught:
        up(gateway, error, "never reached")
    assert unused == []
    rolls_back = any(
        state_machine.is_health_failure(caught.value, step) for step in state_machine._HEALTH_GATE_STEPS
    )
    assert not (opened and rolls_back), "an unreachable gateway must not be rolled back"


@needs_flock
def test_permanently_cut_tunnel_fails_without_rollback(monkeypatch, gateway):
    set_tunnel_results(monkeypatch, reconnect, *[True] * ATTEMPTS)
    with pytest.raises(ConnectionLostError, match="lost the tunnel to far: not ready") as caught:
        up(gateway, *[WaitTimeoutError("not ready")] * ATTEMPTS)
    assert caught.value.exit_code == 1
    assert not any(
        state_machine.is_health_failure(caught.value, step) for step in state_machine._HEALTH_GATE_STEPS
    )


def test_call_reopens_tunnel_before_retry(monkeypatch, gateway):
    unused, events, tries = (
        set_tunnel_results(monkeypatch, reconnect, True, HostUnreachableError("not yet"), False),
        [],
        [],
    )

    def ask():
        tries.append(len(unused))
        if len(tries) < 4:
            raise ApiUnreachableError("refused")
        return "answered"

    calls = Policy(
        attempts=4,
        backoff=constant(0.0),
        retry_on=ApiUnreachableError,
        on_retry=reconnect.reopen_tunnel_on_retry(gateway, events.append),
    )
    assert calls.call(ask) == "answered"
    assert tries == [3, 2, 1, 0], "the tunnel is opened before each attempt but the first"
    assert ["refused" in event.reason for event in events] == [True] * 3


def test_slow_tunnel_is_left_alone(monkeypatch, gateway):
    gateway.host.tunnel.has_exited = lambda: False
    set_tunnel_results(monkeypatch, reconnect)
    reconnect.reopen_tunnel_on_retry(gateway)(None)


def test_damaged_kubeconfig_does_not_fail_opening(gateway, tmp_path):
    """`up` opens the tunnel first, and then writes the kubeconfig again."""
    spec = GatewaySpec(name="dev", image="i", port=26443, gateway_port=26444)
    opened = []
    gateway.host.tunnel.open = lambda ports, listen: opened.append((ports, listen)) or True
    gateway.published_spec, gateway.api_server_url = lambda: spec, "https://127.0.0.1:26443"
    gateway.files.kubeconfig = tmp_path / "kubeconfig"
    gateway.files.kubeconfig.write_bytes(b"damaged: [")
    assert reconnect.ensure_tunnel(gateway)
    assert opened == [((26443, 26444), "127.0.0.1")]
    assert gateway.files.kubeconfig.read_bytes() == b"damaged: ["


def test_local_gateway_has_no_tunnel(gateway):
    gateway.host.tunnel = None
    assert reconnect.reopen_tunnel_on_retry(gateway) is None
    assert reconnect.reopen_tunnel_on_retry(gateway, print) is print


def test_every_tunnel_user_reopens_it(monkeypatch, gateway):
    """WaitApiReady, the calls of cluster steps and those of node steps."""
    opened = []
    monkeypatch.setattr(reconnect, "ensure_tunnel", opened.append)
    ctx = SimpleNamespace(is_preview=False, retry=lambda policy: policy)
    steps = (ClusterStep(gateway), NodesStep(gateway))
    for policy in (WaitApiReady(gateway).policy, *(step.call_policy(ctx) for step in steps)):
        policy.on_retry(None)
    assert opened == [gateway] * 3


def test_connection_counts_as_cut_before_its_lock_expires():
    assert MAX_SILENCE_SECONDS <= HEARTBEAT_TIMEOUT_SECONDS / 2


def test_tunnel_knows_whether_this_command_opened_it(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    tunnel = Tunnel("x", parse_target("me@far"))
    assert not tunnel.is_open((26443,), "127.0.0.1")
    assert not tunnel.seen_open
    tunnel.seen_open = True
    assert not tunnel.is_open((26443,), "127.0.0.1")
    assert tunnel.seen_open, "the tunnel was lost"
    tunnel.close()
    assert not tunnel.seen_open, "the tunnel was closed"


def test_refused_port_forwarding_needs_a_person_and_closes_the_tunnel(monkeypatch, tmp_path):
    """A rerun needs a new connection, because sshd reads its configuration for new connections only."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    tunnel, closed = Tunnel("x", parse_target("me@far")), []
    log = "channel 1: open failed: administratively prohibited: open failed"
    monkeypatch.setattr(tunnel.control_master, "read_log", lambda: log)
    monkeypatch.setattr(tunnel.control_master, "close", lambda: closed.append(True))
    with pytest.raises(HostAccessError, match="me@far: sshd does not allow to forward ports") as raised:
        tunnel.check_forwarding_allowed()
    assert (raised.value.exit_code, closed) == (3, [True])
    assert "AllowTcpForwarding" in raised.value.hint


def test_refused_port_forwarding_ends_the_wait_for_the_api(monkeypatch, gateway, tmp_path):
    def refuse():
        raise HostAccessError("refused")

    def not_answering(*_):
        raise ApiUnreachableError("connection closed")

    gateway.host.tunnel.check_forwarding_allowed = refuse
    gateway.files.kubeconfig = tmp_path / "kubeconfig"
    gateway.files.kubeconfig.touch()
    stub(monkeypatch, connection, "kubernetes_get", not_answering)
    stub(monkeypatch, connection.kubeconfig, "parse_credentials", lambda *_: None)
    step = WaitApiReady(gateway)
    step.needs = ()
    with pytest.raises(HostAccessError, match="refused"):
        Workflow("up", [step]).run()
