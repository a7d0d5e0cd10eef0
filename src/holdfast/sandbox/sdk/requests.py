"""What a caller asks for as the body of a request, checked before it is sent: the mistake is named here.

The bounds are those of the wire's own models. Not here: what becomes of the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.errors import UsageError
from holdfast.sandbox.mistakes import mistake
from holdfast.sandbox.wire import Name, SandboxRequest, Workspace


def checked_name(name: str) -> str:
    """A sandbox's name, or an error that says what names are like."""
    try:
        return msgspec.convert(name, Name)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{name!r} is no name for a sandbox",
            hint="Small letters, digits and dashes, at most 63; it begins and ends with a letter or digit.",
        ) from error


def request_for(name: str, *, image: str | None = None, **options: Any) -> SandboxRequest:
    """The request for a sandbox; what is None counts as not given, and the gateway has its defaults."""
    checked_name(name)
    _refuse_reserved(options.get("labels"))
    given = {key: _plain(value) for key, value in options.items() if value is not None}
    if image is not None:
        given["image"] = image
    try:
        return msgspec.convert({"name": name, **given}, SandboxRequest, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"the sandbox cannot be asked for like that: {mistake(error, given)}") from error


def workspace_for(
    *, size: str | None, storage_class: str | None, seed: bool, without: bool
) -> Workspace | bool | None:
    """The workspace that options name; None where nothing was said."""
    if without:
        if size or storage_class or not seed:
            raise UsageError("--no-workspace and the options of a workspace exclude each other")
        return False
    given = {"size": size, "storage_class": storage_class, "seed": None if seed else False}
    said = {key: value for key, value in given.items() if value is not None}
    try:
        return msgspec.convert(said, Workspace) if said else None
    except msgspec.ValidationError as error:
        raise UsageError(f"the workspace cannot be asked for like that: {mistake(error, said)}") from error


def _refuse_reserved(labels: Any) -> None:
    """Said in its own words, and before anybody is asked: a form alone does not say what is wrong."""
    from holdfast.sandbox.creation import refuse_labels

    if isinstance(labels, Mapping):
        refuse_labels({str(key): str(value) for key, value in labels.items()})


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes,))
