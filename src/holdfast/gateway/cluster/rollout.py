"""Steps that install the gateway's own workloads: namespace, objects, rollout.

A rotated certificate or a new image changes the pod template and so triggers a rollout; nothing else
restarts a pod. `manifests.py` builds the manifests.

The wait conditions are pure functions of pods. A pod whose image cannot be pulled, or that crash-loops, does
not become ready: the condition fails immediately.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from holdfast.api import PUBLISHED_NAMESPACE, build_crds
from holdfast.errors import DeadlineExceededError, WaitFailedError
from holdfast.gateway.base_steps import ClusterStep, remaining_seconds
from holdfast.gateway.cluster.manifests import (
    API_SERVER_NAME,
    BUNDLE_DIGEST_ANNOTATION,
    IMAGE_DIGEST_ANNOTATION,
    MANAGED_LABELS,
    TEMPLATE_ANNOTATION,
    ManifestContext,
    build_workloads,
    deployments_of,
)
from holdfast.gateway.image_push import find_gateway_image, gateway_image_missing_error
from holdfast.gateway.node import disk_pressure_error
from holdfast.gateway.proxy_variables import has_proxy
from holdfast.gateway.spec import GATEWAY_IMAGE
from holdfast.kube import WaitResult, differences, namespace_active, object_deleted, rollout_complete
from holdfast.retry import Deadline
from holdfast.sandbox import CA_CONFIG_MAP, PROXY_SECRET
from holdfast.workflow import ProbeResult, absent, done, partial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.workflow import StepContext

_MAX_NAMES = 4  # longer lists are shown as a count
_MAX_CONCURRENT_READS = 6


class EnsureNamespace(ClusterStep):
    """Create the namespaces of the workloads and of the controller's Lease.

    A namespace that is being deleted is awaited and created again.
    """

    name = "ensure-namespace"
    title = "Namespaces"
    needs = ("wait-api-ready",)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.gateway.settings.namespace, PUBLISHED_NAMESPACE)))

    def probe(self, ctx: StepContext) -> ProbeResult:
        if not self.has_cluster:
            return absent("no cluster yet")
        objects = self.objects(ctx)
        for name in self._names:
            live = objects.get("Namespace", name)
            if live is None:
                return absent(f"no namespace {name} yet")
            if not namespace_active(live).done:
                return partial(
                    f"{name} is {(live.get('status') or {}).get('phase') or 'without a phase yet'}"
                )
        return done(f"{', '.join(self._names)}: Active")

    def run(self, ctx: StepContext) -> None:
        for name in self._names:
            self._ensure(ctx, name)
        ctx.note(f"{', '.join(self._names)}: Active")

    def _ensure(self, ctx: StepContext, name: str) -> None:
        objects, seconds = self.objects(ctx), self.gateway.settings.timeouts.namespace
        live = objects.get("Namespace", name)
        if live is not None and live["metadata"].get("deletionTimestamp"):
            # A terminating namespace accepts no new objects and cannot be restored. The uid excludes a
            # namespace that another client creates meanwhile.
            ctx.progress(f"waiting until {name} is deleted")
            objects.wait("Namespace", name, object_deleted(live["metadata"]["uid"]), deadline=seconds)
            live = None
        if live is None:
            metadata = {"name": name, "labels": MANAGED_LABELS}
            objects.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        objects.wait("Namespace", name, namespace_active, deadline=seconds)


class _WorkloadStep(ClusterStep):
    """A step that needs the desired workloads."""

    def manifest_context(self, ctx: StepContext) -> ManifestContext:
        """The values of the manifests, from the settings, the certificates and the image."""
        settings = self.gateway.settings
        return ManifestContext(
            gateway=self.gateway.name,
            node=self.gateway.node_name,
            namespace=settings.namespace,
            host_port=self.gateway.contract.gateway_port,
            image_digest=self._image_digest(ctx),
            bundle_digest=ctx.result("reconcile-tls")["bundle"],
            sandbox_namespace=settings.sandbox_namespace,
            workspace_size=settings.workspace.size,
            storage_class=settings.workspace.storage_class,
            proxy_secret=PROXY_SECRET if has_proxy(settings.proxy) else "",
            ca_config_map=CA_CONFIG_MAP if settings.sandbox.ca_bundle else "",
        )

    def _image_digest(self, ctx: StepContext) -> str:
        """The image id of this machine's engine, else the one that was deployed before."""
        image = self.engine_call(ctx, lambda: find_gateway_image(self.gateway))
        if image is not None:
            return image.id
        # The deployed digest keeps the pod template: `docker image prune` must not trigger a rollout.
        live = self.objects(ctx).get("Deployment", API_SERVER_NAME, namespace=self.gateway.settings.namespace)
        template = live["spec"]["template"] if live is not None else {}
        if live is not None and template["spec"]["containers"][0].get("image") == GATEWAY_IMAGE:
            annotations = template["metadata"].get("annotations") or {}
            return str(annotations.get(IMAGE_DIGEST_ANNOTATION, ""))
        raise gateway_image_missing_error()


