"""One attempt of a write that may have happened before: make it, and if it was done already, see by whom.

Each is a sequence of steps, for threads and tasks alike, repeated by a policy around it. What one attempt
learns is kept in a `Write` for the next. Not here: which writes are repeated at all (`policy_table`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.kube import stamp
from holdfast.kube.compare import differences, is_exactly
from holdfast.kube.outcome import Outcome, classify, is_already_exists
from holdfast.kube.status import http_status

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.kube.steps import Steps

    # Makes one request, as steps.
    Request: TypeAlias = Callable[[], Steps[Any]]

# How often one attempt creates again when what was in the way has just gone.
_AGAIN = 3
_NOT_FOUND, _CONFLICT = 404, 409


class Write:
    """What is known about one write, over all of its attempts."""

    __slots__ = ("_plain", "body", "generated", "repeated", "unknown")

    def __init__(self, body: Any = None, plain: Callable[[Any], Any] | None = None) -> None:
        self.body = body
        self.generated = False
        self.repeated = False
        self.unknown = False
        self._plain = plain

    def stamp(self, owner: str | None = None) -> None:
        """Give the body an operation id and a name of its own."""
        self.generated = stamp.name_of(self.body) is None
        # A caller's own id, of an earlier run or of the object that this one is a copy of.
        self.repeated = stamp.annotation(self.body, stamp.OPERATION) is not None
        self.body = stamp.stamped(self.body, owner=owner)

    def note(self, error: BaseException) -> None:
        """An ambiguous failure, once met, stays: no later refusal makes it unhappen."""
        if classify(error) is Outcome.AMBIGUOUS:
            self.unknown = True

    def is_ours(self, live: Any) -> bool:
        """Whether an attempt of this write made it; with an id from elsewhere it must be alike, too."""
        mine, live = stamp.annotation(self.body, stamp.OPERATION), payload(live)
        if mine is None or stamp.annotation(live, stamp.OPERATION) != mine:
            return False
        plain = self._plain or (lambda value: value)
        return not self.repeated or not differences(plain(self.body), plain(live))


def once(write: Write, request: Request) -> Steps[Any]:
    """A write that is simply made; only whether it may have happened is noted."""
    try:
        return (yield from request())
    except Exception as error:
        write.note(error)
        raise


def create(
    write: Write, post: Callable[[Any], Steps[Any]], read: Callable[[str], Steps[Any]] | None
) -> Steps[Any]:
    """POST; on AlreadyExists read back: what carries our operation id was made by an attempt of ours."""
    left = _AGAIN
    while True:
        left -= 1
        try:
            return (yield from post(write.body))
        except Exception as error:
            write.note(error)
            name = stamp.name_of(write.body)
            if read is None or name is None or not is_already_exists(error):
                raise
            try:
                live = yield from read(name)
            except Exception as lost:
                if http_status(lost) != _NOT_FOUND or left <= 0:
                    raise
                continue
            if write.is_ours(live):
                return live
            if not write.generated or left <= 0:
                raise
            write.body = stamp.renamed(write.body)


def replace(write: Write, put: Request, read: Request | None, plain: Callable[[Any], Any]) -> Steps[Any]:
    """PUT of a known version; a Conflict after a lost answer is looked into: it may be as we sent it."""
    try:
        return (yield from put())
    except Exception as error:
        write.note(error)
        if read is None or not write.unknown or http_status(error) != _CONFLICT:
            raise
        live = yield from read()
        if not is_exactly(plain(write.body), plain(payload(live))):
            raise
        return live


def delete(write: Write, request: Request, gone: Callable[[], Any]) -> Steps[Any]:
    """DELETE; not found after a lost answer means that it is done."""
    try:
        return (yield from request())
    except Exception as error:
        write.note(error)
        if not write.unknown or http_status(error) != _NOT_FOUND:
            raise
        return gone()


def payload(result: Any) -> Any:
    """The object in what a method returned: some variants give it with status and headers around it."""
    if isinstance(result, tuple):
        return result[0]
    return result.data if hasattr(result, "status_code") else result
