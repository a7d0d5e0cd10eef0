"""The namespace of the gateway's own workloads, there and Active; nothing here ever removes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.engine import Verdict, absent, done, partial
from holdfast.gateway.steps.cluster import ClusterStep
from holdfast.gateway.workloads.blueprint import MANAGED
from holdfast.kube.conditions import deleted, namespace_active

if TYPE_CHECKING:
    from holdfast.engine import Context


class EnsureNamespace(ClusterStep):
    """Made when missing; one that somebody is deleting is waited for, and then made anew."""

    name = "ensure-namespace"
    title = "Namespace"
    needs = ("wait-api-ready",)

    def probe(self, ctx: Context) -> Verdict:
        name = self.work.settings.namespace
        if not self.has_cluster:
            return absent("there is no cluster yet")
        found = self.objects(ctx).get("Namespace", name)
        if found is None:
            return absent(f"there is no namespace {name} yet")
        if not namespace_active(found).done:
            return partial(f"{name} is {_phase(found)}")
        return done(f"{name} is Active")

    def run(self, ctx: Context) -> None:
        name, seconds = self.work.settings.namespace, self.work.settings.timeouts.namespace
        objects = self.objects(ctx)
        found = objects.get("Namespace", name)
        if found is not None and found["metadata"].get("deletionTimestamp"):
            ctx.progress(f"{name} is being deleted; waiting until it is gone")
            objects.wait("Namespace", name, deleted(found["metadata"]["uid"]), deadline=seconds)
            found = None
        if found is None:
            objects.ensure(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": MANAGED}}
            )
        objects.wait("Namespace", name, namespace_active, deadline=seconds)
        ctx.note(f"{name} is Active")


def _phase(found: dict[str, Any]) -> str:
    return str((found.get("status") or {}).get("phase") or "without a phase yet")
