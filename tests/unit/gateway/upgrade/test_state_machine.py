"""The direction of an upgrade after a failure, and what is refused while it is unfinished."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from tests.support.inspected_containers import engine_with
from tests.support.stubs import stub
from tests.support.upgrade_record import UPGRADE_RECORD

from holdfast.containers import labels
from holdfast.errors import (
    ContainerEngineError,
    ContainerEngineUnreachableError,
    DiskFullError,
    GatewayNotFoundError,
    HoldfastError,
    HostUnreachableError,
    ImageIncompatibleError,
    ImageNotFoundError,
    LockedError,
    LockLostError,
    NodeConfigurationError,
    NodeStoppedError,
    OperationCancelledError,
    PermanentError,
    PortInUseError,
    StepError,
    StoreError,
    UpgradeRolledBackError,
    WaitTimeoutError,
    WorkflowError,
)
from holdfast.events import EventBus, RunFailed
from holdfast.gateway import commands, hosts, versions
from holdfast.gateway.context import GatewayContext, UpOptions
from holdfast.gateway.node import container as container_steps, start, volume
from holdfast.gateway.registry import GatewayMetadata
from holdfast.gateway.settings import resolve_settings
from holdfast.gateway.teardown import ReplaceOldGateway
from holdfast.gateway.upgrade import state_machine
from holdfast.workflow import LockHolder


def record(phase):
    return msgspec.structs.replace(UPGRADE_RECORD, phase=phase)


def container(**more):
    fields = {
        "is_running": True,
        "state": "running",
        "started_at": "2026-01-01T00:00:00Z",
        "never_started": False,
        "restart_policy": "always",
        "image_id": "sha256:1",
        "labels": {},
        "image": "node:1",
        "gpus": (),
        "environment": {},
        "ports": {"6443/tcp": ("127.0.0.1", 16443), "8443/tcp": ("127.0.0.1", 16444)},
    }
    return SimpleNamespace(**fields | more)


@pytest.fixture
def gateway(monkeypatch, tmp_path):
    """The containers, record and lock that the gateway has; no container engine is used."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setattr(hosts, "lock_directory", lambda: tmp_path)
    lock = hosts.LocalHost().lock("dev")
    state = SimpleNamespace(container=container(), parked_container=None, record=None, lock=lock, calls=[])

    def record_call(*call):
        with pytest.raises(LockedError):
            lock.acquire(LockHolder.current_process())
        state.calls.append(call)

    monkeypatch.setattr(GatewayContext, "container", lambda _: state.container)
    monkeypatch.setattr(GatewayContext, "parked_container", lambda _: state.parked_container)
    monkeypatch.setattr(GatewayContext, "engine", None)
    monkeypatch.setattr(state_machine, "read_record", lambda _: state.record)
    stub(monkeypatch, state_machine, "container_logs", lambda *_, **__: "last line")
    stub(monkeypatch, state_machine, "select_plan", lambda *_: (state_machine.UPGRADE_SCOPE, []))
    stub(monkeypatch, start, "set_restart_policy", lambda *args: record_call("restart", args[-1]))
    stub(monkeypatch, start, "start_container", lambda *_: record_call("start"))
    yield state
    lock.release()


def upgrade(gateway, error, step):
    """Run an upgrade that fails in a step; return the raised error and the scopes that were run."""
    scopes, failed = [], state_machine.FailedStepRecorder()

    def run(scope, context, steps):
        del context, steps
        scopes.append(scope)
        if scope == state_machine.UPGRADE_SCOPE:
            gateway.container = gateway.after if hasattr(gateway, "after") else gateway.container
            failed(RunFailed(run="r", seconds=0, step=step, code=error.code, error=error.message))
            raise error

    with pytest.raises(HoldfastError) as raised:
        state_machine.run_upgrade(
            *state_machine.resolve_direction(GatewayContext("dev", resolve_settings({"image": "node:2"}))),
            run,
            failed,
        )
    return raised.value, scopes


def test_unknown_gateway_is_rejected_before_first_step(gateway, monkeypatch):
    gateway.container = None
    monkeypatch.setattr("holdfast.gateway.upgrade.upgrade_steps.find_volume", lambda *_: None)
    with pytest.raises(GatewayNotFoundError, match="gateway dev: not found"):
        state_machine.resolve_direction(GatewayContext("dev", resolve_settings({})))


