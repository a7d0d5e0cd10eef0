"""Shell scripts that the client runs in a sandbox, for commands and for files."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from holdfast.client.base import query_bool
from holdfast.client.exec import AsyncExecSession, ExecResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from holdfast.client.transport import Transport
    from holdfast.client.websocket import WebSocket


class ScriptRunner:
    """Runs scripts in one sandbox, without a marker: a signal for a command cannot reach them.

    Attributes:
        name: name of the sandbox.
    """

    def __init__(self, transport: Transport, name: str) -> None:
        self.name = name
        self._transport = transport

    async def run(self, script: str, *args: str, container: str | None = None) -> ExecResult:
        """Run a script and return its exit code and output."""
        async with self.open(script, *args, container=container) as session:
            return await session.communicate()

    async def run_argv(self, argv: tuple[str, ...], *, container: str | None = None) -> ExecResult:
        """Run a program without the check of `AsyncExecSession` whether it has started."""
        async with self.open_socket(argv, container=container) as socket:
            return await AsyncExecSession(socket, f"{argv[0]} in sandbox {self.name}").communicate()

    @property
    def gateway(self) -> str:
        """Name of the gateway; known after the first script."""
        return self._transport.gateway

    @asynccontextmanager
    async def open(
        self, script: str, *args: str, stdin: bool = False, container: str | None = None
    ) -> AsyncIterator[AsyncExecSession]:
        """Run a script and exchange data with it while it runs."""
        argv = ("sh", "-c", script, "holdfast", *args)
        async with self.open_socket(argv, stdin=stdin, container=container) as socket:
            yield AsyncExecSession(socket, f"sh in sandbox {self.name}")

    def open_socket(
        self, argv: tuple[str, ...], *, tty: bool = False, stdin: bool = False, container: str | None = None
    ) -> AbstractAsyncContextManager[WebSocket]:
        """Start a program and yield the WebSocket with its frames."""
        query = [("command", word) for word in argv]
        query += [("tty", query_bool(tty)), ("stdin", query_bool(stdin))]
        query += [("container", container)] if container else []
        return self._transport.websocket(f"/v1/sandboxes/{self.name}/exec", query=query)
