"""Pools and claims in trouble: refused by the server, stuck, or ending as soon as they run."""

from __future__ import annotations

import itertools
from datetime import timedelta

from tests.support.fake_api_server import apply_merge_patch
from tests.support.sandbox_objects import failed_pod, timestamp
from tests.support.warm_pool_objects import (
    NOW,
    claim,
    name_sequence,
    pool,
    reconcile_claim,
    template,
    warm_sandbox,
)

from holdfast.sandbox.actions import Create, Delete, Patch
from holdfast.sandbox.claim.binding import ObservedSandboxClaim, sandbox_claim_error_status
from holdfast.sandbox.claim.metadata import error_condition
from holdfast.sandbox.reconcile import ObservedSandbox, reconcile_sandbox
from holdfast.sandbox.warmpool import (
    ObservedWarmPool,
    count_held,
    reconcile_warm_pool,
    warm_pool_error_status,
)


def test_claim_reports_server_rejection_and_keeps_sandbox():
    asked = claim()
    asked["status"] = {"sandbox": {"name": "old"}}
    status = sandbox_claim_error_status(
        ObservedSandboxClaim(sandbox_claim=asked, pool=pool(), template=template(), now=NOW),
        error_condition("over quota"),
    )
    (row,) = status["conditions"]
    assert (row["status"], row["reason"], row["message"]) == (
        "False",
        "ReconcilerError",
        "Error seen: over quota",
    )
    assert status["sandbox"] == {"name": "old"}


def refused(asked, *boxes, now=NOW):
    """Its status by type of condition, and the sandbox that it names, where the server refuses its edit."""
    seen = ObservedSandboxClaim(
        sandbox_claim=asked, pool=pool(), template=template(), sandboxes=boxes, now=now
    )
    status = sandbox_claim_error_status(seen, error_condition("no red teams"))
    return {row["type"]: row["reason"] for row in status["conditions"]}, status["sandbox"]


def test_claim_with_rejected_edit_still_mirrors_sandbox():
    asked = claim(additionalPodMetadata={"labels": {"team": "red"}})
    asked["status"] = {"sandbox": {"name": "box", "podIPs": ["10.0.0.1"]}}
    said, sandbox = refused(asked, warm_sandbox("box", owner=asked))
    assert (said, sandbox) == ({"Ready": "ReconcilerError"}, {"name": "box", "podIPs": ["10.0.0.3"]})
    said, _ = refused(asked, warm_sandbox("box", owner=asked, ready=False, finished=True))
    assert said == {"Ready": "ReconcilerError", "Finished": "PodFailed"}


def test_expired_claim_stays_expired_when_deletion_is_rejected():
    """The TTL counts from the first Finished condition, even if the sandbox restarted since."""
    asked = claim(lifecycle={"ttlSecondsAfterFinished": 5})
    finished = {
        "type": "Finished",
        "status": "True",
        "reason": "PodFailed",
        "lastTransitionTime": timestamp(NOW),
    }
    asked["status"] = {"sandbox": {"name": "box"}, "conditions": [finished]}
    said, _ = refused(asked, warm_sandbox("box", owner=asked), now=NOW + timedelta(seconds=5))
    assert said == {"Ready": "ReconcilerError", "Finished": "PodFailed"}


def test_pool_reports_server_rejection_until_resolved():
    asked = pool(replicas=2)
    asked["status"] = warm_pool_error_status(
        ObservedWarmPool(now=NOW, pool=asked, template=template(), sandboxes=(warm_sandbox("a"),)),
        "over quota",
    )
    assert asked["status"]["readyReplicas"] == 1
    (row,) = asked["status"]["conditions"]
    assert (row["type"], row["reason"], row["message"]) == ("Ready", "ReconcilerError", "over quota")
    boxes = (warm_sandbox("a"), warm_sandbox("b"))
    well = reconcile_warm_pool(
        ObservedWarmPool(now=NOW, pool=asked, template=template(), sandboxes=boxes), name_sequence()
    )
    assert "conditions" not in well.status


def test_pool_keeps_conditions_of_other_controllers():
    asked, foreign = pool(), {"type": "example.org/Scaled", "status": "True", "reason": "Scaled"}
    asked["status"] = {"conditions": [foreign]}
    observed = ObservedWarmPool(now=NOW, pool=asked, template=template())
    assert reconcile_warm_pool(observed, name_sequence()).status["conditions"] == [foreign]
    assert foreign in warm_pool_error_status(observed, "over quota")["conditions"]


def test_sandbox_unready_after_timeout_is_replaced_and_not_adopted():
    slow, stuck = warm_sandbox("slow", ready=False, age=100), warm_sandbox("stuck", ready=False, age=301)
    decision = reconcile_warm_pool(
        ObservedWarmPool(now=NOW, pool=pool(), template=template(), sandboxes=(slow, stuck)), name_sequence()
    )
    delete, create = decision.actions
    assert (delete.target.name, type(create)) == ("stuck", Create)
    assert decision.requeue_after == 200.0
    (_, take) = reconcile_claim(claim(), stuck, slow).actions
    assert take.target.name == "slow"
    (create,) = reconcile_claim(claim(), stuck).actions
    assert isinstance(create, Create)


