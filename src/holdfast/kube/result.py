"""What the helpers return, and how a client's errors become holdfast's.

Messages name kinds, names and reasons. What a server says in its own words is passed on for all but secret
objects, shortened. Not here: `resilient`, which promises the client's own error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from holdfast.errors import (
    CancelledError,
    ClusterRefusedError,
    HoldfastError,
    ObjectConflictError,
    OutcomeUnknownError,
    TemporaryError,
)
from holdfast.kube.outcome import Done, Outcome, classify, describe, outcome_of
from holdfast.kube.status import http_status, read_status
from holdfast.kube.transient import is_untrusted

if TYPE_CHECKING:
    from holdfast.kube.manifest import Target

Did: TypeAlias = Literal["created", "adopted", "unchanged", "changed", "deleted", "absent"]

_CONFLICT = 409
_LONGEST = 300
_DISTRUSTED = "Check the certificate authority and the client's certificate in the kubeconfig."


@dataclass(frozen=True, slots=True)
class Result:
    """What a helper did, and the object as the server has it now."""

    did: Did
    object: dict[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        return str(self.object.get("metadata", {}).get("name", ""))

    @property
    def uid(self) -> str | None:
        uid = self.object.get("metadata", {}).get("uid")
        return uid if isinstance(uid, str) else None


def translated(error: Exception, doing: str, where: Target, *, writes: bool) -> Exception:
    """The error of our own tree that says the same."""
    if isinstance(error, CancelledError):  # whatever the attempt before it had met
        return error
    if isinstance(error, HoldfastError) and classify(error) is Outcome.DEFINITE:
        return error
    said = f"{doing} {where}: {describe(error)}{_words(error, where)}"
    if writes and outcome_of(error) is Done.UNKNOWN:
        return OutcomeUnknownError(said, cause=error)
    if classify(error) is not Outcome.DEFINITE:
        return TemporaryError(said, cause=error)
    if http_status(error) == _CONFLICT:
        return ObjectConflictError(said, cause=error)
    hint = _DISTRUSTED if is_untrusted(error) else None
    return error if http_status(error) is None and hint is None else _refused(said, hint, error)


def _refused(said: str, hint: str | None, error: Exception) -> Exception:
    return ClusterRefusedError(said, hint=hint, cause=error)


def _words(error: Exception, where: Target) -> str:
    if where.kind == "Secret":
        return ""
    message = read_status(error).message.replace("\n", " ")[:_LONGEST]
    return f": {message}" if message else ""
