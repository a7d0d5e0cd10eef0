"""Random lives of many sandboxes, claims and a warm pool: what is asked for, and what must be there for it.

Every wish is drawn from a seed and noted, so that the state that all of it must end in is known, whatever
happens to the controller meanwhile. Not here: who harms the controller, and who runs the pods.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from tests.support.controllers import pod_spec_of, says, status_of

from holdfast.retry import Policy, constant
from holdfast.sandbox.api import CLAIMED_NAME, WARM_POOL
from holdfast.sandbox.names import claim_name, name_hash
from holdfast.sandbox.network import policy_name

POOL = "pool"
SIZES = (1, 2, 3, 4)
WORKSPACE = {
    "metadata": {"name": "workspace"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
}
OWNED = ("Pod", "PersistentVolumeClaim", "Service", "NetworkPolicy")
OURS = ("Sandbox", "SandboxClaim", "SandboxWarmPool", "SandboxTemplate")
OF_KUBERNETES = {"kubernetes.io/pvc-protection"}
"""Finalizers that the API server itself gives: nobody else's may be on anything."""
WITHIN = 180.0
PATIENT = Policy(attempts=None, deadline=WITHIN, backoff=constant(0.3), retry_on=AssertionError)

RUNNING, SUSPENDED, GONE = "Running", "Suspended", "gone"
# What may be asked of one that is in this state: the wish, the state that it leads to, how often.
BOX_WISHES = {
    RUNNING: (("suspend", SUSPENDED, 5), ("lose its pod", RUNNING, 2), ("delete", GONE, 2)),
    SUSPENDED: (("resume", RUNNING, 5), ("delete", GONE, 1)),
    GONE: (("create again", RUNNING, 2), ("create again", SUSPENDED, 1)),
}
CLAIM_WISHES = {
    RUNNING: (("lose its sandbox", RUNNING, 2), ("delete", GONE, 2)),
    GONE: (("create again", RUNNING, 1),),
}
KEPT_WISHES = {
    RUNNING: (("suspend", SUSPENDED, 3), ("lose its pod", RUNNING, 1)),
    SUSPENDED: (("resume", RUNNING, 1),),
}


@dataclass
class One:
    """A sandbox of its own, or a claim; and what it is asked to be."""

    name: str
    wishes: dict
    state: str = GONE
    service: bool | None = None
    workspace: bool = False
    pod_spec: dict | None = None

    @property
    def is_claim(self):
        return self.wishes is CLAIM_WISHES