def test_unscheduled_sandbox_is_kept():
    held = warm_sandbox("a", ready=False, age=3000)
    held["status"]["conditions"].append(
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    )
    asked = ObservedWarmPool(now=NOW, pool=pool(replicas=1), template=template(), sandboxes=(held,))
    decision = reconcile_warm_pool(asked, name_sequence())
    assert (decision.actions, decision.requeue_after, count_held(asked)) == ((), 60.0, 1)
    assert decision.status["replicas"] == 1
    for scheduled in ({"status": "True"}, {"status": "False", "reason": "SchedulingGated"}):
        held["status"]["conditions"][-1] = {"type": "PodScheduled", **scheduled}
        decision = reconcile_warm_pool(asked, name_sequence())
        assert [type(one) for one in decision.actions] == [Delete, Create]
        assert count_held(asked) == 0


def test_grace_counts_from_the_creation():
    """Not from the time when the sandbox became unready."""
    slow = no_longer_ready("a", age=290, seconds=100)
    asked = ObservedWarmPool(now=NOW, pool=pool(replicas=1), template=template(), sandboxes=(slow,))
    assert reconcile_warm_pool(asked, name_sequence()).requeue_after == 10.0
    young = warm_sandbox("a", ready=False, age=10)
    young["status"]["conditions"].append(
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    )
    asked = ObservedWarmPool(now=NOW, pool=pool(replicas=1), template=template(), sandboxes=(young,))
    assert (reconcile_warm_pool(asked, name_sequence()).requeue_after, count_held(asked)) == (290.0, 0)


def test_member_that_was_ready_has_time_to_recover():
    """When the node restarts, all members are not ready for a moment and older than the grace period."""
    restarted = [no_longer_ready(name, age=3000, seconds=10) for name in ("a", "b")]
    asked = ObservedWarmPool(now=NOW, pool=pool(), template=template(), sandboxes=tuple(restarted))
    decision = reconcile_warm_pool(asked, name_sequence())
    assert (decision.actions, decision.requeue_after) == ((), 50.0)
    (_, take) = reconcile_claim(claim(), *restarted).actions
    assert take.target.name == "a"
    late = ObservedWarmPool(
        now=NOW + timedelta(seconds=51), pool=pool(), template=template(), sandboxes=tuple(restarted)
    )
    actions = reconcile_warm_pool(late, name_sequence()).actions
    assert [type(one) for one in actions] == [Delete, Delete, Create, Create]


def no_longer_ready(name, *, age, seconds):
    """A sandbox of this age that became unready so many seconds ago."""
    box = warm_sandbox(name, ready=False, age=age)
    box["status"]["conditions"][0]["lastTransitionTime"] = timestamp(NOW - timedelta(seconds=seconds))
    return box


def test_pool_without_template_deletes_no_stuck_or_finished_member():
    stuck, over = warm_sandbox("a", ready=False, age=3000), ended("b", replaced=0)
    asked = ObservedWarmPool(now=NOW, pool=pool(replicas=2), template=None, sandboxes=(stuck, over))
    decision = reconcile_warm_pool(asked, name_sequence())
    assert decision.actions == ()
    assert decision.status["replicas"] == 2


def test_status_counts_finished_members_during_backoff():
    decision = decided(ended("a", replaced=3), warm_sandbox("b"), replicas=2)
    assert decision.actions == ()
    assert (decision.status["replicas"], decision.status["readyReplicas"]) == (2, 1)


def test_large_pool_is_created_in_parts():
    made = decided(replicas=1000).actions
    assert [type(one) for one in made] == [Create] * 300


def test_new_sandbox_is_preferred_to_unready_one_of_old_template():
    newer = template()
    newer["spec"]["podTemplate"]["spec"]["containers"][0]["image"] = "app:2"
    (create,) = reconcile_claim(claim(), warm_sandbox("old", ready=False), template_object=newer).actions
    assert isinstance(create, Create)
    _, take = reconcile_claim(
        claim(),
        warm_sandbox("old"),
        warm_sandbox("new", ready=False, template_object=newer),
        template_object=newer,
    ).actions
    assert take.target.name == "old"


def ended(name, *, replaced=0, at=NOW, age=5, made_from=None):
    """One that ended, after so many others, at a time."""
    found = warm_sandbox(name, ready=False, finished=True, age=age, template_object=made_from)
    found["metadata"]["annotations"]["holdfast.dev/replaced"] = str(replaced)
    found["status"]["conditions"][-1]["lastTransitionTime"] = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return found


def replaced_by(decision):
    """The counts of what a pool makes."""
    made = [each.manifest for each in decision.actions if isinstance(each, Create)]
    return [each["metadata"]["annotations"].get("holdfast.dev/replaced") for each in made]


