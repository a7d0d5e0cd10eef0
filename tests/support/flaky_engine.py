"""A bad connection to the engine: a socket in front of the real one that cuts calls, by number or by seed.

Every call gets a connection of its own, so that each can be cut alone: before it is forwarded, after the
engine has done it but before its answer, or in the middle of the answer. What was forwarded, and how it was
answered, is kept.
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

from holdfast.containers.engine import engine_address

if TYPE_CHECKING:
    from collections.abc import Callable

Cut = Literal["before", "after", "middle"]
CUTS: tuple[Cut, ...] = ("before", "after", "middle")
_HEAD_END = b"\r\n\r\n"


@dataclass
class Call:
    """One call of a client: what it asked, what became of it."""

    number: int
    method: str
    path: str
    cut: Cut | None = None
    status: int = 0
    """what the engine answered; 0 where it was never asked"""

    def __str__(self) -> str:
        return f"{self.number} {self.method} {self.path} {self.status} {self.cut or ''}".rstrip()


class FlakyEngine:
    """`with FlakyEngine(at(3, "after")) as flaky:`; clients use `flaky.address` as DOCKER_HOST."""

    def __init__(self, decide: Callable[[Call], Cut | None]) -> None:
        self.calls: list[Call] = []
        self._decide = decide
        self._real = engine_address().removeprefix("unix://")
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-flaky-")
        self._path = f"{self._folder.name}/docker.sock"
        self.address = f"unix://{self._path}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._guard = threading.Lock()

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
    def cuts(self) -> list[Call]:
        return [call for call in self.calls if call.cut]

    def done(self, method: str, path: str) -> int:
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
            with self._guard:
                call = Call(len(self.calls) + 1, method, path)
                self.calls.append(call)
                call.cut = self._decide(call)
            if call.cut == "before":
                return
            with socket.socket(socket.AF_UNIX) as engine:
                engine.connect(self._real)
                engine.sendall(_alone(head) + rest)
                threading.Thread(target=_pump, args=(client, engine), daemon=True).start()
                self._answer(call, engine, client)
                # A thread that waits for more of the request holds both ends open: a close is not heard.
                for end in (engine, client):
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)

    def _answer(self, call: Call, engine: socket.socket, client: socket.socket) -> None:
        head, rest = _read_head(engine)
        call.status = int(head.split(b" ", 2)[1]) if head else 0
        if call.cut == "after":
            return
        if call.cut == "middle":
            client.sendall(head + rest[: len(rest) // 2])
            return
        client.sendall(head + rest)
        _pump(engine, client)


def at(number: int, cut: Cut) -> Callable[[Call], Cut | None]:
    """Cut the n-th call, and no other."""
    return lambda call: cut if call.number == number else None


def by_seed(seed: int, *, one_in: int = 6, apart: int = 40) -> Callable[[Call], Cut | None]:
    """Cut about one call in `one_in`, but leave `apart` calls in a row alone after each cut.

    A step tries again four times, and each try may ask about every gateway there is: a line that lets none
    through is a line that is down, which is another story.
    """
    rng = random.Random(seed)
    last = -apart

    def decide(call: Call) -> Cut | None:
        nonlocal last
        if call.number - last <= apart or rng.randrange(one_in):
            return None
        last = call.number
        return rng.choice(CUTS)

    return decide


def never(call: Call) -> Cut | None:
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


def _alone(head: bytes) -> bytes:
    """The same request on a connection that ends with its answer; one that is to be upgraded ends anyway."""
    if re.search(rb"\r\nUpgrade:", head, re.IGNORECASE):
        return head
    without = re.sub(rb"\r\nConnection:[^\r]*", b"", head, flags=re.IGNORECASE)
    return without[: -len(_HEAD_END)] + b"\r\nConnection: close" + _HEAD_END


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(65536):
            target.sendall(chunk)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
