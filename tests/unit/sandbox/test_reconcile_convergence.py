"""From any history of pods that fail and go, suspended or resumed, a sandbox comes to rest as it should."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings, strategies as st
from tests.support.sandbox_objects import (
    NOW,
    condition_of,
    failed_pod,
    recreating_sandbox,
    running_pod,
    timestamp,
    workspace_claim_template,
)

from holdfast.sandbox.actions import Create, Delete, Patch
from holdfast.sandbox.reconcile import ObservedSandbox, reconcile_sandbox


class World:
    """A few objects and the rules of the API that matter here: names are taken, deletes take a while."""

    def __init__(self, box):
        self.box, self.pods, self.claims, self.service = box, [], {}, None
        self.made, self.now = 0, NOW

    def step(self):
        decision = reconcile_sandbox(
            ObservedSandbox(
                sandbox=self.box,
                pods=tuple(self.pods),
                pvcs=self.claims,
                service=self.service,
                now=self.now,
            )
        )
        for action in decision.actions:
            self.carry_out(action)
        if decision.status is not None:
            self.box["status"] = decision.status
        return decision

    def carry_out(self, action):
        match action:
            case Create(manifest=manifest):
                self.create(manifest)
            case Delete(target=target) if target.kind == "Pod":
                for pod in self.pods:
                    if pod["metadata"]["uid"] == target.uid:
                        pod["metadata"]["deletionTimestamp"] = timestamp(self.now)
            case Delete(target=target) if target.kind == "Service":
                self.service = None
            case Patch(target=target, patch=patch) if target.kind == "Sandbox":
                self.box["metadata"].setdefault("annotations", {}).update(patch["metadata"]["annotations"])

    def create(self, manifest):
        self.made += 1
        manifest["metadata"]["uid"] = f"made-{self.made}"
        match manifest["kind"]:
            case "Pod":
                assert all(p["metadata"]["name"] != manifest["metadata"]["name"] for p in self.pods)
                self.pods.append(running_pod(self.box, uid=manifest["metadata"]["uid"]))
            case "PersistentVolumeClaim":
                assert manifest["metadata"]["name"] not in self.claims
                self.claims[manifest["metadata"]["name"]] = manifest
            case "Service":
                assert self.service is None
                self.service = manifest

    def happen(self, what):
        match what:
            case "pod gone":
                self.pods = []
            case "pod fails" if self.pods:
                self.pods = [failed_pod(self.box, ended=self.now)]
            case "time passes":
                self.now += timedelta(seconds=400)
            case "the deleted go":
                self.pods = [pod for pod in self.pods if "deletionTimestamp" not in pod["metadata"]]
            case "suspend" | "resume":
                self.box["spec"]["operatingMode"] = "Suspended" if what == "suspend" else "Running"
            case "service on" | "service off":
                self.box["spec"]["service"] = what == "service on"


HAPPENINGS = (
    "pod gone",
    "pod fails",
    "time passes",
    "the deleted go",
    "suspend",
    "resume",
    "service on",
    "service off",
)


@settings(max_examples=300)
@given(st.lists(st.sampled_from(HAPPENINGS), max_size=30), st.sampled_from(["suspend", "resume"]))
def test_any_history_converges(history, last):
    world = World(recreating_sandbox(volumeClaimTemplates=[workspace_claim_template()]))
    claim = None
    for what in [*history, last]:
        world.happen(what)
        world.step()
        claim = claim or world.claims["workspace-a"]["metadata"]["uid"]
    for _ in range(5):
        world.step()
        world.happen("time passes")
        world.happen("the deleted go")
    rest = world.step()
    assert rest.actions == ()
    assert len(world.pods) == (0 if last == "suspend" else 1)
    assert condition_of(rest, "Ready") == (
        ("False", "SandboxSuspended") if last == "suspend" else ("True", "DependenciesReady")
    )
    assert world.claims["workspace-a"]["metadata"]["uid"] == claim
    assert (world.service is not None) == bool(world.box["spec"].get("service"))
