"""Layers with holdfast and its locked dependencies.

The package is copied from where it is installed (clone or wheel). Dependencies come from the hashed lock file
and have their own layer, so that a change of holdfast's code changes a small layer only.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import ImageBuildError
from holdfast.images.build_cache import cache_key, list_files, tree_hashes
from holdfast.images.build_tools import ToolRunner, find_uv
from holdfast.images.image_archive import LayerWriter
from holdfast.images.image_toml import requirements_file

if TYPE_CHECKING:
    from holdfast.images.image_toml import PythonPackages

DEPENDENCIES_LAYER_FILE = "dependencies.tar"
UV_LAYER_FILE = "uv.tar"
_PLATFORMS = {"amd64": "x86_64-unknown-linux-gnu", "arm64": "aarch64-unknown-linux-gnu"}
# Increase it when the layer is built differently.
_LAYER_BUILD_VERSION = 3


def package_directory() -> Path:
    """The installed holdfast package."""
    return Path(__file__).resolve().parents[1]


def dependencies_key(python: PythonPackages, architecture: str) -> str:
    """Return the cache key of the dependencies layer."""
    return cache_key(
        "python",
        _LAYER_BUILD_VERSION,
        python,
        architecture,
        requirements_file("runtime").read_text(),
        _can_compile(python),
    )


def uv_key(python: PythonPackages, architecture: str) -> str:
    """Return the cache key of the layer with uv."""
    lock = requirements_file("uv").read_text()
    return cache_key("uv", python.version, python.uv_programs, architecture, lock)


def package_key(python: PythonPackages) -> str:
    """Return a hash of holdfast's sources that are copied into the image."""
    return cache_key(tree_hashes(package_directory() / python.only_subpackage, _is_source))


def install_dependencies(python: PythonPackages, architecture: str, target: Path, tools: ToolRunner) -> None:
    """Install the locked dependencies for the Python of the image, and write them as one layer."""
    installed = _install_locked("runtime", python, architecture, target, tools)
    pack_dependencies(python, installed, target / DEPENDENCIES_LAYER_FILE)
    shutil.rmtree(installed)


def install_uv(python: PythonPackages, architecture: str, target: Path, tools: ToolRunner) -> None:
    """Write a layer with the programs of the locked wheel of uv."""
    installed = _install_locked("uv", python, architecture, target, tools)
    with LayerWriter(target / UV_LAYER_FILE) as layer:
        for program, image_path in python.uv_programs.items():
            layer.add_file(image_path, installed / program, mode=0o755)
    shutil.rmtree(installed)


def _install_locked(
    lock: str, python: PythonPackages, architecture: str, target: Path, tools: ToolRunner
) -> Path:
    """Install the wheels of a lock file for the Python of the image; return the directory."""
    installed = target / "installed"
    # Only wheels with a locked hash: a source distribution would run its own code on this machine.
    argv = [
        find_uv(), "pip", "install", "--no-config", "--require-hashes", "--only-binary=:all:", "--no-deps",
        "--target", str(installed), "--python-version", python.version, "--python-platform",
        _PLATFORMS[architecture], "--requirements", str(requirements_file(lock)),
    ]  # fmt: skip
    tools.run(argv, environment={"UV_NO_PROGRESS": "1"})
    return installed


def pack_dependencies(python: PythonPackages, installed: Path, target: Path) -> None:
    """Write the layer of the installed dependencies, as bytecode without sources.

    Fewer files make the import of the image on the node faster.
    """
    for pattern in python.excluded_files:
        _remove_excluded(installed, pattern)
    with LayerWriter(target) as layer:
        for path in list_files(installed):
            image_path = f"{python.prefix}/{path.relative_to(installed)}"
            if path.suffix == ".py" and _can_compile(python):
                layer.add_bytes(f"{image_path}c", _compile_bytecode(path, image_path))
            elif path.suffix != ".pyi":
                layer.add_file(image_path, path)


def _remove_excluded(installed: Path, pattern: str) -> None:
    """Remove the files that match a pattern; a pattern without a match is out of date."""
    paths = list(installed.glob(pattern))
    if not paths:
        raise ImageBuildError(
            f"`excluded_files` pattern {pattern}: no installed file matches",
            hint="Remove it from `excluded_files` in the image.toml of the image.",
        )
    for path in paths:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def add_package(layer: LayerWriter, python: PythonPackages) -> None:
    """Add the holdfast package, or the one subpackage that is configured, below the prefix."""
    root = package_directory()
    for path in list_files(root / python.only_subpackage):
        if _is_source(path):
            image_path = f"{python.prefix}/holdfast/{path.relative_to(root)}"
            layer.add_file(image_path, path)
            if path.suffix == ".py" and _can_compile(python):
                layer.add_bytes(_bytecode_path(image_path, python), _compile_bytecode(path, image_path))


def _bytecode_path(source_path: str, python: PythonPackages) -> str:
    """Return where Python looks for the bytecode of a source file."""
    folder, _, name = source_path.rpartition("/")
    tag = f"cpython-{python.version.replace('.', '')}"
    return f"{folder}/__pycache__/{name.removesuffix('.py')}.{tag}.pyc"


def _compile_bytecode(path: Path, image_path: str) -> bytes:
    """Compile a source file for the image, whose files are read-only at run time.

    Without bytecode, every start would compile everything again.
    """
    import py_compile
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        bytecode = Path(scratch) / "bytecode.pyc"
        # By default Python compares the source's mtime, which is 0 in the layer, and compiles again.
        py_compile.compile(
            str(path),
            cfile=str(bytecode),
            dfile=image_path,
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        return bytecode.read_bytes()


def _can_compile(python: PythonPackages) -> bool:
    return python.version == f"{sys.version_info.major}.{sys.version_info.minor}"


def _is_source(path: Path) -> bool:
    return path.suffix in (".py", ".pyi", ".typed", ".html", ".css", ".js", ".yaml", ".json", ".toml") and (
        "_images" not in path.parts
    )
