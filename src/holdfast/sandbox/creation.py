"""From what was asked for to the object that says so: a SandboxRequest becomes a Sandbox or a SandboxClaim.

Pure: the same request gives the same object, so that one that is sent twice can be compared with what is
there. Not here: the workspace (workspace.py), writing anything, and what pods come of it (parts.py).
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import __version__
from holdfast.errors import UsageError
from holdfast.sandbox import workspace as workspaces
from holdfast.sandbox.api import (
    API_VERSION,
    EXTENSIONS_API_VERSION,
    FAILED_PODS,
    IDLE_SUSPEND_AFTER,
    MANAGED_BY,
    SANDBOX_ID,
    Shutdown,
)
from holdfast.sandbox.names import tracking
from holdfast.sandbox.quantity import amount
from holdfast.sandbox.reserved import in_one_line, is_router, why_reserved
from holdfast.sandbox.wire import Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from holdfast.sandbox.wire import SandboxRequest

RESTRICTED = {"holdfast.dev/network-policy": "own"}
"""Label of pods that asked for a policy: one that was left behind closes nothing around the others."""
OWN_IMAGE = "holdfast/sandbox"
DEFAULT_IMAGE = f"{OWN_IMAGE}:{__version__}"
CONTAINER = "sandbox"
RUNTIME_PORT = 8888
TLS_SECRET = "holdfast-sandbox-tls"  # noqa: S105 (a name)
"""Where it exists, sandboxes get it: a certificate for the gateway's API. Nobody makes it by default, for who
holds such a certificate may use every sandbox."""
TLS_PATH = "/etc/holdfast/tls"

_OWN_USER = 1000
_CPU_LIMIT, _MEMORY_LIMIT = "2", "2Gi"
_CPU_RESERVED, _MEMORY_RESERVED = "50m", "64Mi"
_GRACE_SECONDS = 10
_IDENTITIES = uuid.UUID("6a1f4d0e-5b0c-5f0e-9a5b-1d6f0b5d7c42")
_ROOT_MAY = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID")
"""What root in a foreign image keeps, so that its package manager works; nothing that reaches out of it."""
_SEEDER_MAY = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID")


def manifest(request: SandboxRequest, *, namespace: str, endpoint: str | None) -> dict[str, Any]:
    """The Sandbox that a request asks for; `endpoint` is where a sandbox reaches the gateway's API."""
    annotations: dict[str, str] = {FAILED_PODS: request.failed_pods}
    if request.idle_suspend_after is not None:
        annotations[IDLE_SUSPEND_AFTER] = str(request.idle_suspend_after)
    labels = _labels(request, namespace)
    on_pods = labels | (RESTRICTED if _ways(request) else {})
    spec: dict[str, Any] = {
        "podTemplate": {"metadata": {"labels": on_pods}, "spec": _pod(request, namespace, endpoint)}
    }
    workspace = _workspace(request)
    if workspace is not None:
        spec["volumeClaimTemplates"] = [workspaces.claim_template(workspace)]
    if request.shutdown_time is not None:
        spec |= {"shutdownTime": _text(request.shutdown_time), "shutdownPolicy": Shutdown.RETAIN.value}
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


def timed(request: SandboxRequest, now: datetime) -> SandboxRequest:
    """The same request with its end as a moment; in whole seconds, for the cluster keeps no others."""
    if request.shutdown_after is None:
        return request
    if request.shutdown_time is not None:
        raise UsageError("shutdown_time and shutdown_after exclude each other", hint="Leave out one of them.")
    end = now.replace(microsecond=0) + timedelta(seconds=request.shutdown_after)
    return msgspec.structs.replace(request, shutdown_time=end, shutdown_after=None)


