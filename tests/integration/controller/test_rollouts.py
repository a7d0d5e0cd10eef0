"""Rollouts of pools and templates while SandboxClaims are being made, on a real control plane.

However the two interleave: each SandboxClaim ends with exactly one sandbox, no sandbox is bound twice, and
the pool ends at its size.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from tests.support.admission_policies import REFUSED, refuse_writes
from tests.support.controller_process import (
    EVENTUALLY,
    condition_summary,
    default_pod_spec,
    is_pool_ready,
    status_of,
)

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]

REPLICAS = 5
BEFORE, DURING, AFTER = 2, 6, 2
READY = "True DependenciesReady"
WARM = "agents.x-k8s.io/warm-pool-sandbox"
TEMPLATE_REF = "agents.x-k8s.io/sandbox-template-ref"
STRATEGIES = ("Recreate", "OnReplenish")
PROPAGATIONS = ("Background", "Foreground", "Orphan")


@pytest.fixture(autouse=True)
def _running_controller(ns, controller, kubelet):
    yield
    refused = [box for box in ns.list("Sandbox") if REFUSED in (box["metadata"].get("labels") or {})]
    label_members(ns, refused, None)
    for kind in ("SandboxClaim", "SandboxWarmPool", "Sandbox"):
        for each in ns.list(kind):
            ns.delete(kind, each["metadata"]["name"])
    for kind in ("SandboxClaim", "SandboxWarmPool", "Sandbox"):
        for each in ns.list(kind):
            ns.wait_gone(kind, each["metadata"]["name"])


def pod_spec(image):
    return {**default_pod_spec(), "containers": [{"name": "main", "image": image}]}


def create_template(ns, name, image):
    spec = {"podTemplate": {"spec": pod_spec(image)}, "networkPolicyManagement": "Unmanaged"}
    ns.create("SandboxTemplate", name, spec)


def create_pool(ns, name, template, strategy, replicas=REPLICAS):
    spec = {"replicas": replicas, "sandboxTemplateRef": {"name": template}}
    ns.create("SandboxWarmPool", name, {**spec, "updateStrategy": {"type": strategy}})
    ns.wait("SandboxWarmPool", name, lambda found: is_pool_ready(found, replicas))


def create_claims(ns, prefix, pool, count):
    names = [f"{prefix}-{number}" for number in range(count)]
    for name in names:
        ns.create("SandboxClaim", name, {"warmPoolRef": {"name": pool}})
    return names


@contextmanager
def claims_being_made(ns, prefix, *pools):
    """Create SandboxClaims before and while the body runs; yields their names by pool."""
    names = {pool: create_claims(ns, f"{prefix}-{pool}-before", pool, BEFORE) for pool in pools}
    wait_bound(ns, [name for each in names.values() for name in each])

    def create():
        for number in range(DURING):
            for pool in pools:
                names[pool] += create_claims(ns, f"{prefix}-{pool}-during{number}", pool, 1)

    with ThreadPoolExecutor(1) as beside:
        made = beside.submit(create)
        yield names
        made.result()


def wait_known(ns, pool, marker):
    """Wait until the controller has seen the newest versions of a pool and of all templates."""
    create_template(ns, marker, "app:1")
    # Watch events of one kind arrive in order.
    ns.wait("SandboxTemplate", marker, lambda found: found["metadata"].get("labels"))
    generation = ns.get("SandboxWarmPool", pool)["metadata"]["generation"]
    ns.wait("SandboxWarmPool", pool, lambda found: status_of(found).get("observedGeneration") == generation)


def wait_bound(ns, names):
    """The sandboxes of SandboxClaims by the name of the SandboxClaim, once all are ready."""

    def until():
        claims = {claim["metadata"]["name"]: claim for claim in ns.list("SandboxClaim")}
        boxes = {box["metadata"]["name"]: box for box in ns.list("Sandbox")}
        assert {condition_summary(claims[name], "Ready") for name in names} == {READY}
        found = {name: boxes.get(claims[name]["status"]["sandbox"]["name"]) for name in names}
        assert all(box and "deletionTimestamp" not in box["metadata"] for box in found.values())
        return found

    return EVENTUALLY.call(until)


def members(ns, pool):
    """The sandboxes that a pool controls and that are not being deleted."""
    return [
        box
        for box in ns.list("Sandbox")
        if "deletionTimestamp" not in box["metadata"]
        and [(one["kind"], one["name"]) for one in owners(box)] == [("SandboxWarmPool", pool)]
    ]


def owners(box):
    return box["metadata"].get("ownerReferences") or []


def image_of(box):
    return box["spec"]["podTemplate"]["spec"]["containers"][0]["image"]


def version_of(box):
    return box["spec"]["podTemplate"]["metadata"]["labels"].get("version")


def uids(boxes):
    return {box["metadata"]["uid"] for box in boxes}


class History:
    """All versions of the sandboxes of a namespace since its creation.

    The API server keeps them for a while: a watch from an old version repeats them.
    """

    def __init__(self, server, ns):
        self._server = server
        self._path = f"/apis/agents.x-k8s.io/v1beta1/namespaces/{ns.namespace}/sandboxes"
        self._since = server.request("GET", self._path)[1]["metadata"]["resourceVersion"]

    def events(self):
        query = f"watch=1&timeoutSeconds=1&resourceVersion={self._since}"
        status, text = self._server.request("GET", f"{self._path}?{query}")
        assert status == 200, text
        found = [text] if isinstance(text, dict) else [json.loads(line) for line in text.splitlines()]
        assert {event["type"] for event in found} <= {"ADDED", "MODIFIED", "DELETED"}, found
        return found

    def adoptions(self, *, of_deleted=True):
        """Each sandbox as it was when a SandboxClaim became its owner, by the UIDs of both."""
        events, found = self.events(), {}
        gone = uids(event["object"] for event in events if event["type"] == "DELETED")
        for box in (event["object"] for event in events):
            for one in owners(box):
                if one["kind"] == "SandboxClaim" and (of_deleted or box["metadata"]["uid"] not in gone):
                    found.setdefault((one["uid"], box["metadata"]["uid"]), box)
        return found


@pytest.fixture
def history(control_plane, ns):
    return History(control_plane, ns)


def assert_each_claim_has_one_sandbox(ns, history, names, *, is_pool_deleted=False):
    """Now, and over the whole time.

    The garbage collector may delete a sandbox of a deleted pool although a SandboxClaim has just adopted it.
    """
    boxes = wait_bound(ns, names)
    claims = {name: ns.get("SandboxClaim", name)["metadata"]["uid"] for name in names}
    expected = {claims[name]: {box["metadata"]["uid"]} for name, box in boxes.items()}
    for name, box in boxes.items():
        assert [one["uid"] for one in owners(box)] == [claims[name]]
    of_claim, of_sandbox = defaultdict(set), Counter()
    for claim, box in history.adoptions(of_deleted=not is_pool_deleted):
        of_claim[claim].add(box)
        of_sandbox[box] += 1
    assert {claim: of_claim[claim] for claim in expected} == expected
    assert [box for box, claims in of_sandbox.items() if claims > 1] == []
    return boxes


def assert_pool_ends_at_its_size(ns, pool, size):
    def until():
        assert is_pool_ready(ns.get("SandboxWarmPool", pool), size)
        assert len(members(ns, pool)) == size
        leaving = [box for box in ns.list("Sandbox") if "deletionTimestamp" in box["metadata"]]
        assert leaving == []

    EVENTUALLY.call(until)
    assert status_of(ns.get("SandboxWarmPool", pool)).get("replicas", 0) == size


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("change", ["edit", "switch"])
def test_new_spec_of_pool_reaches_claims_as_its_strategy_says(ns, history, strategy, change):
    name = f"{change}-{strategy.lower()}"
    create_template(ns, name, "app:1")
    create_template(ns, f"{name}-other", "app:2")
    create_pool(ns, name, name, strategy)
    with claims_being_made(ns, "c", name) as names:
        old = members(ns, name)
        if change == "edit":
            template = {"spec": pod_spec("app:2"), "metadata": {"labels": {"version": "2"}}}
            ns.patch("SandboxTemplate", name, {"spec": {"podTemplate": template}})
        else:
            ns.patch("SandboxWarmPool", name, {"spec": {"sandboxTemplateRef": {"name": f"{name}-other"}}})
    wait_known(ns, name, f"{name}-marker")
    # The pool may have replaced adopted members with the old template until it knew the new one.
    known = uids(members(ns, name))
    late = create_claims(ns, f"{name}-after", name, AFTER)
    boxes = assert_each_claim_has_one_sandbox(ns, history, [*names[name], *late])
    assert_pool_ends_at_its_size(ns, name, REPLICAS)
    remaining, taken = members(ns, name), uids(boxes.values())
    if strategy == "Recreate":
        assert {image_of(boxes[claim]) for claim in late} == {"app:2"}
        assert set(map(image_of, remaining)) == {"app:2"}
        # An adoption copies the labels of the template that the controller knows.
        adopted = [(image_of(box), version_of(box)) for box in history.adoptions().values()]
        assert ("app:1", "2") not in adopted
    else:
        stale = uids(box for box in old if image_of(box) == "app:1")
        assert stale <= uids(remaining) | taken
        assert uids(box for box in remaining if image_of(box) == "app:1") <= known
    template = name if change == "edit" else f"{name}-other"
    sources = {box["metadata"]["annotations"][TEMPLATE_REF] for box in remaining if image_of(box) == "app:2"}
    assert sources == {template}


def test_stale_member_that_cannot_be_deleted_is_not_adopted(ns, history):
    """With Recreate, SandboxClaims get new sandboxes while the API server refuses to delete stale ones."""
    refuse_writes(ns)
    create_template(ns, "refusing", "app:1")
    create_pool(ns, "refusing", "refusing", "Recreate")
    stale = members(ns, "refusing")
    label_members(ns, stale, "DELETE")
    ns.patch("SandboxTemplate", "refusing", {"spec": {"podTemplate": {"spec": pod_spec("app:2")}}})
    ns.wait_conditions("SandboxWarmPool", "refusing", Ready="False ReconcilerError")
    names = create_claims(ns, "refusing", "refusing", DURING)
    boxes = assert_each_claim_has_one_sandbox(ns, history, names)
    assert {image_of(box) for box in boxes.values()} == {"app:2"}
    assert uids(stale) <= uids(members(ns, "refusing"))
    label_members(ns, stale, None)
    assert_pool_ends_at_its_size(ns, "refusing", REPLICAS)
    assert set(map(image_of, members(ns, "refusing"))) == {"app:2"}


def label_members(ns, boxes, refused):
    for box in boxes:
        ns.patch("Sandbox", box["metadata"]["name"], {"metadata": {"labels": {REFUSED: refused}}})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_metadata_edits_replace_no_member(ns, history, strategy):
    name = f"metadata-{strategy.lower()}"
    create_template(ns, name, "app:1")
    create_pool(ns, name, name, strategy)
    with claims_being_made(ns, "c", name) as names:
        old = uids(members(ns, name))
        for value in ("one", "two", "three"):
            metadata = {"labels": {"team": value}, "annotations": {"note": value}}
            ns.patch("SandboxTemplate", name, {"spec": {"podTemplate": {"metadata": metadata}}})
    boxes = assert_each_claim_has_one_sandbox(ns, history, names[name])
    assert_pool_ends_at_its_size(ns, name, REPLICAS)
    assert old <= uids(members(ns, name)) | uids(boxes.values())
    for box in boxes.values():
        ns.wait("Pod", box["metadata"]["name"], lambda pod: pod["metadata"]["labels"].get("team") == "three")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("size", [1, REPLICAS + 3])
def test_scaling_takes_no_sandbox_from_a_claim(ns, history, strategy, size):
    name = f"scale-{size}-{strategy.lower()}"
    create_template(ns, name, "app:1")
    create_pool(ns, name, name, strategy)
    with claims_being_made(ns, "c", name) as names:
        ns.patch("SandboxWarmPool", name, {"spec": {"replicas": size}})
    assert_each_claim_has_one_sandbox(ns, history, names[name])
    assert_pool_ends_at_its_size(ns, name, size)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_templates_of_one_namespace_do_not_mix(ns, history, strategy):
    """The template of one pool is edited; then both pools get each other's template."""
    first, second = (f"{letter}-{strategy.lower()}" for letter in "ab")
    for name in (first, second):
        create_template(ns, name, f"{name[0]}:1")
        create_pool(ns, name, name, strategy)
    with claims_being_made(ns, "edit", first, second) as names:
        untouched = uids(members(ns, second))
        ns.patch("SandboxTemplate", first, {"spec": {"podTemplate": {"spec": pod_spec("a:2")}}})
    boxes = assert_each_claim_has_one_sandbox(ns, history, [*names[first], *names[second]])
    assert {image_of(boxes[claim]) for claim in names[first]} <= {"a:1", "a:2"}
    assert {image_of(boxes[claim]) for claim in names[second]} == {"b:1"}
    assert_pool_ends_at_its_size(ns, second, REPLICAS)
    assert untouched <= uids(members(ns, second)) | uids(boxes[claim] for claim in names[second])

    with claims_being_made(ns, "swap", first, second) as names:
        for pool, template in ((first, second), (second, first)):
            ns.patch("SandboxWarmPool", pool, {"spec": {"sandboxTemplateRef": {"name": template}}})
    late = {}
    for pool in (first, second):
        wait_known(ns, pool, f"{pool}-marker")
        late[pool] = create_claims(ns, f"late-{pool}", pool, AFTER)
    every = [claim for found in (names, late) for pool in (first, second) for claim in found[pool]]
    boxes = assert_each_claim_has_one_sandbox(ns, history, every)
    for pool, images in ((first, {"b:1"}), (second, {"a:2"})):
        assert_pool_ends_at_its_size(ns, pool, REPLICAS)
        if strategy == "Recreate":
            assert {image_of(boxes[claim]) for claim in late[pool]} == images
            assert set(map(image_of, members(ns, pool))) == images