def test_engine_outage_while_choosing_direction_is_retried(gateway, monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    answers = [ContainerEngineError("connection reset by peer"), container(image_id="sha256:2")]

    def find(_):
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    monkeypatch.setattr(GatewayContext, "container", find)
    with pytest.raises(WorkflowError, match="no steps"):  # the plan of the fixture is empty
        commands.plan_upgrade("dev", resolved=resolve_settings({}))
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (NodeStoppedError("it exited"), "wait-node-registered"),
        (WaitTimeoutError("late"), "wait-node-ready"),
        (WaitTimeoutError("late"), "wait-rollout"),
        (ContainerEngineError("no such program"), "start-container"),
        (WaitTimeoutError("late"), "run-probe"),
        (NodeStoppedError("it exited"), "push-gateway-image"),
        (NodeConfigurationError("it refuses"), "push-images"),
    ],
)
def test_unhealthy_new_version_is_rolled_back(gateway, error, step):
    gateway.parked_container, gateway.record = container(), record("forward")
    raised, scopes = upgrade(gateway, error, step)
    assert isinstance(raised, UpgradeRolledBackError)
    assert scopes == [state_machine.UPGRADE_SCOPE, state_machine.ROLLBACK_SCOPE]


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (ImageNotFoundError("no such image"), "push-images"),
        (StepError("OSError"), "write-kubeconfig"),
        (StepError("OSError"), "write-metadata"),
        (ContainerEngineError("409"), "finish-upgrade"),
        (ContainerEngineError("409"), "ensure-container"),
        (HostUnreachableError("cut"), "wait-api-ready"),
        (ContainerEngineUnreachableError("gone"), "wait-node-ready"),
        (PortInUseError("taken"), "start-container"),
        (DiskFullError("full"), "start-container"),
        (
            ContainerEngineError("running ctr in x: connection broken before the command ended"),
            "wait-runtime",
        ),
        (OperationCancelledError("Ctrl-C"), "wait-node-ready"),
        (LockLostError("lost"), "wait-node-ready"),
        (StepError("OSError"), "wait-healthy"),
        (WaitTimeoutError("unknown"), None),
    ],
)
def test_unrelated_failure_is_raised_without_rollback(gateway, error, step):
    gateway.parked_container, gateway.record = container(), record("forward")
    assert upgrade(gateway, error, step) == (error, [state_machine.UPGRADE_SCOPE])


@pytest.mark.parametrize("phase", ["proved", "upgraded"])
def test_committed_version_is_never_rolled_back(gateway, phase):
    gateway.parked_container, gateway.record = container(), record(phase)
    error = WaitTimeoutError("late")
    assert upgrade(gateway, error, "wait-healthy") == (error, [state_machine.UPGRADE_SCOPE])


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (DiskFullError("full"), False),
        (StoreError("no store"), False),
        (OperationCancelledError("Ctrl-C"), False),
        (ContainerEngineError("no"), True),
    ],
)
def test_old_node_is_restarted_before_it_is_parked(gateway, error, waits):
    gateway.after = container(is_running=False, state="exited", restart_policy="no")
    raised, scopes = upgrade(gateway, error, "take-snapshot")
    assert raised is error
    assert gateway.calls == [("restart", "always"), ("start",)]
    assert scopes == [state_machine.UPGRADE_SCOPE, *(["up"] if waits else [])]


@pytest.mark.parametrize("error", [LockLostError("lost"), ContainerEngineUnreachableError("gone")])
def test_changed_container_is_not_started(gateway, error):
    gateway.after = container(is_running=False, state="exited", restart_policy="no")
    upgrade(gateway, error, "take-snapshot")
    assert gateway.calls == []


def test_container_of_another_command_is_not_started(gateway):
    gateway.after = container(is_running=False, state="exited", restart_policy="no")
    gateway.lock.acquire(LockHolder.current_process("stop"))
    error = DiskFullError("full")
    assert upgrade(gateway, error, "take-snapshot")[0] is error
    assert gateway.calls == []


def test_stopped_gateway_stays_stopped(gateway):
    gateway.container = container(is_running=False, state="exited", restart_policy="no")
    upgrade(gateway, DiskFullError("full"), "take-snapshot")
    assert gateway.calls == []


@pytest.mark.parametrize(
    ("phase", "is_required"), [("back", True), ("rolled-back", False), ("upgraded", False)]
)
def test_up_continues_rollback_after_old_container_is_renamed_back(gateway, phase, is_required):
    gateway.record = record(phase)
    assert state_machine.is_upgrade_required(GatewayContext("dev")) is is_required
    assert state_machine.is_upgrade_required(GatewayContext("dev", options=UpOptions(wipe=True))) is False


@pytest.mark.parametrize("command", [commands.up, commands.start])
def test_up_fails_when_upgrade_state_is_unknown(monkeypatch, command):
    def fail(_):
        raise ContainerEngineError("broken")

    monkeypatch.setattr(state_machine, "is_upgrade_required", fail)
    with pytest.raises(ContainerEngineError, match="broken"):
        command("dev", EventBus())


