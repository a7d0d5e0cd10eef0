"""Package exports that are imported on first use, so that importing a package costs next to nothing.

A package lists its public names once, in `__init__.pyi`, as `from package.module import Name as Name`, and
its public modules as `from package import module as module`. Type checkers read that file; at run time
`attach` reads the same lines:

    __all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_IMPORT = re.compile(r"^from (\S+) import (?:\(([^)]*)\)|(.+))$", re.MULTILINE)
_NAME = re.compile(r"(\w+) as \1\b")


def attach(package: str, init_file: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` for a package.

    Args:
        package: the package's `__name__`.
        init_file: the package's `__file__`; the stub is the `.pyi` file next to it.
    """
    modules = _exported_modules(init_file)
    names = sorted(modules)

    def __getattr__(name: str) -> Any:  # noqa: N807 (becomes the package's own)
        module_name = modules.get(name)
        if module_name is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if module_name == package:  # an exported submodule
            return import_module(f"{package}.{name}")
        module = import_module(module_name)
        # `holdfast.retry` is a package and a decorator (a callable module): the name must stay the package,
        # or `import holdfast.retry` would break after `from holdfast import retry`.
        value = module if module_name == f"{package}.{name}" else getattr(module, name)
        # Python calls the `__getattr__` of a module for missing names only: later accesses cost nothing.
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return names

    return names, __getattr__, __dir__


def _exported_modules(init_file: str) -> dict[str, str]:
    """Map each exported name to the module that defines it."""
    with open(f"{init_file.removesuffix('.py').removesuffix('.pyc')}.pyi", encoding="utf-8") as stub:  # noqa: PTH123 (pathlib is not loaded yet)
        text = stub.read()
    return {
        name: module
        for module, in_parentheses, on_one_line in _IMPORT.findall(text)
        for name in _NAME.findall(in_parentheses or on_one_line)
    }
