"""Pools and claims in trouble: refused by the server, stuck, or ending as soon as they run."""

from __future__ import annotations

from tests.support.pool_decisions import NOW, claim, look, named, pool, template, waiting

from holdfast.sandbox.actions import Create, Delete
from holdfast.sandbox.claim import Claimed, refused_claim
from holdfast.sandbox.pool import Pool, decide_pool, refused_pool


def test_a_claim_says_what_the_server_refuses_and_keeps_its_sandbox():
    asked = claim()
    asked["status"] = {"sandbox": {"name": "old"}}
    status = refused_claim(Claimed(claim=asked, pool=pool(), template=template(), now=NOW), "over quota")
    (row,) = status["conditions"]
    assert (row["status"], row["reason"], row["message"]) == ("False", "ReconcilerError", "over quota")
    assert status["sandbox"] == {"name": "old"}


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


def test_what_ended_stays_while_its_pool_pauses_and_is_not_replaced():
    boxes = tuple(waiting(name, finished=True, ready=False) for name in "abc")
    paused = decide_pool(
        Pool(now=NOW, pool=pool(replicas=2), template=template(), sandboxes=boxes, pause=8.0), named()
    )
    assert [action.target.name for action in paused.actions] == ["c"]
    assert (paused.again_in, paused.replaces_ended) == (8.0, False)
    over = decide_pool(Pool(now=NOW, pool=pool(replicas=2), template=template(), sandboxes=boxes), named())
    assert [type(action) for action in over.actions] == [Delete] * 3 + [Create] * 2
    assert over.replaces_ended
