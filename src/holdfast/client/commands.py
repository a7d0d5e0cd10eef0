"""Commands in one sandbox: the part of `AsyncSandbox` that runs programs."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from holdfast.client.base import AsyncClient, query_bool
from holdfast.client.exec import AsyncExecSession, ExecResult
from holdfast.client.launch import TERMINATE_SCRIPT, Launch
from holdfast.errors import CommandFailedError, HoldfastError
from holdfast.sandbox import validate_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from os import PathLike

    from holdfast.client.base import ImagePusher
    from holdfast.client.transport import Transport
    from holdfast.client.websocket import WebSocket

_TERMINATE_TIMEOUT = 10.0


class AsyncCommands(AsyncClient):
    """Base of `AsyncSandbox`: runs commands in the sandbox.

    Attributes:
        name: name of the sandbox.
    """

    def __init__(self, name: str, transport: Transport, *, push_image: ImagePusher | None = None) -> None:
        super().__init__(transport, push_image=push_image)
        self.name = validate_name(name)
        self._path = f"/v1/sandboxes/{self.name}"

    async def exec(
        self,
        *command: str,
        stdin: bytes | str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        check: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 (part of the public API)
        container: str | None = None,
    ) -> ExecResult:
        """Run a command and return its output. The command runs at most once.

        Args:
            *command: program and arguments; no shell is involved.
            stdin: input of the command.
            env: additional environment variables; needs `env` in the image.
            cwd: working directory, relative to `/sandbox`; needs `env` and `sh` in the image.
            check: raise if the exit code is not 0.
            timeout: seconds to wait; the command and its child processes are ended after that, if the image
                has `env` and `sh`.
            container: container to run it in; the first one if omitted.

        Returns:
            Exit code and output.

        Raises:
            CommandFailedError: `check` is set and the exit code is not 0; the error has the output.
            ObjectConflictError: the sandbox has no running pod.
            ApiRequestRejectedError: the command cannot be started.
            PathNotFoundError: the working directory does not exist.
            ResponseLostError: the connection was lost, so that the exit code is unknown.
            DeadlineExceededError: the timeout passed.
        """
        data = stdin.encode() if isinstance(stdin, str) else stdin
        async with self.session(
            *command, stdin=data is not None, env=env, cwd=cwd, container=container
        ) as session:
            result = await session.communicate(data, timeout=timeout)
        if check and result.exit_code:
            last_line = result.stderr.decode(errors="replace").strip().rsplit("\n", 1)[-1]
            message = f"{command[0]} in sandbox {self.name}: exited with code {result.exit_code}"
            raise CommandFailedError(
                f"{message}: {last_line}" if last_line else message,
                exit_code=result.exit_code,
                stdout=result.stdout,
                stderr=result.stderr,
            )
        return result

    @asynccontextmanager
    async def session(
        self,
        *command: str,
        tty: bool = False,
        stdin: bool = True,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        container: str | None = None,
    ) -> AsyncIterator[AsyncExecSession]:
        """Run a command and exchange data with it while it runs.

        Args:
            *command: program and arguments.
            tty: allocate a terminal.
            stdin: attach standard input.
            env: additional environment variables, as for `exec`.
            cwd: working directory, as for `exec`.
            container: container to run it in; the first one if omitted.

        Raises:
            UsageError: no command was given.
            ObjectConflictError: the sandbox has no running pod.
        """
        launch = Launch(command, env=env, cwd=cwd)
        async with AsyncExitStack() as stack:

            async def open_socket(argv: tuple[str, ...]) -> WebSocket:
                return await stack.enter_async_context(
                    self._open_exec(argv, tty=tty, stdin=stdin, container=container)
                )

            yield AsyncExecSession(
                await open_socket(launch.argv),
                f"{command[0]} in sandbox {self.name}",
                launch=launch,
                terminate=partial(self._terminate, container),
                reopen=open_socket,
            )

    async def _run_script(self, script: str, *args: str, container: str | None = None) -> ExecResult:
        """Run a shell script without a marker: a signal for another command cannot reach it."""
        argv = ("sh", "-c", script, "holdfast", *args)
        async with self._open_exec(argv, container=container) as socket:
            return await AsyncExecSession(socket, f"sh in sandbox {self.name}").communicate()

    def _open_exec(
        self, argv: tuple[str, ...], *, tty: bool = False, stdin: bool = False, container: str | None = None
    ) -> AbstractAsyncContextManager[WebSocket]:
        query = [("command", word) for word in argv]
        query += [("tty", query_bool(tty)), ("stdin", query_bool(stdin))]
        query += [("container", container)] if container else []
        return self._transport.websocket(f"{self._path}/exec", query=query)

    async def _terminate(self, container: str | None, marker: str) -> bool:
        with suppress(HoldfastError, TimeoutError):
            async with asyncio.timeout(_TERMINATE_TIMEOUT):
                result = await self._run_script(TERMINATE_SCRIPT, marker, container=container)
            return result.exit_code == 0
        return False
