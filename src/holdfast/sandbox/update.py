"""Update of a sandbox, without I/O: the patches of the Sandbox and its pod, and what waits for a new pod.

The pod template of the Sandbox is the desired state. A running pod follows it as far as Kubernetes allows:
the controller copies labels, and the `resize` subresource changes CPU and memory. Everything else needs a new
pod.
"""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from holdfast.api import (
    FAILED_PODS_ANNOTATION,
    IDLE_SUSPEND_AFTER_ANNOTATION,
    LAST_USED_ANNOTATION,
    MANAGED_BY_LABEL,
    SandboxUpdate,
    ShutdownPolicy,
    format_timestamp,
)
from holdfast.errors import UsageError
from holdfast.kube import WaitResult, parse_quantity
from holdfast.sandbox import from_request
from holdfast.sandbox.manifests import merge_patch
from holdfast.sandbox.validation import user_labels
from holdfast.sandbox.workspace import SEED_CONTAINER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from holdfast.sandbox.host_settings import HostSettings

POD_FIELDS = ("cpu", "env", "image", "labels", "memory")
"""Fields of an update that change the pod; the others are in effect with the Sandbox."""
RESIZED_FIELDS = ("cpu", "memory")
_RESIZE_CONDITIONS = ("PodResizePending", "PodResizeInProgress")
_FINAL_RESIZE_REASONS = ("Infeasible", "Error")


class UpdatedSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox after an update.

    Attributes:
        patch: merge patch of the Sandbox; empty if nothing changes.
        values: the new value of each updated field as a request for a new sandbox contains it; None for the
            default.
    """

    patch: dict[str, Any]
    values: dict[str, Any]


def update_sandbox(
    sandbox: Mapping[str, Any], update: SandboxUpdate, *, host_settings: HostSettings, now: datetime
) -> UpdatedSandbox:
    """Apply an update to a Sandbox that was read.

    Raises:
        UsageError: the update sets or removes a variable that holdfast sets.
    """
    changed: dict[str, Any] = copy.deepcopy({"metadata": sandbox["metadata"], "spec": sandbox["spec"]})
    annotations = changed["metadata"].setdefault("annotations", {})
    values: dict[str, Any] = {}
    template = changed["spec"]["podTemplate"]
    # The pod of a sandbox that another client created has only what that client requested.
    is_ours = (sandbox["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL) == "holdfast"
    if update.image is not UNSET:
        values["image"] = update.image
        _set_image(template["spec"], update.image or from_request.DEFAULT_IMAGE, is_ours=is_ours)
    if update.cpu is not UNSET or update.memory is not UNSET:
        values |= _set_resources(template["spec"], update)
    if update.env:
        values["env"] = _set_env(template["spec"], update, host_settings if is_ours else None)
    if update.labels:
        values["labels"] = _set_labels(changed["metadata"], template, update)
    if update.idle_suspend_after is not UNSET:
        values["idle_suspend_after"] = update.idle_suspend_after
        _set_idle_timeout(annotations, update.idle_suspend_after, now)
    if update.failed_pods is not UNSET:
        values["failed_pods"] = annotations[FAILED_PODS_ANNOTATION] = update.failed_pods
    if update.shutdown_after is not UNSET:
        values |= {"shutdown_after": update.shutdown_after, "shutdown_time": None}
        _set_shutdown(changed["spec"], update.shutdown_after, now)
    before = {"metadata": sandbox["metadata"], "spec": sandbox["spec"]}
    return UpdatedSandbox(patch=merge_patch(before, changed), values=values)


def _set_idle_timeout(annotations: dict[str, str], seconds: int | None, now: datetime) -> None:
    if seconds is None:
        annotations.pop(IDLE_SUSPEND_AFTER_ANNOTATION, None)
    elif annotations.get(IDLE_SUSPEND_AFTER_ANNOTATION) != str(seconds):
        annotations[IDLE_SUSPEND_AFTER_ANNOTATION] = str(seconds)
        # A change counts as a use: without one the sandbox would never be suspended, with an old one at once.
        annotations[LAST_USED_ANNOTATION] = format_timestamp(now)


def _set_shutdown(spec: dict[str, Any], seconds: int | None, now: datetime) -> None:
    if seconds is None:
        spec.pop("shutdownTime", None)
        spec.pop("shutdownPolicy", None)
        return
    end = now.replace(microsecond=0) + timedelta(seconds=seconds)
    spec |= {"shutdownTime": format_timestamp(end), "shutdownPolicy": ShutdownPolicy.RETAIN.value}


def _set_image(pod: dict[str, Any], image: str, *, is_ours: bool) -> None:
    container, is_own = pod["containers"][0], from_request.is_sandbox_image(image)
    before, container["image"] = container.get("image", ""), image
    for seed in _seed_containers(pod):
        seed["image"] = image
    if not is_ours or is_own == from_request.is_sandbox_image(before):
        return
    # What follows from the image at creation: other images run as their own user.
    container["securityContext"] = from_request.container_security(is_own=is_own)
    pod["securityContext"] = from_request.pod_security(is_own=is_own)
    container.pop("ports", None)
    if is_own and "command" not in container and "args" not in container:
        container["ports"] = from_request.runtime_ports()
    old, new = (from_request.env_list(from_request.runtime_variables(each)) for each in (before, image))
    names = {entry["name"] for entry in container["env"] if entry not in old}
    container["env"] = [entry for entry in container["env"] if entry not in old]
    container["env"] += [entry for entry in new if entry["name"] not in names]
    for seed in _seed_containers(pod):
        seed.update(from_request.seed_init_container(image, seed["resources"], is_own=is_own))


def _seed_containers(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [each for each in pod.get("initContainers") or () if each["name"] == SEED_CONTAINER]


def _set_resources(pod: dict[str, Any], update: SandboxUpdate) -> dict[str, str | None]:
    """Set the limits of the container, and of the one that seeds the workspace with the same limits."""
    given = {"cpu": update.cpu, "memory": update.memory}
    values: dict[str, str | None] = {name: text for name, text in given.items() if text is not UNSET}
    limits = (pod["containers"][0].get("resources") or {}).get("limits") or {}
    desired = {name: values.get(name, limits.get(name)) for name in given}
    resources = from_request.build_resources(desired["cpu"], desired["memory"])
    for container in (pod["containers"][0], *_seed_containers(pod)):
        container["resources"] = copy.deepcopy(resources)
    return values


def _set_env(
    pod: dict[str, Any], update: SandboxUpdate, host_settings: HostSettings | None
) -> dict[str, str]:
    """Change the variables of a container; returns all variables that the user has set.

    Args:
        pod: spec of the pod.
        update: the update.
        host_settings: settings that add variables; None if the gateway has not created the sandbox.
    """
    for name in update.env:
        if name in from_request.RESERVED_VARIABLES:
            raise UsageError(f"environment variable {name} is set by holdfast", hint="Choose another name.")
    container, defaults = pod["containers"][0], list[dict[str, Any]]()
    if host_settings is not None:
        defaults += from_request.env_list(from_request.runtime_variables(container.get("image", "")))
        defaults += host_settings.variables(overridden=())
    kept = [
        entry
        for entry in container.get("env") or ()
        if entry["name"] not in update.env and entry not in defaults
    ]
    user = {
        entry["name"]: from_request.unescape_expansion(entry.get("value") or "")
        for entry in kept
        if "valueFrom" not in entry and entry["name"] not in from_request.RESERVED_VARIABLES
    }
    added = {name: value for name, value in update.env.items() if value is not None}
    user |= added
    if host_settings is not None:
        # A proxy variable of the user replaces both spellings, so ask again which ones remain.
        runtime = from_request.env_list(from_request.runtime_variables(container.get("image", "")))
        defaults = [entry for entry in runtime if entry["name"] not in user]
        defaults += host_settings.variables(overridden=user)
    container["env"] = [*kept, *from_request.env_list(added), *defaults]
    return user


def _set_labels(metadata: dict[str, Any], template: dict[str, Any], update: SandboxUpdate) -> dict[str, str]:
    """Change the labels of a sandbox and of its pod; returns all labels that the user has set."""
    pod_metadata = template.setdefault("metadata", {})
    for labels in (metadata.setdefault("labels", {}), pod_metadata.setdefault("labels", {})):
        for key, value in update.labels.items():
            if value is None:
                labels.pop(key, None)
            else:
                labels[key] = value
    return user_labels(metadata["labels"])


def pending_fields(sandbox: Mapping[str, Any], pod: Mapping[str, Any] | None) -> list[str]:
    """Return the fields in which a pod differs from its template; without a pod, all that the pod has."""
    if pod is None:
        return list(POD_FIELDS)
    template = sandbox["spec"]["podTemplate"]
    desired, actual = template["spec"]["containers"][0], pod["spec"]["containers"][0]
    pending = {
        "image": desired.get("image") != actual.get("image"),
        "env": _env_by_name(desired) != _env_by_name(actual),
        "labels": not _has_labels(pod, (template.get("metadata") or {}).get("labels") or {}),
    }
    pending |= {name: not _has_limit(pod, name, _limit(desired, name)) for name in RESIZED_FIELDS}
    return [name for name in POD_FIELDS if pending[name]]


def _env_by_name(container: Mapping[str, Any]) -> dict[str, Any]:
    entries = container.get("env") or ()
    return {entry["name"]: (entry.get("value") or "", entry.get("valueFrom")) for entry in entries}


def _has_labels(pod: Mapping[str, Any], desired: Mapping[str, str]) -> bool:
    """Whether a pod has exactly these labels of the user."""
    actual = pod["metadata"].get("labels") or {}
    return user_labels(actual) == user_labels(desired)


def _limit(container: Mapping[str, Any], name: str) -> str | None:
    return ((container.get("resources") or {}).get("limits") or {}).get(name)


def _has_limit(pod: Mapping[str, Any], name: str, limit: str | None) -> bool:
    """Whether the kubelet has applied a limit: the status has what the container runtime enforces."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    container = pod["spec"]["containers"][0]
    status: Mapping[str, Any] = next((each for each in statuses if each["name"] == container["name"]), {})
    # A container that has not started, or whose status has no resources, starts with those of the spec.
    enforced = status if status.get("resources") else container
    return all(_same_quantity(_limit(each, name), limit) for each in (container, enforced))


