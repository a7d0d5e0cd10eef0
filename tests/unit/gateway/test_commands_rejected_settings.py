"""A container that the engine does not start with new settings is replaced by one with the recorded ones."""

import msgspec
import pytest
from tests.support.inspected_containers import engine_with, inspected
from tests.support.stubs import stub

from holdfast.errors import (
    ConnectionLostError,
    HoldfastError,
    NodeStoppedError,
    PortInUseError,
    TemporaryError,
)
from holdfast.events import EventBus, RunFailed
from holdfast.gateway import commands
from holdfast.gateway.context import GatewayContext, UpOptions
from holdfast.gateway.registry import GatewayMetadata, write_metadata
from holdfast.gateway.settings import resolve_settings
from holdfast.gateway.spec import GatewaySpec

RECORDED = GatewaySpec(name="dev", image="holdfast/node:1", port=16443, gateway_port=16444)
REJECTED = msgspec.structs.replace(RECORDED, port=26443)
CONFLICT = PortInUseError("port 26443: already in use by container holdfast-other", hint="Choose another.")


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))


@pytest.fixture
def up(monkeypatch):
    """Run `up --recreate --port 26443` with these errors of its runs; return the settings of each run."""

    def run_up(*errors, step="start-container", state="created"):
        runs, remaining = [], list(errors)

        def run_workflow(_command, gateway, _steps, bus, *, scope=""):
            assert scope in ("", "up")
            gateway.engine = engine_with(inspected(REJECTED, Status=state))
            runs.append((gateway.spec.port, gateway.replaces_container))
            if remaining and (error := remaining.pop(0)) is not None:
                bus.emit(RunFailed(run="r", seconds=0, step=step, code=error.code, error=error.message))
                raise error

        stub(monkeypatch, commands, "_run_workflow", run_workflow)
        resolved = resolve_settings({"port": 26443, "workloads": False}, environ={})
        gateway = GatewayContext("dev", resolved, UpOptions(recreate=True))
        gateway.engine = engine_with()
        with pytest.raises(HoldfastError) as raised:
            commands._run_up("up", gateway, EventBus())
        return runs, raised.value

    return run_up


@pytest.fixture
def recorded():
    write_metadata(GatewayMetadata(**msgspec.structs.asdict(RECORDED)))


def test_gateway_runs_with_its_previous_settings_after_a_conflict(up, recorded):
    runs, error = up(CONFLICT, None)
    assert runs == [(26443, True), (16443, False)]
    assert isinstance(error, PortInUseError)
    assert error.message == f"{CONFLICT.message}; gateway dev runs with its previous settings"
    assert error.hint == CONFLICT.hint


def test_failed_restore_is_reported_with_the_first_error(up, recorded):
    _, error = up(CONFLICT, TemporaryError("the engine is gone"))
    assert error.message.startswith(CONFLICT.message)
    assert error.message.endswith("the previous settings could not be restored: the engine is gone")


def test_lost_connection_in_a_restore_restarts_the_command(up, recorded):
    lost = ConnectionLostError("lost the connection to far")
    assert up(CONFLICT, lost)[1] is lost


def test_new_gateway_has_no_settings_to_restore(up):
    assert up(CONFLICT) == ([(26443, True)], CONFLICT)


def test_container_that_ran_before_is_kept(up, recorded):
    assert up(CONFLICT, state="exited") == ([(26443, True)], CONFLICT)


def test_unchanged_settings_are_not_tried_again(up):
    write_metadata(GatewayMetadata(**msgspec.structs.asdict(REJECTED)))
    assert up(CONFLICT) == ([(26443, True)], CONFLICT)


def test_failures_of_other_steps_and_of_the_node_are_not_rolled_back(up, recorded):
    assert up(CONFLICT, step="wait-healthy")[0] == [(26443, True)]
    assert up(NodeStoppedError("the node stopped"))[0] == [(26443, True)]
