"""Update a sandbox: the Sandbox first, then its pod as far as Kubernetes can change a running pod.

A kill in between loses nothing: the repeated request compares the pod with the Sandbox again.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.api import OperatingMode, SandboxUpdateResult
from holdfast.errors import (
    ApiRequestRejectedError,
    DeadlineExceededError,
    ObjectConflictError,
    WaitFailedError,
)
from holdfast.kube import parse_status
from holdfast.retry import Policy, exponential
from holdfast.sandbox import check_update, pod_name, update as updates, updated_fields
from holdfast.server.errors import conflict, not_found, unprocessable
from holdfast.server.sandboxes import presenters
from holdfast.server.sandboxes.request_comparison import (
    REQUEST_DIGESTS_ANNOTATION,
    being_deleted,
    updated_digests,
)
from holdfast.server.sandboxes.sandbox_objects import owner_uids

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.api import SandboxUpdate
    from holdfast.server.sandboxes.service import SandboxService

# The controller and this server write annotations of the same Sandbox at any time.
_CONFLICT_POLICY = Policy(attempts=10, backoff=exponential(0.02, cap=0.5), retry_on=ObjectConflictError)
_FOLLOW_SECONDS = 10.0
"""How long the kubelet may take to resize a pod: it syncs each pod at least once a second."""
_OWN_FIELDS = frozenset({"idle_suspend_after"})
"""Fields of a sandbox from a template that its SandboxClaim and its template do not determine."""


async def update_sandbox(service: SandboxService, name: str, update: SandboxUpdate) -> SandboxUpdateResult:
    """Update a sandbox, idempotently.

    Returns:
        The sandbox, the updated fields that are in effect, and those that wait for the next pod.

    Raises:
        ApiError: 404 if it does not exist, 409 if it is deleted meanwhile, 422 if its template determines a
            field.
        UsageError: the update is empty, or sets a reserved label or variable.
    """
    check_update(update)
    first = await service.lookup_sandbox(name)
    sandbox = await _CONFLICT_POLICY.acall(_patch_sandbox, service, name, first["metadata"]["uid"], update)
    fields = updated_fields(update)
    pod = await _own_pod(service, sandbox)
    notes: list[str] = []
    if pod is not None:
        pod, notes = await _change_pod(service, sandbox, pod, fields)
    waiting = updates.pending_fields(sandbox, pod)
    pending = [field for field in fields if field in waiting]
    return SandboxUpdateResult(
        sandbox=await service.get(name),
        applied=[field for field in fields if field not in pending],
        pending=pending,
        # Of the spec: the phase is unknown until the controller has seen the update.
        is_suspended=sandbox["spec"].get("operatingMode") == OperatingMode.SUSPENDED,
        notes=notes,
    )


async def _patch_sandbox(
    service: SandboxService, name: str, uid: str, update: SandboxUpdate
) -> dict[str, Any]:
    """Patch the version of the Sandbox that was read; a conflict is retried with the new version."""
    sandbox = await service.lookup_sandbox(name)
    if sandbox["metadata"]["uid"] != uid:
        message = f"sandbox {name}: was deleted and created again during the update"
        raise conflict("sandbox-differs", message, "Check the sandbox and repeat the request.")
    if sandbox["metadata"].get("deletionTimestamp"):
        raise being_deleted("Sandbox", name)
    _check_template(name, sandbox, update)
    updated = updates.update_sandbox(
        sandbox, update, host_settings=service.host_settings, now=datetime.now(UTC)
    )
    change = updated.patch
    recorded = (sandbox["metadata"].get("annotations") or {}).get(REQUEST_DIGESTS_ANNOTATION, "")
    digests = updated_digests(recorded, updated.values)
    metadata = change.setdefault("metadata", {})
    if digests is not None and digests != recorded:
        # The same patch: after a crash, the digests still describe the Sandbox.
        metadata.setdefault("annotations", {})[REQUEST_DIGESTS_ANNOTATION] = digests
    if not metadata and "spec" not in change:
        return sandbox
    metadata["resourceVersion"] = sandbox["metadata"]["resourceVersion"]
    patched = await service.cluster.patch(sandbox, change)
    if patched is None:
        raise not_found("Sandbox", name)
    return patched


def _check_template(name: str, sandbox: Mapping[str, Any], update: SandboxUpdate) -> None:
    if presenters.sandbox_claim_name(sandbox) is None:
        return
    determined = [field for field in updated_fields(update) if field not in _OWN_FIELDS]
    if determined:
        raise unprocessable(
            "template-determines",
            f"sandbox {name}: its template determines {', '.join(determined)}",
            f"Omit these fields; only {', '.join(sorted(_OWN_FIELDS))} can be updated.",
        )


async def _own_pod(service: SandboxService, sandbox: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the pod of a sandbox, unless it is being deleted or belongs to another owner."""
    pod = await service.cluster.get("Pod", pod_name(sandbox))
    if pod is None or pod["metadata"].get("deletionTimestamp"):
        return None
    return pod if sandbox["metadata"]["uid"] in owner_uids(pod) else None


async def _change_pod(
    service: SandboxService, sandbox: dict[str, Any], pod: dict[str, Any], fields: Collection[str]
) -> tuple[dict[str, Any] | None, list[str]]:
    """Resize a running pod, and wait until it has followed the update.

    Returns:
        The pod, None if it is gone; and why fields did not take effect.
    """
    pending = [field for field in updates.pending_fields(sandbox, pod) if field in fields]
    resized = [field for field in pending if field in updates.RESIZED_FIELDS]
    awaited, notes = [field for field in pending if field == "labels"], []
    if resized:
        desired = updates.container_resources(sandbox["spec"]["podTemplate"]["spec"])
        problem = await _resize(service, pod, desired)
        if problem:
            notes.append(f"{', '.join(resized)}: {problem}")
        else:
            awaited += resized
    if not awaited:
        return pod, notes
    # The reason is read below, in the same way for both errors.
    with suppress(WaitFailedError, DeadlineExceededError):
        await service.cluster.objects.wait(
            "Pod",
            pod["metadata"]["name"],
            partial(updates.has_followed, sandbox, awaited=awaited),
            namespace=service.cluster.namespace,
            deadline=_FOLLOW_SECONDS,
        )
    live = await _own_pod(service, sandbox)
    if live is None:
        return None, notes
    followed = updates.has_followed(sandbox, live, awaited=awaited)
    if not followed.done:
        notes.append(f"{', '.join(awaited)}: {followed.failed or followed.observed}")
    if resized and set(resized) & set(updates.pending_fields(sandbox, live)):
        # Without this, the kubelet could still resize the pod after the API reported that it did not.
        await _resize(service, live, updates.container_resources(pod["spec"]))
        live = await _own_pod(service, sandbox) or live
    return live, notes


async def _resize(
    service: SandboxService, pod: dict[str, Any], resources: list[tuple[str, Mapping[str, Any]]]
) -> str:
    """Request other resources for the containers of a pod; returns why that is not possible."""
    metadata = pod["metadata"]
    try:
        patched = await service.cluster.objects.patch(
            "Pod",
            metadata["name"],
            updates.resize_patch(metadata["uid"], resources),
            namespace=service.cluster.namespace,
            subresource="resize",
        )
    except (ApiRequestRejectedError, ObjectConflictError) as error:
        # Kubernetes before 1.33, a changed QoS class, or a policy of the cluster.
        return parse_status(error.cause).message or error.message if error.cause else error.message
    return "" if patched is not None else "the cluster cannot resize a running pod"
