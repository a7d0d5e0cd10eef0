"""The SDK for programs without an event loop: each call here is the one of the same name in handle.py.

    with Gateway("dev").sandbox("a") as box:
        box.create("holdfast/sandbox:0.1.0")
        box.wait()
        print(box.exec("uname", "-a").text)

`async with Gateway("dev").sandbox("a") as box:` gives the asynchronous twin. Leaving the block closes the
connection; the sandbox itself stays until `delete()`. Not here: what any call does.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from holdfast.sandbox.sdk import bridge
from holdfast.sandbox.sdk.collection import AsyncSandboxes
from holdfast.sandbox.sdk.connection import Connection
from holdfast.sandbox.sdk.handle import WAIT_SECONDS, AsyncSandbox
from holdfast.sandbox.sdk.requests import checked_name
from holdfast.sandbox.wire import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Any, Self

    from holdfast.retry.policy import Sink
    from holdfast.sandbox.sdk.access import Find
    from holdfast.sandbox.sdk.copying import Copied
    from holdfast.sandbox.sdk.execution import ExecResult, ExecSession, Output
    from holdfast.sandbox.sdk.forwarding import Forward
    from holdfast.sandbox.wire import Deletion, SandboxView

T = TypeVar("T")


class _Facade:
    """What one sandbox and all of them share: a connection of the plain program, and one for each twin."""

    def __init__(self, find: Find, *, on_retry: Sink | None = None) -> None:
        self._find = find
        self._on_retry = on_retry
        self._connection = self._connect()
        self._twin: Connection | None = None
        # Whoever forgets to close gets no complaint of the library, and no socket stays open.
        weakref.finalize(self, _let_go, self._connection)

    def close(self) -> None:
        """Close the connection; nothing else ends with it."""
        bridge.run(self._connection.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        twin, self._twin = self._twin, None
        if twin is not None:
            await twin.close()

    def _connect(self) -> Connection:
        return Connection(self._find, on_retry=self._on_retry)

    def _own(self) -> Connection:
        self._twin = self._connect()
        return self._twin


def _let_go(connection: Connection) -> None:
    if connection.is_open:
        bridge.let_go(connection.close())


class Sandbox(_Facade):
    """One sandbox by name; cheap to make, asks nobody until a call is made."""

    def __init__(
        self, name: str, find: Find, *, on_retry: Sink | None = None, over: Connection | None = None
    ) -> None:
        self.name = checked_name(name)
        super().__init__(find, on_retry=on_retry)
        self._connection = over or self._connection
        self._box = AsyncSandbox(self.name, self._connection)

    async def __aenter__(self) -> AsyncSandbox:
        return AsyncSandbox(self.name, self._own())

    @property
    def made(self) -> bool:
        """Whether the last `create` made it; False when it was there and the same."""
        return self._box.made

    def create(self, image: str | None = None, **options: Any) -> SandboxView:
        """Make it, or find that it is there and the same; options are the fields of a SandboxRequest."""
        return bridge.run(self._box.create(image, **options))

    def get(self) -> SandboxView:
        """How it is now."""
        return bridge.run(self._box.get())

    def exists(self) -> bool:
        """Whether there is a sandbox of this name."""
        return bridge.run(self._box.exists())

    def suspend(self) -> SandboxView:
        """Stop its pod; the workspace stays."""
        return bridge.run(self._box.suspend())

    def resume(self) -> SandboxView:
        """Start it again, on the same workspace."""
        return bridge.run(self._box.resume())

    def delete(self, *, keep_workspace: bool = False, ignore_missing: bool = False) -> Deletion:
        """Take it away, with its workspace unless that is kept; the answer says what became of the data."""
        return bridge.run(self._box.delete(keep_workspace=keep_workspace, ignore_missing=ignore_missing))

    def views(self) -> Iterator[SandboxView]:
        """How it is now, and after each change, until it is deleted."""
        return bridge.iterate(self._box.views())

    def wait(
        self,
        phase: Phase | str = Phase.READY,
        *,
        timeout: float = WAIT_SECONDS,
        steady: float = 0.0,
        told: Callable[[SandboxView], None] | None = None,
    ) -> SandboxView:
        """Wait until it is in a phase; `told` hears of each change. What cannot come true ends it at once.

        With `steady` it must stay so for that many seconds: for programs that may end at once.
        """
        return bridge.run(self._box.wait(phase, timeout=timeout, steady=steady, told=told))

    def wait_gone(self, *, timeout: float = WAIT_SECONDS) -> None:
        """Wait until it is no more."""
        bridge.run(self._box.wait_gone(timeout=timeout))

    def exec(
        self,
        *command: str,
        stdin: bytes | str | None = None,
        check: bool = False,
        timeout: float | None = None,
        container: str | None = None,
    ) -> ExecResult:
        """Run a command to its end; `check` makes an exit code other than 0 an error."""
        return bridge.run(
            self._box.exec(*command, stdin=stdin, check=check, timeout=timeout, container=container)
        )

    @contextmanager
    def session(
        self, *command: str, tty: bool = False, stdin: bool = True, container: str | None = None
    ) -> Iterator[Session]:
        """Run a command and talk to it while it runs."""
        opening = self._box.session(*command, tty=tty, stdin=stdin, container=container)
        with bridge.Entered(opening) as opened:
            yield Session(opened)

    def upload(
        self, source: Path | str, target: str = ".", *, progress: Callable[[int], None] = lambda _: None
    ) -> Copied:
        """Copy a file or a folder into the sandbox; `target` is as `cp` takes it, below /sandbox."""
        return bridge.run(self._box.upload(Path(source), target, progress=progress))

    def download(
        self, source: str, target: Path | str = ".", *, progress: Callable[[int], None] = lambda _: None
    ) -> Copied:
        """Copy a file or a folder out of the sandbox; names that lead out of the copy are refused."""
        return bridge.run(self._box.download(source, target, progress=progress))

    def logs(
        self,
        *,
        follow: bool = False,
        tail: int | None = None,
        previous: bool = False,
        container: str | None = None,
    ) -> Iterator[bytes]:
        """What its main program prints, in pieces as they come."""
        return bridge.iterate(
            self._box.logs(follow=follow, tail=tail, previous=previous, container=container)
        )

    @contextmanager
    def forward(self, remote_port: int, local_port: int = 0) -> Iterator[Forward]:
        """Lead a port of this machine (0: a free one) to one in the sandbox, while the block runs."""
        with bridge.Entered(self._box.forward(remote_port, local_port)) as opened:
            yield opened

    def __repr__(self) -> str:
        return f"<sandbox {self.name}>"


class Session:
    """One running command; iterate over it for its output, then ask for `exit_code`."""

    def __init__(self, session: ExecSession) -> None:
        self._session = session

    @property
    def exit_code(self) -> int:
        """The command's exit code; only known once the output has been read to its end."""
        return self._session.exit_code

    def write(self, data: bytes) -> None:
        """Send input."""
        bridge.run(self._session.write(data))

    def end_input(self) -> None:
        """Tell the command that no more input comes."""
        bridge.run(self._session.end_input())

    def resize(self, columns: int, rows: int) -> None:
        """Tell the command's terminal its size."""
        bridge.run(self._session.resize(columns, rows))

    def __iter__(self) -> Iterator[Output]:
        return bridge.iterate(self._session.__aiter__())


