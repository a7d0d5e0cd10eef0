"""One sandbox in a program's hands, for programs with an event loop of their own.

The logic of every call is here, once; sync.py offers the same calls to programs without a loop.
Not here: how requests travel (connection.py).
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from holdfast.errors import ClusterRefusedError, SandboxMissingError, UsageError
from holdfast.sandbox.sdk import copying, forwarding, watching
from holdfast.sandbox.sdk.execution import ExecResult, ExecSession
from holdfast.sandbox.sdk.problems import GoneMeanwhileError
from holdfast.sandbox.sdk.requests import checked_name, request_for
from holdfast.sandbox.wire import Deletion, Phase, SandboxView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path, PurePosixPath
    from types import TracebackType
    from typing import Any, Self

    from holdfast.sandbox.sdk.connection import Connection
    from holdfast.sandbox.sdk.copying import Copied
    from holdfast.sandbox.sdk.forwarding import Forward

WAIT_SECONDS = 180.0
_CREATED = 201


class AsyncSandbox:
    """One sandbox by name; cheap to make, asks nobody until a call is awaited.

    `async with` closes the connection at the end; the sandbox itself stays until `delete()`.
    """

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = checked_name(name)
        self._connection = connection
        self._path = f"/v1/sandboxes/{self.name}"
        self.made = False
        """whether the last `create` made it; False when it was there and the same"""

    async def create(self, image: str | None = None, **options: Any) -> SandboxView:
        """Make it, or find that it is there and the same; options are the fields of a SandboxRequest."""
        body = request_for(self.name, image=image, **options)
        status, view = await self._connection.call_with_status(
            "POST", "/v1/sandboxes", SandboxView, body=body
        )
        self.made = status == _CREATED
        return view

    async def get(self) -> SandboxView:
        """How it is now."""
        return await self._connection.call("GET", self._path, SandboxView)

    async def exists(self) -> bool:
        """Whether there is a sandbox of this name."""
        try:
            await self.get()
        except SandboxMissingError:
            return False
        return True

    async def suspend(self) -> SandboxView:
        """Stop its pod; the workspace stays."""
        return await self._connection.call("POST", f"{self._path}/suspend", SandboxView)

    async def resume(self) -> SandboxView:
        """Start it again, on the same workspace."""
        return await self._connection.call("POST", f"{self._path}/resume", SandboxView)

    async def delete(self, *, keep_workspace: bool = False, ignore_missing: bool = False) -> Deletion:
        """Take it away, with its workspace unless that is kept; the answer says what became of the data."""
        query = {"keep_workspace": "true" if keep_workspace else "false"}
        try:
            return await self._connection.call("DELETE", self._path, Deletion, query=query)
        except GoneMeanwhileError:
            return Deletion(deleted=True, workspace="kept" if keep_workspace else "deleted")
        except SandboxMissingError:
            if not ignore_missing:
                raise
            return Deletion(deleted=False, workspace="none")

    def views(self) -> AsyncIterator[SandboxView]:
        """How it is now, and after each change, until it is deleted."""
        return watching.views(self._connection, self.name)

    async def wait(
        self,
        phase: Phase | str = Phase.READY,
        *,
        timeout: float = WAIT_SECONDS,  # noqa: ASYNC109 (the name that callers know)
        steady: float = 0.0,
        told: Callable[[SandboxView], None] | None = None,
    ) -> SandboxView:
        """Wait until it is in a phase; `told` hears of each change. What cannot come true ends it at once.

        With `steady` it must stay so for that many seconds: for programs that may end at once.
        """
        return await watching.until(
            self._connection, self.name, _phase(phase), within=timeout, steady=steady, told=told
        )

    async def wait_gone(self, *, timeout: float = WAIT_SECONDS) -> None:  # noqa: ASYNC109 (the name that callers know)
        """Wait until it is no more."""
        await watching.until_gone(self._connection, self.name, within=timeout)

    async def exec(
        self,
        *command: str,
        stdin: bytes | str | None = None,
        check: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 (the name that callers know)
        container: str | None = None,
    ) -> ExecResult:
        """Run a command to its end; `check` makes an exit code other than 0 an error."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        async with self.session(*command, stdin=data is not None, container=container) as session:
            ended = await session.collected(data, within=timeout)
        if check and ended.exit_code:
            said = ended.stderr.decode(errors="replace").strip().rsplit("\n", 1)[-1]
            raise ClusterRefusedError(
                f"{command[0]} ended with exit code {ended.exit_code} in sandbox {self.name}"
                + (f": {said}" if said else "")
            )
        return ended

    @asynccontextmanager
    async def session(
        self, *command: str, tty: bool = False, stdin: bool = True, container: str | None = None
    ) -> AsyncIterator[ExecSession]:
        """Run a command and talk to it while it runs."""
        if not command:
            raise UsageError("no command is given")
        query = [("command", word) for word in command]
        query += [("tty", _word(tty)), ("stdin", _word(stdin))]
        query += [("container", container)] if container else []
        async with self._connection.web_socket(f"{self._path}/exec", query=query) as socket:
            yield ExecSession(socket, f"{command[0]} in sandbox {self.name}")

    async def upload(
        self, source: Path, target: str = ".", *, progress: Callable[[int], None] = lambda _: None
    ) -> Copied:
        """Copy a file or a folder into the sandbox; `target` is as `cp` takes it, below /sandbox."""
        path = copying.remote_path(target)
        inside = target.endswith("/") or path == copying.HOME or await self._is_folder(path)
        goal = path / copying.own_name(source) if inside else path
        return await copying.send(self._connection, self.name, source, goal, progress=progress)

    async def download(
        self, source: str, target: Path | str = ".", *, progress: Callable[[int], None] = lambda _: None
    ) -> Copied:
        """Copy a file or a folder out of the sandbox; names that lead out of the copy are refused."""
        path = copying.remote_path(source)
        folder, called = copying.local_target(path, target)
        return await copying.fetch(self._connection, self.name, path, folder, called, progress=progress)

    async def logs(
        self,
        *,
        follow: bool = False,
        tail: int | None = None,
        previous: bool = False,
        container: str | None = None,
    ) -> AsyncIterator[bytes]:
        """What its main program prints, in pieces as they come."""
        query = {"follow": _word(follow), "previous": _word(previous)}
        query |= {"tail": str(tail)} if tail is not None else {}
        query |= {"container": container} if container else {}
        async with self._connection.stream("GET", f"{self._path}/logs", query=query) as answer:
            async for chunk in answer.content.iter_any():
                yield chunk

    @asynccontextmanager
    async def forward(self, remote_port: int, local_port: int = 0, **more: Any) -> AsyncIterator[Forward]:
        """Lead a port of this machine (0: a free one) to one in the sandbox, while the block runs."""
        async with forwarding.forwarded(
            self._connection, self.name, remote_port, local_port, **more
        ) as opened:
            yield opened

    async def close(self) -> None:
        """Close the connection; the sandbox stays."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<sandbox {self.name}>"

    async def _is_folder(self, path: PurePosixPath) -> bool:
        """Asked of the sandbox itself; one without the `test` program takes the name as it stands."""
        try:
            return (await self.exec("test", "-d", str(path))).exit_code == 0
        except ClusterRefusedError:
            return False


def _word(value: bool) -> str:
    return "true" if value else "false"


def _phase(text: Phase | str) -> Phase:
    for phase in Phase:
        if phase.lower() == text.lower():
            return phase
    raise UsageError(
        f"{text!r} is no phase of a sandbox", hint=f"Phases are {', '.join(str(each) for each in Phase)}."
    )
