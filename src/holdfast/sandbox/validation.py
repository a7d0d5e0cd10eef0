"""Validation of sandbox requests: names, reserved labels and annotations, and errors in one line.

The rules for reserved keys apply to every client that sets metadata of a pod: through the gateway's API and
through a SandboxClaim.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.api import (
    GROUP,
    EnvVarName,
    LabelKey,
    LabelSelector,
    Name,
    Quantity,
    SandboxOptions,
    SandboxRequest,
    SandboxUpdate,
    SandboxUpdateOptions,
)
from holdfast.errors import ArgumentTypeError, UsageError
from holdfast.sandbox import secrets

if TYPE_CHECKING:
    from typing import Unpack

R = TypeVar("R", bound=msgspec.Struct)

_RESERVED_DOMAINS = {
    GROUP: "the sandbox API",
    "holdfast.dev": "holdfast",
    "kubernetes.io": "Kubernetes",
    "k8s.io": "Kubernetes",
}
# The published API allows it although its domain is reserved.
_EXEMPT_ANNOTATIONS = frozenset({"cluster-autoscaler.kubernetes.io/safe-to-evict"})
DEFAULT_LABEL_DOMAINS = ("sandbox.users.io",)
"""Domains of labels that SandboxClaims may add to pods"""
# The default network policy of templates allows ingress from pods with this label.
ROUTER_LABEL = ("app", "sandbox-router")
_MAX_SHOWN_LENGTH = 100
# Below it, the container runtime may fail to start a container, and the kubelet retries forever.
_MIN_MEMORY = "16Mi"
# Other spellings of a size: 512, 512m, 512MB, 0.5gb, 512 MiB.
_MEMORY_SPELLING = re.compile(r"([0-9]+(?:[.][0-9]+)?) ?([mgt]?)i?b?", re.IGNORECASE)


def reserved_label_reason(key: str) -> str:
    """Explain why a label's domain, or a parent of it, is reserved; empty if it is not."""
    domain, slash, _ = key.partition("/")
    for reserved, owner in _RESERVED_DOMAINS.items() if slash else ():
        # The dots make whole labels match: `k8s.io` reserves `x.k8s.io`, but not `notk8s.io`.
        if f".{domain.lower()}".endswith(f".{reserved}"):
            return f"the domain {reserved} belongs to {owner}"
    return ""


def reserved_annotation_reason(key: str) -> str:
    """Explain why an annotation's domain is reserved; empty if it is not."""
    return "" if key in _EXEMPT_ANNOTATIONS else reserved_label_reason(key)


def is_router_label(key: str, value: str) -> bool:
    """Whether sandboxes of templates allow ingress from pods with this label."""
    return (key.lower(), value.lower()) == ROUTER_LABEL


def claim_pod_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a sandbox as a SandboxClaim may add them to its pod.

    Labels without a domain get the allowed one. Labels of other domains are only on the sandbox.
    """
    allowed: dict[str, str] = {}
    # Labels with a domain come last: they override a label that gets the domain.
    for key, value in sorted(labels.items(), key=lambda label: "/" in label[0]):
        full = key if "/" in key else f"{DEFAULT_LABEL_DOMAINS[0]}/{key}"
        if is_in_domains(full, DEFAULT_LABEL_DOMAINS):
            allowed[full] = value
    return allowed


def is_in_domains(key: str, domains: Sequence[str]) -> bool:
    """Whether the domain of a label is one of these, or below one."""
    domain, _, _ = key.rpartition("/")
    return any(f".{domain}".endswith(f".{allowed}") for allowed in domains)


def user_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a sandbox or its pod that users can set."""
    return {key: value for key, value in labels.items() if not reserved_label_reason(key)}


def reject_reserved_labels(labels: Mapping[str, str]) -> None:
    """Check the labels of a request before they are set on a pod.

    Raises:
        UsageError: a label is reserved, or would give the pod access to other sandboxes.
    """
    for key, value in labels.items():
        if reason := reserved_label_reason(key):
            raise UsageError(
                f"label {printable_key(key)} is reserved: {reason}", hint="Choose another prefix."
            )
        if is_router_label(key, value):
            message = f"label {key}={value} is reserved: sandboxes of templates accept connections from it"
            raise UsageError(message, hint="Choose another value.")