class Lives:
    """Asks for one random thing after another in one place."""

    def __init__(self, place, seed, *, boxes, claims, pod_spec=None):
        self.place, self.random = place, random.Random(seed)
        self._pod_spec = pod_spec or {}
        # Every second has a Service, every third a workspace: each mixture of them comes.
        ones = [
            One(f"box-{number}", BOX_WISHES, service=True if number % 2 else None, workspace=number % 3 == 0)
            for number in range(boxes)
        ]
        ones += [One(f"claim-{number}", CLAIM_WISHES) for number in range(claims)]
        self.random.shuffle(ones)
        self._unborn, self.ones = ones, []
        self.size = 2
        self.asked = Counter()

    def make_pool(self):
        """The template, with all parts that a sandbox can have, and a pool of it."""
        template = {
            "podTemplate": {"spec": {**pod_spec_of(), **self._pod_spec}},
            "volumeClaimTemplates": [WORKSPACE],
            "service": True,
        }
        self.place.make("SandboxTemplate", POOL, template)
        pool = {"replicas": self.size, "sandboxTemplateRef": {"name": POOL}}
        self.place.make("SandboxWarmPool", POOL, pool)

    def keep(self, name, pod_spec):
        """One more, with a workspace, that is never deleted."""
        one = One(name, KEPT_WISHES, workspace=True, pod_spec=pod_spec)
        self.ones.append(one)
        self._create(one, RUNNING)
        return one

    @property
    def all_are_born(self):
        return not self._unborn

    def go_on(self):
        """Ask for one thing more; new ones come in between."""
        if self._unborn and (not self.ones or self.random.random() < 0.5):
            one = self._unborn.pop()
            self.ones.append(one)
            state = RUNNING if one.is_claim or self.random.random() < 0.9 else SUSPENDED
            return self._wish("create", one, state)
        if self.random.random() < 0.04:
            return self._resize(self.random.choice(SIZES))
        one = self.random.choice(self.ones)
        rows = one.wishes[one.state]
        [(wish, state, _)] = self.random.choices(rows, weights=[row[2] for row in rows])
        return self._wish(wish, one, state)

    def wait_right(self):
        """Until each says what was asked of it last."""
        for one in self.ones:
            kind = "SandboxClaim" if one.is_claim else "Sandbox"
            if one.state == GONE:
                self.place.wait_gone(kind, one.name)
            else:
                self.place.wait(kind, one.name, lambda found, one=one: is_right(found, one), seconds=WITHIN)
        self.place.wait("SandboxWarmPool", POOL, lambda found: is_filled(found, self.size), seconds=WITHIN)
        PATIENT.call(self.assert_whole)

    def assert_whole(self):
        """Just what was asked for: each sandbox, claim and part there once, and owned by whom it is of."""
        there = {kind: self._found(kind) for kind in (*OURS, *OWNED)}
        boxes, claims = there["Sandbox"], there["SandboxClaim"]
        alive = {one.name: one for one in self.ones if one.state != GONE}
        assert_same("SandboxClaim", claims, {name for name, one in alive.items() if one.is_claim})
        taken = {status_of(claim)["sandbox"]["name"]: claim for claim in claims.values()}
        assert len(taken) == len(claims), "two claims have the same sandbox"
        pool = there["SandboxWarmPool"][POOL]
        assert is_filled(pool, self.size), status_of(pool)
        waiting = {name for name, box in boxes.items() if owners(box) == [uid(pool)]}
        assert len(waiting) == self.size, waiting
        own = set(alive) - set(claims)
        assert_same("Sandbox", boxes, own | set(taken) | waiting)
        for name, box in boxes.items():
            owner = taken.get(name) or (pool if name in waiting else None)
            assert owners(box) == ([uid(owner)] if owner else []), f"the owners of {name}"
            self._assert_said(box, alive[name].state if name in own else RUNNING)
            label = (box["metadata"].get("labels") or {}).get(WARM_POOL)
            assert label == (name_hash(POOL) if name in waiting else None), f"the label of {name}: {label}"
        for claim in claims.values():
            self._assert_said(claim, RUNNING)
            noted = claim["metadata"]["annotations"].get(CLAIMED_NAME)
            assert noted == status_of(claim)["sandbox"]["name"], noted
        self._assert_parts(there, boxes, awake=set(boxes) - {name for name in own if asleep(alive[name])})

    def counted(self):
        """How many there are of each kind."""
        return {kind: len(self._found(kind)) for kind in (*OURS, *OWNED)}

    def delete_all(self):
        """Ask that everything goes, and wait until nothing is there."""
        for kind in reversed(OURS):
            for name in self._found(kind):
                self.place.delete(kind, name)
        for one in self.ones:
            one.state = GONE

        def assert_nothing():
            assert not any(self.counted().values()), self.counted()

        PATIENT.call(assert_nothing)

    def _assert_parts(self, there, boxes, awake):
        wanted = {
            "Pod": {name: boxes[name] for name in awake},
            "PersistentVolumeClaim": {
                claim_name("workspace", name): box
                for name, box in boxes.items()
                if box["spec"].get("volumeClaimTemplates")
            },
            "Service": {name: box for name, box in boxes.items() if box["spec"].get("service")},
            "NetworkPolicy": {policy_name(POOL): there["SandboxTemplate"][POOL]},
        }
        for kind in OWNED:
            assert_same(kind, there[kind], wanted[kind])
            for name, found in there[kind].items():
                assert owners(found) == [uid(wanted[kind][name])], f"{kind} {name}"
        for kind, rows in there.items():
            for name, found in rows.items():
                assert "deletionTimestamp" not in found["metadata"], f"{kind} {name}"
                assert set(found["metadata"].get("finalizers") or ()) <= OF_KUBERNETES, f"{kind} {name}"

    def _assert_said(self, found, state):
        rows = status_of(found)["conditions"]
        about = found["metadata"]
        assert is_right(found, One(about["name"], BOX_WISHES, state)), (about["name"], state, rows)
        assert {row["observedGeneration"] for row in rows} == {about["generation"]}, (about["name"], rows)

    def _found(self, kind):
        return {each["metadata"]["name"]: each for each in self.place.list(kind)}

    def _wish(self, wish, one, state):
        self.asked[f"claim: {wish}" if one.is_claim else wish] += 1
        if wish.startswith("create"):
            return self._create(one, state)
        one.state = state
        if wish in ("suspend", "resume"):
            self.place.patch("Sandbox", one.name, {"spec": {"operatingMode": state}})
        elif wish == "delete":
            self.place.delete("SandboxClaim" if one.is_claim else "Sandbox", one.name)
        elif wish == "lose its pod":
            self.place.delete("Pod", one.name)
        elif own := (status_of(self.place.get("SandboxClaim", one.name)).get("sandbox") or {}).get("name"):
            self.place.delete("Sandbox", own)
        return None

    def _create(self, one, state):
        one.state = state
        if one.is_claim:
            self.place.make("SandboxClaim", one.name, {"warmPoolRef": {"name": POOL}})
            return
        spec = {"operatingMode": state, "service": one.service}
        spec |= {"volumeClaimTemplates": [WORKSPACE]} if one.workspace else {}
        given = {key: value for key, value in spec.items() if value is not None}
        self.place.sandbox(one.name, pod_spec=one.pod_spec or self._pod_spec, **given)

    def _resize(self, size):
        self.asked["resize the pool"] += 1
        self.size = size
        self.place.patch("SandboxWarmPool", POOL, {"spec": {"replicas": size}})


def assert_same(kind, found, wanted):
    """Just these names, and in words which not."""
    missing, surplus = set(wanted) - set(found), set(found) - set(wanted)
    assert not missing | surplus, f"{kind}: missing {sorted(missing)}, too many {sorted(surplus)}"


def asleep(one):
    return one.state == SUSPENDED


def is_right(found, one):
    """Whether a sandbox or a claim says what it was asked to be."""
    if asleep(one):
        said = ("False SandboxSuspended", "True PodTerminated")
        return (says(found, "Ready"), says(found, "Suspended")) == said
    claimed = found["kind"] == "SandboxClaim"
    ready = says(found, "Ready") == "True DependenciesReady" and says(found, "Finished") is None
    return ready and (claimed or says(found, "Suspended") == "False NotSuspended")


def is_filled(pool, size):
    status = status_of(pool)
    generation = pool["metadata"]["generation"]
    said = (status.get("replicas"), status.get("readyReplicas"), status.get("observedGeneration"))
    return said == (size, size, generation)


def owners(found):
    return [row["uid"] for row in found["metadata"].get("ownerReferences") or ()]


def uid(found):
    return found["metadata"]["uid"]
