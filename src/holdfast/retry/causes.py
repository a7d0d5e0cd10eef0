"""Walks from an error to what caused it, whatever shape the chain has.

Not here: what any of the errors means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# Nobody nests deeper in earnest; a hostile or broken chain must still end.
_DEEPEST = 100


def causes(error: BaseException | None, *, without: Collection[int] = ()) -> Iterator[BaseException]:
    """The error, then what it was raised from, depth first; each once, so that a cyclic chain ends.

    Follows `__cause__`, `__context__` unless it was suppressed, and `reason` where it is an exception, which
    is how urllib3 keeps what it wrapped. Nothing whose `id` is in `without` is entered.
    """
    seen: set[int] = set()
    todo = [error]
    while todo and len(seen) < _DEEPEST:
        each = todo.pop()
        if each is None or id(each) in seen or id(each) in without:
            continue
        seen.add(id(each))
        yield each
        reason = getattr(each, "reason", None)
        if isinstance(reason, BaseException):
            todo.append(reason)
        if not each.__suppress_context__:
            todo.append(each.__context__)
        todo.append(each.__cause__)