class Sandboxes(_Facade):
    """The sandboxes of one gateway."""

    def __init__(self, find: Find, *, on_retry: Sink | None = None) -> None:
        super().__init__(find, on_retry=on_retry)
        self._all = AsyncSandboxes(self._connection)

    async def __aenter__(self) -> AsyncSandboxes:
        return AsyncSandboxes(self._own())

    def __iter__(self) -> Iterator[SandboxView]:
        return self.list()

    def sandbox(self, name: str) -> Sandbox:
        """One of them by name, over the same connection."""
        return Sandbox(name, self._find, on_retry=self._on_retry, over=self._connection)

    def list(self, *, label: str | None = None) -> Iterator[SandboxView]:
        """All of them, or those with a label (`key=value`)."""
        return bridge.iterate(self._all.list(label=label))

    def create(self, name: str, image: str | None = None, **options: Any) -> Sandbox:
        """Make a sandbox, or find it there and the same; does not wait until it is ready."""
        made = self.sandbox(name)
        made.create(image, **options)
        return made

    @contextmanager
    def fresh(self, image: str | None = None, **options: Any) -> Iterator[Sandbox]:
        """A new sandbox that is ready, and that is deleted with its data when the block ends."""
        with bridge.Entered(self._all.fresh(image, **options)) as made:
            yield self.sandbox(made.name)
