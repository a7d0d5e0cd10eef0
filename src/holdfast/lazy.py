"""Names of a package that are looked up in their modules when first used, so that importing it costs nothing.

    __getattr__ = lazy.names(globals(), {"Policy": "holdfast.retry.policy"})

Not here: which names are public (each package's `__all__`, which checkers read).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def names(package: dict[str, Any], homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__`; homes without a dot are modules of the package itself."""
    own = package["__name__"]

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {own!r} has no attribute {name!r}")
        module = import_module(home if "." in home else f"{own}.{home}")
        # A name that is also a floor stays that module: a decorator must not cut off `import holdfast.retry`.
        value = module if home == f"{own}.{name}" else getattr(module, name)
        package[name] = value
        return value

    return find
