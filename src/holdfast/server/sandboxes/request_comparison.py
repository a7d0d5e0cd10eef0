"""Compare a repeated create request with the existing sandbox, and describe the differences."""

from __future__ import annotations

import hashlib
import shlex
from datetime import UTC
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import SandboxRequest, TemplateRequest, Workspace, WorkspaceView
from holdfast.server.sandboxes.presenters import present_sandbox, present_sandbox_claim

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.api import SandboxView, TemplateView

REQUEST_DIGESTS_ANNOTATION = "holdfast.dev/request"
"""Annotation of a sandbox or template: a digest of each field of its request, as updates changed it."""
_DIGEST_LENGTH = 12
_FIELDS_WITH_DEFAULT = ("cpu", "image", "memory")
"""Fields whose default value a request may also name: that request is the same."""
_SHOWN_FIELDS = {
    *_FIELDS_WITH_DEFAULT,
    "args",
    "command",
    "failed_pods",
    "idle_suspend_after",
    "shutdown_time",
    "workspace",
}


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


def _present(obj: Mapping[str, Any]) -> SandboxView:
    return present_sandbox(obj) if obj["kind"] == "Sandbox" else present_sandbox_claim(obj)


def describe_differences(
    fields: list[str],
    live: Mapping[str, Any],
    requested: Mapping[str, Any],
    present: Callable[[Mapping[str, Any]], SandboxView | TemplateView] = _present,
) -> str:
    """Describe how a sandbox or template differs from a request; empty if it does not.

    Args:
        fields: the fields with different digests.
        live: the existing object.
        requested: the object that the request would create.
        present: converts the objects to views, which have the fields that can be shown.
    """
    before, after = present(live), present(requested)
    differing = [
        field
        for field in fields
        if field not in _FIELDS_WITH_DEFAULT or getattr(before, field) != getattr(after, field)
    ]
    if not differing:
        return ""
    shown = {
        field: (_format_value(getattr(before, field)), _format_value(getattr(after, field)))
        for field in differing
        if field in _SHOWN_FIELDS
    }
    details = [f"{field} is {old}, requested is {new}" for field, (old, new) in shown.items() if old != new]
    if "env" in differing and (names := _differing_keys(_env(live), _env(requested))):
        details.append(f"env differs in {names}")
    if "labels" in differing and (names := _differing_keys(before.labels, after.labels)):
        details.append(f"labels differ in {names}")
    return ": ".join(["differs in " + ", ".join(differing), *(["; ".join(details)] if details else [])])


def _format_value(value: object) -> str:
    if isinstance(value, Workspace | WorkspaceView):
        return str(value.size)
    text = shlex.join(value) if isinstance(value, list) else value
    return str(text) if text else "not set"


def _differing_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The keys with different values. The values are not shown: they may be secret."""
    return ", ".join(sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key)))


def _env(obj: Mapping[str, Any]) -> dict[str, Any]:
    spec = obj["spec"]
    variables = spec if obj["kind"] == "SandboxClaim" else spec["podTemplate"]["spec"]["containers"][0]
    return {variable["name"]: variable for variable in variables.get("env") or ()}
