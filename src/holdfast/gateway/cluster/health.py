"""Steps that verify a gateway: its servers answer as clients see them, and a smoke-test pod runs.

A stopped container ends the wait immediately, with its log. A published port cannot be watched, so the checks
are repeated by policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.containers import container_logs, is_transient
from holdfast.errors import (
    ApiUnreachableError,
    ContainerEngineError,
    ContainerEngineUnreachableError,
    DeadlineExceededError,
    HoldfastError,
    HostUnreachableError,
    NodeStoppedError,
    NotHealthyYetError,
    WaitFailedError,
    WaitTimeoutError,
)
from holdfast.gateway.base_steps import LOG_LINES, ClusterStep, indent_log, remaining_seconds
from holdfast.gateway.cluster.kubeconfig import get_gateway_info, kubernetes_get
from holdfast.gateway.cluster.manifests import API_SERVER_NAME, MANAGED_LABELS
from holdfast.gateway.cluster.rollout import permanent_failure, pod_succeeded, report_changes
from holdfast.gateway.node import disk_pressure_error
from holdfast.gateway.reconnect import reopen_tunnel_on_retry
from holdfast.kube import WaitResult
from holdfast.retry import Deadline, Policy, exponential
from holdfast.workflow import ProbeResult, absent, done

if TYPE_CHECKING:
    from holdfast.gateway.context import GatewayContext
    from holdfast.workflow import StepContext

POD_NAME = "holdfast-probe"
# A small image with a shell that every node contains.
HELPER_IMAGE = "holdfast.dev/helper:1"

_ENGINE_ERRORS = (ContainerEngineError, ContainerEngineUnreachableError, HostUnreachableError)
_NONROOT_ID = 65532
_WORKSPACE = "/sandbox"
_COMMAND = f'echo holdfast > {_WORKSPACE}/probe && sync && test "$(cat {_WORKSPACE}/probe)" = holdfast'


class WaitHealthy(ClusterStep):
    """Wait until the container, Kubernetes and the gateway's own API are healthy."""

    name = "wait-healthy"
    title = "Healthy"
    needs = ("wait-node-ready",)
    repeat = "always"

    def run(self, ctx: StepContext) -> None:
        seconds = self.gateway.settings.timeouts.health
        # Not `ctx.retry`: a line for each retry would fill the output. Retries appear as progress instead.
        policy = Policy(
            attempts=None,
            deadline=seconds,
            backoff=exponential(0.1, cap=2.0),
            retry_on=_is_retryable,
            on_retry=reopen_tunnel_on_retry(
                self.gateway, lambda event: ctx.progress(self._progress_message(event.reason))
            ),
            stop=ctx.stop,
        )
        try:
            note = policy.call(self._check_all)
        except (NotHealthyYetError, ApiUnreachableError, TimeoutError, *_ENGINE_ERRORS) as error:
            if isinstance(error, _ENGINE_ERRORS) and not is_transient(error):
                raise
            name, reason = self.gateway.name, getattr(error, "message", None) or error
            raise WaitTimeoutError(
                f"gateway {name}: not healthy within {seconds:g} s: {reason}\n{self._node_log()}",
                hint="Run the same command again to continue waiting. "
                f"See `holdfast logs {name}` and `holdfast status {name}`.",
                cause=error,
            ) from error
        self._confirm_client_files(ctx)
        ctx.note(note)

    def _check_all(self) -> str:
        """Run every check once; raise the error of the first that fails."""
        # Before the requests: if the node has exited, they would be retried until the timeout.
        self._check_container()
        kubernetes_get(self.gateway, "/readyz")
        if not self.gateway.settings.workloads:
            return "node and Kubernetes"
        self._check_gateway_api()
        return f"node, Kubernetes and the gateway's API on {self.gateway.gateway_api_url}"

    def _check_container(self) -> None:
        container = self.gateway.container()
        if container is None or container.state != "running":
            state = f"is {container.state} (exit code {container.exit_code})" if container else "is missing"
            raise NodeStoppedError(
                f"gateway {self.gateway.name}: the container {state}:\n{self._node_log()}",
                hint=f"See `holdfast logs {self.gateway.name}`, then run the same command again.",
            )
        if container.health == "unhealthy":
            raise NotHealthyYetError("the container engine reports the container as unhealthy")

    def _check_gateway_api(self) -> None:
        identity = self.gateway.files.client_certificates.read().value
        if identity is None:
            raise NotHealthyYetError("the client certificate files are missing")
        try:
            body = get_gateway_info(self.gateway, identity)
        except ApiUnreachableError:
            self._check_pods()
            raise
        name = _gateway_name(body)
        if name != self.gateway.name:
            raise NotHealthyYetError(
                f"{self.gateway.gateway_api_url} belongs to gateway {name or '(no name)'}"
            )

    def _check_pods(self) -> None:
        """End the wait if a pod of the API server cannot run: the port would never answer."""
        namespace = self.gateway.settings.namespace
        selector = f"labelSelector=app.kubernetes.io/name={API_SERVER_NAME}"
        pods = kubernetes_get(self.gateway, f"/api/v1/namespaces/{namespace}/pods?{selector}").body
        for pod in msgspec.json.decode(pods)["items"]:
            if failure := permanent_failure(pod):
                name = pod["metadata"]["name"]
                raise WaitFailedError(
                    f"{API_SERVER_NAME}: cannot run: {failure}\n{self.pod_log(namespace, name)}",
                    hint=self.describe_hint(namespace, f"pod {name}"),
                )

    def _confirm_client_files(self, ctx: StepContext) -> None:
        """Delete the previous client files; only now have the new ones been accepted by the server."""
        # A step with `repeat = "always"` also runs in a preview, which must not change anything.
        if not self.gateway.settings.workloads or ctx.is_preview:
            return
        files = self.gateway.files.client_certificates
        if files.is_unconfirmed:
            files.confirm()

    def _progress_message(self, reason: str) -> str:
        return f"{reason} | {self._node_output(1).strip() or 'no output of the node yet'}"

    def _node_log(self) -> str:
        return indent_log(self._node_output(LOG_LINES))

    def _node_output(self, lines: int) -> str:
        """The last lines of the node; an engine error here must not hide the error to report."""
        try:
            if self.gateway.container() is None:
                return ""
            return container_logs(self.gateway.engine, self.gateway.object_name, tail=lines)
        except HoldfastError as error:
            return f"(cannot read the container log: {error.message})"


