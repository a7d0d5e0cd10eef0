"""Commands in one sandbox: the part of `AsyncSandbox` that runs programs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from holdfast.client.base import AsyncClient, query_bool
from holdfast.client.exec import TERMINATE_SCRIPT, AsyncExecSession, ExecResult
from holdfast.errors import ApiRequestRejectedError, HoldfastError, UsageError
from holdfast.sandbox import validate_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.client.base import ImagePusher
    from holdfast.client.transport import Transport

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
        check: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 (part of the public API)
        container: str | None = None,
    ) -> ExecResult:
        """Run a command and return its output. The command runs at most once.

        Args:
            *command: program and arguments; no shell is involved.
            stdin: input of the command.
            check: raise if the exit code is not 0.
            timeout: seconds to wait; the command is ended after that, if the image has `sh` and `tr`.
            container: container to run it in; the first one if omitted.

        Returns:
            Exit code and output.

        Raises:
            ObjectConflictError: the sandbox has no running pod.
            ApiRequestRejectedError: the command cannot be started, or `check` is set and it failed.
            ResponseLostError: the connection was lost, so that the exit code is unknown.
            DeadlineExceededError: the timeout passed.
        """
        data = stdin.encode() if isinstance(stdin, str) else stdin
        async with self.session(*command, stdin=data is not None, container=container) as session:
            result = await session.communicate(data, timeout=timeout)
        if check and result.exit_code:
            last_line = result.stderr.decode(errors="replace").strip().rsplit("\n", 1)[-1]
            message = f"{command[0]} in sandbox {self.name}: exited with code {result.exit_code}"
            raise ApiRequestRejectedError(f"{message}: {last_line}" if last_line else message)
        return result

    @asynccontextmanager
    async def session(
        self, *command: str, tty: bool = False, stdin: bool = True, container: str | None = None
    ) -> AsyncIterator[AsyncExecSession]:
        """Run a command and exchange data with it while it runs.

        Args:
            *command: program and arguments.
            tty: allocate a terminal.
            stdin: attach standard input.
            container: container to run it in; the first one if omitted.

        Raises:
            UsageError: no command was given.
            ObjectConflictError: the sandbox has no running pod.
        """
        if not command:
            raise UsageError("no command given", hint="Name the program to run.")
        query = [("command", argument) for argument in command]
        query += [("tty", query_bool(tty)), ("stdin", query_bool(stdin))]
        query += [("container", container)] if container else []
        async with self._transport.websocket(f"{self._path}/exec", query=query) as socket:
            yield AsyncExecSession(
                socket,
                f"{command[0]} in sandbox {self.name}",
                terminate=partial(self._terminate, command, container),
            )

    async def _terminate(self, command: tuple[str, ...], container: str | None) -> bool:
        script = ("sh", "-c", TERMINATE_SCRIPT, "terminate", "\n".join(command).rstrip("\n"))
        try:
            # Not the timeout of `exec`, which would terminate this script in the same way.
            async with asyncio.timeout(_TERMINATE_TIMEOUT):
                return (await self.exec(*script, container=container)).exit_code == 0
        except (HoldfastError, TimeoutError):
            return False
