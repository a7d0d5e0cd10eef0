"""The last proof: a pod with a claim runs a command and writes its workspace, then goes away again.

It runs after each start of the node, and not in between: what it found out stays true for as long as that
container runs, unless the node has become short of disk. Not here: sandboxes as users make them; this is the
ground that they stand on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.engine import Verdict, absent, done
from holdfast.errors import DeadlineError, HoldfastError, WaitFailedError, WaitTimeoutError
from holdfast.gateway.pressure import short_of_disk
from holdfast.gateway.steps.cluster import ClusterStep
from holdfast.gateway.workloads.blueprint import MANAGED, container_security, pod_security
from holdfast.gateway.workloads.sights import succeeded, told
from holdfast.kube.conditions import Sight
from holdfast.retry import Deadline

if TYPE_CHECKING:
    from holdfast.engine import Context
    from holdfast.gateway.work import Work

NAME = "holdfast-probe"
HELPER_IMAGE = "holdfast.dev/helper:1"
"""A small image with a shell that every node brings along."""

_WORKSPACE = "/sandbox"
_COMMAND = f'echo holdfast > {_WORKSPACE}/probe && sync && test "$(cat {_WORKSPACE}/probe)" = holdfast'
_LEAST_SECONDS = 0.1


class RunProbe(ClusterStep):
    """A pod wrote its workspace: the gateway is ready. Once for each start of the container."""

    name = "run-probe"
    title = "Probe pod"
    # The pod is taken away again: after a kill nobody can tell whether it ran, and a second one does no harm.
    repeat = "at-least-once"

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.needs = ("ensure-namespace",) if work.settings.workloads else ("wait-api-ready",)
        self.namespace = work.settings.namespace if work.settings.workloads else "default"

    def probe(self, ctx: Context) -> Verdict:
        started = self.engine_call(ctx, self._started)
        if not started or ctx.previous != started:
            return absent("it has not run since the node started")
        if short_of_disk(self.work):
            return absent("the disk under the node is too full by now")
        return done("it has run since the node started", result=started)

    def run(self, ctx: Context) -> dict[str, str]:
        deadline = Deadline.after(self.work.settings.timeouts.probe)
        try:
            self._remove(ctx, deadline, wait=True)
            self._run(ctx, deadline)
        except (WaitFailedError, DeadlineError) as error:
            raise short_of_disk(self.work) or self._explained(error) from error
        self._remove(ctx, deadline, wait=False)
        ctx.note("a pod ran a command and wrote its workspace")
        return self.engine_call(ctx, self._started)

    def _explained(self, error: WaitFailedError | DeadlineError) -> HoldfastError:
        log = self.log_of(self.namespace, NAME)
        if isinstance(error, WaitFailedError):
            return WaitFailedError(
                f"the probe pod cannot run: {error.message}\n{log}", hint=self._see(), cause=error
            )
        seconds = self.work.settings.timeouts.probe
        return WaitTimeoutError(
            f"the probe pod was not through within {seconds:g} s: {error.message}\n{log}",
            hint=f"Run the same command again to go on. {self._see()}",
            cause=error,
        )

    def _started(self) -> dict[str, str]:
        """Which start of which container this is; nothing where there is none."""
        container = self.work.container()
        return {} if container is None else {"container": container.id, "started": container.started_at}

    def _run(self, ctx: Context, deadline: Deadline) -> None:
        objects, namespace = self.objects(ctx), self.namespace
        # On a new cluster the account that pods are given appears a moment after the namespace.
        objects.wait("ServiceAccount", "default", _is_there, namespace=namespace, deadline=_left(deadline))
        ctx.check_lock()
        objects.ensure(_claim(self.work.settings.workspace.storage_class), namespace=namespace)
        objects.ensure(_pod(), namespace=namespace)
        until = told(succeeded, ctx.progress)
        objects.wait("Pod", NAME, until, namespace=namespace, deadline=_left(deadline))

    def _remove(self, ctx: Context, deadline: Deadline, *, wait: bool) -> None:
        """Take pod and claim away, those of a run that was killed too; their volume goes with them."""
        objects = self.objects(ctx)
        for kind in ("Pod", "PersistentVolumeClaim"):
            seconds = _left(deadline) if wait else None
            objects.delete(kind, NAME, namespace=self.namespace, wait=seconds)

    def _see(self) -> str:
        path = self.work.files.kubeconfig
        return f"Look: kubectl --kubeconfig {path} -n {self.namespace} describe pod {NAME}"


def _is_there(found: dict[str, Any] | None) -> Sight:
    return Sight(done=found is not None, seen="the namespace has no default account yet")


def _left(deadline: Deadline) -> float:
    return max(_LEAST_SECONDS, deadline.remaining())


def _claim(storage_class: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": NAME, "labels": MANAGED},
        "spec": spec,
    }


def _pod() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "labels": MANAGED},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pod_security(),
            "containers": [
                {
                    "name": "main",
                    "image": HELPER_IMAGE,
                    "imagePullPolicy": "Never",
                    "command": ["/bin/sh", "-c", _COMMAND],
                    "securityContext": container_security(),
                    "resources": {
                        "requests": {"cpu": "10m", "memory": "8Mi"},
                        "limits": {"memory": "64Mi"},
                    },
                    "volumeMounts": [{"name": "workspace", "mountPath": _WORKSPACE}],
                }
            ],
            "volumes": [{"name": "workspace", "persistentVolumeClaim": {"claimName": NAME}}],
        },
    }
