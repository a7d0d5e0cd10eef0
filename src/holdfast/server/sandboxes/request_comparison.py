"""Create an object once: compare a repeated request with the existing object, and describe differences."""

from __future__ import annotations

import hashlib
import shlex
from datetime import UTC
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from holdfast.api import SandboxRequest, TemplateRequest, Workspace, WorkspaceView
from holdfast.errors import ObjectConflictError
from holdfast.sandbox import SEED_CONTAINER, network_policy_name, used_secrets
from holdfast.server.errors import ApiError, conflict
from holdfast.server.sandboxes.presenters import present_sandbox, present_sandbox_claim
from holdfast.server.sandboxes.sandbox_objects import owner_uids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.api import SandboxView, TemplateView
    from holdfast.server.namespace_client import NamespaceClient

NetworkRules: TypeAlias = "Mapping[str, list[Any]]"
"""Rules of a network policy by direction."""

REQUEST_DIGESTS_ANNOTATION = "holdfast.dev/request"
"""Annotation of a sandbox or template: a digest of each field of its request, as updates changed it."""
_DIGEST_LENGTH = 12
_WORKSPACES = (Workspace, WorkspaceView)
_NOT_SET = "not set"
_MAX_VALUE_LENGTH = 200
_MAX_DETAILS = 20
_FIELDS_WITH_DEFAULT = ("cpu", "image", "memory")
"""Fields whose default value a request may also name: that request is the same."""
_SHOWN_FIELDS = {
    *_FIELDS_WITH_DEFAULT,
    "args",
    "command",
    "failed_pods",
    "idle_suspend_after",
    "shutdown_time",
}


def being_deleted(kind: str, name: str) -> ApiError:
    """Return the 409 error of a sandbox or template that is being deleted."""
    noun = _noun(kind)
    return conflict(f"{noun}-deleting", f"{noun} {name}: being deleted", "Wait until it is deleted.")


def name_taken(kind: str, name: str, difference: str) -> ApiError:
    """Return the 409 error of a request for a sandbox or template that differs from the existing one."""
    noun = _noun(kind)
    hint = f"Choose another name, or delete the existing {noun} first."
    return conflict(f"{noun}-differs", f"{noun} {name}: exists, and {difference}", hint)


def _noun(kind: str) -> str:
    return "template" if kind == "SandboxTemplate" else "sandbox"


def _present(obj: Mapping[str, Any]) -> SandboxView:
    return present_sandbox(obj) if obj["kind"] == "Sandbox" else present_sandbox_claim(obj)


async def create_once(
    cluster: NamespaceClient,
    manifest: dict[str, Any],
    digests: str,
    present: Callable[[Mapping[str, Any]], SandboxView | TemplateView] = _present,
    *,
    policy: dict[str, Any] | None = None,
) -> tuple[bool, dict[str, Any]]:
    """Create an object, or return the existing one if the same request created it.

    Requests are compared, not objects: another version of holdfast creates another object from the same
    request.

    Args:
        cluster: client for the namespace.
        manifest: the object to create.
        digests: the digests of the request.
        present: converts the object to a view, for the differences that the error names.
        policy: the network policy of a sandbox's request; a template contains its own.

    Returns:
        Whether this call created it, and the object.

    Raises:
        ApiError: 409 if the name is taken by an object of another request.
    """
    manifest["metadata"].setdefault("annotations", {})[REQUEST_DIGESTS_ANNOTATION] = digests
    try:
        result = await cluster.objects.ensure(manifest)
    except ObjectConflictError as error:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        live = await cluster.get(kind, name)
        if live is None:
            raise
        if live["metadata"].get("deletionTimestamp"):
            raise being_deleted(kind, name) from error
        before = (live["metadata"].get("annotations") or {}).get(REQUEST_DIGESTS_ANNOTATION, "")
        fields = differing_fields(before, digests)
        if fields is None:
            raise name_taken(kind, name, "was created by another client") from error
        live_policy = live if kind == "SandboxTemplate" else await _find_network_policy(cluster, live)
        policies = (network_rules(live_policy), network_rules(policy or manifest))
        if differences := describe_differences(fields, live, manifest, present, policies=policies):
            raise name_taken(kind, name, differences) from error
        return False, live
    return result.effect == "created", result.object