class ApplyWorkloads(_WorkloadStep):
    """Apply every object of the workloads; fields that other clients added stay."""

    name = "apply-workloads"
    title = "Workloads"
    needs = ("reconcile-tls", "push-gateway-image")
    reads = ("reconcile-tls",)

    def probe(self, ctx: StepContext) -> ProbeResult:
        if not self.has_cluster:
            return absent("no cluster yet")
        objects, desired = self.objects(ctx), self._desired_objects(ctx)

        def read(manifest: dict[str, Any]) -> dict[str, Any] | None:
            metadata = manifest["metadata"]
            return objects.get(manifest["kind"], metadata["name"], namespace=metadata.get("namespace"))

        missing, changed = [], []
        # In sequence, each read would cost a round trip, over ssh for a remote gateway.
        for manifest, live in zip(desired, map_concurrently(read, desired), strict=True):
            if live is None:
                missing.append(_object_label(manifest))
            elif paths := differences(manifest, live):
                changed.append(f"{_object_label(manifest)} differs in {_describe_difference(paths)}")
        if changed or missing:
            reason = "; ".join([*changed, *([f"{_summarize_names(missing)} missing"] if missing else [])])
            return partial(reason) if changed else absent(reason)
        return done("up to date")

    def run(self, ctx: StepContext) -> None:
        objects = self.objects(ctx)
        names_by_effect: dict[str, list[str]] = {}
        # In this order: a Namespace precedes the objects in it. A kill leaves the first objects applied; the
        # probe of the next run finds the others missing or different.
        for manifest in self._desired_objects(ctx):
            # Before each write: over ssh, the lock can be lost between two of them.
            ctx.check_lock()
            ctx.progress(f"applying {_object_label(manifest)}")
            # `force` takes over fields that another field manager owns, for example after `kubectl edit`.
            effect = objects.apply(manifest, force=True).effect
            names_by_effect.setdefault(effect, []).append(_object_label(manifest))
        names_by_effect.pop("unchanged", None)
        notes = [f"{_summarize_names(names)} {effect}" for effect, names in names_by_effect.items()]
        ctx.note("; ".join(notes) or "up to date")

    def _desired_objects(self, ctx: StepContext) -> list[dict[str, Any]]:
        """The CRDs, with the pod schema of this cluster's version, then the workloads."""
        from holdfast.kube import fetch_openapi

        api, policy = self.gateway.api_client, self.call_policy(ctx)
        seconds = self.gateway.settings.timeouts.request
        core, networking = map_concurrently(
            lambda version: fetch_openapi(api, version, policy, timeout=seconds),
            ("v1", "networking.k8s.io/v1"),
        )
        return [*build_crds(core, networking), *build_workloads(self.manifest_context(ctx))]


