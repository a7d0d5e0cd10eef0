"""holdfast's own workloads on the gateway: applied as they should be, then waited for until they run.

Certificates that were rotated and an image that was built anew change the pod template, and that is what
makes a rollout: nothing is restarted for any other reason. Not here: the manifests (gateway/workloads).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.containers.images import find_image
from holdfast.engine import Verdict, absent, done, partial
from holdfast.errors import (
    DeadlineError,
    HoldfastError,
    WaitFailedError,
    WaitTimeoutError,
)
from holdfast.gateway.pressure import short_of_disk
from holdfast.gateway.push import source_engine
from holdfast.gateway.steps.cluster import ClusterStep
from holdfast.gateway.steps.push import no_gateway_image
from holdfast.gateway.workloads import deployments, manifests
from holdfast.gateway.workloads.api_server import NAME
from holdfast.gateway.workloads.blueprint import (
    BUNDLE_DIGEST,
    GATEWAY_IMAGE,
    IMAGE_DIGEST,
    Blueprint,
)
from holdfast.gateway.workloads.sights import is_made_from, template_ready, told
from holdfast.kube.compare import differences
from holdfast.kube.conditions import rollout_done
from holdfast.retry import Deadline
from holdfast.sandbox.crds import crds

if TYPE_CHECKING:
    from holdfast.engine import Context

_LEAST_SECONDS = 0.1
_NAMED = 4
"""More names than this on one line are read by nobody."""


class _WorkloadStep(ClusterStep):
    """What both steps know of the workloads."""

    def blueprint(self, ctx: Context) -> Blueprint:
        """The workloads as they have to be, from the certificates and the image that there are."""
        return Blueprint(
            gateway=self.work.name,
            namespace=self.work.settings.namespace,
            host_port=self.work.profile.gateway_port,
            image_digest=self._image_digest(ctx),
            bundle_digest=ctx.result("reconcile-tls")["bundle"],
            sandbox_namespace=self.work.settings.sandbox_namespace,
            workspace_size=self.work.settings.workspace.size,
            storage_class=self.work.settings.workspace.storage_class,
        )

    def _image_digest(self, ctx: Context) -> str:
        """The image as this machine has it, else as the node got it earlier."""
        image = self.engine_call(ctx, lambda: find_image(source_engine(self.work), GATEWAY_IMAGE))
        if image is not None:
            return image.id
        live = self.objects(ctx).get("Deployment", NAME, namespace=self.work.settings.namespace)
        if live is not None and _runs(live) == GATEWAY_IMAGE:
            annotations = live["spec"]["template"]["metadata"].get("annotations") or {}
            return str(annotations.get(IMAGE_DIGEST, ""))
        raise no_gateway_image()


class ApplyWorkloads(_WorkloadStep):
    """Every object as its manifest says; what others added beside our fields stays theirs."""

    name = "apply-workloads"
    title = "Workloads"
    needs = ("reconcile-tls", "push-gateway-image")
    reads = ("reconcile-tls",)

    def probe(self, ctx: Context) -> Verdict:
        if not self.has_cluster:
            return absent("there is no cluster yet")
        objects = self.objects(ctx)
        missing, changed = [], []
        for each in self._wanted(ctx):
            about = each["metadata"]
            live = objects.get(each["kind"], about["name"], namespace=about.get("namespace"))
            if live is None:
                missing.append(_label(each))
            elif paths := differences(each, live):
                changed.append(f"{_label(each)} differs in {_why(paths)}")
        if changed or missing:
            reason = "; ".join([*changed, *([f"{_few(missing)} not there"] if missing else [])])
            return partial(reason) if changed else absent(reason)
        return done("as they should be")

    def run(self, ctx: Context) -> None:
        objects = self.objects(ctx)
        did: dict[str, list[str]] = {}
        for each in self._wanted(ctx):
            ctx.check_lock()
            ctx.progress(f"applying {_label(each)}")
            result = objects.apply(each, force=True)
            did.setdefault(result.did, []).append(_label(each))
        said = [f"{_few(names)} {word}" for word, names in did.items() if word != "unchanged"]
        ctx.note("; ".join(said) or "as they should be")

    def _wanted(self, ctx: Context) -> list[dict[str, Any]]:
        """The kinds of sandboxes as this cluster's version describes their pods, then what runs."""
        from holdfast.kube.openapi import openapi

        api, calls = self.work.api_client, self.calls(ctx)
        seconds = self.work.settings.timeouts.request
        core, networking = (
            openapi(api, version, calls, timeout=seconds) for version in ("v1", "networking.k8s.io/v1")
        )
        return [*crds(core, networking), *manifests(self.blueprint(ctx))]


