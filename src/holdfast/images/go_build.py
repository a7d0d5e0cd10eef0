"""The Go programs of an image, statically linked; modules are verified against go.sum.

The build cache of Go lets an interrupted build continue.
"""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

from holdfast.images.build_cache import cache_key, tree_hashes
from holdfast.images.build_tools import ToolRunner, find_go

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.images.image_toml import GoModule

_MIN_ESTIMATE_SECONDS, _MINUTE_SECONDS = 10.0, 60.0
_SOURCE_SUFFIXES = {".go", ".mod", ".sum", ".yaml", ".yml", ".json", ".toml", ".conf", ".tmpl"}
# readonly: go.mod and go.sum must not change. buildvcs: the same sources give the same program in any commit.
# GOTOOLCHAIN: Go must not download and run another toolchain.
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local"}


def binaries_key(folder: Path, module: GoModule, architecture: str) -> str:
    """Return the cache key of the programs: sources, flags and compiler version."""
    _, version = find_go()
    sources = tree_hashes(
        folder, lambda path: path.suffix in _SOURCE_SUFFIXES and not path.name.endswith("_test.go")
    )
    own = module.modfile.removesuffix(".mod")
    # The module files of other variants do not affect this one.
    others = {path.name for path in folder.iterdir() if path.suffix in (".mod", ".sum") and path.stem != own}
    sources = [entry for entry in sources if entry[0] not in others | {"image.toml"}]
    return cache_key("go", version, architecture, sources, module)


def build_binaries(folder: Path, module: GoModule, target: Path, tools: ToolRunner) -> None:
    """Compile every program of the module into a directory."""
    go, _ = find_go()
    tools.on_progress("fetching modules", None)
    chosen = [f"-modfile={module.modfile}"]
    tools.run([go, "mod", "download", *chosen], cwd=folder, environment=_ENVIRONMENT)
    packages = [binary.package for binary in module.binaries]
    flags = [*chosen, f"-tags={','.join(module.tags)}", "-trimpath", f"-ldflags={' '.join(module.ldflags)}"]
    counter = _CompileProgress(_count_stale_packages(go, folder, flags, packages), tools.on_progress)
    for binary in module.binaries:
        argv = [go, "build", "-v", *flags, "-o", str(target / binary.output), binary.package]
        tools.run(argv, cwd=folder, environment=_ENVIRONMENT, on_line=counter)
        tools.on_progress(f"linked {binary.output}", counter.fraction)


class _CompileProgress:
    """Reports progress from the output of the compiler, one line per package."""

    def __init__(self, total: int, on_progress: Callable[[str, float | None], None]) -> None:
        self._total = max(total, 1)
        self._done = 0
        self._on_progress = on_progress
        self._started_at = time.monotonic()

    @property
    def fraction(self) -> float:
        return min(self._done / self._total, 1.0)

    def __call__(self, line: str) -> None:
        if " " in line or "/" not in line:
            return
        self._done += 1
        self._on_progress(
            f"compiled {self._done} of {max(self._total, self._done)} packages{self._time_left()}",
            self.fraction,
        )

    def _time_left(self) -> str:
        """Return an estimate of the remaining time; empty during the first seconds."""
        elapsed = time.monotonic() - self._started_at
        if elapsed < _MIN_ESTIMATE_SECONDS or self.fraction in (0.0, 1.0):
            return ""
        left = elapsed * (1 - self.fraction) / self.fraction
        return f", about {left / 60:.0f} min left" if left > _MINUTE_SECONDS else ", less than a minute left"


def _count_stale_packages(go: str, folder: Path, flags: list[str], packages: list[str]) -> int:
    """Return how many packages are not in the build cache, for the progress bar."""
    answer = subprocess.run(
        [go, "list", "-deps", *flags, "-f", "{{if .Stale}}{{.ImportPath}}{{end}}", *packages],
        cwd=folder,
        env={**os.environ, **_ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    return sum(1 for line in answer.stdout.splitlines() if "/" in line)
