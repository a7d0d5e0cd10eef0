"""The error of a failed step as it is shown: in our tree, with no value of a secret in its words.

Not here: what is recorded of it (`perform`, `schedule`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError, StepError

if TYPE_CHECKING:
    from holdfast.engine.secret import Vault


def told(step: str, error: Exception, vault: Vault) -> HoldfastError:
    """An error of the tree as itself, any other as a `StepError`; known secrets are struck out of both."""
    if not isinstance(error, HoldfastError):
        words = str(error).strip() or "no message"
        foreign, error = (
            error,
            StepError(f"step {step!r} failed: {type(error).__name__}: {words}", cause=error),
        )
        for note in getattr(foreign, "__notes__", ()):
            error.add_note(note)
    error.args = tuple(vault.redact(part) if isinstance(part, str) else part for part in error.args)
    error.message, error.hint = vault.redact(error.message), vault.redact(error.hint)
    if hasattr(error, "__notes__"):
        error.__notes__ = [vault.redact(note) for note in error.__notes__]
    return error
