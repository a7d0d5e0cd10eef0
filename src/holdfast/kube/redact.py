"""Takes out of an error what nobody may see: bodies of secret objects, and the bearer token anywhere.

Works on the client's own exception in place, so that the error is still raised as itself. Not here: our own
messages, which never quote a body.
"""

from __future__ import annotations

import json
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.kube.status import http_status, read_status

_HIDDEN = "<hidden>"
_MANY = 256


class WithheldError(HoldfastError):
    """Takes the place of an error whose words quote a secret object, and cannot be cleaned."""

    code = "withheld"


def withheld(error: Exception) -> Exception:
    """The error, or one without its words: what parsers and validators raise quotes what they were given."""
    if isinstance(error, HoldfastError) or not isinstance(
        error, ValueError | TypeError | AttributeError | LookupError
    ):
        return error
    clean = WithheldError(f"{type(error).__name__} about a secret object; its words are withheld")
    for note in getattr(error, "__notes__", []):
        clean.add_note(note)
    return clean


def redact(error: BaseException, *, sensitive: bool, configuration: Any) -> None:
    """Clean an error of the official client; leaves any other alone."""
    if not hasattr(error, "body") or not hasattr(error, "headers"):
        return
    if sensitive:
        error.body = _bare_status(error) if error.body else error.body
        error.data = None  # type: ignore[attr-defined]
    for token in _tokens(configuration):
        if isinstance(error.body, str) and token in error.body:
            error.body = error.body.replace(token, _HIDDEN)
        if token in str(error.headers):
            error.headers = None


def _bare_status(error: BaseException) -> str:
    """The Status without its message, which may quote what was sent."""
    status = read_status(error)
    bare = {"kind": "Status", "status": "Failure", "reason": status.reason, "message": _HIDDEN}
    return json.dumps({**bare, "code": http_status(error)})


def _tokens(configuration: Any) -> list[str]:
    keys = getattr(configuration, "api_key", None)
    values = list(keys.values())[:_MANY] if isinstance(keys, dict) else []
    values += [getattr(configuration, "password", None), getattr(configuration, "access_token", None)]
    words = [str(value).rpartition(" ")[2] for value in values if value]
    return [word for word in words if word]
