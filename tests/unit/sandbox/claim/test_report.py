"""Times and copied conditions of a SandboxClaim."""

from __future__ import annotations

import pytest
from tests.support.warm_pool_objects import NOW, claim, reconcile_claim, warm_sandbox

OBSERVED = "agents.x-k8s.io/controller-first-observed-at"
READY = "agents.x-k8s.io/claim-first-ready-at"
TIME = "2026-01-01T12:00:00.000000000Z"


def new_claim(**spec):
    asked = claim(**spec)
    asked["metadata"]["annotations"] = {}
    return asked


def test_first_observation_is_recorded_with_the_adopted_sandbox():
    record, _ = reconcile_claim(new_claim(), warm_sandbox("w")).actions
    assert record.patch["metadata"]["annotations"] == {
        "agents.x-k8s.io/sandbox-name": "w",
        OBSERVED: TIME,
    }


def test_first_observation_is_recorded_before_all_else():
    record, create = reconcile_claim(new_claim()).actions
    assert record.patch == {"metadata": {"annotations": {OBSERVED: TIME}}}
    assert create.manifest["kind"] == "Sandbox"


@pytest.mark.parametrize(("status", "value"), [("False", TIME), ("True", "unknown")])
def test_first_readiness_is_recorded_after_the_status(status, value):
    """A controller that stopped between both writes leaves a time that nobody knows."""
    asked = new_claim()
    asked["status"] = {"conditions": [{"type": "Ready", "status": status, "reason": "R"}]}
    decision = reconcile_claim(asked, warm_sandbox("w", owner=asked))
    (record,) = decision.after_status
    assert record.patch == {"metadata": {"annotations": {READY: value}}}
    asked["metadata"]["annotations"][READY] = value
    assert reconcile_claim(asked, warm_sandbox("w", owner=asked)).after_status == ()


def test_conditions_of_the_sandbox_keep_their_times():
    own = warm_sandbox("w", owner=claim(), ready=False, finished=True)
    ready, finished = own["status"]["conditions"]
    ready["lastTransitionTime"] = "2025-12-31T00:00:00Z"
    finished |= {"lastTransitionTime": "2025-12-30T00:00:00Z", "observedGeneration": 7}
    rows = {row["type"]: row for row in reconcile_claim(claim(), own).status["conditions"]}
    assert rows["Finished"] == finished
    assert rows["Ready"]["lastTransitionTime"] == "2025-12-31T00:00:00Z"
    assert rows["Ready"]["observedGeneration"] == 1


def test_expired_claim_forgets_its_sandbox_once_it_is_gone():
    asked = claim(lifecycle={"shutdownTime": NOW.isoformat()})
    asked["status"] = {"sandbox": {"name": "w"}}
    assert reconcile_claim(asked, warm_sandbox("w", owner=asked)).status["sandbox"] == {"name": "w"}
    assert "sandbox" not in reconcile_claim(asked).status