class WaitRollout(_WorkloadStep):
    """Only looks: until the newest version runs; an image that is missing or a crash loop ends it at once."""

    name = "wait-rollout"
    title = "Rollout"
    needs = ("apply-workloads",)
    repeat = "always"

    def run(self, ctx: Context) -> None:
        deadline = Deadline.after(self.work.settings.timeouts.rollout)
        names = []
        for each in deployments(self.blueprint(ctx)):
            self._wait(ctx, each, deadline)
            names.append(each["metadata"]["name"])
        ctx.note(", ".join(names))

    def _wait(self, ctx: Context, deployment: dict[str, Any], deadline: Deadline) -> None:
        objects, metadata = self.objects(ctx), deployment["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        selector = deployment["spec"]["selector"]["matchLabels"]
        labels = ",".join(f"{key}={value}" for key, value in selector.items())
        seen = _LastPod(deployment["spec"]["template"])
        until = told(seen, lambda words: ctx.progress(f"{name}: {words}"))
        try:
            objects.wait_many("Pod", until, labels=labels, namespace=namespace, deadline=_left(deadline))
            objects.wait("Deployment", name, rollout_done, namespace=namespace, deadline=_left(deadline))
        except (WaitFailedError, DeadlineError) as error:
            raise short_of_disk(self.work) or self._explained(error, name, namespace, seen) from error

    def _explained(
        self, error: WaitFailedError | DeadlineError, name: str, namespace: str, seen: _LastPod
    ) -> HoldfastError:
        log = self.log_of(namespace, seen.pod) if seen.pod else ""
        if isinstance(error, WaitFailedError):
            return WaitFailedError(
                f"{name} cannot run: {seen.trouble}\n{log}".rstrip(),
                hint=self._see(namespace, name),
                cause=error,
            )
        seconds = self.work.settings.timeouts.rollout
        return WaitTimeoutError(
            f"{name} did not run within {seconds:g} s: {seen.trouble or 'it made no pod'}\n{log}".rstrip(),
            hint=f"Run the same command again to go on waiting. {self._see(namespace, name)}",
            cause=error,
        )

    def _see(self, namespace: str, name: str) -> str:
        path = self.work.files.kubeconfig
        return f"Look: kubectl --kubeconfig {path} -n {namespace} describe deployment {name}"


class _LastPod:
    """A condition that remembers which pod it saw last, and how that was: for the error."""

    def __init__(self, template: dict[str, Any]) -> None:
        self._until = template_ready(template)
        self._template = template
        self.pod = ""
        self.trouble = ""

    def __call__(self, pods: Any) -> Any:
        sight = self._until(pods)
        self.trouble = sight.failed or sight.seen
        for pod in pods:
            if is_made_from(self._template, pod):
                self.pod = pod["metadata"]["name"]
        return sight


def _runs(deployment: dict[str, Any]) -> str:
    """The image of a Deployment's first container."""
    return str(deployment["spec"]["template"]["spec"]["containers"][0].get("image", ""))


def _few(names: list[str]) -> str:
    """All of them by name, or how many there are."""
    return ", ".join(names) if len(names) <= _NAMED else f"{len(names)} objects"


def _label(manifest: dict[str, Any]) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def _why(paths: list[str]) -> str:
    """The differences that matter to a reader: a rotated certificate is not a list of five paths."""
    if any(BUNDLE_DIGEST in path for path in paths):
        return "its certificates"
    if any(IMAGE_DIGEST in path for path in paths):
        return "its image"
    return paths[0]


def _left(deadline: Deadline) -> float:
    return max(_LEAST_SECONDS, deadline.remaining())
