"""Run commands in a running container; read and write files of a container that may be stopped.

Image archives are streamed by image_transfer.
"""

from __future__ import annotations

import io
import tarfile
import threading
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.containers.errors import call_if_found, translate_errors
from holdfast.errors import ContainerEngineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from holdfast.containers.client import ContainerEngine


_DIRECTORY_MODE = 0o755
_PRIVATE_FILE_MODE = 0o600
# A thread cannot wait for the stop event and the end of the command, so it polls.
_STOP_POLL_INTERVAL = 0.1


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """Exit code and output of a command in a container."""

    exit_code: int
    output: str


class RunningCommand:
    """A command in a container: iterate over `lines`, then read `exit_code`."""

    def __init__(
        self, engine: ContainerEngine, container: str, argv: Sequence[str], *, stdin: bool = False
    ) -> None:
        self._engine = engine
        self._operation = f"running {argv[0]} in {container}"
        with translate_errors(self._operation, engine.address):
            self._exec_id = engine.client.exec_create(container, list(argv), stdin=stdin)["Id"]

    def lines(self, stop: threading.Event | None = None) -> Iterator[str]:
        """Start the command and yield its output until it ends, its container ends, or `stop` is set."""
        with translate_errors(self._operation, self._engine.address):
            stream = self._engine.client.exec_start(self._exec_id, stream=True)
            with closing(stream), close_on_stop(stop, stream):
                yield from split_lines(stream)

    def exit_code(self) -> int | None:
        """Return the exit code; None while the engine reports the command as running."""
        with translate_errors(self._operation, self._engine.address):
            code = self._engine.client.exec_inspect(self._exec_id)["ExitCode"]
        return None if code is None else int(code)

    def result(self, output: str) -> CommandResult:
        """Return the result after the end of the output.

        Raises:
            ContainerEngineError: the command still runs: the connection was cut, not the command ended.
        """
        code = self.exit_code()
        if code is None:
            raise ContainerEngineError(f"{self._operation}: connection broken before the command ended")
        return CommandResult(exit_code=code, output=output)


def split_lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a stream as they arrive; the last one may have no line feed."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)
    if rest:
        yield rest.decode(errors="replace")


@contextmanager
def close_on_stop(stop: threading.Event | None, stream: Any) -> Iterator[None]:
    """Close the stream when `stop` is set: a blocked read has no other way to end."""
    if stop is None:
        yield
        return
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(_STOP_POLL_INTERVAL):
            if stop.is_set():
                with suppress(OSError, AttributeError):  # the SDK accesses the socket, which may be closed
                    stream.close()
                return

    watcher = threading.Thread(target=watch, name="stop-command", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()


def run_in_container(engine: ContainerEngine, container: str, argv: Sequence[str]) -> CommandResult:
    """Run a short command and return its result."""
    command = RunningCommand(engine, container, argv)
    return command.result("\n".join(command.lines()))


def read_file(engine: ContainerEngine, container: str, path: str) -> bytes | None:
    """Return the content of a file in a container; None if the file does not exist."""
    files = read_directory(engine, container, path) or {}
    return files.get("")  # the archive of a file has one member, which is not in a directory


def read_directory(engine: ContainerEngine, container: str, path: str) -> dict[str, bytes] | None:
    """Return the files of a directory by relative path; None if the directory does not exist."""
    packed = call_if_found(
        engine,
        f"reading {path} from {container}",
        lambda: io.BytesIO(b"".join(engine.client.get_archive(container, path)[0])),
    )
    if packed is None:
        return None
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=packed) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                # The engine prefixes each member with the last part of `path`.
                files[member.name.partition("/")[2]] = content.read()
    return files


def replace_directory(
    engine: ContainerEngine, container: str, parent: str, name: str, files: Mapping[str, bytes]
) -> None:
    """Replace the directory `name` in `parent` with these files, readable by root only.

    A tar archive cannot delete files. But extracting a file over a directory removes the directory, and
    extracting a directory over that file recreates it: one request deletes old files and writes new ones.
    """
    with translate_errors(f"writing {parent}/{name} in {container}", engine.address):
        engine.client.put_archive(container, parent, directory_archive(name, files))


def write_private_file(
    engine: ContainerEngine, container: str, parent: str, path: str, content: bytes
) -> None:
    """Write one file below `parent`, readable by root only; create the directories on its path."""
    with translate_errors(f"writing {parent}/{path} in {container}", engine.address):
        engine.client.put_archive(
            container, parent, _tar_archive([*_parent_directories([path]), (path, content)])
        )


def directory_archive(name: str, files: Mapping[str, bytes]) -> bytes:
    """Return the archive that `replace_directory` extracts."""
    entries = {f"{name}/{path}": content for path, content in sorted(files.items())}
    directories = [directory for directory in _parent_directories(entries) if directory[0] != name]
    return _tar_archive([(name, b""), (name, None), *directories, *entries.items()])


def _parent_directories(paths: Iterable[str]) -> list[tuple[str, bytes | None]]:
    directories: dict[str, None] = {}
    for path in paths:
        parts = path.split("/")[:-1]
        directories.update(dict.fromkeys("/".join(parts[:depth]) for depth in range(1, len(parts) + 1)))
    return [(directory, None) for directory in directories]


def _tar_archive(entries: Iterable[tuple[str, bytes | None]]) -> bytes:
    """A tar archive of files, and of directories for entries without content; root owns all of them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in entries:
            member = tarfile.TarInfo(name)
            if content is None:
                member.type, member.mode = tarfile.DIRTYPE, _DIRECTORY_MODE
                archive.addfile(member)
            else:
                member.mode, member.size = _PRIVATE_FILE_MODE, len(content)
                archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()
