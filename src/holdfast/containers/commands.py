"""Commands inside a running container, and single files out of one that may be stopped.

Not here: what the commands mean.
"""

from __future__ import annotations

import io
import tarfile
import threading
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.containers.translation import translated
from holdfast.errors import EngineCallError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.containers.engine import Engine

_GLANCE = 0.1
"""How soon a stop is noticed: an event cannot be waited for together with anything else."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a command inside a container ended."""

    exit_code: int
    output: str


class RunningCommand:
    """A command inside a container: its lines as they come, its exit code after the last of them."""

    def __init__(self, engine: Engine, container: str, argv: Sequence[str]) -> None:
        self._engine = engine
        self._doing = f"running {argv[0]} in {container}"
        with translated(self._doing, engine.address):
            self._id = engine.client.exec_create(container, list(argv))["Id"]

    def lines(self, stop: threading.Event | None = None) -> Iterator[str]:
        """Start it and yield each line of its output; ends when command or container end, or at a `stop`."""
        rest = b""
        with translated(self._doing, self._engine.address):
            stream = self._engine.client.exec_start(self._id, stream=True)
            with closing(stream), _closed_at(stop, stream):
                for chunk in stream:
                    *whole, rest = (rest + chunk).split(b"\n")
                    for line in whole:
                        yield line.decode(errors="replace")
        if rest:
            yield rest.decode(errors="replace")

    def exit_code(self) -> int | None:
        """The command's exit code; None while the engine still counts it as running."""
        with translated(self._doing, self._engine.address):
            code = self._engine.client.exec_inspect(self._id)["ExitCode"]
        return None if code is None else int(code)


@contextmanager
def _closed_at(stop: threading.Event | None, stream: Any) -> Iterator[None]:
    """Close a stream that somebody reads when `stop` is set: such a read waits for as long as it takes."""
    if stop is None:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_GLANCE):
            if stop.is_set():
                with suppress(OSError, AttributeError):  # the SDK digs for the socket, which may be gone
                    stream.close()
                return

    watcher = threading.Thread(target=watch, name="stop of a command", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def run_in(engine: Engine, container: str, argv: Sequence[str]) -> Outcome:
    """Run a short command to its end and return its output and exit code."""
    command = RunningCommand(engine, container, argv)
    output = "\n".join(command.lines())
    exit_code = command.exit_code()
    if exit_code is None:
        raise EngineCallError(f"running {argv[0]} in {container}: connection broken before the command ended")
    return Outcome(exit_code=exit_code, output=output)


def read_file(engine: Engine, container: str, path: str) -> bytes | None:
    """The content of one file in a container, running or not; None where there is no such file."""
    import docker.errors

    with translated(f"reading {path} from {container}", engine.address):
        try:
            stream, _ = engine.client.get_archive(container, path)
        except docker.errors.NotFound:
            return None
        packed = io.BytesIO(b"".join(stream))
    with tarfile.open(fileobj=packed) as archive:
        member = archive.next()
        content = archive.extractfile(member) if member is not None else None
        return content.read() if content is not None else None
