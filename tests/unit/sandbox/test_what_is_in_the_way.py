"""What has a name that a sandbox needs, and goes by itself: it is waited for, and is no error."""

from __future__ import annotations

import pytest
from tests.support.sandboxes import NOW, foreign, living_pod, look, said, sandbox, text, unowned, workspace

from holdfast.sandbox import parts
from holdfast.sandbox.actions import Adopt, Create, Delete

WANTED = {"volumeClaimTemplates": [workspace()], "service": True}


def leaving(found):
    found["metadata"]["deletionTimestamp"] = text(NOW)
    return found


def former(found):
    """A part of the sandbox that had this name before, as it is before anybody has cleaned up."""
    found["metadata"]["ownerReferences"][0]["uid"] = "s-0"
    return found


def seen(part, change):
    """A new sandbox beside one part of another one."""
    box = sandbox(**WANTED)
    (claim,) = parts.claims(box)
    made = {"pod": living_pod(box), "claim": claim, "Service": parts.service(box)}
    made[part]["metadata"]["uid"] = "other"
    there = change(made[part])
    match part:
        case "pod":
            return look(box, there)
        case "claim":
            return look(box, claims={"workspace-a": there})
    return look(box, service=there)


def message(decision):
    (ready,) = [one for one in decision.status["conditions"] if one["type"] == "Ready"]
    return ready["message"]


@pytest.mark.parametrize("part", ["pod", "claim", "Service"])
@pytest.mark.parametrize(
    "change",
    [
        former,
        lambda found: leaving(former(found)),
        lambda found: leaving(foreign(found)),
        lambda found: leaving(unowned(found)),  # by its label it could be adopted, were it to stay
    ],
)
def test_what_goes_by_itself_is_waited_for(part, change):
    decision = seen(part, change)
    assert said(decision, "Ready") == ("False", "DependenciesNotReady")
    named = "workspace-a" if part == "claim" else "a"
    assert message(decision) == f"the former {part} {named} is still being deleted"
    assert not [each for each in decision.actions if not isinstance(each, Create)]
    assert "Pod" not in [each.manifest["kind"] for each in decision.actions]


@pytest.mark.parametrize("part", ["pod", "claim", "Service"])
def test_what_stays_is_an_error_or_is_taken_over(part):
    assert said(seen(part, foreign), "Ready") == ("False", "ReconcilerError")
    assert [each for each in seen(part, unowned).actions if isinstance(each, Adopt)]


def test_an_owner_of_another_kind_with_our_name_is_another_owner():
    def of_another_group(found):
        found["metadata"]["ownerReferences"][0] |= {"uid": "s-0", "apiVersion": "boxes.example.com/v1"}
        return found

    assert said(seen("claim", of_another_group), "Ready") == ("False", "ReconcilerError")


def test_an_error_is_told_before_what_is_waited_for():
    box = sandbox(**WANTED)
    (claim,) = parts.claims(box)
    decision = look(box, claims={"workspace-a": leaving(former(claim))}, service=foreign(parts.service(box)))
    assert said(decision, "Ready") == ("False", "ReconcilerError")
    assert message(look(box, claims={"workspace-a": claim}, failure="no room")) == "no room"


def test_a_former_pod_that_goes_is_no_foreign_one_for_a_sandbox_that_is_suspended():
    box = sandbox(operatingMode="Suspended")
    decision = look(box, leaving(former(living_pod(box))))
    assert decision.actions == ()
    assert said(decision, "Suspended") == ("False", "PodTerminating")


def test_the_pod_of_a_suspended_sandbox_goes_before_a_claim_is_made_that_may_be_refused():
    box = sandbox(operatingMode="Suspended", **WANTED)
    first, *rest = look(box, living_pod(box)).actions
    assert isinstance(first, Delete)
    assert first.target.uid == "p-1"
    assert [each.manifest["kind"] for each in rest] == ["PersistentVolumeClaim", "Service"]
