"""Manifests for a SandboxRequest: a Sandbox, or a SandboxClaim if the request names a template.

The same request always gives the same manifest, so that a repeated request can be compared with the existing
object.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import __version__
from holdfast.api import (
    API_VERSION,
    EXTENSIONS_API_VERSION,
    FAILED_PODS_ANNOTATION,
    IDLE_SUSPEND_AFTER_ANNOTATION,
    MANAGED_BY_LABEL,
    SANDBOX_ID_LABEL,
    ShutdownPolicy,
    Workspace,
    format_timestamp,
)
from holdfast.errors import UsageError
from holdfast.kube import parse_quantity
from holdfast.sandbox import workspace as workspaces
from holdfast.sandbox.host_settings import HostSettings
from holdfast.sandbox.manifests import network_policy_name, tracking_labels
from holdfast.sandbox.secrets import check_secret_uses, env_sources, secret_mounts, secret_volumes
from holdfast.sandbox.validation import claim_pod_labels, reject_reserved_labels, require_memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from holdfast.api import SandboxRequest

# Label of pods whose request has network rules. A policy that outlives its sandbox does not select the pod of
# a later sandbox without rules.
OWN_POLICY_LABELS = {"holdfast.dev/network-policy": "own"}
SANDBOX_IMAGES = ("holdfast/sandbox", "holdfast/sandbox-full")
# The sandbox images of this version of holdfast.
CURRENT_IMAGES = tuple(f"{name}:{__version__}" for name in SANDBOX_IMAGES)
DEFAULT_IMAGE = CURRENT_IMAGES[0]
_NONE = HostSettings()
CONTAINER_NAME = "sandbox"
RUNTIME_PORT = 8888
# Secret with a client certificate for the gateway's API, mounted into sandboxes if it exists. holdfast does
# not create it: the holder of such a certificate controls every sandbox.
TLS_SECRET = "holdfast-sandbox-tls"  # noqa: S105 (a name)
TLS_PATH = "/etc/holdfast/tls"
# Variables that holdfast sets and users cannot change; the last four need an endpoint.
RESERVED_VARIABLES = (
    "HOLDFAST_SANDBOX_ID", "HOLDFAST_SANDBOX",
    "HOLDFAST_ENDPOINT", "HOLDFAST_TLS_CA", "HOLDFAST_TLS_CERT", "HOLDFAST_TLS_KEY",
)  # fmt: skip

_SANDBOX_UID = 1000
_CPU_LIMIT, _MEMORY_LIMIT = "2", "2Gi"
_CPU_REQUEST, _MEMORY_REQUEST = "50m", "64Mi"
_GRACE_SECONDS = 10
# Never change it: the ID of every existing sandbox depends on it.
_SANDBOX_ID_NAMESPACE = uuid.UUID("6a1f4d0e-5b0c-5f0e-9a5b-1d6f0b5d7c42")
_SEED_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID")
# Root in other images keeps what package managers need, and nothing that affects the host.
_ROOT_CAPABILITIES = (*_SEED_CAPABILITIES, "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID")


def sandbox_manifest(
    request: SandboxRequest, *, namespace: str, endpoint: str | None, host_settings: HostSettings = _NONE
) -> dict[str, Any]:
    """Build the Sandbox for a request.

    Args:
        request: the request, with its shutdown time resolved.
        namespace: namespace of the sandbox.
        endpoint: URL of the gateway's API as seen from sandboxes; None if sandboxes cannot use it.
        host_settings: proxy and CA certificates of the gateway's host.

    Raises:
        UsageError: the request sets a reserved label or environment variable, too little memory, or the same
            secret twice.
    """
    annotations: dict[str, str] = {FAILED_PODS_ANNOTATION: request.failed_pods}
    if request.idle_suspend_after is not None:
        annotations[IDLE_SUSPEND_AFTER_ANNOTATION] = str(request.idle_suspend_after)
    labels = _sandbox_labels(request, namespace)
    pod_labels = labels | (OWN_POLICY_LABELS if _policy_rules(request) else {})
    spec: dict[str, Any] = {
        "podTemplate": {
            "metadata": {"labels": pod_labels},
            "spec": pod_spec(request, namespace, endpoint, host_settings),
        },
        **_lifecycle_fields(request),
        **volume_claim_templates(request),
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "Sandbox",
        "metadata": {
            "name": request.name,
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
    }


def resolve_shutdown_time(request: SandboxRequest, now: datetime) -> SandboxRequest:
    """Replace `shutdown_after` by a `shutdown_time` in whole seconds, as Kubernetes stores it.

    Raises:
        UsageError: the request has both.
    """
    if request.shutdown_after is None:
        return request
    if request.shutdown_time is not None:
        raise UsageError("shutdown_time and shutdown_after exclude each other", hint="Omit one of them.")
    end = now.replace(microsecond=0) + timedelta(seconds=request.shutdown_after)
    return msgspec.structs.replace(request, shutdown_time=end, shutdown_after=None)


def sandbox_claim_manifest(request: SandboxRequest, *, namespace: str, pool: str) -> dict[str, Any]:
    """Build the SandboxClaim for a request that names a template.

    Args:
        request: the request; besides the template it may set labels, environment and shutdown time.
        namespace: namespace of the SandboxClaim.
        pool: a warm pool of the template.

    Raises:
        UsageError: the request sets a field that only the template may set.
    """
    template_fields = {
        "image": request.image, "command": request.command, "args": request.args, "cpu": request.cpu,
        "memory": request.memory, "network_policy": request.network_policy,
        "idle_suspend_after": request.idle_suspend_after, "secrets": request.secrets or None,
        "workspace": None if request.workspace is True else request.workspace,
        "failed_pods": None if request.failed_pods == "Recreate" else request.failed_pods,
    }  # fmt: skip
    conflicts = [name for name, value in template_fields.items() if value is not None]
    if conflicts:
        raise UsageError(
            f"template {request.template} determines {', '.join(conflicts)}",
            hint="Omit these options, or omit the template.",
        )
    spec: dict[str, Any] = {"warmPoolRef": {"name": pool}}
    labels = _sandbox_labels(request, namespace)
    if pod_labels := claim_pod_labels(request.labels):
        spec["additionalPodMetadata"] = {"labels": pod_labels}
    if request.env:
        spec["env"] = env_list(request.env)
    if lifecycle := _lifecycle_fields(request):
        spec["lifecycle"] = lifecycle
    return {
        "apiVersion": EXTENSIONS_API_VERSION,
        "kind": "SandboxClaim",
        "metadata": {
            "name": request.name,
            "namespace": namespace,
            "labels": labels,
            # The sandbox gets it from the SandboxClaim: without it, failed pods are kept.
            "annotations": {FAILED_PODS_ANNOTATION: request.failed_pods},
        },
        "spec": spec,
    }


def network_policy_manifest(request: SandboxRequest, *, namespace: str) -> dict[str, Any] | None:
    """Build the NetworkPolicy for a request; None if the request has no rules."""
    rules, own_id = _policy_rules(request), sandbox_id(request.name, namespace=namespace)
    if not rules:
        return None
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": network_policy_name(request.name),
            "namespace": namespace,
            "labels": {MANAGED_BY_LABEL: "holdfast", **tracking_labels(request.name)},
        },
        "spec": {
            # By the ID: it is easy to find a name with the same tracking label, a hash of 32 bits.
            "podSelector": {"matchLabels": {SANDBOX_ID_LABEL: own_id, **OWN_POLICY_LABELS}},
            "policyTypes": [direction.capitalize() for direction in rules],
            **rules,
        },
    }


def _policy_rules(request: SandboxRequest) -> dict[str, list[Any]]:
    """Rules by direction. An empty list denies all connections; an omitted direction is not restricted."""
    policy = request.network_policy
    rules = {} if policy is None else {"ingress": policy.ingress, "egress": policy.egress}
    return {direction: listed for direction, listed in rules.items() if listed is not None}


def _lifecycle_fields(request: SandboxRequest) -> dict[str, str]:
    if request.shutdown_time is None:
        return {}
    return {
        "shutdownTime": format_timestamp(request.shutdown_time),
        "shutdownPolicy": ShutdownPolicy.RETAIN.value,
    }


def sandbox_id(name: str, *, namespace: str) -> str:
    """ID of a sandbox; a recreated sandbox with the same name has the same ID."""
    return str(uuid.uuid5(_SANDBOX_ID_NAMESPACE, f"{namespace}/{name}"))


def is_sandbox_image(image: str) -> bool:
    """Whether an image is one of holdfast's sandbox images, from any registry."""
    # Every registry counts: the name of holdfast's image only removes permissions, so another image gains
    # nothing by it.
    name = image.partition("@")[0]
    head, _, tail = name.rpartition("/")
    name = f"{head}/{tail.partition(':')[0]}"
    return any(name == own or name.endswith(f"/{own}") for own in SANDBOX_IMAGES)


