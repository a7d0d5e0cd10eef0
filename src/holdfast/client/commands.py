"""Commands in one sandbox: the part of `AsyncSandbox` that runs programs."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, overload

from holdfast.client.base import AsyncClient
from holdfast.client.exec import AsyncExecSession
from holdfast.client.launch import TERMINATE_SCRIPT, Launch
from holdfast.client.scripts import ScriptRunner
from holdfast.errors import CommandFailedError, HoldfastError, UsageError
from holdfast.sandbox import validate_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from os import PathLike

    from holdfast.client.background import AsyncBackgroundCommand
    from holdfast.client.base import ImagePusher
    from holdfast.client.command_records import CommandView
    from holdfast.client.exec import ExecResult
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
        self._scripts = ScriptRunner(transport, self.name)

    @overload
    async def exec(
        self,
        *command: str,
        stdin: bytes | str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        check: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109
        container: str | None = None,
        background: Literal[False] = False,
    ) -> ExecResult: ...

    @overload
    async def exec(
        self,
        *command: str,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        container: str | None = None,
        background: Literal[True],
    ) -> AsyncBackgroundCommand: ...

    async def exec(
        self,
        *command: str,
        stdin: bytes | str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        check: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 (part of the public API)
        container: str | None = None,
        background: bool = False,
    ) -> ExecResult | AsyncBackgroundCommand:
        """Run a command and return its output. The command runs at most once.

        With `background=True`, return when the command has started. It continues without this client, until
        its pod ends. Its output is kept in files in the sandbox, without a limit of their size.

        Args:
            *command: program and arguments; no shell is involved.
            stdin: input of the command.
            env: additional environment variables; needs `env` in the image.
            cwd: working directory, relative to `/sandbox`; needs `env` and `sh` in the image.
            check: raise if the exit code is not 0.
            timeout: seconds to wait; the command and its child processes are ended after that, if the image
                has `env` and `sh`.
            container: container to run it in; the first one if omitted.
            background: return a handle of the running command; needs `sh` and `env` in the image. Cannot be
                combined with `stdin`, `check` and `timeout`.

        Returns:
            Exit code and output, or the handle of a command in the background.

        Raises:
            CommandFailedError: `check` is set and the exit code is not 0; the error has the output.
            ObjectConflictError: the sandbox has no running pod.
            ApiRequestRejectedError: the command cannot be started.
            PathNotFoundError: the working directory does not exist.
            ResponseLostError: the connection was lost, so that the exit code is unknown.
            DeadlineExceededError: the timeout passed.
        """
        if background:
            return await self._start_background(command, env, cwd, container, (stdin, check, timeout))
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

    async def _start_background(
        self,
        command: tuple[str, ...],
        env: Mapping[str, str] | None,
        cwd: str | PathLike[str] | None,
        container: str | None,
        unsupported: tuple[object, ...],
    ) -> AsyncBackgroundCommand:
        from holdfast.client.background import start_background

        if any(value is not None and value is not False for value in unsupported):
            raise UsageError(
                "background: cannot be combined with `stdin`, `check` or `timeout`",
                hint="Omit them, and pass `timeout` to `wait` of the result.",
            )
        launch = Launch(command, env=env, cwd=cwd)
        return await start_background(self._scripts, launch, container=container)

    async def command(self, id: str, *, container: str | None = None) -> AsyncBackgroundCommand:  # noqa: A002
        """Return the handle of a command that was started with `exec(..., background=True)`.

        Args:
            id: id of the command.
            container: container that the command was started in, if `exec` named one.

        Raises:
            ProcessNotFoundError: the sandbox has no record of the command.
            ObjectConflictError: the sandbox has no running pod.
        """
        from holdfast.client.background import AsyncBackgroundCommand
        from holdfast.client.command_records import validate_command_id

        handle = AsyncBackgroundCommand(self._scripts, validate_command_id(id), container=container)
        await handle.get()
        return handle

    async def commands(self, *, container: str | None = None) -> list[CommandView]:
        """Return the state of the background commands, the newest last.

        The records of finished commands are kept, at least those of the last 100.

        Args:
            container: container that the commands were started in, if `exec` named one.

        Raises:
            ObjectConflictError: the sandbox has no running pod.
        """
        from holdfast.client.command_records import read_records

        return [view for view, _ in await read_records(self._scripts, container)]

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
                    self._scripts.open_socket(argv, tty=tty, stdin=stdin, container=container)
                )

            yield AsyncExecSession(
                await open_socket(launch.argv),
                f"{command[0]} in sandbox {self.name}",
                launch=launch,
                terminate=partial(self._terminate, container),
                reopen=open_socket,
            )

    async def _terminate(self, container: str | None, marker: str) -> bool:
        with suppress(HoldfastError, TimeoutError):
            async with asyncio.timeout(_TERMINATE_TIMEOUT):
                result = await self._scripts.run(TERMINATE_SCRIPT, marker, container=container)
            return result.exit_code == 0
        return False