def _is_retryable(error: BaseException) -> bool:
    """Decide by type: other errors include a log, whose text must not decide."""
    if isinstance(error, _ENGINE_ERRORS):
        return is_transient(error)
    return isinstance(error, NotHealthyYetError | ApiUnreachableError)


def _gateway_name(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body, type=dict).get("name", ""))
    except msgspec.MsgspecError:
        return ""


class RunSmokeTest(ClusterStep):
    """Run a pod that writes its workspace; once per start of the container.

    The result stays valid while the same container runs, unless the node gets into DiskPressure.
    """

    name = "run-probe"
    title = "Smoke test"
    # The pod is deleted afterwards: after a kill the probe cannot tell whether it ran. A rerun is harmless.
    repeat = "at-least-once"

    def __init__(self, gateway: GatewayContext) -> None:
        super().__init__(gateway)
        self.needs = ("ensure-namespace",) if gateway.settings.workloads else ("wait-api-ready",)
        self.namespace = gateway.settings.namespace if gateway.settings.workloads else "default"

    def probe(self, ctx: StepContext) -> ProbeResult:
        started = self.engine_call(ctx, self._container_start)
        if not started or ctx.previous_result != started:
            return absent("it has not run since the node started")
        if disk_pressure_error(self.gateway):
            return absent("the node is under disk pressure")
        return done("it has run since the node started", result=started)

    def run(self, ctx: StepContext) -> dict[str, str]:
        # Before the test: a start during the test is not the tested one.
        started = self.engine_call(ctx, self._container_start)
        deadline = Deadline.after(self.gateway.settings.timeouts.probe)
        try:
            self._delete_objects(ctx, deadline, wait=True)
            self._run_pod(ctx, deadline)
        except (WaitFailedError, DeadlineExceededError) as error:
            # Pod and PVC stay for the `kubectl describe` of the hint; the next run deletes them first.
            raise disk_pressure_error(self.gateway) or self.wait_error(
                error,
                "smoke test",
                f"{error.message}\n{self.pod_log(self.namespace, POD_NAME)}",
                within=f"not finished within {self.gateway.settings.timeouts.probe:g} s",
                hint=self.describe_hint(self.namespace, f"pod {POD_NAME}"),
            ) from error
        # The next run waits for leftovers, so this one need not wait until the volume is deleted.
        self._delete_objects(ctx, deadline, wait=False)
        ctx.note("a pod ran a command and wrote its workspace")
        return started

    def _container_start(self) -> dict[str, str]:
        """Identify the current start of the container; empty without a container."""
        container = self.gateway.container()
        # The id alone does not suffice: a container keeps it when it restarts.
        return {} if container is None else {"container": container.id, "started": container.started_at}

    def _run_pod(self, ctx: StepContext, deadline: Deadline) -> None:
        def wait(kind: str, name: str, condition: Any) -> None:
            objects.wait(
                kind, name, condition, namespace=self.namespace, deadline=remaining_seconds(deadline)
            )

        objects = self.objects(ctx)
        # On a new cluster the default service account appears a moment after its namespace.
        wait("ServiceAccount", "default", _service_account_exists)
        ctx.check_lock()
        objects.ensure(_pvc_manifest(self.gateway.settings.workspace.storage_class), namespace=self.namespace)
        objects.ensure(_pod_manifest(), namespace=self.namespace)
        wait("Pod", POD_NAME, report_changes(pod_succeeded, ctx.progress))

    def _delete_objects(self, ctx: StepContext, deadline: Deadline, *, wait: bool) -> None:
        """Delete pod and PVC, also those of a killed run; their volume is deleted with them."""
        objects = self.objects(ctx)
        # The pod first: the finalizer `kubernetes.io/pvc-protection` keeps a PVC while a pod uses it.
        for kind in ("Pod", "PersistentVolumeClaim"):
            seconds = remaining_seconds(deadline) if wait else None
            objects.delete(kind, POD_NAME, namespace=self.namespace, wait=seconds)


def _service_account_exists(live: dict[str, Any] | None) -> WaitResult:
    return WaitResult(done=live is not None, observed="the namespace has no default service account yet")


def _pvc_manifest(storage_class: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    metadata = {"name": POD_NAME, "labels": MANAGED_LABELS}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _pod_manifest() -> dict[str, Any]:
    container = {
        "name": "main",
        "image": HELPER_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", _COMMAND],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": {"memory": "64Mi"}},
        "volumeMounts": [{"name": "workspace", "mountPath": _WORKSPACE}],
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NONROOT_ID,
            "runAsGroup": _NONROOT_ID,
            "fsGroup": _NONROOT_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "workspace", "persistentVolumeClaim": {"claimName": POD_NAME}}],
    }
    metadata = {"name": POD_NAME, "labels": MANAGED_LABELS}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