@pytest.mark.parametrize("propagation", PROPAGATIONS)
def test_deleted_pool_leaves_claims_their_sandboxes(ns, history, propagation):
    """The pool is deleted and created again; claims in between wait for it."""
    name = f"pool-{propagation.lower()}"
    create_template(ns, name, "app:1")
    create_pool(ns, name, name, "OnReplenish")
    with claims_being_made(ns, "c", name) as names:
        before = wait_bound(ns, list(names[name]))
        ns.delete("SandboxWarmPool", name, propagation=propagation)
    ns.wait_gone("SandboxWarmPool", name)
    left = EVENTUALLY.call(lambda: assert_no_members(ns, name))
    assert bool(left) <= (propagation == "Orphan")
    create_pool(ns, name, name, "OnReplenish")
    boxes = assert_each_claim_has_one_sandbox(ns, history, names[name], is_pool_deleted=True)
    assert {claim: uids([boxes[claim]]) for claim in before} == {
        claim: uids([box]) for claim, box in before.items()
    }
    assert_pool_ends_at_its_size(ns, name, REPLICAS)
    assert left <= uids(members(ns, name)) | uids(boxes.values())


def assert_no_members(ns, pool):
    """Returns the members that the pool left behind."""
    waiting = [box for box in ns.list("Sandbox") if WARM in (box["metadata"].get("labels") or {})]
    assert [box["metadata"]["name"] for box in waiting if owners(box)] == []
    return uids(waiting)


@pytest.mark.parametrize("propagation", PROPAGATIONS)
def test_sandboxes_of_deleted_claims_are_not_used_again(ns, history, propagation):
    name = f"claim-{propagation.lower()}"
    create_template(ns, name, "app:1")
    create_pool(ns, name, name, "Recreate")
    leaving = wait_bound(ns, create_claims(ns, f"{name}-leaving", name, 3))
    with claims_being_made(ns, "c", name) as names:
        for claim in leaving:
            ns.delete("SandboxClaim", claim, propagation=propagation)
    for claim, box in leaving.items():
        ns.wait_gone("SandboxClaim", claim)
        if propagation != "Orphan":
            ns.wait_gone("Sandbox", box["metadata"]["name"])
    boxes = assert_each_claim_has_one_sandbox(ns, history, names[name])
    assert_pool_ends_at_its_size(ns, name, REPLICAS)
    assert not uids(leaving.values()) & (uids(boxes.values()) | uids(members(ns, name)))
    kept = [ns.get("Sandbox", box["metadata"]["name"]) for box in leaving.values()]
    assert [box and owners(box) for box in kept] == [[] if propagation == "Orphan" else None] * len(leaving)
