"""Which of the errors behind an error belong to the request that failed.

A call made inside an `except` block has the error that is being handled there at the end of its chain, and
that one tells nothing about this request. Not here: what the errors mean (`transient`, `outcome`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.retry import causes

if TYPE_CHECKING:
    from collections.abc import Iterator

_HANDLED = "_holdfast_handled"


def begun_while(error: BaseException, handled: BaseException | None) -> None:
    """Note on a failed request which error was being handled when it began."""
    if handled is None or handled is error:
        return
    try:
        setattr(error, _HANDLED, handled)
    except AttributeError:  # an exception with slots
        return


def handled_at(error: BaseException) -> BaseException | None:
    """The error that was being handled when the request behind `error` began, if any was."""
    noted = (getattr(each, _HANDLED, None) for each in causes(error))
    return next((each for each in noted if isinstance(each, BaseException)), None)


def own_causes(error: BaseException) -> Iterator[BaseException]:
    """`causes`, but not beyond what was being handled when the request began."""
    handled = handled_at(error)
    if handled is None:
        return causes(error)
    return causes(error, without={id(each) for each in causes(handled) if each is not error})
