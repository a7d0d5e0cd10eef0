"""The Go programs of an image, compiled and linked statically; modules are verified against go.sum.

Go's own build cache makes an interrupted build go on where it was. Not here: what the programs do.
"""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

from holdfast.images.digest import key_of, tree
from holdfast.images.tools import find_go, run_tool

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.images.sources import GoModule

_PACE_SECONDS, _MINUTE = 10.0, 60.0
_SOURCES = {".go", ".mod", ".sum", ".yaml", ".yml", ".json", ".toml", ".conf", ".tmpl"}
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local"}


def binaries_key(folder: Path, module: GoModule, architecture: str) -> str:
    """What decides how the programs come out: their sources, their flags and the compiler."""
    _, version = find_go()
    sources = tree(folder, lambda path: path.suffix in _SOURCES and not path.name.endswith("_test.go"))
    others = {"image.toml", *_other_modfiles(folder, module)}
    sources = [entry for entry in sources if entry[0] not in others]
    return key_of("go", version, architecture, sources, module)


def build_binaries(
    folder: Path,
    module: GoModule,
    target: Path,
    *,
    log: Path,
    tell: Callable[[str, float | None], None],
    stop: threading.Event | None = None,
) -> None:
    """Compile every program of the module into a folder."""
    go, _ = find_go()
    tell("fetching modules", None)
    chosen = [f"-modfile={module.modfile}"]
    run_tool([go, "mod", "download", *chosen], cwd=folder, environment=_ENVIRONMENT, log=log, stop=stop)
    packages = [binary.package for binary in module.binaries]
    flags = [*chosen, f"-tags={','.join(module.tags)}", "-trimpath", f"-ldflags={' '.join(module.ldflags)}"]
    counter = _Counter(_stale_packages(go, folder, flags, packages), tell)
    for binary in module.binaries:
        run_tool(
            [go, "build", "-v", *flags, "-o", str(target / binary.output), binary.package],
            cwd=folder,
            environment=_ENVIRONMENT,
            log=log,
            on_line=counter,
            stop=stop,
        )
        tell(f"linked {binary.output}", counter.fraction)


def _other_modfiles(folder: Path, module: GoModule) -> set[str]:
    """Requirements of other variants: a change there changes nothing here."""
    own = module.modfile.removesuffix(".mod")
    return {path.name for path in folder.iterdir() if path.suffix in (".mod", ".sum") and path.stem != own}


class _Counter:
    """Turns the compiler's lines (one per package) into a fraction of the packages it has to compile."""

    def __init__(self, total: int, tell: Callable[[str, float | None], None]) -> None:
        self._total = max(total, 1)
        self._done = 0
        self._tell = tell
        self._began = time.monotonic()

    @property
    def fraction(self) -> float:
        return min(self._done / self._total, 1.0)

    def __call__(self, line: str) -> None:
        if " " in line or "/" not in line:
            return
        self._done += 1
        self._tell(
            f"compiled {self._done} of {max(self._total, self._done)} packages{self._left()}", self.fraction
        )

    def _left(self) -> str:
        """An estimate from the pace so far; none before there is a pace."""
        elapsed = time.monotonic() - self._began
        if elapsed < _PACE_SECONDS or self.fraction in (0.0, 1.0):
            return ""
        left = elapsed * (1 - self.fraction) / self.fraction
        return f", about {left / 60:.0f} min left" if left > _MINUTE else ", less than a minute left"


def _stale_packages(go: str, folder: Path, flags: list[str], packages: list[str]) -> int:
    """How many packages the compiler has yet to compile; only for the progress bar."""
    answer = subprocess.run(
        [go, "list", "-deps", *flags, "-f", "{{if .Stale}}{{.ImportPath}}{{end}}", *packages],
        cwd=folder,
        env={**os.environ, **_ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    return sum(1 for line in answer.stdout.splitlines() if "/" in line)
