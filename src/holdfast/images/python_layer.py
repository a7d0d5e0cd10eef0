"""holdfast itself and its locked dependencies, as files for the gateway image.

The package is copied as it is installed here, from a clone or a wheel alike; dependencies come from the
hashed lock. Not here: Debian's Python; that is in the root filesystem.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.images.digest import files_below, key_of, tree
from holdfast.images.sources import requirements_file
from holdfast.images.tools import find_uv, run_tool

if TYPE_CHECKING:
    import threading

    from holdfast.images.layers import Layer
    from holdfast.images.sources import Python

_PLATFORMS = {"amd64": "x86_64-unknown-linux-gnu", "arm64": "aarch64-unknown-linux-gnu"}


def package_folder() -> Path:
    """The installed holdfast package."""
    return Path(__file__).resolve().parents[1]


def dependencies_key(python: Python, architecture: str) -> str:
    """What decides which dependencies are installed."""
    return key_of("python", python.version, architecture, requirements_file().read_text())


def package_key() -> str:
    """A hash of holdfast's own sources."""
    return key_of(tree(package_folder(), _is_source))


def install_dependencies(
    python: Python, target: Path, *, architecture: str, log: Path, stop: threading.Event | None = None
) -> None:
    """Install the locked dependencies for the image's Python into a folder."""
    argv = [
        find_uv(), "pip", "install", "--no-config", "--require-hashes", "--only-binary=:all:", "--no-deps",
        "--target", str(target), "--python-version", python.version, "--python-platform",
        _PLATFORMS[architecture], "--requirements", str(requirements_file()),
    ]  # fmt: skip
    run_tool(argv, log=log, environment={"UV_NO_PROGRESS": "1"}, stop=stop)


def add_to(layer: Layer, python: Python, dependencies: Path) -> None:
    """Put dependencies and package below the prefix."""
    for path in files_below(dependencies):
        layer.file(f"{python.prefix}/{path.relative_to(dependencies)}", path)
    root = package_folder()
    for path in files_below(root):
        if _is_source(path):
            layer.file(f"{python.prefix}/holdfast/{path.relative_to(root)}", path)


def _is_source(path: Path) -> bool:
    return path.suffix in (".py", ".typed", ".html", ".css", ".js", ".yaml", ".json", ".toml") and (
        "_images" not in path.parts
    )