async def _find_network_policy(cluster: NamespaceClient, sandbox: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the network policy of a sandbox; one of that name that belongs to something else is not its."""
    policy = await cluster.get("NetworkPolicy", network_policy_name(sandbox["metadata"]["name"]))
    return policy if policy is not None and sandbox["metadata"]["uid"] in owner_uids(policy) else None


def request_digests(request: SandboxRequest | TemplateRequest) -> str:
    """Digest each field of a request: the digests show which fields differ, without their values."""
    defaults = msgspec.structs.asdict(type(request)(name=request.name))
    fields = msgspec.structs.asdict(request)
    if isinstance(request, SandboxRequest) and request.shutdown_time is not None:
        fields["shutdown_time"] = request.shutdown_time.astimezone(UTC)
    digests = {
        key: _digest(value)
        for key, value in fields.items()
        # Omit default values: a field that a later version adds then does not differ.
        if value != defaults[key]
    }
    return msgspec.json.encode(digests, order="sorted").decode()


def updated_digests(before: str, values: Mapping[str, Any]) -> str | None:
    """Digest a request as an update has changed it, so that a repeated create with the new values matches.

    Args:
        before: the digests of the original request.
        values: the new value of each updated field; None for its default.

    Returns:
        The digests, or None if those of the original request cannot be parsed.
    """
    try:
        digests = msgspec.json.decode(before, type=dict[str, str])
    except msgspec.MsgspecError:
        return None
    defaults = msgspec.structs.asdict(SandboxRequest(name="any"))
    for field, value in values.items():
        digests.pop(field, None)
        if value is not None and value != defaults[field]:
            digests[field] = _digest(value)
    return msgspec.json.encode(digests, order="sorted").decode()


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:_DIGEST_LENGTH]


def differing_fields(before: str, after: str) -> list[str] | None:
    """Return the fields in which two requests differ, or None if the digests cannot be parsed."""
    try:
        old, new = (msgspec.json.decode(text, type=dict[str, str]) for text in (before, after))
    except msgspec.MsgspecError:
        return None
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def describe_differences(
    fields: list[str],
    live: Mapping[str, Any],
    requested: Mapping[str, Any],
    present: Callable[[Mapping[str, Any]], SandboxView | TemplateView] = _present,
    *,
    policies: tuple[NetworkRules, NetworkRules],
) -> str:
    """Describe how a sandbox or template differs from a request; empty if it does not.

    Values of environment variables are not described, because they may be secret. Long values and many
    differences are shortened: a request can have a mebibyte.

    Args:
        fields: the fields with different digests.
        live: the existing object.
        requested: the object that the request would create.
        present: converts the objects to views, which have the fields that can be shown.
        policies: the network rules of both.
    """
    before, after = present(live), present(requested)
    differing = [
        field
        for field in fields
        if field not in _FIELDS_WITH_DEFAULT or getattr(before, field) != getattr(after, field)
    ]
    if not differing:
        return ""
    old, new = (
        _shown_values(differing, obj, view, rules)
        for obj, view, rules in zip((live, requested), (before, after), policies, strict=True)
    )
    details = [
        f"{key} is {_shorten(old.get(key, _NOT_SET))}, requested is {_shorten(new.get(key, _NOT_SET))}"
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
        and (not key.startswith("workspace.") or "workspace" in old.keys() & new.keys())
    ]
    if "env" in differing and (names := _differing_keys(_env(live), _env(requested))):
        details.append(f"env differs in {_shorten(names)}")
    if len(details) > _MAX_DETAILS:
        details[_MAX_DETAILS:] = [f"{len(details) - _MAX_DETAILS} more"]
    return ": ".join(["differs in " + ", ".join(differing), *(["; ".join(details)] if details else [])])


def _shorten(value: str) -> str:
    return value if len(value) <= _MAX_VALUE_LENGTH else f"{value[:_MAX_VALUE_LENGTH]}…"


def network_rules(obj: Mapping[str, Any] | None) -> NetworkRules:
    """Return the rules of a NetworkPolicy or SandboxTemplate by direction; empty if there are none."""
    if obj is None or obj["spec"].get("networkPolicyManagement") == "Unmanaged":
        return {}
    rules = obj["spec"] if obj["kind"] == "NetworkPolicy" else obj["spec"].get("networkPolicy") or {}
    return {direction: rules[direction] for direction in ("ingress", "egress") if direction in rules}


def _shown_values(
    fields: list[str], obj: Mapping[str, Any], view: SandboxView | TemplateView, rules: NetworkRules
) -> dict[str, str]:
    """Return the values of these fields of an object that are set, by the names that users know."""
    values = {
        field: _format_value(getattr(view, field))
        for field in fields
        if field in _SHOWN_FIELDS and getattr(view, field)
    }
    pod_template = obj["spec"].get("podTemplate")
    if "workspace" in fields and pod_template is not None and isinstance(view.workspace, _WORKSPACES):
        containers = pod_template["spec"].get("initContainers") or ()
        is_seeded = any(container.get("name") == SEED_CONTAINER for container in containers)
        values["workspace"] = str(view.workspace.size)
        if view.workspace.storage_class:
            values["workspace.storage_class"] = view.workspace.storage_class
        values["workspace.seed"] = "true" if is_seeded else "false"
    if "labels" in fields:
        values |= {f"label {key}": value or '""' for key, value in sorted(view.labels.items())}
    if "secrets" in fields and pod_template is not None:
        uses = [f"{use.name}:{use.path}" if use.path else use.name for use in used_secrets(obj)]
        values |= {"secrets": ", ".join(sorted(uses))} if uses else {}
    if "network_policy" in fields and rules:
        values["network_policy"] = msgspec.json.encode(rules, order="deterministic").decode()
    return values


def _format_value(value: object) -> str:
    return shlex.join(value) if isinstance(value, list) else str(value)


def _differing_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The keys with different values. The values are not shown: they may be secret."""
    return ", ".join(sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key)))


def _env(obj: Mapping[str, Any]) -> dict[str, Any]:
    spec = obj["spec"]
    variables = spec if obj["kind"] == "SandboxClaim" else spec["podTemplate"]["spec"]["containers"][0]
    return {variable["name"]: variable for variable in variables.get("env") or ()}
