"""Metrics and events of the published API, from the writes of the controller."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, generate_latest
from tests.support.virtual_time import run_virtual
from tests.support.warm_pool_objects import NOW, claim, pool, warm_sandbox

from holdfast.controller.cache import ObjectCache
from holdfast.controller.published_metrics import PublishedTelemetry
from holdfast.errors import ApiRequestRejectedError
from holdfast.sandbox import ActionTarget, Adopt, Patch

READY_AT = "agents.x-k8s.io/claim-first-ready-at"


class EventRecorder:
    """Accepts events, or rejects the first."""

    def __init__(self, *, rejects=0):
        self.events, self.rejects = [], rejects

    async def create(self, manifest):
        self.rejects -= 1
        if self.rejects >= 0:
            raise ApiRequestRejectedError("forbidden")
        self.events.append(manifest)


def new_telemetry(objects=None, *cached):
    registry, cache = CollectorRegistry(), ObjectCache()
    for each in cached:
        each["metadata"]["resourceVersion"] = "1"
        cache.put(each)
    return PublishedTelemetry(cache, objects or EventRecorder(), registry, lambda: NOW), registry


def metrics(registry):
    lines = generate_latest(registry).decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}


def adoption(box):
    return Adopt(target=ActionTarget.from_object(box), patch={})


def written_events(objects, telemetry):
    async def scenario():
        running = asyncio.create_task(telemetry.run())
        await asyncio.sleep(1)
        running.cancel()

    run_virtual(scenario())
    return [(one["reason"], one["action"], one["note"]) for one in objects.events]


def test_adoption_is_counted_and_reported():
    objects, box = EventRecorder(), warm_sandbox("w")
    telemetry, registry = new_telemetry(objects, box)
    telemetry.on_action(adoption(box), claim())
    labels = 'created_by="unknown",launch_type="warm",namespace="ns",pod_condition="ready"'
    name = f'agent_sandbox_claim_creation_total{{{labels},sandbox_template="t",warmpool_name="p"}}'
    assert metrics(registry)[name] == 1
    note = 'Adopted warm pool Sandbox "w"'
    assert written_events(objects, telemetry) == [("SandboxAdopted", "Adoption", note)]


def test_rejected_event_does_not_stop_the_next():
    objects, box = EventRecorder(rejects=1), warm_sandbox("w")
    telemetry, _ = new_telemetry(objects, box)
    for _ in range(2):
        telemetry.on_action(adoption(box), claim())
    assert len(written_events(objects, telemetry)) == 1


def test_latency_of_claim_counts_from_each_annotation():
    asked, box = claim(), warm_sandbox("w")
    asked["metadata"]["annotations"]["agents.x-k8s.io/client-first-requested-at"] = "2026-01-01T11:59:59.5Z"
    asked["status"] = {"sandbox": {"name": "w"}}
    telemetry, registry = new_telemetry(None, box, asked)
    for time in ("2026-01-01T12:00:00.000000000Z", "unknown"):
        patch = {"metadata": {"annotations": {READY_AT: time}}}
        telemetry.on_action(Patch.of(asked, patch), asked)
    labels = '{launch_type="warm",sandbox_template="t"}'
    found = metrics(registry)
    assert found[f"agent_sandbox_client_claim_startup_latency_ms_count{labels}"] == 1
    assert found[f"agent_sandbox_client_claim_startup_latency_ms_sum{labels}"] == 500
    assert found[f"agent_sandbox_claim_controller_startup_latency_ms_sum{labels}"] == 0
    assert f"agent_sandbox_claim_startup_latency_ms_count{labels}" not in found


def test_sandboxes_are_counted_at_each_scrape():
    _, registry = new_telemetry(None, warm_sandbox("a"), warm_sandbox("b"), warm_sandbox("c", ready=False))
    counts = {key: value for key, value in metrics(registry).items() if key.startswith("agent_sandboxes")}
    assert sorted(counts.values()) == [1, 2]
    assert all('owned_by="SandboxWarmPool"' in key and 'created_by="controller"' in key for key in counts)


def test_first_readiness_of_sandbox_is_measured_once():
    box = warm_sandbox("w", ready=False, age=3)
    telemetry, registry = new_telemetry(None)
    for _ in range(2):
        telemetry.on_status(box, {"conditions": [{"type": "Ready", "status": "True", "reason": "R"}]})
    name = 'agent_sandbox_creation_latency_ms_sum{launch_type="warm",namespace="ns",sandbox_template="t"}'
    assert metrics(registry)[name] == 3000


class BrokenRecorder(EventRecorder):
    """Fails in an unexpected way at the first event."""

    async def create(self, manifest):
        self.rejects -= 1
        if self.rejects >= 0:
            raise KeyError("kind")
        self.events.append(manifest)


def test_unexpected_error_does_not_stop_events_and_is_logged_once(caplog):
    objects, box = BrokenRecorder(rejects=2), warm_sandbox("w")
    telemetry, _ = new_telemetry(objects, box)
    for _ in range(3):
        telemetry.on_action(adoption(box), claim())
    assert len(written_events(objects, telemetry)) == 1
    assert [record.getMessage() for record in caplog.records] == ["metrics and events: KeyError('kind')"]


def test_error_in_an_observation_does_not_fail_the_reconciliation(caplog):
    telemetry, _ = new_telemetry()
    broken = {"kind": "SandboxClaim", "metadata": {}, "spec": {}}
    for _ in range(2):
        telemetry.on_action(adoption(warm_sandbox("w")), broken)
        telemetry.on_status(broken, {"conditions": [{"type": "Ready", "reason": "ClaimExpired"}]})
    assert len({record.getMessage() for record in caplog.records}) == len(caplog.records) >= 1


def test_event_about_a_long_name_has_a_valid_name():
    objects, box = EventRecorder(), warm_sandbox("w")
    telemetry, _ = new_telemetry(objects, box)
    asked = claim()
    asked["metadata"]["name"] = "a" * 17 + "." + "b" * 235
    telemetry.on_action(adoption(box), asked)
    written_events(objects, telemetry)
    (event,) = objects.events
    assert event["metadata"]["name"][0] == "b"


def test_held_pool_is_reported_when_it_begins_and_ends():
    objects, asked = EventRecorder(), pool(replicas=3)
    telemetry, _ = new_telemetry(objects)
    for count in (0, 2, 1, 0, 0):
        telemetry.on_held_sandboxes(asked, count)
    note = (
        "2/3 sandboxes are unschedulable past the 5m0s readiness grace period; holding them instead of "
        "replacing (replacements would be equally unschedulable)"
    )
    assert written_events(objects, telemetry) == [
        ("WarmPoolNotProgressing", "Reconciling", note),
        ("WarmPoolProgressing", "Reconciling", "Warm pool is progressing again"),
    ]
    assert {one["reportingController"] for one in objects.events} == {"sandboxwarmpool-controller"}
    assert [one["type"] for one in objects.events] == ["Warning", "Normal"]
