"""Replace a function by a fake that accepts only the calls that the function accepts."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def stub(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, fake: Callable[..., Any]) -> None:
    """Replace `owner.name`; a call that does not match its signature raises TypeError."""
    signature = inspect.signature(getattr(owner, name))

    def checked(*args: Any, **kwargs: Any) -> Any:
        signature.bind(*args, **kwargs)
        return fake(*args, **kwargs)

    monkeypatch.setattr(owner, name, checked)
