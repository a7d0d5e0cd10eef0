"""A bad connection to the container engine: a socket in front of the real one cuts calls by number or seed.

Each call uses a separate connection and can be cut alone: before it is forwarded, after the engine has
executed it but before the response, or in the middle of the response. Requests and responses are recorded.
"""

from __future__ import annotations

import random
import re
import socket
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from holdfast.containers import engine_address

if TYPE_CHECKING:
    from collections.abc import Callable

CutPoint = Literal["before", "after", "middle"]
CUT_POINTS: tuple[CutPoint, ...] = ("before", "after", "middle")
_HEAD_END = b"\r\n\r\n"


@dataclass
class EngineCall:
    """One call of a client: what it asked, what became of it."""

    number: int
    method: str
    path: str
    cut: CutPoint | None = None
    status: int = 0
    """what the engine answered; 0 where it was never asked"""

    def __str__(self) -> str:
        return f"{self.number} {self.method} {self.path} {self.status} {self.cut or ''}".rstrip()


class FlakyContainerEngine:
    """`with FlakyEngine(at(3, "after")) as flaky:`; clients use `flaky.address` as DOCKER_HOST."""

    def __init__(self, decide: Callable[[EngineCall], CutPoint | None]) -> None:
        self.calls: list[EngineCall] = []
        self._decide = decide
        self._engine_socket = engine_address().removeprefix("unix://")
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-flaky-")
        self._path = f"{self._folder.name}/docker.sock"
        self.address = f"unix://{self._path}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._listener.bind(self._path)
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # A thread in accept() does not hear of a close: shutting down wakes it.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._folder.cleanup()

    @property
    def cut_calls(self) -> list[EngineCall]:
        return [call for call in self.calls if call.cut]

    def count_succeeded(self, method: str, path: str) -> int:
        """How often the engine did something new: a call that it answered with 200, 201 or 204."""
        pattern = re.compile(path)
        return sum(
            call.method == method and bool(pattern.search(call.path)) and call.status in {200, 201, 204}
            for call in self.calls
        )

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            head, rest = _read_head(client)
            if not head:
                return
            method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
            with self._lock:
                call = EngineCall(len(self.calls) + 1, method, path)
                self.calls.append(call)
                call.cut = self._decide(call)
            if call.cut == "before":
                return
            with socket.socket(socket.AF_UNIX) as engine:
                engine.connect(self._engine_socket)
                engine.sendall(_with_connection_close(head) + rest)
                threading.Thread(target=_copy_stream, args=(client, engine), daemon=True).start()
                self._relay_response(call, engine, client)
                # A thread that waits for more of the request holds both ends open: a close is not heard.
                for end in (engine, client):
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)

    def _relay_response(self, call: EngineCall, engine: socket.socket, client: socket.socket) -> None:
        head, rest = _read_head(engine)
        call.status = int(head.split(b" ", 2)[1]) if head else 0
        if call.cut == "after":
            return
        if call.cut == "middle":
            client.sendall(head + rest[: len(rest) // 2])
            return
        client.sendall(head + rest)
        _copy_stream(engine, client)


def cut_call(number: int, cut: CutPoint) -> Callable[[EngineCall], CutPoint | None]:
    """Cut the n-th call, and no other."""
    return lambda call: cut if call.number == number else None


def cut_randomly(seed: int, *, one_in: int = 6, min_gap: int = 40) -> Callable[[EngineCall], CutPoint | None]:
    """Cut about one call in `one_in`, but leave `apart` calls in a row alone after each cut.

    A step tries again four times, and each try may ask about every gateway there is: a line that lets none
    through is a line that is down, which is another story.
    """
    rng = random.Random(seed)
    last = -min_gap

    def decide(call: EngineCall) -> CutPoint | None:
        nonlocal last
        if call.number - last <= min_gap or rng.randrange(one_in):
            return None
        last = call.number
        return rng.choice(CUT_POINTS)

    return decide


def cut_nothing(call: EngineCall) -> CutPoint | None:
    """A good connection, for counting."""
    del call
    return None


def _read_head(source: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while _HEAD_END not in data:
        chunk = source.recv(65536)
        if not chunk:
            return b"", data
        data += chunk
    head, rest = data.split(_HEAD_END, 1)
    return head + _HEAD_END, rest


def _with_connection_close(head: bytes) -> bytes:
    """The same request on a connection that ends with its answer; one that is to be upgraded ends anyway."""
    if re.search(rb"\r\nUpgrade:", head, re.IGNORECASE):
        return head
    without = re.sub(rb"\r\nConnection:[^\r]*", b"", head, flags=re.IGNORECASE)
    return without[: -len(_HEAD_END)] + b"\r\nConnection: close" + _HEAD_END


def _copy_stream(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(65536):
            target.sendall(chunk)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
