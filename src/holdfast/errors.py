"""Every error that holdfast raises on purpose, drawn as one tree.

    HoldfastError                       has a message, a code, a hint, a cause and an exit code
    ├── TemporaryError                  exit 1: the same command, run again, goes on from here
    ├── PermanentError                  exit 3: a person has to change something first; the hint says what
    │   └── UsageError                  exit 2: the words of the command or the arguments of a call are off
    ├── LockedError                     exit 4: another run holds the gateway
    └── CancelledError                  exit 130: Ctrl-C

Errors of third-party libraries are translated on the floor that meets them; nobody above sees urllib3.
Not here: how an error is printed (`cli`), and what is retried (each floor says that of its own boundary).
"""

from __future__ import annotations

from typing import ClassVar


class HoldfastError(Exception):
    """Base of the tree: what went wrong, why, and what to do next."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint
        if cause is not None:
            self.__cause__ = cause

    @property
    def cause(self) -> BaseException | None:
        """The error underneath, if one was translated."""
        return self.__cause__


class TemporaryError(HoldfastError):
    """Something outside failed in a way that may pass."""

    code = "temporary"
    default_hint = "Run the same command again; it goes on from here."


class PermanentError(HoldfastError):
    """Trying again cannot help until a person changes something."""

    code = "permanent"
    exit_code = 3


class UsageError(PermanentError):
    """The words of a command, or the arguments of a call, cannot be meant like that."""

    code = "usage"
    exit_code = 2


class LockedError(HoldfastError):
    """Another run is at work on the same thing."""

    code = "locked"
    exit_code = 4
    default_hint = "Wait until the other run has ended, then run the same command again."


class CancelledError(HoldfastError):
    """The user interrupted the command; what was finished stays finished."""

    code = "interrupted"
    exit_code = 130
    default_hint = "Nothing was undone. Run the same command again to go on."
