"""How templates and pools of any client are shown, and why a pool is pending."""

import pytest
from tests.support import warm_pool_objects as objects

from holdfast.api import NetworkPolicy, Workspace
from holdfast.sandbox import build_template_request, template_manifest
from holdfast.server.pools.presenters import present_pool, present_template


def pool(size=2, *, ready=0, available=0, observed=2, **metadata):
    made = objects.pool(replicas=size)
    made["metadata"] |= metadata
    made["status"] = {"replicas": available, "readyReplicas": ready, "observedGeneration": observed}
    return made


def member(name, reason="", message="", *, of="pool-1", ready=False):
    made = objects.warm_sandbox(name, ready=ready)
    made["metadata"]["ownerReferences"][0]["uid"] = of
    made["metadata"]["generation"] = 1
    ready_condition = made["status"]["conditions"][0]
    ready_condition |= {"reason": "DependenciesNotReady", "observedGeneration": 1}
    if reason:
        explained = {"type": "holdfast.dev/Explanation", "status": "True", "observedGeneration": 1}
        made["status"]["conditions"].append({**explained, "reason": reason, "message": message})
    return made


def state(pool_object, *members, template=True):
    view = present_pool(pool_object, objects.template() if template else None, members)
    return str(view.phase), view.reason, view.message


@pytest.mark.parametrize(
    ("pool_object", "expected"),
    [
        (pool(2, ready=2, available=2), ("Ready", "", "2 of 2 sandboxes are ready")),
        (pool(2, ready=1, available=2), ("Pending", "", "1 of 2 sandboxes are ready")),
        (pool(0), ("Ready", "", "0 of 0 sandboxes are ready")),
        (pool(1, ready=3, available=3), ("Ready", "", "3 of 1 sandboxes are ready")),
        (pool(2, ready=2, observed=1), ("Pending", "", "the controller has not seen the latest change yet")),
        (pool(2, deletionTimestamp="now"), ("Deleting", "", "the pool is being deleted")),
    ],
)
def test_state_follows_the_counts_of_the_controller(pool_object, expected):
    assert state(pool_object) == expected


def test_pool_without_status_is_pending():
    made = objects.pool()
    assert state(made)[0] == "Pending"
    view = present_pool(made, objects.template())
    assert (view.size, view.ready, view.available, view.image) == (2, 0, 0, "app:1")


def test_pool_of_another_client_has_the_published_defaults():
    made = objects.pool()
    del made["spec"]["replicas"]
    view = present_pool(made, None)
    assert (view.size, view.update_strategy) == (1, "OnReplenish")


def test_missing_template_is_the_reason():
    expected = ("Pending", "TemplateNotFound", "template t does not exist: the pool creates no sandboxes")
    assert state(pool(2, ready=2, available=2), template=False) == expected


def test_rejected_sandboxes_are_the_reason():
    made = pool(2)
    made["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "reason": "ReconcilerError", "message": "quota exceeded"}
    ]
    assert state(made) == ("Pending", "ReconcilerError", "quota exceeded")


def test_first_own_sandbox_with_a_specific_reason_is_shown():
    members = [
        member("other", "CrashLoopBackOff", "not ours", of="pool-2"),
        member("starting"),
        member("fine", ready=True),
        member("broken", "ErrImagePull", "no such image"),
    ]
    expected = ("Pending", "ErrImagePull", "1 of 2 sandboxes are ready; broken: no such image")
    assert state(pool(2, ready=1, available=2), *members) == expected


def template(**options):
    return template_manifest(build_template_request("py", **options), namespace="ns", endpoint="https://api")


def test_template_shows_what_was_requested():
    request = {
        "image": "app:1", "command": ["run", "$(X)"], "args": ["a"], "env": {"B": "s3cr3t", "A": "1"},
        "cpu": "1", "memory": "1Gi", "labels": {"team": "blue"}, "workspace": {"size": "5Gi", "seed": False},
    }  # fmt: skip
    view = present_template(template(**request), [objects.pool(), pool(name="q")])
    assert (view.image, view.command, view.args) == ("app:1", ["run", "$(X)"], ["a"])
    assert (view.env, view.cpu, view.memory, view.labels) == (["A", "B"], "1", "1Gi", {"team": "blue"})
    assert view.workspace == Workspace(size="5Gi", seed=False)
    assert (view.network_policy, view.pools) == (None, [])
    assert "s3cr3t" not in repr(view)


def test_template_names_its_pools():
    assert present_template(objects.template(), [objects.pool(), pool(name="q")]).pools == ["p", "q"]


def test_template_of_another_client_is_shown():
    view = present_template(objects.template())
    assert (view.name, view.image, view.env, view.workspace) == ("t", "app:1", ["LANG"], None)


def test_rules_of_a_template_are_shown():
    view = present_template(template(network_policy={"egress": []}))
    assert view.network_policy == NetworkPolicy(ingress=[{}], egress=[])