def claim(request: SandboxRequest, *, namespace: str, pool: str) -> dict[str, Any]:
    """The SandboxClaim for a request that names a template, on a pool of that template.

    Of the rest only labels, variables and the shutdown time can be asked for: the template says the others.
    """
    refused = {
        "image": request.image, "command": request.command, "args": request.args, "cpu": request.cpu,
        "memory": request.memory, "network_policy": request.network_policy,
        "idle_suspend_after": request.idle_suspend_after,
        "workspace": None if request.workspace is True else request.workspace,
        "failed_pods": None if request.failed_pods == "Recreate" else request.failed_pods,
    }  # fmt: skip
    given = [name for name, value in refused.items() if value is not None]
    if given:
        words = f"the template {request.template} decides about {', '.join(given)}"
        raise UsageError(words, hint="Leave that out, or leave out the template.")
    spec: dict[str, Any] = {"warmPoolRef": {"name": pool}}
    labels = _labels(request, namespace)
    own = {key: value for key, value in labels.items() if not why_reserved(key)}
    if own:
        spec["additionalPodMetadata"] = {"labels": own}
    if request.env:
        spec["env"] = [{"name": name, "value": _literal(value)} for name, value in request.env.items()]
    if request.shutdown_time is not None:
        spec["lifecycle"] = {
            "shutdownTime": _text(request.shutdown_time),
            "shutdownPolicy": Shutdown.RETAIN.value,
        }
    return {
        "apiVersion": EXTENSIONS_API_VERSION,
        "kind": "SandboxClaim",
        "metadata": {"name": request.name, "namespace": namespace, "labels": labels},
        "spec": spec,
    }


def network_policy(request: SandboxRequest, *, namespace: str) -> dict[str, Any] | None:
    """The NetworkPolicy that a request asks for, around the pods of its sandbox alone; None without rules."""
    ways = _ways(request)
    if not ways:
        return None
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": f"{request.name}-sandbox-policy",
            "namespace": namespace,
            "labels": {MANAGED_BY: "holdfast", **tracking(request.name)},
        },
        "spec": {
            "podSelector": {"matchLabels": {**tracking(request.name), **RESTRICTED}},
            "policyTypes": [way.capitalize() for way in ways],
            **ways,
        },
    }


def _ways(request: SandboxRequest) -> dict[str, list[Any]]:
    """The directions that a request speaks of: an empty list closes one, no list leaves it open."""
    asked = request.network_policy
    said = {} if asked is None else {"ingress": asked.ingress, "egress": asked.egress}
    return {way: rules for way, rules in said.items() if rules is not None}


def sandbox_id(name: str, *, namespace: str) -> str:
    """Who a sandbox is, as long as its name and its workspace are the same ones."""
    return str(uuid.uuid5(_IDENTITIES, f"{namespace}/{name}"))


def refuse_labels(labels: Mapping[str, str]) -> None:
    """Labels get to the pod: none may be one that others act on, or that opens the way to other sandboxes."""
    for key, value in labels.items():
        if why := why_reserved(key):
            raise UsageError(
                f"the label {in_one_line(key)} is reserved: {why}", hint="Choose another prefix."
            )
        if is_router(key, value):
            words = f"the label {key}={value} is reserved: sandboxes of templates let pods with it in"
            raise UsageError(words, hint="Choose another value.")


def is_own_image(image: str) -> bool:
    """Whether it is holdfast's own sandbox image, from whatever registry."""
    name = image.partition("@")[0]
    head, _, tail = name.rpartition("/")
    name = f"{head}/{tail.partition(':')[0]}"
    return name == OWN_IMAGE or name.endswith(f"/{OWN_IMAGE}")


def _pod(request: SandboxRequest, namespace: str, endpoint: str | None) -> dict[str, Any]:
    image, workspace = request.image or DEFAULT_IMAGE, _workspace(request)
    own, resources = is_own_image(image), _resources(request)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": _variables(request, namespace, endpoint),
        "resources": resources,
        "securityContext": _security(() if own else _ROOT_MAY),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    for field, words in (("command", request.command), ("args", request.args)):
        if words is not None:
            container[field] = [_literal(word) for word in words]
    if own and request.command is None and request.args is None:
        container["ports"] = [{"name": "runtime", "containerPort": RUNTIME_PORT}]
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "securityContext": _pod_security(own=own),
        "containers": [container],
    }
    mounts = []
    if workspace is not None:
        mounts.append(workspaces.mount())
        if workspace.seed:
            pod["initContainers"] = [_seeder(image, resources, own=own)]
    if endpoint is not None:
        mounts.append({"name": "tls", "mountPath": TLS_PATH, "readOnly": True})
        pod["volumes"] = [{"name": "tls", "secret": {"secretName": TLS_SECRET, "optional": True}}]
    if mounts:
        container["volumeMounts"] = mounts
    return pod


