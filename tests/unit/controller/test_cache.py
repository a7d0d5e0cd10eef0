"""What the controller knows: the newest of each object, found by name, owner and label."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.controller.cache import Cache
from holdfast.controller.router import touched
from holdfast.controller.status_patch import status_patch
from holdfast.sandbox.names import tracking


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
    return Cache()


def refused(name, *, version=1, reason="InvalidMetadata", **status):
    ready = {"type": "Ready", "status": "False", "reason": reason}
    spec, status = {"warmPoolRef": {"name": "p"}}, {"conditions": [ready], **status}
    return made("SandboxClaim", name, version=version, spec=spec, status=status)


def test_a_policy_is_news_for_the_claims_that_were_refused_bound_or_not(cache):
    bound = {"sandbox": {"name": "s"}}
    policy = made("NetworkPolicy", "n")
    for each in (refused("a"), refused("b", **bound), refused("c", reason="SandboxNotReady", **bound)):
        cache.put(each)
    assert set(touched(policy, cache)) == {("SandboxClaim", "ns", "a"), ("SandboxClaim", "ns", "b")}
    cache.put(refused("b", version=2, reason="DependenciesReady", **bound))
    assert set(touched(policy, cache)) == {("SandboxClaim", "ns", "a")}


def test_the_newer_one_stays_whoever_tells_of_it(cache):
    assert cache.put(made("Pod", "a", version=5))
    assert not cache.put(made("Pod", "a", version=4))
    assert not cache.put(made("Pod", "a", version=5))
    assert cache.put(made("Pod", "a", version=6))
    assert cache.get("Pod", "ns", "a")["metadata"]["resourceVersion"] == "6"


def test_one_that_is_gone_does_not_come_back_with_a_late_answer(cache):
    cache.put(made("Pod", "a", version=5))
    assert cache.drop(made("Pod", "a", version=9))
    assert not cache.put(made("Pod", "a", version=7))
    assert cache.get("Pod", "ns", "a") is None
    assert cache.put(made("Pod", "a", version=3, uid="another"))


def test_a_late_farewell_does_not_take_the_successor(cache):
    cache.put(made("Pod", "a", version=5, uid="old"))
    cache.put(made("Pod", "a", version=8, uid="new"))
    assert not cache.drop(made("Pod", "a", version=6, uid="old"))
    assert cache.get("Pod", "ns", "a")["metadata"]["uid"] == "new"


def test_all_of_a_kind_are_those_that_are_there(cache):
    cache.put(made("Pod", "a"))
    cache.put(made("Pod", "b"))
    cache.put(made("NetworkPolicy", "a"))
    cache.put(made("Pod", "a", version=2))
    assert sorted(each["metadata"]["name"] for each in cache.all("Pod")) == ["a", "b"]
    cache.drop(made("NetworkPolicy", "a", version=3))
    cache.forget(made("Pod", "b"))
    assert list(cache.all("NetworkPolicy")) == list(cache.all("Service")) == []
    assert [each["metadata"]["resourceVersion"] for each in cache.all("Pod")] == ["2"]


def test_owner_and_label_follow_every_change(cache):
    first, second = made("Sandbox", "s"), made("Sandbox", "t")
    cache.put(made("Pod", "a", owner=first, labels=tracking("s")))
    assert [pod["metadata"]["name"] for pod in cache.owned("Pod", first)] == ["a"]
    assert len(cache.tracked("Pod", "ns", "s")) == 1
    cache.put(made("Pod", "a", version=2, owner=second, labels=tracking("t")))
    assert cache.owned("Pod", first) == []
    assert cache.tracked("Pod", "ns", "s") == []
    assert len(cache.owned("Pod", second)) == len(cache.tracked("Pod", "ns", "t")) == 1


def test_a_pods_change_is_its_sandboxs_business_also_without_an_owner(cache):
    sandbox = made("Sandbox", "s")
    cache.put(sandbox)
    owned, tracked = made("Pod", "s", owner=sandbox), made("Pod", "s", labels=tracking("s"))
    assert set(touched(owned, cache)) == set(touched(tracked, cache)) == {("Sandbox", "ns", "s")}
    assert set(touched(made("Pod", "other"), cache)) == set()


def test_a_template_wakes_its_pools_and_a_pool_the_claims_that_still_wait(cache):
    pool = made("SandboxWarmPool", "p", spec={"sandboxTemplateRef": {"name": "t"}})
    waiting = made("SandboxClaim", "c", spec={"warmPoolRef": {"name": "p"}})
    served = made("SandboxClaim", "d", spec={"warmPoolRef": {"name": "p"}}, status={"sandbox": {"name": "x"}})
    for one in (pool, waiting, served):
        cache.put(one)
    woken = {("SandboxWarmPool", "ns", "p"), ("SandboxClaim", "ns", "c")}
    assert set(touched(made("SandboxTemplate", "t"), cache)) == woken | {("SandboxTemplate", "ns", "t")}
    assert set(touched(pool, cache)) == woken
    fresh = made("Sandbox", "warm", owner=pool)
    assert set(touched(fresh, cache)) == woken | {("Sandbox", "ns", "warm")}


def test_a_template_hears_of_the_policy_that_has_its_policys_name_whoever_owns_that(cache):
    policy = made("NetworkPolicy", "t-network-policy")
    assert set(touched(policy, cache)) == set()
    cache.put(made("SandboxTemplate", "t"))
    assert set(touched(policy, cache)) == {("SandboxTemplate", "ns", "t")}
    assert set(touched(made("NetworkPolicy", "t"), cache)) == set()


leaves = st.sampled_from([None, True, 0, 1, "", "x", [], [1], [1, 2]])
inner = st.dictionaries(st.sampled_from("ab"), leaves, max_size=2)
statuses = st.dictionaries(st.sampled_from("abc"), leaves | inner, max_size=3)


def merge_patch(target, patch):
    """RFC 7386, as the API server applies it."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = merge_patch(target.get(key), value)
    return target


def without_nulls(value):
    if not isinstance(value, dict):
        return value
    return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}


@given(statuses, statuses)
def test_the_patch_makes_the_old_status_the_new_one_and_is_empty_only_then(old, new):
    old, new = without_nulls(old), without_nulls(new)
    patch = status_patch(old, new)
    assert merge_patch(old, patch) == new
    assert bool(patch) == (old != new)
