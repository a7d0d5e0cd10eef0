"""Packages import only each other's exports, and every package exports exactly what is used outside it."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"


class Import(NamedTuple):
    """One imported name: `from module import name` (name is empty for `import module`)."""

    place: str
    importer: str
    module: str
    name: str


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PACKAGES = {module_name(path) for path in SRC.rglob("__init__.py")}
MODULES = {module_name(path) for path in SRC.rglob("*.py")}


def package_of(module: str) -> str:
    """The innermost package that contains a module; a package contains itself."""
    while module not in PACKAGES:
        module = module.rpartition(".")[0]
    return module


def imports(source: str, importer: str, place: str) -> list[Import]:
    """All imports of holdfast, at module level, in functions and under TYPE_CHECKING."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module.partition(".")[0] == "holdfast" and not node.level:
                at = f"{place}:{node.lineno}"
                found += [Import(at, importer, module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.partition(".")[0] == "holdfast"]
            found += [Import(f"{place}:{node.lineno}", importer, name, "") for name in names]
    return found


def source_imports() -> list[Import]:
    paths = [*SRC.rglob("*.py"), *SRC.rglob("*.pyi")]
    return [
        each
        for path in sorted(paths)
        for each in imports(path.read_text(), module_name(path), str(path.relative_to(ROOT)))
    ]


def is_inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def exports(package: str) -> set[str]:
    return set(getattr(importlib.import_module(package), "__all__", ()))


def is_allowed(each: Import) -> bool:
    """Whether an import names a module of the same package or an export of another one."""
    package = package_of(each.module)
    is_own = is_inside(each.importer, package)
    is_reexport = each.importer in PACKAGES and is_inside(package, each.importer)
    if package == "holdfast" or is_own or is_reexport:
        return True
    return each.module == package and (not each.name or each.name in exports(package))


def test_packages_import_only_exports_of_other_packages():
    assert [each for each in source_imports() if not is_allowed(each)] == []


@pytest.mark.parametrize(
    "source",
    [
        "from holdfast.kube.flows import Flow",
        "from holdfast.kube import flows",
        "import holdfast.kube.flows",
        "def function():\n    from holdfast.kube.flows import Flow",
        "if TYPE_CHECKING:\n    from holdfast.kube.flows import Flow",
        "from holdfast.kube import NoSuchExport",
    ],
)
def test_import_of_an_inner_module_is_found(source):
    (found,) = imports(source, "holdfast.client.sync", "sync.py")
    assert not is_allowed(found)
    assert is_allowed(found._replace(importer="holdfast.kube.objects"))


def test_every_export_exists():
    missing = [
        f"{package}.{name}"
        for package in sorted(PACKAGES)
        for name in exports(package)
        if not hasattr(importlib.import_module(package), name)
    ]
    assert missing == []


def test_no_export_has_the_name_of_a_module_of_its_package():
    # The import of such a module would replace the export. `holdfast.retry` is a module that can be called.
    stubs = [each for each in source_imports() if each.importer in PACKAGES and each.place.startswith("src/")]
    clashes = {
        f"{each.importer}.{each.name}"
        for each in stubs
        if each.module != each.importer and f"{each.importer}.{each.name}" in MODULES
    }
    assert clashes == {"holdfast.retry"}


def test_every_export_is_used_outside_its_package():
    used = defaultdict(set)
    for each in [*source_imports(), *source_attributes(), *imports_of_tests()]:
        if not is_inside(each.importer, each.module):
            used[each.module].add(each.name)
    documents = "\n".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    unused = [
        f"{package}.{name}"
        for package in sorted(PACKAGES)
        for name in sorted(exports(package) - used[package])
        if not re.search(rf"\b{package}(?:\.| import .*\b){name}\b", documents)
    ]
    assert unused == []


def imports_of_tests() -> list[Import]:
    """The imports of tests and benchmarks, and the names that they read from an imported package."""
    paths = [path for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*.py")]
    return [
        each
        for path in paths
        for each in imports(path.read_text(), "tests", path.name)
        + package_attributes(path.read_text(), "tests")
    ]


def source_attributes() -> list[Import]:
    return [
        each for path in SRC.rglob("*.py") for each in package_attributes(path.read_text(), module_name(path))
    ]


def package_attributes(source: str, importer: str) -> list[Import]:
    """The uses of `package.name` after `import package` or `from parent import package`."""
    aliases = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            parent = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            aliases |= {alias.asname or alias.name: f"{parent}{alias.name}" for alias in node.names}
    return [
        Import("", importer, package, name)
        for alias, package in aliases.items()
        if package in PACKAGES
        for name in re.findall(rf"\b{re.escape(alias)}\.(\w+)", source)
    ]