def decided(*boxes, replicas=1, now=NOW, having=None):
    asked = ObservedWarmPool(
        now=now, pool=pool(replicas=replicas), template=having or template(), sandboxes=boxes
    )
    return reconcile_warm_pool(asked, name_sequence())


def test_first_failure_is_replaced_immediately_and_later_ones_with_backoff():
    pauses, at = [], NOW
    for count in range(12):
        box = ended("a", replaced=count, at=at, age=5)
        pause = decided(box, now=at).requeue_after or 0.0
        pauses.append(pause)
        at += timedelta(seconds=pause)
        over = decided(box, now=at)
        assert [type(each) for each in over.actions] == [Delete, Create]
        assert replaced_by(over) == [str(count + 1)]
        at = NOW
    # One second more than the pause: times are noted without their fraction.
    assert pauses[:4] == [0.0, 3.0, 5.0, 9.0]
    assert pauses[-1] == 301.0


def test_failed_sandboxes_stay_during_backoff_up_to_pool_size():
    boxes = tuple(ended(name, replaced=3) for name in "abc")
    paused = decided(*boxes, replicas=2)
    assert [action.target.name for action in paused.actions] == ["c"]
    assert paused.requeue_after == 9.0
    over = decided(*boxes, replicas=2, now=NOW + timedelta(seconds=9))
    assert [type(action) for action in over.actions] == [Delete] * 3 + [Create] * 2
    assert replaced_by(over) == ["4", "4"]


def test_backoff_is_per_sandbox_and_missing_ones_start_fresh():
    late, due = ended("late", replaced=5), ended("due", replaced=1, at=NOW - timedelta(seconds=9))
    decision = decided(late, due, replicas=4)
    assert [each.target.name for each in decision.actions if isinstance(each, Delete)] == ["due"]
    assert replaced_by(decision) == ["2", None, None]


def test_long_running_or_new_template_resets_backoff():
    steady = ended("a", replaced=9, age=900)
    assert replaced_by(decided(steady)) == ["1"]
    newer = template()
    newer["spec"]["podTemplate"]["spec"]["containers"][0]["image"] = "app:2"
    assert replaced_by(decided(ended("a", replaced=9), having=newer)) == ["1"]


def test_invalid_backoff_annotation_counts_as_none():
    assert replaced_by(decided(ended("a", replaced="²"))) == ["1"]


def test_failing_pool_creates_no_more_pods_than_backoff_allows():
    """Pool and sandbox each have rules for what failed: only one of them makes the next pod."""
    names, now, born, box = name_sequence(), NOW, [], None
    while now < NOW + timedelta(seconds=2400):
        decision = reconcile_warm_pool(
            ObservedWarmPool(
                now=now, pool=pool(replicas=1), template=template(), sandboxes=(box,) if box else ()
            ),
            names,
        )
        for action in decision.actions:
            box, pod = (None, None) if isinstance(action, Delete) else (action.manifest, None)
            if box is not None:
                box["metadata"] |= {"uid": f"u-{now}", "creationTimestamp": timestamp(now)}
        seen = reconcile_sandbox(ObservedSandbox(sandbox=box, pods=(pod,) if pod else (), now=now))
        box["status"] = seen.status
        for action in seen.actions:
            if isinstance(action, Create):
                born.append((now - NOW).total_seconds())
                pod = failed_pod(box, started=now, ended=now + timedelta(seconds=1))
            elif isinstance(action, Delete):
                pod = None
            else:
                box = apply_merge_patch(box, action.patch)
        now += timedelta(seconds=1)
    pauses = [after - before for before, after in itertools.pairwise(born)]
    documented = [0.0, *(min(300.0, 2.0**count) for count in range(1, len(pauses)))]
    # One second of life, one for whole-second timestamps, and one for each reconciliation of the simulation.
    assert all(said <= took <= said + 4 for said, took in zip(documented, pauses, strict=True))
    assert len(born) == 16


def test_failed_pod_in_adopted_sandbox_is_recreated_on_request():
    waits = warm_sandbox("w")
    later = NOW + timedelta(seconds=10)

    def follow_up(found):
        return reconcile_sandbox(ObservedSandbox(sandbox=found, pods=(failed_pod(found),), now=later))

    def adopted(**metadata):
        asked = claim()
        asked["metadata"] |= metadata
        return apply_merge_patch(waits, reconcile_claim(asked, waits).actions[-1].patch)

    assert (follow_up(waits).actions, follow_up(waits).requeue_after) == ((), None)
    assert Delete not in [type(each) for each in follow_up(adopted()).actions]
    requested = {"annotations": {"holdfast.dev/failed-pods": "Recreate"}}
    again = follow_up(adopted(**requested))
    assert [type(each) for each in again.actions] == [Patch, Delete]
    final = apply_merge_patch(
        waits, reconcile_claim(claim(lifecycle={"ttlSecondsAfterFinished": 9}), waits).actions[-1].patch
    )
    assert Delete not in [type(each) for each in follow_up(final).actions]