def volume_claim_templates(request: SandboxRequest) -> dict[str, Any]:
    """The field of a spec with the PVC of the requested workspace; empty without a workspace."""
    workspace = _requested_workspace(request)
    if workspace is None:
        return {}
    return {"volumeClaimTemplates": [workspaces.volume_claim_template(workspace)]}


def pod_spec(
    request: SandboxRequest, namespace: str | None, endpoint: str | None, host_settings: HostSettings
) -> dict[str, Any]:
    """Build the spec of a sandbox's pod.

    Args:
        request: the request.
        namespace: namespace of the sandbox; None for a template, whose sandboxes have names of their own.
        endpoint: URL of the gateway's API as seen from sandboxes; None if sandboxes cannot use it.
        host_settings: proxy and CA certificates of the gateway's host.

    Raises:
        UsageError: the request sets a reserved environment variable, or too little memory.
    """
    image, workspace = request.image or DEFAULT_IMAGE, _requested_workspace(request)
    is_own, resources = is_sandbox_image(image), build_resources(request.cpu, request.memory)
    container: dict[str, Any] = {
        "name": CONTAINER_NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            *_env_vars(request, namespace, endpoint),
            *host_settings.variables(overridden=request.env),
        ],
        "resources": resources,
        "securityContext": container_security(is_own=is_own),
        # The kubelet then copies the end of a failed container's log into its status, and the Ready condition
        # shows it.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if sources := env_sources(request.secrets):
        container["envFrom"] = sources
    for field, arguments in (("command", request.command), ("args", request.args)):
        if arguments is not None:
            container[field] = [_escape_expansion(argument) for argument in arguments]
    if is_own and request.command is None and request.args is None:
        container["ports"] = runtime_ports()
    pod: dict[str, Any] = {
        # Code in a sandbox is untrusted: it gets neither a token for the Kubernetes API nor the addresses of
        # other Services.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "securityContext": pod_security(is_own=is_own),
        "containers": [container],
    }
    check_secret_uses(request.secrets)
    mounts = [*host_settings.mounts(), *secret_mounts(request.secrets)]
    volumes = [*host_settings.volumes(), *secret_volumes(request.secrets)]
    if workspace is not None:
        mounts.append(workspaces.volume_mount())
        if workspace.seed:
            pod["initContainers"] = [seed_init_container(image, resources, is_own=is_own)]
    if endpoint is not None:
        mounts.append({"name": "tls", "mountPath": TLS_PATH, "readOnly": True})
        volumes.append({"name": "tls", "secret": {"secretName": TLS_SECRET, "optional": True}})
    if volumes:
        pod["volumes"] = volumes
    if mounts:
        container["volumeMounts"] = mounts
    return pod


