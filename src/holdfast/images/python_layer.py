"""holdfast itself and its locked dependencies, as layers of an image; or one part of it that needs no others.

The package is copied as it is installed here, from a clone or a wheel alike; dependencies come from the
hashed lock, and have a layer of their own: a change of our own code moves a small layer only. Not here:
Debian's Python; that is in the root filesystem.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import BuildFailedError
from holdfast.images.digest import files_below, key_of, tree
from holdfast.images.layers import Layer
from holdfast.images.sources import requirements_file
from holdfast.images.tools import find_uv, run_tool

if TYPE_CHECKING:
    import threading

    from holdfast.images.sources import Python

LAYER = "dependencies.tar"
_PLATFORMS = {"amd64": "x86_64-unknown-linux-gnu", "arm64": "aarch64-unknown-linux-gnu"}
_RECIPE = 3
"""Raised when the way of making the layer changes."""


def package_folder() -> Path:
    """The installed holdfast package."""
    return Path(__file__).resolve().parents[1]


def dependencies_key(python: Python, architecture: str) -> str:
    """What decides which dependencies are installed, and how."""
    return key_of(
        "python", _RECIPE, python, architecture, requirements_file().read_text(), _can_compile(python)
    )


def package_key(python: Python) -> str:
    """A hash of holdfast's own sources, as far as they are in the image."""
    return key_of(tree(package_folder() / python.only, _is_source))


def install_dependencies(
    python: Python, target: Path, *, architecture: str, log: Path, stop: threading.Event | None = None
) -> None:
    """Install the locked dependencies for the image's Python, and pack them as one layer into a folder."""
    installed = target / "installed"
    argv = [
        find_uv(), "pip", "install", "--no-config", "--require-hashes", "--only-binary=:all:", "--no-deps",
        "--target", str(installed), "--python-version", python.version, "--python-platform",
        _PLATFORMS[architecture], "--requirements", str(requirements_file()),
    ]  # fmt: skip
    run_tool(argv, log=log, environment={"UV_NO_PROGRESS": "1"}, stop=stop)
    pack_dependencies(python, installed, target / LAYER)
    shutil.rmtree(installed)


def pack_dependencies(python: Python, installed: Path, target: Path) -> None:
    """Make a layer of what is installed and wanted, as bytecode alone.

    Every file costs time when a node takes the image in, and nobody edits these.
    """
    for pattern in python.left_out:
        _leave_out(installed, pattern)
    with Layer(target) as layer:
        for path in files_below(installed):
            place = f"{python.prefix}/{path.relative_to(installed)}"
            if path.suffix == ".py" and _can_compile(python):
                layer.content(f"{place}c", _bytecode(path, place))
            elif path.suffix != ".pyi":
                layer.file(place, path)


def _leave_out(installed: Path, pattern: str) -> None:
    """Remove what the pattern names; one that names nothing is out of date."""
    found = list(installed.glob(pattern))
    if not found:
        raise BuildFailedError(
            f"nothing that is installed matches {pattern}, which is to be left out of the image",
            hint="Take it out of `left_out` in the image's image.toml.",
        )
    for path in found:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def add_package(layer: Layer, python: Python) -> None:
    """Put holdfast's own package, or the one part of it that is wanted, below the prefix."""
    root = package_folder()
    for path in files_below(root / python.only):
        if _is_source(path):
            place = f"{python.prefix}/holdfast/{path.relative_to(root)}"
            layer.file(place, path)
            if path.suffix == ".py" and _can_compile(python):
                layer.content(_beside(place, python), _bytecode(path, place))


def _beside(place: str, python: Python) -> str:
    """Where Python looks for the bytecode of a source that is there too."""
    folder, _, name = place.rpartition("/")
    tag = f"cpython-{python.version.replace('.', '')}"
    return f"{folder}/__pycache__/{name.removesuffix('.py')}.{tag}.pyc"


def _bytecode(path: Path, place: str) -> bytes:
    """Compile here what cannot be compiled there: the image's files are read-only when they run.

    Without it each start compiles everything anew; with another Python than the image's it has to do without.
    """
    import py_compile
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "made.pyc"
        py_compile.compile(
            str(path),
            cfile=str(made),
            dfile=place,
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        return made.read_bytes()


def _can_compile(python: Python) -> bool:
    return python.version == f"{sys.version_info.major}.{sys.version_info.minor}"


def _is_source(path: Path) -> bool:
    return path.suffix in (".py", ".typed", ".html", ".css", ".js", ".yaml", ".json", ".toml") and (
        "_images" not in path.parts
    )
