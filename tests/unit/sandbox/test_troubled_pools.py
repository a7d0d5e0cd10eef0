"""Pools and claims in trouble: refused by the server, stuck, or ending as soon as they run."""

from __future__ import annotations

import itertools
from datetime import timedelta

from tests.support.pool_decisions import NOW, claim, look, named, pool, template, waiting
from tests.support.pools import merged
from tests.support.sandboxes import failed_pod, text

from holdfast.sandbox.actions import Create, Delete, Patch
from holdfast.sandbox.claim import Claimed, refused_claim
from holdfast.sandbox.decide import Observed, decide
from holdfast.sandbox.pool import Pool, decide_pool, refused_pool


def test_a_claim_says_what_the_server_refuses_and_keeps_its_sandbox():
    asked = claim()
    asked["status"] = {"sandbox": {"name": "old"}}
    status = refused_claim(Claimed(claim=asked, pool=pool(), template=template(), now=NOW), "over quota")
    (row,) = status["conditions"]
    assert (row["status"], row["reason"], row["message"]) == ("False", "ReconcilerError", "over quota")
    assert status["sandbox"] == {"name": "old"}


def refused(asked, *boxes, now=NOW):
    """Its status by type of condition, and the sandbox that it names, where the server refuses its edit."""
    seen = Claimed(claim=asked, pool=pool(), template=template(), sandboxes=boxes, now=now)
    status = refused_claim(seen, "no red teams")
    return {row["type"]: row["reason"] for row in status["conditions"]}, status["sandbox"]


def test_a_claim_whose_edit_is_refused_still_says_where_its_sandbox_is_and_that_it_is_over():
    asked = claim(additionalPodMetadata={"labels": {"team": "red"}})
    asked["status"] = {"sandbox": {"name": "box", "podIPs": ["10.0.0.1"]}}
    said, sandbox = refused(asked, waiting("box", owner=asked))
    assert (said, sandbox) == ({"Ready": "ReconcilerError"}, {"name": "box", "podIPs": ["10.0.0.3"]})
    said, _ = refused(asked, waiting("box", owner=asked, ready=False, finished=True))
    assert said == {"Ready": "ReconcilerError", "Finished": "PodFailed"}


def test_a_claim_whose_time_is_over_stays_so_where_its_end_is_refused():
    """Its sandbox may have begun anew since: the time that is over does not."""
    asked = claim(lifecycle={"ttlSecondsAfterFinished": 5})
    finished = {"type": "Finished", "status": "True", "reason": "PodFailed", "lastTransitionTime": text(NOW)}
    asked["status"] = {"sandbox": {"name": "box"}, "conditions": [finished]}
    said, _ = refused(asked, waiting("box", owner=asked), now=NOW + timedelta(seconds=5))
    assert said == {"Ready": "ReconcilerError", "Finished": "PodFailed"}


def test_a_pool_says_what_the_server_refuses_until_it_does_so_no_more():
    asked = pool(replicas=2)
    asked["status"] = refused_pool(
        Pool(now=NOW, pool=asked, template=template(), sandboxes=(waiting("a"),)), "over quota"
    )
    assert asked["status"]["readyReplicas"] == 1
    (row,) = asked["status"]["conditions"]
    assert (row["type"], row["reason"], row["message"]) == ("Ready", "ReconcilerError", "over quota")
    boxes = (waiting("a"), waiting("b"))
    well = decide_pool(Pool(now=NOW, pool=asked, template=template(), sandboxes=boxes), named())
    assert "conditions" not in well.status


def test_a_sandbox_that_does_not_become_ready_in_its_time_is_replaced_and_not_handed_out():
    slow, stuck = waiting("slow", ready=False, age=100), waiting("stuck", ready=False, age=301)
    decision = decide_pool(Pool(now=NOW, pool=pool(), template=template(), sandboxes=(slow, stuck)), named())
    delete, create = decision.actions
    assert (delete.target.name, type(create)) == ("stuck", Create)
    assert decision.again_in == 200.0
    (take, _) = look(claim(), stuck, slow).actions
    assert take.target.name == "slow"
    (create, _) = look(claim(), stuck).actions
    assert isinstance(create, Create)


def test_a_sandbox_that_waits_for_a_node_is_left_waiting():
    held = waiting("a", ready=False, age=3000)
    held["status"]["conditions"].append(
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    )
    asked = Pool(now=NOW, pool=pool(replicas=1), template=template(), sandboxes=(held,))
    decision = decide_pool(asked, named())
    assert (decision.actions, decision.again_in) == ((), None)
    found = {"type": "PodScheduled", "status": "True", "lastTransitionTime": NOW.isoformat()}
    held["status"]["conditions"][-1] = found
    assert decide_pool(asked, named()).again_in == 300.0


def test_one_that_is_not_ready_and_of_an_older_template_is_worse_than_a_new_one():
    newer = template()
    newer["spec"]["podTemplate"]["spec"]["containers"][0]["image"] = "app:2"
    create, _ = look(claim(), waiting("old", ready=False), having=newer).actions
    assert isinstance(create, Create)
    take, _ = look(
        claim(), waiting("old"), waiting("new", ready=False, made_from=newer), having=newer
    ).actions
    assert take.target.name == "old"