def shorten_key(key: str) -> str:
    """Shorten a key for a message."""
    return key if len(key) <= _MAX_SHOWN_LENGTH else f"{key[:_MAX_SHOWN_LENGTH]}…"


def printable_key(key: str) -> str:
    """Shorten a key for a message; quote it if it contains control characters."""
    shown = shorten_key(key)
    # Keys come from requests: they must not send control sequences to a terminal or a log.
    return shown if shown.isprintable() else repr(shown)


_KEY_TYPES: dict[str, tuple[Any, str]] = {
    "labels": (LabelKey, "is not a valid label key"),
    "env": (EnvVarName, "is not a valid environment variable name"),
}


def describe_validation_error(error: msgspec.ValidationError, data: Any) -> str:
    """Describe a validation error as `<field>: <problem>`.

    Args:
        error: what msgspec raised.
        data: the rejected value.
    """
    problem, _, location = str(error).partition(" - at `")
    field = location.rpartition("$")[2].rstrip("`").lstrip(".")
    if location.startswith("key`") and field in _KEY_TYPES:
        return f"{field}: {_describe_invalid_key(field, data)}"
    if "matching regex" in problem:
        problem = "invalid format"
    return f"{field}: {problem[:1].lower()}{problem[1:]}" if field else problem


def _describe_invalid_key(field: str, data: Any) -> str:
    key_type, problem = _KEY_TYPES[field]
    for key in data[field]:
        try:
            msgspec.convert(key, key_type)
        except msgspec.ValidationError:
            reason = reserved_label_reason(str(key)) if field == "labels" else ""
            if reason:
                return f"{printable_key(str(key))} is reserved: {reason}"
            return f"{shorten_key(str(key))!r} {problem}"
    return "invalid key"


def validate_name(name: str, kind: str = "sandbox") -> str:
    """Check the name of a sandbox, template, pool or secret.

    Args:
        name: the name.
        kind: what it names, for the message.

    Raises:
        UsageError: the name is not a valid DNS label.
    """
    try:
        return msgspec.convert(name, Name)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{name!r}: not a valid {kind} name",
            hint="Use at most 63 lower-case letters, digits and dashes, with a letter or digit at both ends.",
        ) from error


def validate_selector(selector: str) -> str:
    """Check a label selector.

    Raises:
        ArgumentTypeError: it is not text.
        UsageError: it is not valid.
    """
    if not isinstance(selector, str):
        raise ArgumentTypeError("selector", f"must be text such as 'team=blue', not {selector!r}")
    try:
        return msgspec.convert(selector, LabelSelector)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"selector {printable_key(selector) or repr('')}: not a label selector",
            hint="Write it as in kubectl, such as 'team=blue,tier in (web, db),!old'.",
        ) from error


def build_request(
    name: str, *, image: str | None = None, **options: Unpack[SandboxOptions]
) -> SandboxRequest:
    """Build a request.

    Args:
        name: name of the sandbox.
        image: container image.
        **options: other fields; None means the gateway's default.

    Raises:
        UsageError: an option is unknown or invalid.
    """
    validate_name(name)
    request = convert_options(SandboxRequest, SandboxOptions, {"name": name, "image": image}, options)
    if request.secrets:
        secrets.check_secret_uses(request.secrets)
    return request