def map_concurrently(call: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
    """Call a function for each argument on a few threads; the caller's deadline applies to all calls."""
    with ThreadPoolExecutor(_MAX_CONCURRENT_READS) as pool:
        # Deadlines are context variables, which new threads do not inherit.
        calls = [pool.submit(copy_context().run, call, argument) for argument in arguments]
        return [each.result() for each in calls]


class WaitRollout(_WorkloadStep):
    """Wait until the newest pods run; fail immediately on a missing image or a crash loop."""

    name = "wait-rollout"
    title = "Rollout"
    needs = ("apply-workloads",)
    repeat = "always"

    def run(self, ctx: StepContext) -> None:
        deadline = Deadline.after(self.gateway.settings.timeouts.rollout)
        deployments = deployments_of(build_workloads(self.manifest_context(ctx)))
        for deployment in deployments:
            self._wait_for_deployment(ctx, deployment, deadline)
        ctx.note(", ".join(deployment["metadata"]["name"] for deployment in deployments))

    def _wait_for_deployment(self, ctx: StepContext, deployment: dict[str, Any], deadline: Deadline) -> None:
        objects, metadata = self.objects(ctx), deployment["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        match_labels = deployment["spec"]["selector"]["matchLabels"]
        pods = TemplatePods(deployment["spec"]["template"])
        try:
            # The pods first: they report a missing image or a crash loop within seconds. The Deployment only
            # reports that its progress deadline has passed, ten minutes later.
            objects.wait_many(
                "Pod",
                report_changes(pods, lambda state: ctx.progress(f"{name}: {state}")),
                label_selector=",".join(f"{key}={value}" for key, value in match_labels.items()),
                namespace=namespace,
                deadline=remaining_seconds(deadline),
            )
            objects.wait(
                "Deployment",
                name,
                rollout_complete,
                namespace=namespace,
                deadline=remaining_seconds(deadline),
            )
        except (WaitFailedError, DeadlineExceededError) as error:
            log = self.pod_log(namespace, pods.last_name) if pods.last_name else ""
            raise disk_pressure_error(self.gateway) or self.wait_error(
                error,
                name,
                f"{pods.last_state or 'no pod was created'}\n{log}".rstrip(),
                within=f"not ready within {self.gateway.settings.timeouts.rollout:g} s",
                hint=self.describe_hint(namespace, f"deployment {name}"),
            ) from error


class TemplatePods:
    """The condition that a running pod of a template is ready; records the last pod for error messages."""

    def __init__(self, template: dict[str, Any]) -> None:
        self._template = template
        self.last_name = ""
        self.last_state = ""

    def __call__(self, pods: list[dict[str, Any]]) -> WaitResult:
        matching = [pod for pod in pods if matches_template(self._template, pod)]
        for pod in matching:
            self.last_name = pod["metadata"]["name"]
        # An evicted or terminating pod still has the hash of the template, but its ReplicaSet replaces it.
        result = self._evaluate([pod for pod in matching if not _is_finished(pod)], len(pods) > len(matching))
        self.last_state = result.failed or result.observed
        return result

    @staticmethod
    def _evaluate(current: list[dict[str, Any]], has_others: bool) -> WaitResult:
        if not current:
            return WaitResult(observed="the old pod is terminating" if has_others else "no pod yet")
        for pod in current:
            if failure := permanent_failure(pod):
                return WaitResult(failed=failure, observed=failure)
        is_ready = any(_is_ready(pod) for pod in current)
        return WaitResult(done=is_ready, observed="ready" if is_ready else pod_progress(current[0]))


def _summarize_names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= _MAX_NAMES else f"{len(names)} objects"


def _object_label(manifest: dict[str, Any]) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def _describe_difference(paths: list[str]) -> str:
    """Name the cause of a rollout instead of the paths that it changed."""
    if any(BUNDLE_DIGEST_ANNOTATION in path for path in paths):
        return "its certificates"
    if any(IMAGE_DIGEST_ANNOTATION in path for path in paths):
        return "its image"
    return paths[0]


# Waiting reasons of a container that only a change of the pod or its image resolves.
PERMANENT_WAITING_REASONS = frozenset({
    "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull",
    "ErrImagePull", "ImageInspectError", "ImagePullBackOff", "InvalidImageName", "RunContainerError",
})  # fmt: skip

_WAITING_TEXTS = {"ContainerCreating": "creating its container", "PodInitializing": "initializing"}


def matches_template(template: dict[str, Any], pod: dict[str, Any]) -> bool:
    """Whether a pod has the hash of this template, and a spec that nothing has changed since."""
    expected = template["metadata"]["annotations"][TEMPLATE_ANNOTATION]
    actual = (pod["metadata"].get("annotations") or {}).get(TEMPLATE_ANNOTATION)
    # The hash alone does not suffice: Kubernetes lets clients change the image of a running pod, and keeps
    # the annotation.
    return actual == expected and not differences(template["spec"], pod.get("spec"))


def pod_succeeded(pod: dict[str, Any] | None) -> WaitResult:
    """Condition: the pod has run to completion. Fails if the pod failed or cannot start."""
    if pod is None:
        return WaitResult(observed="no pod yet")
    phase = _status(pod).get("phase")
    if phase == "Failed":
        return WaitResult(failed=f"failed{_exit_code_text(pod)}")
    if failure := permanent_failure(pod):
        return WaitResult(failed=failure)
    return WaitResult(done=phase == "Succeeded", observed=pod_progress(pod))


def report_changes(
    condition: Callable[[Any], WaitResult], on_change: Callable[[str], None]
) -> Callable[[Any], WaitResult]:
    """Return the same condition, which calls `on_change` whenever the observed state changes."""
    last = ""

    def reporting(observed: Any) -> WaitResult:
        nonlocal last
        result = condition(observed)
        if result.observed != last:
            last = result.observed
            on_change(result.observed)
        return result

    return reporting


def permanent_failure(pod: dict[str, Any]) -> str:
    """Why waiting for this pod cannot help; empty while it may."""
    for status in _container_statuses(pod):
        waiting = (status.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in PERMANENT_WAITING_REASONS:
            message = str(waiting.get("message") or "").strip().split("\n", 1)[0]
            return f"{waiting['reason']}: {message}" if message else str(waiting["reason"])
    return ""


def pod_progress(pod: dict[str, Any]) -> str:
    """The state of a pod that is not ready, in a few words."""
    for status in _container_statuses(pod):
        state = status.get("state") or {}
        reason = (state.get("waiting") or {}).get("reason")
        if reason:
            return _WAITING_TEXTS.get(reason, str(reason))
        if state.get("running"):
            return "started, not ready yet"
    for condition in _status(pod).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"not scheduled yet: {condition.get('message') or condition.get('reason')}"
    return str(_status(pod).get("phase") or "no phase yet").lower()


def _status(pod: dict[str, Any]) -> dict[str, Any]:
    return pod.get("status") or {}


def _container_statuses(pod: dict[str, Any]) -> list[dict[str, Any]]:
    status = _status(pod)
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _is_finished(pod: dict[str, Any]) -> bool:
    phase = _status(pod).get("phase")
    return bool(pod["metadata"].get("deletionTimestamp")) or phase in ("Failed", "Succeeded")


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = _status(pod).get("conditions") or ()
    return any(row.get("type") == "Ready" and row.get("status") == "True" for row in conditions)


def _exit_code_text(pod: dict[str, Any]) -> str:
    for status in _container_statuses(pod):
        terminated = (status.get("state") or {}).get("terminated")
        if terminated:
            return f" with exit code {terminated.get('exitCode')}"
    reason = _status(pod).get("reason")
    return f" ({reason})" if reason else ""
