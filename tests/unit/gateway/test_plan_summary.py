"""What a plan means for a gateway: changed settings, and whether the node stops."""

import msgspec
import pytest
from tests.support.inspected_containers import engine_with, inspected

from holdfast.gateway.context import GatewayContext
from holdfast.gateway.plan_summary import summarize_plan
from holdfast.gateway.settings import resolve_settings
from holdfast.gateway.spec import GatewaySpec
from holdfast.workflow import Plan, PlannedStep

SPEC = GatewaySpec(name="dev", image="holdfast/node:1", port=26443, gateway_port=26444)
RUNNING, STOPPED = inspected(SPEC, Status="running"), inspected(SPEC, StartedAt="2026-01-01T00:00:00Z")


@pytest.fixture(autouse=True)
def engine(tmp_path, monkeypatch):
    """The containers of the fake engine."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    containers = []
    monkeypatch.setattr(GatewayContext, "engine", property(lambda _: engine_with(*containers)))
    return containers


def summarize(*steps, **settings):
    planned = tuple(PlannedStep(step=name, title=name, action="run", reason="because") for name in steps)
    ports = {"port": SPEC.port, "gateway_port": SPEC.gateway_port}
    gateway = GatewayContext("dev", resolve_settings({**ports, **settings}, environ={}))
    return summarize_plan(gateway, Plan("up", planned))


@pytest.mark.parametrize("step", ["replace-old", "ensure-container", "stop-old-node"])
def test_steps_that_stop_a_running_node_restart_the_gateway(engine, step):
    engine.append(RUNNING)
    assert summarize(step, "write-metadata").effect == "restarts"


def test_other_steps_keep_the_node_running(engine):
    engine.append(RUNNING)
    assert summarize("write-metadata").effect == "none"


def test_stopped_and_new_gateways_start(engine):
    assert summarize("ensure-container", "start-container").effect == "starts"
    engine.append(STOPPED)
    assert summarize("start-container").effect == "starts"


def test_changed_settings_have_old_and_new_value(engine):
    engine.append(RUNNING)
    plan = summarize("ensure-container", port=27000, gpus="0,1", image="holdfast/node:2", listen="127.0.0.1")
    assert [msgspec.structs.astuple(change) for change in plan.settings] == [
        ("port", "26443", "27000"),
        ("gpus", "none", "0,1"),
        ("image", "holdfast/node:1", "holdfast/node:2"),
    ]


def test_new_gateway_has_no_changed_settings():
    assert summarize("ensure-container", port=27000).settings == ()


def test_json_adds_fields_to_those_of_a_plan(engine):
    engine.append(RUNNING)
    plan = msgspec.json.decode(msgspec.json.encode(summarize("ensure-container", port=27000)))
    assert (plan["workflow"], plan["steps"][0]["action"]) == ("up", "run")
    assert (plan["gateway"], plan["effect"]) == ("dev", "restarts")
    assert plan["settings"] == [{"setting": "port", "current": "26443", "desired": "27000"}]
