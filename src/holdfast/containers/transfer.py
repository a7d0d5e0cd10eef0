"""Images from one engine straight into a command inside a container of another: no copy in between.

The engine saves what was asked for as one archive; its chunks go to the command's standard input as they
come. Not here: which images, what the command is, and trying again.
"""

from __future__ import annotations

import socket
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from holdfast.containers.commands import Outcome
from holdfast.containers.translation import translated
from holdfast.errors import CancelledError, EngineCallError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.containers.engine import Engine

_CHUNK = 1 << 20
_HEADER = 8
_MOST_OUTPUT = 64 * 1024


class SavedImages:
    """An archive of images while the engine sends it; `close` ends it from any thread, also in mid-read.

    `silence` is how long the engine may say nothing: older ones lay out all of it before the first byte.
    """

    def __init__(self, engine: Engine, names: Sequence[str], *, silence: float) -> None:
        from docker.types import CancellableStream

        self._engine = engine
        self._doing = f"saving {', '.join(names)}"
        client = engine.client
        with translated(self._doing, engine.address):
            answer = client.get(
                f"{client.base_url}/v{client.api_version}/images/get",
                params={"names": list(names)},
                stream=True,
                timeout=silence,
            )
            _raise_for_status(answer)
        self._stream = CancellableStream(answer.iter_content(_CHUNK), answer)

    def __iter__(self) -> Iterator[bytes]:
        with translated(self._doing, self._engine.address):
            yield from self._stream

    def close(self) -> None:
        with suppress(OSError, AttributeError):  # the SDK digs for the socket, which may be gone by itself
            self._stream.close()


class FedCommand:
    """A command inside a container that reads what it is fed; its output is kept for its end."""

    def __init__(self, engine: Engine, container: str, argv: Sequence[str]) -> None:
        self._engine = engine
        self._doing = f"feeding {argv[0]} in {container}"
        with translated(self._doing, engine.address):
            self._id = engine.client.exec_create(container, list(argv), stdin=True)["Id"]
            hijacked = engine.client.exec_start(self._id, socket=True)
        self._socket: socket.socket = getattr(hijacked, "_sock", hijacked)
        self._socket.settimeout(None)
        self._answer = hijacked._response  # noqa: SLF001 (the SDK keeps it there; it owns the connection)
        self._output = bytearray()
        self._reader = threading.Thread(target=self._read, name="command output", daemon=True)
        self.ended = threading.Event()
        self.on_end: Callable[[], None] = lambda: None

    def feed(self, chunks: Iterator[bytes]) -> None:
        """Send everything, then say that nothing more comes; stops early when the command has ended."""
        self._reader.start()
        try:
            for chunk in chunks:
                if self.ended.is_set():
                    return
                self._socket.sendall(chunk)
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            broken = isinstance(error, BrokenPipeError | ConnectionResetError)
            if not broken and not self.ended.is_set():
                raise  # of the ended ones, exit code and output say why

    def outcome(self) -> Outcome:
        """Wait for its end."""
        self._reader.join()
        with translated(self._doing, self._engine.address):
            code = self._engine.client.exec_inspect(self._id)["ExitCode"]
        if code is None:
            raise EngineCallError(f"{self._doing}: connection broken before the command ended")
        return Outcome(exit_code=int(code), output=unframed(bytes(self._output)))

    def close(self) -> None:
        """Let go of the connection; a command that still reads sees a cut input."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._answer.close()

    def _read(self) -> None:
        # Through the buffer of the HTTP answer: a command that ends at once has its words in there already.
        buffered: Any = self._answer.raw._fp.fp  # noqa: SLF001 (the SDK reads there too)
        with suppress(OSError, ValueError):
            while chunk := buffered.read1(4096):
                if len(self._output) < _MOST_OUTPUT:
                    self._output += chunk
        self.ended.set()
        # Nobody reads any more, and an engine may leave what was sent so far unread for long: a feed that
        # waits for room is woken by this.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.on_end()


def transfer_images(
    source: Engine,
    names: Sequence[str],
    target: Engine,
    container: str,
    argv: Sequence[str],
    *,
    progress: Callable[[int], None],
    silence: float,
    stop: threading.Event | None = None,
) -> Outcome:
    """Stream images of one engine into a command on another; `progress` is told the bytes sent so far."""
    with (
        closing(SavedImages(source, names, silence=silence)) as archive,
        closing(FedCommand(target, container, argv)) as command,
    ):
        command.on_end = archive.close
        try:
            command.feed(_told(archive, progress, stop))
        except EngineCallError:
            if not command.ended.is_set():
                raise
        return command.outcome()


def _told(
    chunks: SavedImages, progress: Callable[[int], None], stop: threading.Event | None
) -> Iterator[bytes]:
    sent = 0
    for chunk in chunks:
        if stop is not None and stop.is_set():
            raise CancelledError("stopped while images were sent; nothing of them is visible in the node")
        yield chunk
        sent += len(chunk)
        progress(sent)


def unframed(output: bytes) -> str:
    """What a command said on both of its outputs, without the engine's frames around it."""
    words = bytearray()
    while len(output) >= _HEADER:
        length = int.from_bytes(output[4:_HEADER], "big")
        words += output[_HEADER : _HEADER + length]
        output = output[_HEADER + length :]
    return words.decode(errors="replace")


def _raise_for_status(answer: Any) -> None:
    import docker.errors
    import requests

    try:
        answer.raise_for_status()
    except requests.exceptions.HTTPError as error:
        docker.errors.create_api_error_from_http_exception(error)
