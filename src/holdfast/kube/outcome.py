"""The four outcome classes of a failed request, and what a failure says about the server's state.

An HTTP status, where there is one, is decisive; the cause chain is read only without one. Not here: which
verb is retried after which outcome (`policy_table`).
"""

from __future__ import annotations

from enum import Enum

from holdfast.kube.chain import own_causes
from holdfast.kube.status import http_status, read_status
from holdfast.kube.transient import Trace, trace


class Outcome(Enum):
    """What can have become of a request that failed."""

    NOT_SENT = "not sent"
    """it never left: refused connection, unknown name, no route"""
    REJECTED = "rejected"
    """the server turned it away before doing anything, and says: later"""
    AMBIGUOUS = "ambiguous"
    """it may have been carried out: the answer was lost, or says as much"""
    DEFINITE = "definite"
    """the server decided, and will decide the same again"""


class Done(Enum):
    """Whether the effect of a write that raised has taken place."""

    NO = "not done"
    UNKNOWN = "unknown"


_AMBIGUOUS = {408, 500, 502, 504}
_SUCCESS = range(200, 300)
_TRACES = {
    Trace.NOT_SENT: Outcome.NOT_SENT,
    Trace.LOST: Outcome.AMBIGUOUS,
    Trace.GARBLED: Outcome.AMBIGUOUS,
    Trace.NEVER: Outcome.DEFINITE,
}
_DONE = "_holdfast_done"


def classify(error: BaseException) -> Outcome:
    """The outcome class of any error that a client's call can raise."""
    status = http_status(error)
    if status is None:
        unreadable = any(_is_unreadable(each) for each in own_causes(error))
        return Outcome.AMBIGUOUS if unreadable else _TRACES[trace(error)]
    if status == 429:  # noqa: PLR2004 - status codes are their own names
        return Outcome.REJECTED
    if status == 503:  # noqa: PLR2004
        # The API server's own 503 means "not now". A page from something in between may follow a request that
        # was passed on.
        return Outcome.REJECTED if read_status(error).genuine else Outcome.AMBIGUOUS
    if status in _AMBIGUOUS:
        return Outcome.REJECTED if _is_failed_webhook(error) else Outcome.AMBIGUOUS
    # A 2xx was a yes that could not be read.
    return Outcome.AMBIGUOUS if status in _SUCCESS else Outcome.DEFINITE


def _is_unreadable(error: BaseException) -> bool:
    """The official client says so with status 0 and a sentence."""
    reason = getattr(error, "reason", None)
    return (
        getattr(error, "status", None) == 0
        and isinstance(reason, str)
        and reason.startswith("Unsupported content type")
    )


def _is_failed_webhook(error: BaseException) -> bool:
    """Admission comes before storage: a webhook that could not be called stopped the request."""
    status = read_status(error)
    return status.reason == "InternalError" and "failed calling webhook" in status.message


def describe(error: BaseException) -> str:
    """An error in a few words that hold nothing of any body or header: its status, or its types."""
    status = http_status(error)
    if status is not None:
        reason = read_status(error).reason
        return f"HTTP {status} {reason}".rstrip()
    names = list(dict.fromkeys(type(each).__name__ for each in own_causes(error)))
    return f"{classify(error).value}: {' < '.join(names[:3])}"


def is_already_exists(error: BaseException) -> bool:
    """409 AlreadyExists; not 409 Conflict, which is about another version of the object."""
    return http_status(error) == 409 and read_status(error).reason == "AlreadyExists"  # noqa: PLR2004


def mark(error: BaseException, done: Done) -> None:
    """Write on a failed write what it says about the server's state, for `outcome_of` and for readers."""
    try:
        setattr(error, _DONE, done)
    except AttributeError:  # an exception with slots
        return
    if done is Done.UNKNOWN:
        text = "outcome: unknown; the request may have been carried out"
        if text not in getattr(error, "__notes__", []):
            error.add_note(text)


def outcome_of(error: BaseException) -> Done:
    """Whether what a failed write asked for has happened: *not done* for certain, or *unknown*."""
    for each in own_causes(error):
        done = getattr(each, _DONE, None)
        if isinstance(done, Done):
            return done
    return Done.UNKNOWN if classify(error) is Outcome.AMBIGUOUS else Done.NO
