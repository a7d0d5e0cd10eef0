"""Users can import every type that a public method returns or accepts from a package below `holdfast`."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from holdfast import Gateway, client
from holdfast.gateway import AsyncGateway

SRC = Path(__file__).resolve().parents[2] / "src"
PACKAGES = ["holdfast", *(f"holdfast.{path.parent.name}" for path in SRC.glob("holdfast/*/__init__.pyi"))]
# Modules whose public names users import, too.
MODULES = [import_module(name) for name in (*PACKAGES, "holdfast.errors", "holdfast.events")]
CLIENTS = [getattr(client, name) for name in client.__all__]
# Users do not call the connection that clients share.
PUBLIC_CLASSES = [
    each
    for each in (Gateway, AsyncGateway, *CLIENTS)
    if inspect.isclass(each) and each is not client.Transport
]


def defined_types() -> dict[str, set[str]]:
    """Map the name of each class and type alias of holdfast to the modules that define it."""
    found: dict[str, set[str]] = {}
    for path in SRC.rglob("*.py"):
        module = ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).add(module)
            elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
                found.setdefault(ast.unparse(node.target), set()).add(module)
    return found


TYPES = defined_types()


def names_in(annotation: object) -> set[str]:
    """The names in an annotation, also in its quoted parts, but not in the strings of a Literal."""
    if not isinstance(annotation, str):
        return {getattr(annotation, "__name__", "")} | {
            name for argument in get_args(annotation) for name in names_in(argument)
        }
    found, waiting = set[str](), [ast.parse(annotation, mode="eval").body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= names_in(node.value)
        if not (isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal"):
            waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    return found


def public_annotations(cls: type) -> set[object]:
    """The annotations of the public methods and properties of a class, and of its public attributes."""
    found: set[object] = {
        annotation
        for base in cls.__mro__
        for name, annotation in getattr(base, "__annotations__", {}).items()
        if not name.startswith("_") and base.__module__.startswith("holdfast")
    }
    for name, member in inspect.getmembers(cls):
        function = member.fget if isinstance(member, property) else member
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        signature = inspect.signature(function)
        found.add(signature.return_annotation)
        found |= {parameter.annotation for parameter in signature.parameters.values()}
    return found - {inspect.Signature.empty}


def exported(name: str) -> object | None:
    """The type with this name that a package exports."""
    for module in MODULES:
        if name in getattr(module, "__all__", vars(module)):
            value = getattr(module, name)
            if not inspect.isclass(value) or value.__module__ in {*TYPES[name], module.__name__}:
                return value
    return None


@pytest.mark.parametrize("cls", PUBLIC_CLASSES)
def test_types_of_public_methods_can_be_imported(cls):
    missing, seen, waiting = set(), set(), [cls]
    while waiting:
        for annotation in public_annotations(waiting.pop()):
            for name in names_in(annotation) & TYPES.keys() - seen:
                seen.add(name)
                value = exported(name)
                if value is None:
                    missing.add(name)
                elif inspect.isclass(value):
                    waiting.append(value)
    assert missing == set(), "export them in the `__init__.pyi` of a package"
