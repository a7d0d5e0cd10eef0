"""A container engine that restarts during a command is waited for; one that never answered is not."""

from types import SimpleNamespace

import docker.errors
import pytest

from holdfast.containers import ContainerEngine
from holdfast.errors import (
    ContainerEngineError,
    ContainerEngineUnreachableError,
    HoldfastError,
    OperationCancelledError,
)
from holdfast.gateway import commands
from holdfast.gateway.base_steps import ClusterStep, GatewayStep
from holdfast.gateway.context import GatewayContext
from holdfast.gateway.settings import resolve_settings
from holdfast.retry import testing_mode
from holdfast.workflow import Step, Workflow, absent, done

RESTART_SECONDS = 20.0
SOCKET_REMOVED = "container engine at unix:///run/docker.sock: no answer"


class RestartingEngine:
    """A fake engine: its first call fails, and it answers again when the clock has reached a time."""

    def __init__(self, clock, restart_seconds):
        self._clock, self._until = clock, clock.monotonic() + restart_seconds
        self.calls, self.pings = 0, 0

    @property
    def is_down(self):
        return self._clock.monotonic() < self._until

    def ping(self):
        self.pings += 1
        if self.is_down:
            raise docker.errors.DockerException("Error while fetching: No such file or directory")

    def create(self):
        self.calls += 1
        if self.is_down:
            raise ContainerEngineUnreachableError(SOCKET_REMOVED) from FileNotFoundError(2, "No such file")


@pytest.fixture
def clock():
    with testing_mode() as virtual:
        yield virtual


@pytest.fixture
def gateway(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return GatewayContext("dev", resolve_settings({}, environ={}))


def connect(gateway, engine):
    gateway.engine = ContainerEngine(engine, "unix:///run/docker.sock")
    return engine


class Create(GatewayStep):
    name = "create"

    def probe(self, _ctx):
        return absent()

    def run(self, _ctx):
        self.gateway.engine.client.create()


def test_effect_is_repeated_after_the_engine_restarted(gateway, clock):
    engine = connect(gateway, RestartingEngine(clock, RESTART_SECONDS))
    Workflow("up", [Create(gateway)]).run()
    assert engine.calls == 2
    assert sum(clock.sleeps) >= RESTART_SECONDS


def test_call_of_a_cluster_step_is_repeated_after_the_engine_restarted(gateway, clock):
    class Query(ClusterStep):
        name = "query"
        repeat = "always"

        def run(self, ctx):
            self.engine_call(ctx, self.gateway.engine.client.create)

    engine = connect(gateway, RestartingEngine(clock, RESTART_SECONDS))
    Workflow("up", [Query(gateway)]).run()
    assert engine.calls == 2


def test_call_outside_a_run_is_repeated_after_the_engine_restarted(gateway, clock):
    engine = connect(gateway, RestartingEngine(clock, RESTART_SECONDS))
    commands._engine_call(gateway, lambda gateway: gateway.engine.client.create())
    assert engine.calls == 2


def test_setting_limits_the_wait(gateway, clock):
    engine = connect(gateway, RestartingEngine(clock, 3600))
    with pytest.raises(ContainerEngineUnreachableError):
        Workflow("up", [Create(gateway)]).run()
    assert engine.calls == 2, "one wait, and one attempt after it"
    assert sum(clock.sleeps) < gateway.settings.timeouts.engine_restart + 2


def test_engine_that_never_answered_fails_fast(gateway, clock):
    calls = []

    def connect_in_vain(_gateway):
        calls.append(1)
        raise ContainerEngineUnreachableError(SOCKET_REMOVED) from FileNotFoundError(2, "No such file")

    with pytest.raises(ContainerEngineUnreachableError):
        commands._engine_call(gateway, connect_in_vain)
    assert (calls, clock.sleeps) == ([1], [])


def test_ordinary_transient_error_waits_only_for_the_backoff(gateway, clock):
    class FailOnce(Create):
        failed = False

        def run(self, _ctx):
            if not self.failed:
                self.failed = True
                raise ContainerEngineError("pulling: 503 service unavailable")

    engine = connect(gateway, RestartingEngine(clock, 0))
    Workflow("up", [FailOnce(gateway)]).run()
    assert (engine.pings, len(clock.sleeps)) == (1, 1)


def test_ctrl_c_ends_the_wait(gateway, clock):
    class Stopping(RestartingEngine):
        def ping(self):
            gateway.stop.set()
            super().ping()

    connect(gateway, Stopping(clock, 3600))
    with pytest.raises(OperationCancelledError):
        Workflow("up", [Create(gateway)]).run(stop=gateway.stop)
    assert sum(clock.sleeps) < 1


def test_preview_makes_one_attempt(gateway, clock):
    class Query(ClusterStep):
        name = "query"
        run = Create.run

        def probe(self, ctx):
            self.engine_call(ctx, self.gateway.engine.client.create)
            return done()

    engine = connect(gateway, RestartingEngine(clock, RESTART_SECONDS))
    (planned,) = Workflow("up", [Query(gateway)]).plan()
    assert (planned.unsure, engine.calls, clock.sleeps) == (True, 1, [])


def test_probe_is_repeated_while_the_engine_restarts(gateway, clock, tmp_path):
    """`_run_workflow` gives all probes a policy that waits for the engine."""
    engine = connect(gateway, RestartingEngine(clock, RESTART_SECONDS))

    def probe(_ctx):
        engine.create()
        return done("exists")

    commands._run_workflow("up", gateway, [Step("probed", probe=probe, run=print)], SimpleNamespace(emit=id))
    assert engine.calls > 1


def test_interrupted_command_keeps_its_error(gateway, clock):
    """An error of the check itself must not replace the error of the call."""
    connect(gateway, SimpleNamespace(ping=lambda: pytest.fail("not reached"), create=None))
    gateway.engine.check_answers = lambda: (_ for _ in ()).throw(HoldfastError("lock lost"))

    class Fail(Create):
        def run(self, _ctx):
            raise ContainerEngineUnreachableError(SOCKET_REMOVED)

    with pytest.raises(ContainerEngineUnreachableError):
        Workflow("up", [Fail(gateway)]).run()