def seed_init_container(image: str, resources: Mapping[str, Any], *, is_own: bool) -> dict[str, Any]:
    """Container that seeds the workspace.

    In other images it runs as root, to preserve owners and to read files of every user.
    """
    security = _security_context(() if is_own else _SEED_CAPABILITIES) | {"readOnlyRootFilesystem": True}
    if not is_own:
        security["runAsUser"] = 0
    return workspaces.seed_container(image, security=security, resources=resources)


def _security_context(added_capabilities: Sequence[str]) -> dict[str, Any]:
    capabilities: dict[str, Any] = {"drop": ["ALL"]}
    if added_capabilities:
        capabilities["add"] = list(added_capabilities)
    return {"allowPrivilegeEscalation": False, "privileged": False, "capabilities": capabilities}


def container_security(*, is_own: bool) -> dict[str, Any]:
    """Security context of the container, for one of holdfast's images or another one."""
    return _security_context(() if is_own else _ROOT_CAPABILITIES)


def pod_security(*, is_own: bool) -> dict[str, Any]:
    """Security context of the pod, for one of holdfast's images or another one."""
    security: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if is_own:
        security |= {
            "runAsNonRoot": True,
            "runAsUser": _SANDBOX_UID,
            "runAsGroup": _SANDBOX_UID,
            "fsGroup": _SANDBOX_UID,
            # By default the kubelet changes the group of every file of the workspace at each start.
            "fsGroupChangePolicy": "OnRootMismatch",
        }
    return security


