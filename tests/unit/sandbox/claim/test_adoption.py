"""Which warm sandbox a SandboxClaim gets, and how an adoption that was begun ends."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.warm_pool_objects import (
    NOW,
    claim,
    pool,
    ready_condition,
    reconcile_claim,
    template,
    warm_sandbox,
)

from holdfast.sandbox import ObservedSandboxClaim, reconcile_sandbox_claim
from holdfast.sandbox.actions import Create

NAME = "agents.x-k8s.io/sandbox-name"


def on_node(name, node, **options):
    made = warm_sandbox(name, **options)
    made["status"]["nodeName"] = node
    return made


def starting(name, *, ips=()):
    made = warm_sandbox(name, ready=False)
    made["status"]["podIPs"] = list(ips)
    return made


def young_claim(seconds):
    asked = claim()
    created = NOW - timedelta(seconds=seconds)
    asked["metadata"]["creationTimestamp"] = created.strftime("%Y-%m-%dT%H:%M:%SZ")
    return asked


def adopted_name(decision):
    return decision.actions[-1].target.name


def test_node_with_most_waiting_sandboxes_is_first():
    boxes = [on_node("a", "one", age=90), on_node("b", "two", age=10), on_node("e", "two", age=50)]
    assert adopted_name(reconcile_claim(claim(), *boxes, warm_sandbox("f", age=99))) == "e"


def test_sandbox_with_address_is_used_before_it_is_ready():
    assert (
        adopted_name(reconcile_claim(young_claim(0), starting("a"), starting("b", ips=["10.0.0.1"]))) == "b"
    )


def test_claim_waits_two_seconds_for_an_address():
    waiting = reconcile_claim(young_claim(1), starting("a"))
    assert (waiting.actions, waiting.status, waiting.requeue_after) == ((), None, 0.5)
    assert isinstance(reconcile_claim(young_claim(2), starting("a")).actions[-1], Create)
    assert isinstance(reconcile_claim(young_claim(0)).actions[-1], Create)


def test_sandbox_of_a_pool_that_is_being_deleted_is_not_adopted():
    leaving = pool()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    observed = ObservedSandboxClaim(
        sandbox_claim=claim(), pool=leaving, template=template(), now=NOW, sandboxes=(warm_sandbox("a"),)
    )
    assert isinstance(reconcile_sandbox_claim(observed).actions[-1], Create)


def test_begun_adoption_is_completed_without_another_record():
    asked = claim()
    asked["metadata"]["annotations"][NAME] = "b"
    (take,) = reconcile_claim(asked, warm_sandbox("a", age=9), warm_sandbox("b")).actions
    assert take.target.name == "b"


def claimed_by_other(name):
    other = claim() | {"metadata": {"name": "d", "uid": "d", "namespace": "ns"}}
    return warm_sandbox(name, owner=other)


@pytest.mark.parametrize("boxes", [(), (claimed_by_other("b"),)], ids=["gone", "taken"])
def test_name_of_lost_sandbox_is_forgotten(boxes):
    asked = claim()
    asked["metadata"]["annotations"][NAME] = "b"
    forget, create = reconcile_claim(asked, *boxes).actions
    assert forget.patch["metadata"]["annotations"] == {NAME: None}
    assert isinstance(create, Create)


def test_label_of_older_controllers_is_moved():
    asked = claim()
    asked["metadata"]["labels"] = {NAME: "b"}
    record, take = reconcile_claim(asked, warm_sandbox("b")).actions
    assert record.patch["metadata"]["annotations"] == {NAME: "b"}
    assert record.patch["metadata"]["labels"] == {NAME: None}
    assert take.target.name == "b"


def test_other_sandbox_of_that_name_prevents_adoption_too():
    decision = reconcile_claim(claim(), claimed_by_other("c"), warm_sandbox("b"))
    assert decision.actions == ()
    assert ready_condition(decision) == ("False", "ReconcilerError")