def convert_options(
    request_type: type[R],
    options_type: type,
    required: Mapping[str, object],
    options: Mapping[str, object],
    *,
    kind: str = "sandbox",
) -> R:
    """Convert the options of a client to a request.

    Args:
        request_type: type of the request.
        options_type: type of the options, a TypedDict.
        required: the other fields.
        options: the options; None means the gateway's default.
        kind: what the request creates, for the message.

    Raises:
        UsageError: an option is unknown or invalid.
    """
    _reject_unknown_options(options, options_type)
    if isinstance(labels := options.get("labels"), Mapping):
        # Before the format check, whose message does not explain that a key is reserved.
        reject_reserved_labels({str(key): str(value) for key, value in labels.items()})
    given = {
        key: msgspec.to_builtins(value, builtin_types=(bytes,))
        for key, value in {**required, **options}.items()
        if value is not None
    }
    if isinstance(uses := given.get("secrets"), list | tuple):
        given["secrets"] = [_expand_secret_use(use) for use in uses]
    require_memory(given.get("memory"))
    try:
        return msgspec.convert(given, request_type, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"invalid {kind}: {describe_validation_error(error, given)}") from error


def _expand_secret_use(use: object) -> object:
    return msgspec.to_builtins(secrets.parse_secret_use(use)) if isinstance(use, str) else use


def build_update(**options: Unpack[SandboxUpdateOptions]) -> SandboxUpdate:
    """Build an update.

    Args:
        **options: the fields to change; None restores the default.

    Raises:
        UsageError: an option is unknown or invalid, or there is none.
    """
    _reject_unknown_options(options, SandboxUpdateOptions)
    if isinstance(labels := options.get("labels"), Mapping):
        reject_reserved_labels({str(key): str(value) for key, value in labels.items()})
    require_memory(options.get("memory"))
    try:
        update = msgspec.convert(options, SandboxUpdate, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"invalid update: {describe_validation_error(error, options)}") from error
    check_update(update)
    return update


def updated_fields(update: SandboxUpdate) -> list[str]:
    """Return the names of the fields that an update sets."""
    fields = msgspec.structs.asdict(update).items()
    return [name for name, value in fields if value is not msgspec.UNSET and value != {}]


def check_update(update: SandboxUpdate) -> None:
    """Check an update before any access to the sandbox.

    Raises:
        UsageError: it is empty, or sets a reserved label or too little memory.
    """
    if not updated_fields(update):
        raise UsageError("update: no changes given", hint="Name at least one field to change.")
    reject_reserved_labels({key: value or "" for key, value in update.labels.items()})
    require_memory(update.memory)


def _reject_unknown_options(options: Mapping[str, object], options_type: type) -> None:
    from difflib import get_close_matches

    known = sorted(options_type.__annotations__)
    for option in options:
        if option not in known:
            matches = get_close_matches(option, known, n=1)
            question = f"; did you mean {matches[0]}?" if matches else ""
            raise UsageError(
                f"{option}: unknown option{question}", hint=f"The options are {', '.join(known)}."
            )


def require_memory(limit: object) -> None:
    """Check a memory limit.

    Raises:
        UsageError: it is not an amount, or less than a container needs to start.
    """
    if isinstance(limit, str) and (problem := memory_problem(limit)):
        raise UsageError(f"memory {problem}")


def memory_problem(limit: str) -> str:
    """Explain why a memory limit is invalid, with the value to write instead; empty if it is valid."""
    shown = printable_key(limit) or "''"
    if not _is_quantity(limit):
        return f"{shown}: not an amount of memory; write {_suggest_memory(limit)}"
    if _is_below_minimum(limit):
        return f"{shown}: less than the minimum of {_MIN_MEMORY}; write {_suggest_memory(limit)}"
    return ""


def _is_quantity(text: str) -> bool:
    try:
        msgspec.convert(text, Quantity)
    except msgspec.ValidationError:
        return False
    return True


def _is_below_minimum(limit: str) -> bool:
    from holdfast.kube import parse_quantity

    return (parse_quantity(limit) or 0) < (parse_quantity(_MIN_MEMORY) or 0)


def _suggest_memory(text: str) -> str:
    """The amount that was probably meant: a number without a unit, or with `m`, counts MiB."""
    match = _MEMORY_SPELLING.fullmatch(text.strip())
    meant = f"{match[1]}{match[2].upper() or 'M'}i" if match else ""
    return meant if _is_quantity(meant) and not _is_below_minimum(meant) else "512Mi"
