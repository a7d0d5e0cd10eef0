"""holdfast: Kubernetes gateways and sandboxes that go on where they stopped.

The names below are the whole public surface of the root package; each is loaded on first use, so that
`import holdfast` costs next to nothing. Everything else lives on a floor of its own (docs/architecture.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

__all__ = ["__version__"]

_HOMES: dict[str, str] = {}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