@pytest.mark.parametrize(
    ("parked_container", "phase", "refused"),
    [
        (container(), "forward", True),
        (container(), "proved", True),
        (None, "back", True),
        (None, "forward", False),
        (None, "rolled-back", False),
        (None, "upgraded", False),
    ],
)
def test_containers_needed_by_data_are_not_removed(gateway, parked_container, phase, refused):
    gateway.parked_container, gateway.record = parked_container, record(phase)
    if not refused:
        state_machine.refuse_unfinished_upgrade(GatewayContext("dev"))
        return
    with pytest.raises(PermanentError, match="unfinished upgrade") as raised:
        commands.destroy("dev", with_data=False, bus=EventBus())
    assert raised.value.exit_code == 3
    assert "`holdfast upgrade dev`" in raised.value.hint
    assert "`holdfast destroy dev --data`" in raised.value.hint


def test_stop_between_parking_and_creation_reports_upgrade(gateway):
    gateway.container, gateway.parked_container = None, container(is_running=False)
    with pytest.raises(PermanentError, match="unfinished upgrade"):
        commands.stop("dev", EventBus())


def images(**versions):
    by_name = {
        name: SimpleNamespace(id=f"sha256:{name}", labels={labels.KUBERNETES: version})
        for name, version in versions.items()
    }
    return lambda _, name: by_name.get(name.removeprefix("sha256:"))


@pytest.mark.parametrize("old_image_exists", [True, False])
def test_changed_settings_do_not_bypass_version_check(gateway, monkeypatch, old_image_exists):
    find_image = images(new="v1.35.0", **({"old": "v1.34.4"} if old_image_exists else {}))
    for module in (container_steps, versions):
        monkeypatch.setattr(module, "find_image", find_image)
    old = container(
        image_id="sha256:old",
        labels={labels.KUBERNETES: "v1.34.4", labels.SETTINGS: "others"},
        environment={},
        hostname="another",
        ports={},
    )
    gateway.container = old
    step = container_steps.EnsureContainer(
        GatewayContext("dev", resolve_settings({"image": "new", "port": "16443", "gateway_port": "16444"}))
    )
    with pytest.raises(ImageIncompatibleError, match=r"has Kubernetes v1\.34\.4, but new has v1\.35\.0"):
        step.probe(None)


def test_unrequested_replacement_removes_nothing(gateway):
    del gateway
    assert ReplaceOldGateway(GatewayContext("dev")).run(None) == {}


class FakeStepContext:
    """The part of the context of a preview that `CheckDataVersion` uses."""

    is_preview = True

    def __init__(self):
        self.notes = []
        self.note = self.notes.append


def test_preview_creates_no_helper_on_data_in_use(gateway, monkeypatch):
    gateway.container = None
    for reader in ("read_orphaned_record", "read_data_version"):
        monkeypatch.setattr(volume.datastore, reader, lambda _: pytest.fail("the volume was read"))
    monkeypatch.setattr(volume, "target_kubernetes_version", lambda _: "v1.34.4")
    context = GatewayContext(
        "dev", resolve_settings({"image": "node:1", "port": "16443", "gateway_port": "16444"})
    )
    context.metadata = GatewayMetadata(name="dev", image="node:1", port=16443, kubernetes="v1.34.4")
    ctx = FakeStepContext()
    volume.CheckDataVersion(context).run(ctx)
    assert ctx.notes == ["checked during the run"]
    context.metadata = msgspec.structs.replace(context.metadata, kubernetes="v1.35.0")
    with pytest.raises(ImageIncompatibleError):
        volume.CheckDataVersion(context).run(ctx)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LockedError("taken"), 4),
        (OperationCancelledError("no"), 130),
        (DiskFullError("full"), 3),
        (ContainerEngineUnreachableError("gone"), 3),
        (ContainerEngineError("reset"), 1),
    ],
)
def test_rollback_failure_keeps_exit_code(gateway, error, code):
    gateway.record = record("back")

    def run(*_):
        raise error

    with pytest.raises(HoldfastError) as raised:
        state_machine.run_upgrade(
            *state_machine.resolve_direction(GatewayContext("dev")), run, state_machine.FailedStepRecorder()
        )
    assert raised.value.exit_code == code
    assert error in (raised.value, raised.value.cause)


def test_failure_with_another_image_is_not_repeated_in_the_plan(tmp_path, monkeypatch):
    """The checkpoints of a failed upgrade belong to its image."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    stub(monkeypatch, state_machine, "is_at_target", lambda _: False)
    scopes = set()
    for image in ("holdfast/node:bad", "holdfast/node:good"):
        gateway = GatewayContext("dev", resolve_settings({"image": image, "port": 1, "gateway_port": 2}))
        gateway.engine = engine_with()
        scopes.add(state_machine.select_plan(gateway, None)[0])
    assert scopes == {"upgrade:holdfast/node:bad", "upgrade:holdfast/node:good"}