def _same_quantity(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return one == other
    return parse_quantity(one) == parse_quantity(other)


def resize_patch(uid: str, resources: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Merge patch for the `resize` subresource of exactly this pod: resources by container."""
    # The subresource takes over resources only, so that the list need not repeat the other fields.
    containers = [{"name": name, "resources": dict(each)} for name, each in resources]
    return {"metadata": {"uid": uid}, "spec": {"containers": containers}}


def container_resources(pod_spec: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return name and resources of each container."""
    return [(each["name"], each.get("resources") or {}) for each in pod_spec["containers"]]


def has_followed(
    sandbox: Mapping[str, Any], pod: dict[str, Any] | None, *, awaited: Iterable[str]
) -> WaitResult:
    """Whether a pod has followed the template in these fields; failed if the kubelet cannot resize it."""
    if pod is None or pod["metadata"].get("deletionTimestamp"):
        return WaitResult(failed="the pod was deleted")
    waiting = [name for name in pending_fields(sandbox, pod) if name in awaited]
    if not waiting:
        return WaitResult(done=True)
    observed = "the kubelet has not applied it yet"
    for row in (pod.get("status") or {}).get("conditions") or ():
        is_resize = row["type"] in _RESIZE_CONDITIONS and row.get("status") == "True"
        # The condition of an earlier resize says nothing about this one. Older kubelets report no generation.
        generation = pod["metadata"].get("generation", 0)
        is_current = row.get("observedGeneration", generation) >= generation
        if is_resize and is_current and row.get("reason") in _FINAL_RESIZE_REASONS:
            return WaitResult(failed=str(row.get("message") or row["reason"]))
        if is_resize and is_current and row.get("message"):
            observed = str(row["message"])
    return WaitResult(observed=observed)
