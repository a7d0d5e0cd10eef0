"""Child processes that cannot outlive the test: stopped by name, and killed by the kernel if we are.

Linux ties a parent-death signal to the *thread* that forked. All children are therefore forked by one thread
that lives as long as the interpreter, so that a fixture may be set up in any thread.
Not here: what the processes are (`kube_server`).
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.errors import TemporaryError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# Runs between fork and exec in an interpreter of its own: `preexec_fn` is unsafe once there are threads.
# The comparison closes the gap in which the parent died before the signal was armed.
_LAUNCHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


@functools.cache
def _forker(_pid: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-forker")


class Child:
    """One process in a session of its own, its output in a file."""

    def __init__(
        self, name: str, argv: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid())]
        words = [*launcher, *(str(word) for word in argv)]
        self._process = _forker(os.getpid()).submit(self._start, words, env).result()

    def _start(self, words: list[str], env: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended_within(self, seconds: float) -> bool:
        """Wait up to `seconds` for the process to end, and say whether it has."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End the process and everything it started, at once; harmless when it is gone already."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def tail(self, lines: int = 15) -> str:
        """The last lines that the process wrote."""
        try:
            content = self.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return "\n".join(line[:500] for line in content[-lines:])

    def failed(self, why: str) -> TemporaryError:
        """An error that says what became of the process and carries its last lines."""
        code = self._process.poll()
        state = "is still running" if code is None else f"ended with code {code}"
        return TemporaryError(
            f"{self.name} {why} ({state}); its last lines:\n{self.tail()}",
            hint=f"The whole log is in {self.log} while the test runs; start the test again.",
        )
