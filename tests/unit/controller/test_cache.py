"""The cache keeps the newest version of each object, and finds it by name, owner and label."""

from __future__ import annotations

import pytest

from holdfast.controller.cache import ObjectCache
from holdfast.controller.event_handlers import affected_keys
from holdfast.sandbox.manifests import name_hash, tracking_labels


def made(kind, name, *, version=1, uid=None, owner=None, labels=None, spec=None, status=None):
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": uid or f"{kind}-{name}",
        "resourceVersion": str(version),
    }
    if labels:
        metadata["labels"] = labels
    if owner:
        reference = {
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    return {"kind": kind, "metadata": metadata, "spec": spec or {}, "status": status or {}}


@pytest.fixture
def cache():
    return ObjectCache()


def refused(name, *, version=1, reason="InvalidMetadata", **status):
    ready = {"type": "Ready", "status": "False", "reason": reason}
    spec, status = {"warmPoolRef": {"name": "p"}}, {"conditions": [ready], **status}
    return made("SandboxClaim", name, version=version, spec=spec, status=status)


def test_network_policy_enqueues_rejected_claims(cache):
    bound = {"sandbox": {"name": "s"}}
    policy = made("NetworkPolicy", "n")
    for each in (refused("a"), refused("b", **bound), refused("c", reason="SandboxNotReady", **bound)):
        cache.put(each)
    assert set(affected_keys(policy, cache)) == {("SandboxClaim", "ns", "a"), ("SandboxClaim", "ns", "b")}
    cache.put(refused("b", version=2, reason="DependenciesReady", **bound))
    assert set(affected_keys(policy, cache)) == {("SandboxClaim", "ns", "a")}


def test_members_do_not_wake_rejected_claims(cache):
    pool = made("SandboxWarmPool", "p", spec={"sandboxTemplateRef": {"name": "t"}})
    final = ("EnvVarsInjectionRejected", "VolumeClaimTemplatesError", "ClaimExpired", "InvalidMetadata")
    for reason in (*final, "WarmPoolNotFound", "ReconcilerError"):
        cache.put(refused(reason.lower(), reason=reason))
    member = set(affected_keys(made("Sandbox", "p-1", owner=pool), cache))
    assert {name for kind, _, name in member if kind == "SandboxClaim"} == {
        "warmpoolnotfound",
        "reconcilererror",
    }


@pytest.mark.parametrize("reason", ["EnvVarsInjectionRejected", "VolumeClaimTemplatesError"])
def test_pool_wakes_rejected_claims(cache, reason):
    """It may have another template, or was deleted and created again."""
    cache.put(refused("rejected", reason=reason))
    cache.put(refused("bound", reason=reason, sandbox={"name": "s"}))
    pool = made("SandboxWarmPool", "p", spec={"sandboxTemplateRef": {"name": "other"}})
    woken = {("SandboxWarmPool", "ns", "p"), ("SandboxClaim", "ns", "rejected")}
    assert set(affected_keys(pool, cache)) == woken
    assert set(affected_keys(made("SandboxWarmPool", "q"), cache)) == {("SandboxWarmPool", "ns", "q")}


def test_accepted_deletion_marks_the_object_until_its_next_version(cache):
    known = made("Pod", "a", version=5)
    cache.put(known)
    cache.mark_deleted("Pod", "ns", "a", uid="another")
    assert "deletionTimestamp" not in cache.get("Pod", "ns", "a")["metadata"]
    cache.mark_deleted("Pod", "ns", "a", uid="Pod-a")
    assert "deletionTimestamp" in cache.get("Pod", "ns", "a")["metadata"]
    assert "deletionTimestamp" not in known["metadata"]
    assert cache.put(made("Pod", "a", version=6))
    assert cache.delete(made("Pod", "a", version=7))


def test_newest_resource_version_wins(cache):
    assert cache.put(made("Pod", "a", version=5))
    assert not cache.put(made("Pod", "a", version=4))
    assert not cache.put(made("Pod", "a", version=5))
    assert cache.put(made("Pod", "a", version=6))
    assert cache.get("Pod", "ns", "a")["metadata"]["resourceVersion"] == "6"


def test_deleted_object_is_not_restored_by_late_response(cache):
    cache.put(made("Pod", "a", version=5))
    assert cache.delete(made("Pod", "a", version=9))
    assert not cache.put(made("Pod", "a", version=7))
    assert cache.get("Pod", "ns", "a") is None
    assert cache.put(made("Pod", "a", version=3, uid="another"))


def test_late_delete_event_does_not_remove_successor(cache):
    cache.put(made("Pod", "a", version=5, uid="old"))
    cache.put(made("Pod", "a", version=8, uid="new"))
    assert not cache.delete(made("Pod", "a", version=6, uid="old"))
    assert cache.get("Pod", "ns", "a")["metadata"]["uid"] == "new"


def test_list_by_kind_returns_existing_objects(cache):
    cache.put(made("Pod", "a"))
    cache.put(made("Pod", "b"))
    cache.put(made("NetworkPolicy", "a"))
    cache.put(made("Pod", "a", version=2))
    assert sorted(each["metadata"]["name"] for each in cache.iter_kind("Pod")) == ["a", "b"]
    cache.delete(made("NetworkPolicy", "a", version=3))
    cache.evict(made("Pod", "b"))
    assert list(cache.iter_kind("NetworkPolicy")) == list(cache.iter_kind("Service")) == []
    assert [each["metadata"]["resourceVersion"] for each in cache.iter_kind("Pod")] == ["2"]


def test_owner_and_label_indexes_follow_changes(cache):
    first, second = made("Sandbox", "s"), made("Sandbox", "t")
    cache.put(made("Pod", "a", owner=first, labels=tracking_labels("s")))
    assert [pod["metadata"]["name"] for pod in cache.list_owned("Pod", first)] == ["a"]
    assert len(cache.list_tracked("Pod", "ns", name_hash("s"))) == 1
    cache.put(made("Pod", "a", version=2, owner=second, labels=tracking_labels("t")))
    assert cache.list_owned("Pod", first) == []
    assert cache.list_tracked("Pod", "ns", name_hash("s")) == []
    assert len(cache.list_owned("Pod", second)) == len(cache.list_tracked("Pod", "ns", name_hash("t"))) == 1


def test_pod_event_enqueues_sandbox_without_owner(cache):
    sandbox = made("Sandbox", "s")
    cache.put(sandbox)
    owned, tracked = made("Pod", "s", owner=sandbox), made("Pod", "s", labels=tracking_labels("s"))
    assert set(affected_keys(owned, cache)) == set(affected_keys(tracked, cache)) == {("Sandbox", "ns", "s")}
    assert set(affected_keys(made("Pod", "other"), cache)) == set()


def test_template_enqueues_pools_and_claims_and_pool_enqueues_pending_claims(cache):
    pool = made("SandboxWarmPool", "p", spec={"sandboxTemplateRef": {"name": "t"}})
    waiting = made("SandboxClaim", "c", spec={"warmPoolRef": {"name": "p"}})
    served = made("SandboxClaim", "d", spec={"warmPoolRef": {"name": "p"}}, status={"sandbox": {"name": "x"}})
    for one in (pool, waiting, served):
        cache.put(one)
    woken = {("SandboxWarmPool", "ns", "p"), ("SandboxClaim", "ns", "c")}
    template_woken = woken | {("SandboxTemplate", "ns", "t"), ("SandboxClaim", "ns", "d")}
    assert set(affected_keys(made("SandboxTemplate", "t"), cache)) == template_woken
    assert set(affected_keys(pool, cache)) == woken
    fresh = made("Sandbox", "warm", owner=pool)
    assert set(affected_keys(fresh, cache)) == woken | {("Sandbox", "ns", "warm")}


def test_network_policy_enqueues_template_with_matching_policy_name(cache):
    policy = made("NetworkPolicy", "t-network-policy")
    assert set(affected_keys(policy, cache)) == set()
    cache.put(made("SandboxTemplate", "t"))
    assert set(affected_keys(policy, cache)) == {("SandboxTemplate", "ns", "t")}
    assert set(affected_keys(made("NetworkPolicy", "t"), cache)) == set()


def policy(name, *, version=1, selects, **metadata):
    found = made("NetworkPolicy", name, version=version, spec={"podSelector": {"matchLabels": selects}})
    found["metadata"] |= metadata
    return found


def test_managed_network_policies_are_found_by_the_labels_they_select(cache):
    template = {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxTemplate", "name": "t"}
    owned = policy("t", selects={"ref": "1"}, ownerReferences=[{**template, "uid": "t", "controller": True}])
    labelled = policy("a", selects={"ref": "1"}, labels={"holdfast.dev/managed-by": "holdfast"})
    for each in (owned, labelled, policy("users", selects={"ref": "1"})):
        cache.put(each)
    found = cache.list_policies_selecting("ns", {"ref": "1", "app": "x"})
    assert [each["metadata"]["name"] for each in found] == ["a", "t"]
    assert cache.list_policies_selecting("ns", {"ref": "2"}) == []
    assert cache.list_policies_selecting("elsewhere", {"ref": "1"}) == []
    cache.put(policy("a", version=2, selects={"ref": "1"}))
    assert cache.list_policies_selecting("ns", {"ref": "1"}) == [owned]
