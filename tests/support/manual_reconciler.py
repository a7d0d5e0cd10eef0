"""Does by hand what the controller would do for one sandbox, where a test is about something else."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.api import API_VERSION
from holdfast.kube import WaitResult
from holdfast.sandbox import (
    Adopt,
    Create,
    Delete,
    ObservedSandbox,
    Patch,
    pod_name,
    pvc_name,
    reconcile_sandbox,
)

SANDBOX_API = {"api_version": API_VERSION}


class ManualReconciler:
    """Reconciles one sandbox with the pure decision function, in one namespace."""

    def __init__(self, objects, namespace: str) -> None:
        self.objects, self.namespace = objects, namespace

    def reconcile(self, name: str) -> dict:
        """Reconcile once; return the status of the sandbox."""
        place = {"namespace": self.namespace}
        sandbox = self.objects.get("Sandbox", name, **place, **SANDBOX_API)
        pod = self.objects.get("Pod", pod_name(sandbox), **place)
        templates = sandbox["spec"].get("volumeClaimTemplates") or ()
        names = [pvc_name(each["metadata"]["name"], name) for each in templates]
        found = {each: self.objects.get("PersistentVolumeClaim", each, **place) for each in names}
        decision = reconcile_sandbox(
            ObservedSandbox(
                sandbox=sandbox,
                now=datetime.now(UTC),
                pods=(pod,) if pod else (),
                pvcs={each: claim for each, claim in found.items() if claim},
            )
        )
        for action in decision.actions:
            self._execute(action)
        patch = {"status": decision.status}
        self.objects.patch("Sandbox", name, patch, **place, **SANDBOX_API, subresource="status")
        return decision.status

    def reconcile_until_ready(self, name: str, seconds: float = 120) -> None:
        """Reconcile at each change of the pod until the sandbox is ready."""

        def until(_pod) -> WaitResult:
            ready = next(each for each in self.reconcile(name)["conditions"] if each["type"] == "Ready")
            return WaitResult(done=ready["status"] == "True", observed=ready["message"])

        self.reconcile(name)
        self.objects.wait("Pod", name, until, namespace=self.namespace, deadline=seconds)

    def _execute(self, action) -> None:
        if isinstance(action, Create):
            self.objects.ensure(action.manifest)
            return
        target = action.target
        where = {"namespace": self.namespace, "api_version": target.api_version}
        if isinstance(action, Delete):
            self.objects.delete(target.kind, target.name, **where)
        elif isinstance(action, Patch | Adopt):
            self.objects.patch(target.kind, target.name, action.patch, **where)
