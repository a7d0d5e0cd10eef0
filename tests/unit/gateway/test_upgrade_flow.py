"""Which way an upgrade goes after a failure, and what is refused while it is not finished."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from tests.support.upgrade_records import RECORD

from holdfast.containers import labels
from holdfast.errors import (
    CancelledError,
    DiskFullError,
    EngineCallError,
    EngineUnreachableError,
    HoldfastError,
    HostUnreachableError,
    ImageMissingError,
    ImageUnfitError,
    LockedError,
    LockLostError,
    NodeRefusedError,
    NodeStoppedError,
    PermanentError,
    PortTakenError,
    StepError,
    StoreError,
    UnknownGatewayError,
    UpgradeRolledBackError,
    WaitTimeoutError,
    WorkflowError,
)
from holdfast.events import Bus, RunFailed
from holdfast.gateway import commands
from holdfast.gateway.settings import resolve
from holdfast.gateway.spec import Metadata
from holdfast.gateway.steps import container as container_steps
from holdfast.gateway.steps import data
from holdfast.gateway.steps.replacement import ReplaceOld
from holdfast.gateway.upgrade import flow
from holdfast.gateway.work import Asked, Work


def record(phase):
    return msgspec.structs.replace(RECORD, phase=phase)


def container(**more):
    parts = {
        "running": True,
        "restart": "always",
        "image_id": "sha256:1",
        "labels": {},
        "image": "node:1",
        "gpus": (),
    }
    return SimpleNamespace(**parts | more)


@pytest.fixture
def gateway(monkeypatch):
    """A gateway whose containers and record are what a test says; nothing asks an engine."""
    seen = SimpleNamespace(container=container(), predecessor=None, record=None, calls=[])
    monkeypatch.setattr(Work, "container", lambda _: seen.container)
    monkeypatch.setattr(Work, "predecessor", lambda _: seen.predecessor)
    monkeypatch.setattr(Work, "engine", None)
    monkeypatch.setattr(flow, "read_record", lambda _: seen.record)
    monkeypatch.setattr(flow, "container_logs", lambda *_, **__: "last words")
    monkeypatch.setattr(flow, "steps_of", lambda *_: (flow.FORWARD, []))
    monkeypatch.setattr(flow, "set_restart", lambda *words: seen.calls.append(("restart", words[-1])))
    monkeypatch.setattr(flow, "start_container", lambda *_: seen.calls.append(("start",)))
    return seen


def upgrade(gateway, error, step):
    """Run an upgrade that fails in a step with an error; the scopes of the plans that were run."""
    scopes, failed = [], flow.FailedStep()

    def run(scope, work, steps):
        del work, steps
        scopes.append(scope)
        if scope == flow.FORWARD:
            gateway.container = gateway.after if hasattr(gateway, "after") else gateway.container
            failed(RunFailed(run="r", seconds=0, step=step, code=error.code, error=error.message))
            raise error

    with pytest.raises(HoldfastError) as raised:
        flow.upgrade(*flow.direction(Work("dev", resolve({"image": "node:2"}))), run, failed)
    return raised.value, scopes


def test_a_name_without_a_gateway_is_refused_before_the_first_step(gateway, monkeypatch):
    gateway.container = None
    monkeypatch.setattr("holdfast.gateway.steps.upgrade.find_volume", lambda *_: None)
    with pytest.raises(UnknownGatewayError, match="no gateway dev to upgrade"):
        flow.direction(Work("dev", resolve({})))


def test_an_engine_that_is_away_for_a_moment_is_asked_again_which_way_it_goes(gateway, monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    answers = [EngineCallError("connection reset by peer"), container(image_id="sha256:2")]

    def look(_):
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    monkeypatch.setattr(Work, "container", look)
    with pytest.raises(WorkflowError, match="no steps"):  # the fixture's plan, which comes after the look
        commands.plan_upgrade("dev", resolved=resolve({}))
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (NodeStoppedError("it ended"), "wait-node-registered"),
        (WaitTimeoutError("late"), "wait-node-ready"),
        (WaitTimeoutError("late"), "wait-rollout"),
        (EngineCallError("no such program"), "start-container"),
        (WaitTimeoutError("late"), "run-probe"),
        (NodeStoppedError("it ended"), "push-gateway-image"),
        (NodeRefusedError("it does not want to"), "push-images"),
    ],
)
def test_a_new_version_that_is_not_well_is_taken_back(gateway, error, step):
    gateway.predecessor, gateway.record = container(), record("forward")
    raised, scopes = upgrade(gateway, error, step)
    assert isinstance(raised, UpgradeRolledBackError)
    assert scopes == [flow.FORWARD, flow.BACK]


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (ImageMissingError("no such image"), "push-images"),
        (StepError("OSError"), "write-kubeconfig"),
        (StepError("OSError"), "write-metadata"),
        (EngineCallError("409"), "finish-upgrade"),
        (EngineCallError("409"), "ensure-container"),
        (HostUnreachableError("cut"), "wait-api-ready"),
        (EngineUnreachableError("gone"), "wait-node-ready"),
        (PortTakenError("taken"), "start-container"),
        (DiskFullError("full"), "start-container"),
        (EngineCallError("running ctr in x: connection broken before the command ended"), "wait-runtime"),
        (CancelledError("Ctrl-C"), "wait-node-ready"),
        (LockLostError("lost"), "wait-node-ready"),
        (StepError("OSError"), "wait-healthy"),
        (WaitTimeoutError("of nobody knows what"), None),
    ],
)
def test_a_failure_that_says_nothing_about_the_new_version_is_raised_as_itself(gateway, error, step):
    gateway.predecessor, gateway.record = container(), record("forward")
    assert upgrade(gateway, error, step) == (error, [flow.FORWARD])


@pytest.mark.parametrize("phase", ["proved", "upgraded"])
def test_what_was_healthy_once_is_never_taken_back_by_itself(gateway, phase):
    gateway.predecessor, gateway.record = container(), record(phase)
    error = WaitTimeoutError("late")
    assert upgrade(gateway, error, "wait-healthy") == (error, [flow.FORWARD])


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (DiskFullError("full"), False),
        (StoreError("no store"), False),
        (CancelledError("Ctrl-C"), False),
        (EngineCallError("no"), True),
    ],
)
def test_before_it_is_put_aside_the_old_node_is_started_again(gateway, error, waits):
    gateway.after = container(running=False, restart="no")
    raised, scopes = upgrade(gateway, error, "take-snapshot")
    assert raised is error
    assert gateway.calls == [("restart", "always"), ("start",)]
    assert scopes == [flow.FORWARD, *(["up"] if waits else [])]


@pytest.mark.parametrize("error", [LockLostError("lost"), EngineUnreachableError("gone")])
def test_what_is_not_ours_any_more_is_not_started(gateway, error):
    gateway.after = container(running=False, restart="no")
    upgrade(gateway, error, "take-snapshot")
    assert gateway.calls == []


def test_a_gateway_that_was_stopped_before_stays_stopped(gateway):
    gateway.container = container(running=False, restart="no")
    upgrade(gateway, DiskFullError("full"), "take-snapshot")
    assert gateway.calls == []


@pytest.mark.parametrize(("phase", "asked"), [("back", True), ("rolled-back", False), ("upgraded", False)])
def test_up_goes_on_going_back_also_when_the_old_container_has_its_name_again(gateway, phase, asked):
    gateway.record = record(phase)
    assert flow.is_asked_for(Work("dev")) is asked
    assert flow.is_asked_for(Work("dev", asked=Asked(wipe=True))) is False


@pytest.mark.parametrize("command", [commands.up, commands.start])
def test_up_does_not_guess_when_nobody_can_be_asked(monkeypatch, command):
    def fails(_):
        raise EngineCallError("broken")

    monkeypatch.setattr(flow, "is_asked_for", fails)
    with pytest.raises(EngineCallError, match="broken"):
        command("dev", Bus())


@pytest.mark.parametrize(
    ("predecessor", "phase", "refused"),
    [
        (container(), "forward", True),
        (container(), "proved", True),
        (None, "back", True),
        (None, "forward", False),
        (None, "rolled-back", False),
        (None, "upgraded", False),
    ],
)
def test_containers_are_not_taken_from_data_that_needs_them(gateway, predecessor, phase, refused):
    gateway.predecessor, gateway.record = predecessor, record(phase)
    if not refused:
        flow.refuse_unfinished(Work("dev"))
        return
    with pytest.raises(PermanentError, match="not finished") as raised:
        commands.destroy("dev", with_data=False, bus=Bus())
    assert raised.value.exit_code == 3
    assert "holdfast upgrade dev" in raised.value.hint
    assert "--data" in raised.value.hint


def images(**versions):
    made = {
        name: SimpleNamespace(id=f"sha256:{name}", labels={labels.KUBERNETES: version})
        for name, version in versions.items()
    }
    return lambda _, name: made.get(name.removeprefix("sha256:"))


@pytest.mark.parametrize("old_image_is_there", [True, False])
def test_other_settings_are_no_way_around_the_version(gateway, monkeypatch, old_image_is_there):
    found = images(new="v1.35.0", **({"old": "v1.34.4"} if old_image_is_there else {}))
    monkeypatch.setattr(container_steps, "find_image", found)
    old = container(
        image_id="sha256:old",
        labels={labels.KUBERNETES: "v1.34.4", labels.SETTINGS: "others"},
        environment={},
        hostname="another",
        ports={},
    )
    gateway.container = old
    step = container_steps.EnsureContainer(
        Work("dev", resolve({"image": "new", "port": "16443", "gateway_port": "16444"}))
    )
    with pytest.raises(ImageUnfitError, match=r"has Kubernetes v1\.34\.4, and new has v1\.35\.0"):
        step.probe(None)


def test_a_replacement_that_nobody_asked_for_removes_nothing(gateway):
    del gateway
    assert ReplaceOld(Work("dev")).run(None) == {}


class Told:
    """What a step sees of its run."""

    def __init__(self, *, previewing=False):
        self.previewing = previewing
        self.notes = []
        self.note = self.notes.append
        self.check_lock = lambda: None


def test_data_on_its_way_back_is_brought_to_an_end_before_a_node_opens_it(gateway, monkeypatch):
    gateway.container, seen, done = None, [], ["restore", "rolled-back"]
    monkeypatch.setattr(data, "target_version", lambda _: "v1.34.4")
    monkeypatch.setattr(data.volume, "left_record", lambda _: record("back"))
    monkeypatch.setattr(data.volume, "restore_snapshot", lambda *_, image: seen.append("restore") or image)
    monkeypatch.setattr(
        data.volume, "finish_rollback", lambda _, ended, image: seen.append(ended.phase) or image
    )
    work = Work("dev", resolve({"image": "node:1", "port": "16443", "gateway_port": "16444"}))
    data.CheckData(work).run(Told())
    assert seen == done
    monkeypatch.setattr(data, "target_version", lambda _: "v1.35.0")
    with pytest.raises(ImageUnfitError):
        data.CheckData(work).run(Told())
    assert seen == done


def test_a_preview_makes_no_helper_on_data_that_another_run_may_be_at_work_on(gateway, monkeypatch):
    gateway.container = None
    for looks in ("left_record", "data_version"):
        monkeypatch.setattr(data.volume, looks, lambda _: pytest.fail("it looked at the volume"))
    monkeypatch.setattr(data, "target_version", lambda _: "v1.34.4")
    work = Work("dev", resolve({"image": "node:1", "port": "16443", "gateway_port": "16444"}))
    work.remembered = Metadata(name="dev", image="node:1", port=16443, kubernetes="v1.34.4")
    told = Told(previewing=True)
    data.CheckData(work).run(told)
    assert told.notes == ["looked at when it is done"]
    work.remembered = msgspec.structs.replace(work.remembered, kubernetes="v1.35.0")
    with pytest.raises(ImageUnfitError):
        data.CheckData(work).run(told)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LockedError("taken"), 4),
        (CancelledError("no"), 130),
        (DiskFullError("full"), 3),
        (EngineUnreachableError("gone"), 3),
        (EngineCallError("reset"), 1),
    ],
)
def test_what_ends_a_way_back_keeps_its_exit_code(gateway, error, code):
    gateway.record = record("back")

    def run(*_):
        raise error

    with pytest.raises(HoldfastError) as raised:
        flow.upgrade(*flow.direction(Work("dev")), run, flow.FailedStep())
    assert raised.value.exit_code == code
    assert error in (raised.value, raised.value.cause)