def ended(name, *, replaced=0, at=NOW, age=5, made_from=None):
    """One that ended, after so many others, at a time."""
    found = waiting(name, ready=False, finished=True, age=age, made_from=made_from)
    found["metadata"]["annotations"]["holdfast.dev/replaced"] = str(replaced)
    found["status"]["conditions"][-1]["lastTransitionTime"] = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return found


def replaced_by(decision):
    """The counts of what a pool makes."""
    made = [each.manifest for each in decision.actions if isinstance(each, Create)]
    return [each["metadata"]["annotations"].get("holdfast.dev/replaced") for each in made]


def decided(*boxes, replicas=1, now=NOW, having=None):
    asked = Pool(now=now, pool=pool(replicas=replicas), template=having or template(), sandboxes=boxes)
    return decide_pool(asked, named())


def test_the_first_that_ends_is_replaced_at_once_and_each_one_after_it_later():
    pauses, at = [], NOW
    for count in range(12):
        box = ended("a", replaced=count, at=at, age=5)
        pause = decided(box, now=at).again_in or 0.0
        pauses.append(pause)
        at += timedelta(seconds=pause)
        over = decided(box, now=at)
        assert [type(each) for each in over.actions] == [Delete, Create]
        assert replaced_by(over) == [str(count + 1)]
        at = NOW
    # One second more than the pause: times are noted without their fraction.
    assert pauses[:4] == [0.0, 3.0, 5.0, 9.0]
    assert pauses[-1] == 301.0


def test_what_ended_stays_for_its_pause_and_no_more_of_it_than_the_pool_wants():
    boxes = tuple(ended(name, replaced=3) for name in "abc")
    paused = decided(*boxes, replicas=2)
    assert [action.target.name for action in paused.actions] == ["c"]
    assert paused.again_in == 9.0
    over = decided(*boxes, replicas=2, now=NOW + timedelta(seconds=9))
    assert [type(action) for action in over.actions] == [Delete] * 3 + [Create] * 2
    assert replaced_by(over) == ["4", "4"]


def test_each_waits_for_itself_and_what_is_missing_besides_begins_anew():
    late, due = ended("late", replaced=5), ended("due", replaced=1, at=NOW - timedelta(seconds=9))
    decision = decided(late, due, replicas=4)
    assert [each.target.name for each in decision.actions if isinstance(each, Delete)] == ["due"]
    assert replaced_by(decision) == ["2", None, None]


def test_one_that_was_well_for_long_or_comes_from_another_template_is_the_first_again():
    steady = ended("a", replaced=9, age=900)
    assert replaced_by(decided(steady)) == ["1"]
    newer = template()
    newer["spec"]["podTemplate"]["spec"]["containers"][0]["image"] = "app:2"
    assert replaced_by(decided(ended("a", replaced=9), having=newer)) == ["1"]


def test_a_note_that_is_no_number_counts_as_none():
    assert replaced_by(decided(ended("a", replaced="²"))) == ["1"]


def test_a_pool_of_what_fails_at_once_makes_no_more_pods_than_its_pauses_let_it():
    """Pool and sandbox each have rules for what failed: only one of them makes the next pod."""
    names, now, born, box = named(), NOW, [], None
    while now < NOW + timedelta(seconds=2400):
        decision = decide_pool(
            Pool(now=now, pool=pool(replicas=1), template=template(), sandboxes=(box,) if box else ()),
            names,
        )
        for action in decision.actions:
            box, pod = (None, None) if isinstance(action, Delete) else (action.manifest, None)
            if box is not None:
                box["metadata"] |= {"uid": f"u-{now}", "creationTimestamp": text(now)}
        seen = decide(Observed(sandbox=box, pods=(pod,) if pod else (), now=now))
        box["status"] = seen.status
        for action in seen.actions:
            if isinstance(action, Create):
                born.append((now - NOW).total_seconds())
                pod = failed_pod(box, started=now, ended=now + timedelta(seconds=1))
            elif isinstance(action, Delete):
                pod = None
            else:
                box = merged(box, action.patch)
        now += timedelta(seconds=1)
    pauses = [after - before for before, after in itertools.pairwise(born)]
    documented = [0.0, *(min(300.0, 2.0**count) for count in range(1, len(pauses)))]
    # Its second of life, one for times without a fraction, and one for each look in this play.
    assert all(said <= took <= said + 4 for said, took in zip(documented, pauses, strict=True))
    assert len(born) == 16


def test_a_pod_that_fails_in_a_sandbox_that_was_taken_is_made_again():
    waits = waiting("w")
    taken = merged(waits, look(claim(), waits).actions[0].patch)
    later = NOW + timedelta(seconds=10)
    kept = decide(Observed(sandbox=waits, pods=(failed_pod(waits),), now=later))
    assert (kept.actions, kept.again_in) == ((), None)
    again = decide(Observed(sandbox=taken, pods=(failed_pod(taken),), now=later))
    assert [type(each) for each in again.actions] == [Patch, Delete]
    final = merged(waits, look(claim(lifecycle={"ttlSecondsAfterFinished": 9}), waits).actions[0].patch)
    assert decide(Observed(sandbox=final, pods=(failed_pod(final),), now=later)).actions == ()
