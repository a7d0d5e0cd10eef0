"""What a call went through, in few words: the note that its last error carries.

Holds texts only, never the errors of past attempts: an error would keep its traceback, and so every frame of
that attempt, alive. Not here: any decision.
"""

from __future__ import annotations

from collections import deque

# A call that is tried until a deadline may fail thousands of times; the last ones tell enough.
_LINES = 8
_MARK = "retry: "


class History:
    """The attempts of one call so far; made at its first failure, so that a success does not pay for it."""

    __slots__ = ("_lines", "_remarks", "attempt", "began", "delay", "last", "reason", "squeezed")

    def __init__(self, began: float) -> None:
        self.began = began
        self.attempt = 0
        self.delay = 0.0
        self.reason = ""
        self.squeezed = False
        self.last: Exception | None = None
        """the error of the attempt just made, until the next one begins"""
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._remarks: list[str] = []

    def add(self, error: Exception, reason: str, delay: float, *, squeezed: bool) -> None:
        self.last = error
        self.reason = reason
        self.delay = delay
        self.squeezed = squeezed
        self._lines.append(f"  attempt {self.attempt}: {reason}; waited {delay:.2f} s")

    def remark(self, text: str) -> None:
        if text not in self._remarks:
            self._remarks.append(text)

    def write_note(self, error: BaseException, operation: str, why: str, now: float) -> None:
        """Add the history to the error; replaces an older note of ours, as one error may be raised again."""
        if self.attempt <= 1 and not self._lines and not self._remarks:
            return
        times = "1 attempt" if self.attempt == 1 else f"{self.attempt} attempts"
        omitted = self.attempt - 1 - len(self._lines)
        lines = [f"{_MARK}{operation}: gave up after {times} in {now - self.began:.2f} s: {why}"]
        if omitted > 0:
            lines.append(f"  ({omitted} earlier attempts left out)")
        lines += [*self._lines, *(f"  {remark}" for remark in self._remarks)]
        notes = getattr(error, "__notes__", None)
        if isinstance(notes, list):
            own = f"{_MARK}{operation}: "
            notes[:] = [note for note in notes if not (isinstance(note, str) and note.startswith(own))]
        error.add_note("\n".join(lines))
