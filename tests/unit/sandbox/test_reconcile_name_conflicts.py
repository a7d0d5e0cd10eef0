"""Existing objects with a name that a sandbox needs: leftovers are awaited, others are errors or adopted."""

from __future__ import annotations

import pytest
from tests.support.sandbox_objects import (
    NOW,
    condition_of,
    explanation_of,
    message_of,
    reconcile,
    running_pod,
    sandbox,
    timestamp,
    with_foreign_owner,
    without_owner,
    workspace_claim_template,
)

from holdfast.sandbox import RejectedWrite, manifests
from holdfast.sandbox.actions import Adopt, Create, Delete, Patch

WANTED = {"volumeClaimTemplates": [workspace_claim_template()], "service": True}


def leaving(found):
    found["metadata"]["deletionTimestamp"] = timestamp(NOW)
    return found


def former(found):
    """An object of the previous sandbox of this name, before the garbage collector deletes it."""
    found["metadata"]["ownerReferences"][0]["uid"] = "s-0"
    return found


def seen(part, change):
    """Reconcile a new sandbox while an object of another one has its name."""
    box = sandbox(**WANTED)
    (claim,) = manifests.pvc_manifests(box)
    made = {"pod": running_pod(box), "PVC": claim, "service": manifests.service_manifest(box)}
    made[part]["metadata"]["uid"] = "other"
    there = change(made[part])
    match part:
        case "pod":
            return reconcile(box, there)
        case "PVC":
            return reconcile(box, pvcs={"workspace-a": there})
    return reconcile(box, service=there)


@pytest.mark.parametrize("part", ["pod", "PVC", "service"])
@pytest.mark.parametrize(
    "change",
    [
        former,
        lambda found: leaving(former(found)),
        lambda found: leaving(with_foreign_owner(found)),
        lambda found: leaving(without_owner(found)),  # by its label it could be adopted, were it to stay
    ],
)
def test_terminating_objects_are_awaited(part, change):
    decision = seen(part, change)
    named = "workspace-a" if part == "PVC" else "a"
    assert explanation_of(decision) == (
        "PreviousObjectTerminating", f"the previous {part} {named} is still being deleted",
    )  # fmt: skip
    assert not [each for each in decision.actions if not isinstance(each, Create)]
    if part != "service":
        assert "Pod" not in [each.manifest["kind"] for each in decision.actions]


@pytest.mark.parametrize("part", ["pod", "PVC", "service"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [(former, "ReconcilerError"), (lambda found: leaving(without_owner(found)), "DependenciesNotReady")],
)
def test_waiting_is_an_error_only_if_another_owner_has_the_object(part, change, reason):
    assert condition_of(seen(part, change), "Ready") == ("False", reason)


@pytest.mark.parametrize("part", ["pod", "PVC", "service"])
def test_permanent_conflict_is_an_error_or_adopted(part):
    assert condition_of(seen(part, with_foreign_owner), "Ready") == ("False", "ReconcilerError")
    assert [each for each in seen(part, without_owner).actions if isinstance(each, Adopt)]


def test_owner_of_other_kind_with_same_name_is_foreign():
    def of_another_group(found):
        found["metadata"]["ownerReferences"][0] |= {"uid": "s-0", "apiVersion": "boxes.example.com/v1"}
        return found

    assert condition_of(seen("PVC", of_another_group), "Ready") == ("False", "ReconcilerError")


def test_error_is_reported_before_wait():
    box = sandbox(**WANTED)
    (claim,) = manifests.pvc_manifests(box)
    decision = reconcile(
        box,
        pvcs={"workspace-a": leaving(former(claim))},
        service=with_foreign_owner(manifests.service_manifest(box)),
    )
    assert condition_of(decision, "Ready") == ("False", "ReconcilerError")
    full = (RejectedWrite(kind="Pod", message="no room"),)
    assert message_of(reconcile(box, pvcs={"workspace-a": claim}, rejected=full)).endswith("\nno room")
    assert message_of(reconcile(box, rejected=full)) == "Error seen: no room"


def test_terminating_previous_pod_of_suspended_sandbox_is_explained():
    box = sandbox(operatingMode="Suspended")
    decision = reconcile(box, leaving(former(running_pod(box))))
    assert decision.actions == ()
    assert condition_of(decision, "Suspended") == ("False", "PodNotOwned")
    assert explanation_of(decision)[0] == "PreviousObjectTerminating"


def test_suspended_pod_is_deleted_before_pvc_creation():
    box = sandbox(operatingMode="Suspended", **WANTED)
    first, *rest = reconcile(box, running_pod(box)).actions
    assert isinstance(first, Delete)
    assert first.target.uid == "p-1"
    assert [each.manifest["kind"] for each in rest] == ["PersistentVolumeClaim", "Service"]


def test_owned_pvc_without_label_is_labelled_once():
    """The published controller adopts a PVC without the label by which PVCs are watched."""
    box = sandbox(**WANTED)
    (pvc,) = manifests.pvc_manifests(box)
    pvc["metadata"] |= {"uid": "v-1", "labels": {"team": "blue"}}
    (patch,) = [each for each in reconcile(box, pvcs={"workspace-a": pvc}).actions if type(each) is Patch]
    assert (patch.target.name, patch.patch) == (
        "workspace-a", {"metadata": {"labels": manifests.tracking_labels("a")}},
    )  # fmt: skip
    pvc["metadata"]["labels"] |= manifests.tracking_labels("a")
    assert Patch not in [type(each) for each in reconcile(box, pvcs={"workspace-a": pvc}).actions]