def _env_vars(request: SandboxRequest, namespace: str | None, endpoint: str | None) -> list[dict[str, str]]:
    own: list[str | None] = [None, None]
    if namespace is not None:
        own = [sandbox_id(request.name, namespace=namespace), request.name]
    if endpoint is not None:
        own += [endpoint, f"{TLS_PATH}/ca.crt", f"{TLS_PATH}/tls.crt", f"{TLS_PATH}/tls.key"]
    given = zip(RESERVED_VARIABLES, own, strict=False)
    variables = {name: value for name, value in given if value is not None}
    for name in request.env:
        if name in variables:
            raise UsageError(f"environment variable {name} is set by holdfast", hint="Choose another name.")
    # After the check above, so that a request may override it.
    return env_list(variables | runtime_variables(request.image or DEFAULT_IMAGE) | request.env)


def runtime_variables(image: str) -> dict[str, str]:
    """Variables of holdfast's sandbox images that a request may override."""
    # Other pods must not run commands in the sandbox; clients connect through a forwarded port.
    return {"HOLDFAST_RUNTIME_LISTEN": "127.0.0.1"} if is_sandbox_image(image) else {}


def runtime_ports() -> list[dict[str, Any]]:
    """Ports of holdfast's sandbox images with their own command."""
    return [{"name": "runtime", "containerPort": RUNTIME_PORT}]


def env_list(env: Mapping[str, str]) -> list[dict[str, str]]:
    """Convert variables to those of a container; the kubelet expands nothing in their values."""
    return [{"name": name, "value": _escape_expansion(value)} for name, value in env.items()]


def _sandbox_labels(request: SandboxRequest, namespace: str) -> dict[str, str]:
    reject_reserved_labels(request.labels)
    own = {SANDBOX_ID_LABEL: sandbox_id(request.name, namespace=namespace), MANAGED_BY_LABEL: "holdfast"}
    return {**request.labels, **own}


def _requested_workspace(request: SandboxRequest) -> Workspace | None:
    if isinstance(request.workspace, Workspace):
        return request.workspace
    return Workspace() if request.workspace else None


def build_resources(cpu: str | None, memory: str | None) -> dict[str, Any]:
    """Requested amounts are limits. Requests are small, so that a small gateway runs many sandboxes."""
    require_memory(memory)
    limits = {"cpu": cpu or _CPU_LIMIT, "memory": memory or _MEMORY_LIMIT}
    requests = {"cpu": _CPU_REQUEST, "memory": _MEMORY_REQUEST}
    return {
        "limits": limits,
        "requests": {
            name: min(requests[name], limits[name], key=lambda text: parse_quantity(text) or 0)
            for name in limits
        },
    }


def _escape_expansion(text: str) -> str:
    """Escape text in which the kubelet would expand `$(NAME)` or `$$`."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def unescape_expansion(text: str) -> str:
    """Return the text that the kubelet passes to the container, if it expands no variable in it."""
    return text.replace("$$", "$")
