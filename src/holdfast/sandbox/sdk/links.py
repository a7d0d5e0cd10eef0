"""Whether a symbolic link inside a copy stays inside it: one rule for what is sent and what is received."""

from __future__ import annotations

from itertools import takewhile
from pathlib import PurePosixPath


def leads_out(target: str, parts: tuple[str, ...]) -> bool:
    """Whether a link at `parts` (its path in the copy, the copy's own name first) may leave the copy.

    Upwards comes first or not at all: behind another link, it could lead anywhere. A link that is the whole
    copy leads to something beside it, whatever that is.
    """
    link = PurePosixPath(target)
    if len(parts) == 1:
        return True
    upwards = sum(1 for _ in takewhile(lambda part: part == "..", link.parts))
    return link.is_absolute() or ".." in link.parts[upwards:] or upwards > len(parts) - 2
