"""The general classes of `holdfast.errors`, which exports them."""

from __future__ import annotations

from typing import ClassVar


class HoldfastError(Exception):
    """Base class of all errors; each layer translates the errors of its third-party libraries.

    Args:
        message: what failed, as `<object>: <problem>`.
        hint: the exact next command; `default_hint` if omitted.
        cause: the error that this one translates.
    """

    code: ClassVar[str] = "error"
    exit_code: int = 1
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint
        if cause is not None:
            self.__cause__ = cause

    @property
    def cause(self) -> BaseException | None:
        return self.__cause__


class TemporaryError(HoldfastError):
    """A failure outside holdfast that may go away."""

    code = "temporary"
    default_hint = "Run the same command again to continue."


class PermanentError(HoldfastError):
    """A retry fails again until the user changes something; the hint says what."""

    code = "permanent"
    exit_code = 3


class UsageError(PermanentError):
    """Invalid command line, or invalid arguments of a call."""

    code = "usage"
    exit_code = 2


class LockedError(HoldfastError):
    """Another run holds the lock of the same gateway."""

    code = "locked"
    exit_code = 4
    default_hint = "Wait until the other run ends, then run the same command again."


class OperationCancelledError(HoldfastError):
    """The user interrupted the command. Finished steps stay finished."""

    code = "interrupted"
    exit_code = 130
    default_hint = "Run the same command again to continue. Nothing was undone."


class InvalidArgumentError(UsageError, ValueError):
    """An argument has an invalid value; `argument` is its name."""

    code = "argument"

    def __init__(
        self, argument: str, message: str, *, hint: str | None = None, cause: BaseException | None = None
    ) -> None:
        super().__init__(f"{argument}: {message}", hint=hint, cause=cause)
        self.argument = argument


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument has the wrong type."""

    code = "argument-kind"


class DeadlineExceededError(TemporaryError, TimeoutError):
    """The deadline of a call or a wait has passed."""

    code = "deadline"


# Users import them from there; tracebacks and pickles name that module too.
for _class in (
    HoldfastError, TemporaryError, PermanentError, UsageError, LockedError, OperationCancelledError,
    InvalidArgumentError, ArgumentTypeError, DeadlineExceededError,
):  # fmt: skip
    _class.__module__ = "holdfast.errors"
