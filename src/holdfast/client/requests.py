"""Builds sandbox requests from options and validates them before they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.api import Name, SandboxRequest, Workspace
from holdfast.errors import UsageError
from holdfast.sandbox import describe_validation_error, reject_reserved_labels


def validate_name(name: str) -> str:
    """Check the name of a sandbox.

    Raises:
        UsageError: the name is not a valid DNS label.
    """
    try:
        return msgspec.convert(name, Name)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{name!r}: not a valid sandbox name",
            hint="Use at most 63 lower-case letters, digits and dashes, with a letter or digit at both ends.",
        ) from error


def build_request(name: str, *, image: str | None = None, **options: Any) -> SandboxRequest:
    """Build a request.

    Args:
        name: name of the sandbox.
        image: container image.
        **options: other fields of `SandboxRequest`; None means the gateway's default.

    Raises:
        UsageError: an option is unknown or invalid.
    """
    validate_name(name)
    if isinstance(labels := options.get("labels"), Mapping):
        # Before the format check, whose message does not explain that a key is reserved.
        reject_reserved_labels({str(key): str(value) for key, value in labels.items()})
    given = {key: _to_builtins(value) for key, value in options.items() if value is not None}
    if image is not None:
        given["image"] = image
    try:
        return msgspec.convert({"name": name, **given}, SandboxRequest, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"invalid sandbox: {describe_validation_error(error, given)}") from error


def build_workspace(
    *, size: str | None, storage_class: str | None, seed: bool, disabled: bool
) -> Workspace | bool | None:
    """Build the workspace of a request from command line options.

    Returns:
        The workspace, False to disable it, or None if no option is set.

    Raises:
        UsageError: an option is invalid, or conflicts with `disabled`.
    """
    if disabled:
        if size or storage_class or not seed:
            raise UsageError("--no-workspace and other workspace options exclude each other")
        return False
    given = {"size": size, "storage_class": storage_class, "seed": None if seed else False}
    options = {key: value for key, value in given.items() if value is not None}
    try:
        return msgspec.convert(options, Workspace) if options else None
    except msgspec.ValidationError as error:
        raise UsageError(f"invalid workspace: {describe_validation_error(error, options)}") from error


def _to_builtins(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes,))
