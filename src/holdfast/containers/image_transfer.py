"""Stream images from one container engine into a command in a container of another, without a copy on disk.

The source engine exports the images as one archive; its chunks go to the stdin of the command.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from holdfast.containers.errors import translate_errors
from holdfast.containers.exec import CommandResult, RunningCommand, close_on_stop
from holdfast.errors import ContainerEngineError, OperationCancelledError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from holdfast.containers.client import ContainerEngine


_MIN_INTERVAL, _MAX_INTERVAL = 0.1, 1.0
# Sent bytes still have to be imported and verified, so the transfer never reports 100 %.
_MAX_PERCENT = 99
_CHUNK_SIZE = 1 << 20
_FRAME_HEADER_SIZE = 8
_MAX_OUTPUT = 64 * 1024


class TransferProgress:
    """Reports sent bytes of an estimated total.

    Reports at most ten times per second, and at least once per second while bytes are sent. Between these
    limits only a new percentage is reported.
    """

    def __init__(
        self,
        total: int,
        progress: Callable[[str, float | None], None],
        *,
        prefix: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = max(1, total)
        self._progress = progress
        self._prefix = prefix
        self._clock = clock
        self._sent = 0
        self._started = clock()
        self._last_report: tuple[float, int, int] | None = None

    def update(self, sent: int) -> None:
        """Set the number of sent bytes, and report it if it is due."""
        self._sent = sent
        percent, now = self._percent(), self._clock()
        if self._last_report is not None:
            reported_at, reported_percent, reported_bytes = self._last_report
            elapsed = now - reported_at
            changed = percent > reported_percent or (elapsed >= _MAX_INTERVAL and sent > reported_bytes)
            if elapsed < _MIN_INTERVAL or not changed:
                return
        self._report(percent, now)

    def track(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the chunks, and report the bytes of those that the receiver has taken."""
        sent = 0
        for chunk in chunks:
            yield chunk
            sent += len(chunk)
            self.update(sent)
        self.finish()

    def finish(self) -> None:
        """Report the last bytes if the rate limit suppressed them."""
        if self._last_report is not None and self._last_report[2] != self._sent:
            self._report(self._percent(), self._clock())

    def _percent(self) -> int:
        return min(self._sent * 100 // self._total, _MAX_PERCENT)

    def _report(self, percent: int, now: float) -> None:
        self._last_report = (now, percent, self._sent)
        total = max(self._sent, self._total)
        elapsed = now - self._started
        speed = ""
        if elapsed >= _MAX_INTERVAL and self._sent:
            left = (total - self._sent) * elapsed / self._sent
            speed = f", {self._sent / 1e6 / elapsed:.0f} MB/s, {_format_time_left(left)}"
        message = f"{self._prefix}{self._sent / 1e6:.0f} of {total / 1e6:.0f} MB{speed}"
        self._progress(message, percent / 100)


def _format_time_left(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s left" if minutes else f"{rest} s left"


class ImageArchiveStream:
    """The archive of images that an engine exports; any thread may `close` it during a read.

    Args:
        engine: the engine that has the images.
        names: the image references.
        read_timeout: limit for one read; older engines write the whole archive to disk before the first byte.
    """

    def __init__(self, engine: ContainerEngine, names: Sequence[str], *, read_timeout: float) -> None:
        from docker.types import CancellableStream

        self._engine = engine
        self._operation = f"exporting {', '.join(names)}"
        client = engine.client
        with translate_errors(self._operation, engine.address):
            response = client.get(
                f"{client.base_url}/v{client.api_version}/images/get",
                params={"names": list(names)},
                stream=True,
                timeout=read_timeout,
            )
            _raise_for_status(response)
        # It ends silently if the connection is cut; the command then reports a truncated archive.
        self._stream = CancellableStream(response.iter_content(_CHUNK_SIZE), response)

    def __iter__(self) -> Iterator[bytes]:
        with translate_errors(self._operation, self._engine.address):
            yield from self._stream

    def close(self) -> None:
        with suppress(OSError, AttributeError):  # the SDK accesses the socket, which may be closed
            self._stream.close()


class CommandWithInput(RunningCommand):
    """A command in a container with a stream as its stdin; its output is collected."""

    def __init__(self, engine: ContainerEngine, container: str, argv: Sequence[str]) -> None:
        super().__init__(engine, container, argv, stdin=True)
        with translate_errors(self._operation, engine.address):
            hijacked = engine.client.exec_start(self._exec_id, socket=True)
        self._socket: socket.socket = getattr(hijacked, "_sock", hijacked)
        # The SDK's timeout is meant for short requests; a command can be silent for longer.
        self._socket.settimeout(None)
        self._response = hijacked._response  # noqa: SLF001 (it owns the connection)
        self._output = bytearray()
        self._reader = threading.Thread(target=self._read_output, name="command-output", daemon=True)
        self.ended = threading.Event()
        self.on_end: Callable[[], None] = lambda: None

    def send_input(self, chunks: Iterator[bytes]) -> None:
        """Send all chunks and close stdin; stop early if the command ends."""
        self._reader.start()
        try:
            for chunk in chunks:
                if self.ended.is_set():
                    return
                self._socket.sendall(chunk)
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            # After the end of the command, its exit code and output explain the failure. The reader thread
            # may need a moment to notice the end.
            if not isinstance(error, BrokenPipeError | ConnectionResetError) and not self.ended.wait(1.0):
                raise

    def wait(self, stop: threading.Event | None = None) -> CommandResult:
        """Wait for the end of the command and return its result. Raises if `stop` was set."""
        self._reader.join()
        if stop is not None and stop.is_set():
            raise OperationCancelledError("images: the transfer was stopped; the node may still import them")
        return self.result(demultiplex_output(bytes(self._output)))

    def close(self) -> None:
        """Close the connection; a command that still reads gets the end of its input."""
        # Before `close`: the reader thread holds the lock of the response's buffer until its read ends.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._response.close()

    def _read_output(self) -> None:
        # The buffer of the HTTP response already contains the output of a command that ended immediately.
        buffered: Any = self._response.raw._fp.fp  # noqa: SLF001 (the SDK reads it as well)
        with suppress(OSError, ValueError):
            while chunk := buffered.read1(4096):
                # Reads beyond the limit too, or a full pipe would block the command.
                if len(self._output) < _MAX_OUTPUT:
                    self._output += chunk
        self.ended.set()
        # The engine may leave sent bytes unread for long; this wakes a `sendall` that waits for buffer space.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.on_end()


def transfer_images(
    source: ContainerEngine,
    names: Sequence[str],
    target: ContainerEngine,
    container: str,
    argv: Sequence[str],
    *,
    progress: TransferProgress,
    read_timeout: float,
    stop: threading.Event | None = None,
) -> CommandResult:
    """Stream images into the stdin of a command in a container of another engine.

    Args:
        source: the engine that has the images.
        names: the image references.
        target: the engine of the container.
        container: the container.
        argv: the command.
        progress: reports the bytes that were sent.
        read_timeout: limit in seconds for one read from the source.
        stop: cancels the transfer when it is set.

    Raises:
        OperationCancelledError: `stop` was set.
    """
    with (
        closing(ImageArchiveStream(source, names, read_timeout=read_timeout)) as archive,
        closing(CommandWithInput(target, container, argv)) as command,
        close_on_stop(stop, command),
    ):
        # The reader thread calls it: a command that ends early also ends a blocked read from the source.
        command.on_end = archive.close
        try:
            command.send_input(progress.track(archive))
        except ContainerEngineError:
            # After the end of the command, this error only means that `on_end` has closed the archive.
            if not command.ended.is_set():
                raise
        return command.wait(stop)


def demultiplex_output(output: bytes) -> str:
    """Return the stdout and stderr of a command without the frame headers of the engine."""
    content = bytearray()
    while len(output) >= _FRAME_HEADER_SIZE:
        length = int.from_bytes(output[4:_FRAME_HEADER_SIZE], "big")
        content += output[_FRAME_HEADER_SIZE : _FRAME_HEADER_SIZE + length]
        output = output[_FRAME_HEADER_SIZE + length :]
    return content.decode(errors="replace")


def _raise_for_status(response: Any) -> None:
    import docker.errors
    import requests

    try:
        response.raise_for_status()
    except requests.exceptions.HTTPError as error:
        docker.errors.create_api_error_from_http_exception(error)