def _seeder(image: str, resources: Mapping[str, Any], *, own: bool) -> dict[str, Any]:
    """As root in a foreign image, to keep owners and to read what only they may; our own needs none of it."""
    security = _security(() if own else _SEEDER_MAY) | {"readOnlyRootFilesystem": True}
    if not own:
        security["runAsUser"] = 0
    return workspaces.seed_container(image, security=security, resources=resources)


def _security(may: Sequence[str]) -> dict[str, Any]:
    capabilities: dict[str, Any] = {"drop": ["ALL"]}
    if may:
        capabilities["add"] = list(may)
    return {"allowPrivilegeEscalation": False, "privileged": False, "capabilities": capabilities}


def _pod_security(*, own: bool) -> dict[str, Any]:
    security: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if own:
        security |= {
            "runAsNonRoot": True,
            "runAsUser": _OWN_USER,
            "runAsGroup": _OWN_USER,
            "fsGroup": _OWN_USER,
            "fsGroupChangePolicy": "OnRootMismatch",
        }
    return security


def _variables(request: SandboxRequest, namespace: str, endpoint: str | None) -> list[dict[str, str]]:
    own = {
        "HOLDFAST_SANDBOX_ID": sandbox_id(request.name, namespace=namespace),
        "HOLDFAST_SANDBOX": request.name,
    }
    if endpoint is not None:
        own |= {
            "HOLDFAST_ENDPOINT": endpoint,
            "HOLDFAST_TLS_CA": f"{TLS_PATH}/ca.crt",
            "HOLDFAST_TLS_CERT": f"{TLS_PATH}/tls.crt",
            "HOLDFAST_TLS_KEY": f"{TLS_PATH}/tls.key",
        }
    for name in request.env:
        if name in own:
            raise UsageError(f"the variable {name} is set by holdfast itself", hint="Choose another name.")
    if is_own_image(request.image or DEFAULT_IMAGE):
        # Other pods may not run commands here: whoever is let in comes by a forwarded port.
        own["HOLDFAST_RUNTIME_LISTEN"] = "127.0.0.1"
    return [{"name": name, "value": _literal(value)} for name, value in (own | request.env).items()]


def _labels(request: SandboxRequest, namespace: str) -> dict[str, str]:
    refuse_labels(request.labels)
    own = {SANDBOX_ID: sandbox_id(request.name, namespace=namespace), MANAGED_BY: "holdfast"}
    return {**request.labels, **own}


def _workspace(request: SandboxRequest) -> Workspace | None:
    asked = request.workspace
    if isinstance(asked, Workspace):
        return asked
    return Workspace() if asked else None


def _resources(request: SandboxRequest) -> dict[str, Any]:
    """What was asked for is the bound; little is reserved, so that a small gateway holds many."""
    limits = {"cpu": request.cpu or _CPU_LIMIT, "memory": request.memory or _MEMORY_LIMIT}
    reserved = {"cpu": _CPU_RESERVED, "memory": _MEMORY_RESERVED}
    return {
        "limits": limits,
        "requests": {kind: min(reserved[kind], limits[kind], key=_amount) for kind in limits},
    }


def _amount(quantity: str) -> Decimal:
    return amount(quantity) or Decimal(0)


def _literal(text: str) -> str:
    """A text that Kubernetes hands on as it is: it would replace `$(NAME)` and `$$` by something else."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def _text(moment: datetime) -> str:
    from datetime import UTC

    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
