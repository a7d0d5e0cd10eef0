"""Random operations on many sandboxes, SandboxClaims and a warm pool, with the state that must result.

Every operation is drawn from a seed and recorded, so the final state is known whatever happens to the
controller meanwhile.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from tests.support.controller_process import condition_summary, default_pod_spec, status_of

from holdfast.api import BOUND_SANDBOX_ANNOTATION, LAUNCH_TYPE_LABEL, WARM_POOL_LABEL
from holdfast.retry import Policy, constant
from holdfast.sandbox import name_hash, policy_name, pvc_name

POOL_NAME = "pool"
POOL_SIZES = (1, 2, 3, 4)
WORKSPACE_CLAIM_TEMPLATE = {
    "metadata": {"name": "workspace"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
}
OWNED_KINDS = ("Pod", "PersistentVolumeClaim", "Service", "NetworkPolicy")
CUSTOM_KINDS = ("Sandbox", "SandboxClaim", "SandboxWarmPool", "SandboxTemplate")
KUBERNETES_FINALIZERS = {"kubernetes.io/pvc-protection"}
"""Finalizers of the API server; objects may have no others."""
WAIT_SECONDS = 180.0
EVENTUALLY = Policy(attempts=None, deadline=WAIT_SECONDS, backoff=constant(0.3), retry_on=AssertionError)

RUNNING, SUSPENDED, DELETED = "Running", "Suspended", "gone"
# What may be asked of one that is in this state: the wish, the state that it leads to, how often.
SANDBOX_OPERATIONS = {
    RUNNING: (("suspend", SUSPENDED, 5), ("lose its pod", RUNNING, 2), ("delete", DELETED, 2)),
    SUSPENDED: (("resume", RUNNING, 5), ("delete", DELETED, 1)),
    DELETED: (("create again", RUNNING, 2), ("create again", SUSPENDED, 1)),
}
CLAIM_OPERATIONS = {
    RUNNING: (("lose its sandbox", RUNNING, 2), ("delete", DELETED, 2)),
    DELETED: (("create again", RUNNING, 1),),
}
PERMANENT_SANDBOX_OPERATIONS = {
    RUNNING: (("suspend", SUSPENDED, 3), ("lose its pod", RUNNING, 1)),
    SUSPENDED: (("resume", RUNNING, 1),),
}


@dataclass
class TrackedObject:
    """A sandbox or a SandboxClaim, and its requested state."""

    name: str
    operations: dict
    state: str = DELETED
    service: bool | None = None
    workspace: bool = False
    pod_spec: dict | None = None

    @property
    def is_claim(self):
        return self.operations is CLAIM_OPERATIONS


class RandomLifecycles:
    """Asks for one random thing after another in one place."""

    def __init__(self, ns, seed, *, boxes, claims, pod_spec=None):
        self.ns, self.random = ns, random.Random(seed)
        self._pod_spec = pod_spec or {}
        # Every second has a Service, every third a workspace: each mixture of them comes.
        ones = [
            TrackedObject(
                f"box-{number}",
                SANDBOX_OPERATIONS,
                service=True if number % 2 else None,
                workspace=number % 3 == 0,
            )
            for number in range(boxes)
        ]
        ones += [TrackedObject(f"claim-{number}", CLAIM_OPERATIONS) for number in range(claims)]
        self.random.shuffle(ones)
        self._not_created, self.objects = ones, []
        self.pool_size = 2
        self.operation_counts = Counter()

    def create_pool(self):
        """The template, with all parts that a sandbox can have, and a pool of it."""
        template = {
            "podTemplate": {"spec": {**default_pod_spec(), **self._pod_spec}},
            "volumeClaimTemplates": [WORKSPACE_CLAIM_TEMPLATE],
            "service": True,
        }
        self.ns.create("SandboxTemplate", POOL_NAME, template)
        pool = {"replicas": self.pool_size, "sandboxTemplateRef": {"name": POOL_NAME}}
        self.ns.create("SandboxWarmPool", POOL_NAME, pool)

    def create_permanent_sandbox(self, name, pod_spec):
        """One more, with a workspace, that is never deleted."""
        one = TrackedObject(name, PERMANENT_SANDBOX_OPERATIONS, workspace=True, pod_spec=pod_spec)
        self.objects.append(one)
        self._create(one, RUNNING)
        return one

    @property
    def all_created(self):
        return not self._not_created

    def apply_random_operation(self):
        """Ask for one thing more; new ones come in between."""
        if self._not_created and (not self.objects or self.random.random() < 0.5):
            one = self._not_created.pop()
            self.objects.append(one)
            state = RUNNING if one.is_claim or self.random.random() < 0.9 else SUSPENDED
            return self._apply("create", one, state)
        if self.random.random() < 0.04:
            return self._resize(self.random.choice(POOL_SIZES))
        one = self.random.choice(self.objects)
        rows = one.operations[one.state]
        [(wish, state, _)] = self.random.choices(rows, weights=[row[2] for row in rows])
        return self._apply(wish, one, state)

    def wait_converged(self):
        """Until each says what was asked of it last."""
        for one in self.objects:
            kind = "SandboxClaim" if one.is_claim else "Sandbox"
            if one.state == DELETED:
                self.ns.wait_gone(kind, one.name)
            else:
                self.ns.wait(
                    kind,
                    one.name,
                    lambda found, one=one: matches_expected_state(found, one),
                    seconds=WAIT_SECONDS,
                )
        self.ns.wait(
            "SandboxWarmPool", POOL_NAME, lambda found: is_filled(found, self.pool_size), seconds=WAIT_SECONDS
        )
        EVENTUALLY.call(self.assert_expected_objects)

    def assert_expected_objects(self):
        """Exactly the requested objects exist, each once and with the right owner."""
        there = {kind: self._objects_by_name(kind) for kind in (*CUSTOM_KINDS, *OWNED_KINDS)}
        boxes, claims = there["Sandbox"], there["SandboxClaim"]
        alive = {one.name: one for one in self.objects if one.state != DELETED}
        assert_same_names("SandboxClaim", claims, {name for name, one in alive.items() if one.is_claim})
        taken = {status_of(claim)["sandbox"]["name"]: claim for claim in claims.values()}
        assert len(taken) == len(claims), "two claims have the same sandbox"
        pool = there["SandboxWarmPool"][POOL_NAME]
        assert is_filled(pool, self.pool_size), status_of(pool)
        waiting = {name for name, box in boxes.items() if owner_uids(box) == [uid(pool)]}
        assert len(waiting) == self.pool_size, waiting
        own = set(alive) - set(claims)
        assert_same_names("Sandbox", boxes, own | set(taken) | waiting)
        for name, box in boxes.items():
            owner = taken.get(name) or (pool if name in waiting else None)
            assert owner_uids(box) == ([uid(owner)] if owner else []), f"the owners of {name}"
            self._assert_conditions(box, alive[name].state if name in own else RUNNING)
            label = (box["metadata"].get("labels") or {}).get(WARM_POOL_LABEL)
            assert label == (name_hash(POOL_NAME) if name in waiting else None), (
                f"the label of {name}: {label}"
            )
        for claim in claims.values():
            self._assert_conditions(claim, RUNNING)
            bound = status_of(claim)["sandbox"]["name"]
            noted = claim["metadata"]["annotations"].get(BOUND_SANDBOX_ANNOTATION)
            # The published annotation names an adopted sandbox; a cold start has the SandboxClaim's own name.
            is_warm = boxes[bound]["metadata"]["labels"][LAUNCH_TYPE_LABEL] == "warm"
            assert noted == (bound if is_warm else None), (bound, noted)
        self._assert_owned_objects(
            there, boxes, awake=set(boxes) - {name for name in own if is_suspended(alive[name])}
        )

    def object_counts(self):
        """How many there are of each kind."""
        return {kind: len(self._objects_by_name(kind)) for kind in (*CUSTOM_KINDS, *OWNED_KINDS)}

    def delete_all(self):
        """Ask that everything goes, and wait until nothing is there."""
        for kind in reversed(CUSTOM_KINDS):
            for name in self._objects_by_name(kind):
                self.ns.delete(kind, name)
        for one in self.objects:
            one.state = DELETED

        def assert_nothing():
            assert not any(self.object_counts().values()), self.object_counts()

        EVENTUALLY.call(assert_nothing)

    def _assert_owned_objects(self, there, boxes, awake):
        wanted = {
            "Pod": {name: boxes[name] for name in awake},
            "PersistentVolumeClaim": {
                pvc_name("workspace", name): box
                for name, box in boxes.items()
                if box["spec"].get("volumeClaimTemplates")
            },
            "Service": {name: box for name, box in boxes.items() if box["spec"].get("service")},
            "NetworkPolicy": {policy_name(POOL_NAME): there["SandboxTemplate"][POOL_NAME]},
        }
        for kind in OWNED_KINDS:
            assert_same_names(kind, there[kind], wanted[kind])
            for name, found in there[kind].items():
                assert owner_uids(found) == [uid(wanted[kind][name])], f"{kind} {name}"
        for kind, rows in there.items():
            for name, found in rows.items():
                assert "deletionTimestamp" not in found["metadata"], f"{kind} {name}"
                assert set(found["metadata"].get("finalizers") or ()) <= KUBERNETES_FINALIZERS, (
                    f"{kind} {name}"
                )

    def _assert_conditions(self, found, state):
        rows = status_of(found)["conditions"]
        about = found["metadata"]
        assert matches_expected_state(found, TrackedObject(about["name"], SANDBOX_OPERATIONS, state)), (
            about["name"],
            state,
            rows,
        )
        assert {row["observedGeneration"] for row in rows} == {about["generation"]}, (about["name"], rows)

    def _objects_by_name(self, kind):
        return {each["metadata"]["name"]: each for each in self.ns.list(kind)}

    def _apply(self, wish, one, state):
        self.operation_counts[f"claim: {wish}" if one.is_claim else wish] += 1
        if wish.startswith("create"):
            return self._create(one, state)
        one.state = state
        if wish in ("suspend", "resume"):
            self.ns.patch("Sandbox", one.name, {"spec": {"operatingMode": state}})
        elif wish == "delete":
            self.ns.delete("SandboxClaim" if one.is_claim else "Sandbox", one.name)
        elif wish == "lose its pod":
            self.ns.delete("Pod", one.name)
        elif own := (status_of(self.ns.get("SandboxClaim", one.name)).get("sandbox") or {}).get("name"):
            self.ns.delete("Sandbox", own)
        return None

    def _create(self, one, state):
        one.state = state
        if one.is_claim:
            self.ns.create("SandboxClaim", one.name, {"warmPoolRef": {"name": POOL_NAME}})
            return
        spec = {"operatingMode": state, "service": one.service}
        spec |= {"volumeClaimTemplates": [WORKSPACE_CLAIM_TEMPLATE]} if one.workspace else {}
        given = {key: value for key, value in spec.items() if value is not None}
        self.ns.create_sandbox(one.name, pod_spec=one.pod_spec or self._pod_spec, **given)

    def _resize(self, size):
        self.operation_counts["resize the pool"] += 1
        self.pool_size = size
        self.ns.patch("SandboxWarmPool", POOL_NAME, {"spec": {"replicas": size}})


def assert_same_names(kind, found, wanted):
    """Compare names; report missing and unexpected ones."""
    missing, surplus = set(wanted) - set(found), set(found) - set(wanted)
    assert not missing | surplus, f"{kind}: missing {sorted(missing)}, too many {sorted(surplus)}"


def is_suspended(one):
    return one.state == SUSPENDED


def matches_expected_state(found, one):
    """Whether a sandbox or a claim says what it was asked to be."""
    if is_suspended(one):
        said = ("False SandboxSuspended", "True PodTerminated")
        return (condition_summary(found, "Ready"), condition_summary(found, "Suspended")) == said
    claimed = found["kind"] == "SandboxClaim"
    ready = (
        condition_summary(found, "Ready") == "True DependenciesReady"
        and condition_summary(found, "Finished") is None
    )
    return ready and (claimed or condition_summary(found, "Suspended") == "False NotSuspended")


def is_filled(pool, size):
    status = status_of(pool)
    generation = pool["metadata"]["generation"]
    said = (status.get("replicas"), status.get("readyReplicas"), status.get("observedGeneration"))
    return said == (size, size, generation)


def owner_uids(found):
    return [row["uid"] for row in found["metadata"].get("ownerReferences") or ()]


def uid(found):
    return found["metadata"]["uid"]
