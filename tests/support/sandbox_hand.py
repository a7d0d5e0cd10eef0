"""Does by hand what the controller would do for one sandbox, where a test is about something else."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.kube import Sight
from holdfast.sandbox.actions import Adopt, Create, Delete, Patch
from holdfast.sandbox.api import API_VERSION
from holdfast.sandbox.decide import Observed, decide
from holdfast.sandbox.names import claim_name, pod_name

SANDBOX = {"api_version": API_VERSION}


class Hand:
    """Looks at a sandbox and does what the pure decision says, in one namespace."""

    def __init__(self, objects, namespace: str) -> None:
        self.objects, self.namespace = objects, namespace

    def look(self, name: str) -> dict:
        """One look; what the sandbox's status is afterwards."""
        place = {"namespace": self.namespace}
        sandbox = self.objects.get("Sandbox", name, **place, **SANDBOX)
        pod = self.objects.get("Pod", pod_name(sandbox), **place)
        templates = sandbox["spec"].get("volumeClaimTemplates") or ()
        names = [claim_name(each["metadata"]["name"], name) for each in templates]
        found = {each: self.objects.get("PersistentVolumeClaim", each, **place) for each in names}
        decision = decide(
            Observed(
                sandbox=sandbox,
                now=datetime.now(UTC),
                pods=(pod,) if pod else (),
                claims={each: claim for each, claim in found.items() if claim},
            )
        )
        for action in decision.actions:
            self._do(action)
        patch = {"status": decision.status}
        self.objects.patch("Sandbox", name, patch, **place, **SANDBOX, subresource="status")
        return decision.status

    def until_ready(self, name: str, seconds: float = 120) -> None:
        """Look at each change of the pod until the sandbox is ready."""

        def until(_pod) -> Sight:
            ready = next(each for each in self.look(name)["conditions"] if each["type"] == "Ready")
            return Sight(done=ready["status"] == "True", seen=ready["message"])

        self.look(name)
        self.objects.wait("Pod", name, until, namespace=self.namespace, deadline=seconds)

    def _do(self, action) -> None:
        if isinstance(action, Create):
            self.objects.ensure(action.manifest)
            return
        target = action.target
        where = {"namespace": self.namespace, "api_version": target.api_version}
        if isinstance(action, Delete):
            self.objects.delete(target.kind, target.name, **where)
        elif isinstance(action, Patch | Adopt):
            self.objects.patch(target.kind, target.name, action.patch, **where)
