"""Commands that run in the background of a sandbox: start, observe and end them."""

from __future__ import annotations

import asyncio
import signal as signals
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from holdfast.api import Channel
from holdfast.client.command_records import (
    LOST_CODE,
    NO_COMMAND_CODE,
    OUTPUT_SCRIPT,
    CommandView,
    read_records,
    record_group,
)
from holdfast.client.errors import name_gateway
from holdfast.client.exec import ExecOutput, ExecResult
from holdfast.client.launch import (
    NO_DIRECTORY_CODE,
    NO_RECORD_CODE,
    SIGNAL_SCRIPT,
    START_HINT,
    TERMINATE_SCRIPT,
)
from holdfast.errors import (
    ApiRequestRejectedError,
    ArgumentTypeError,
    CommandLostError,
    DeadlineExceededError,
    DiskFullError,
    HoldfastError,
    InvalidArgumentError,
    PathNotFoundError,
    ProcessNotFoundError,
    ResponseLostError,
)
from holdfast.retry import Policy, constant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from holdfast.client.exec import AsyncExecSession
    from holdfast.client.launch import Launch
    from holdfast.client.scripts import ScriptRunner

Signal: TypeAlias = str | int | signals.Signals

_NOT_FOUND_CODE = 127
_MAX_RECONNECTIONS = 3
_SIGNAL_POLICY = Policy(attempts=None, backoff=constant(0.1), deadline=5.0, retry_on=ApiRequestRejectedError)


class AsyncBackgroundCommand:
    """A command that runs in the background of a sandbox, also while no client is connected.

    Attributes:
        id: name of the command; `AsyncSandbox.command` returns a handle for it.
    """

    def __init__(self, scripts: ScriptRunner, id: str, *, container: str | None = None) -> None:  # noqa: A002 (name of the attribute)
        self._scripts = scripts
        self._container = container
        self._description = f"command {id} in sandbox {scripts.name}"
        self.id = id

    async def get(self) -> CommandView:
        """Return the current state.

        Raises:
            ProcessNotFoundError: the sandbox has no record of the command.
        """
        view, _ = await self._read_record()
        return view

    async def is_running(self) -> bool:
        """Whether the command is running."""
        return (await self.get()).state == "running"

    async def poll(self) -> int | None:
        """Return the exit code, or None while the command is running.

        Raises:
            CommandLostError: the pod ended before the command did.
        """
        view = await self.get()
        if view.state == "lost":
            raise self._lost_error()
        return view.exit_code

    async def wait(self, *, timeout: float | None = None) -> ExecResult:  # noqa: ASYNC109 (part of the public API)
        """Wait until the command has ended.

        Args:
            timeout: seconds to wait; the command continues after that.

        Returns:
            Exit code and complete output.

        Raises:
            CommandLostError: the pod ended before the command did.
            DeadlineExceededError: the timeout passed.
        """
        buffers = {Channel.STDOUT: bytearray(), Channel.STDERR: bytearray()}
        try:
            async with asyncio.timeout(timeout):
                async for output in self.output(follow=True):
                    buffers[output.channel] += output.data
                code = await self.poll()
        except TimeoutError as error:
            raise DeadlineExceededError(
                f"{self._description}: no exit within {timeout:g} s; the command is still running",
                hint="Wait again, or end the command.",
            ) from error
        if code is None:  # not observed: the supervisor ends after its record is complete
            raise self._lost_error()
        stdout, stderr = bytes(buffers[Channel.STDOUT]), bytes(buffers[Channel.STDERR])
        return ExecResult(exit_code=code, stdout=stdout, stderr=stderr)

    async def kill(self, signal: Signal | None = None) -> bool:
        """End the command and its child processes.

        Args:
            signal: send only this signal, such as `INT`, and do not wait; if omitted, SIGTERM is sent, and
                SIGKILL after 2 seconds to the processes that remain.

        Returns:
            Whether processes received the signal; False if all had ended before.

        Raises:
            ProcessNotFoundError: the sandbox has no record of the command.
            ApiRequestRejectedError: the command is running, but its processes cannot be signalled: they have
                changed their environment or their user.
        """
        name = signal_name(signal) if signal is not None else None
        script, args = (SIGNAL_SCRIPT, [name]) if name else (TERMINATE_SCRIPT, [])

        async def send() -> bool:
            view, marker = await self._read_record()
            if marker:
                result = await self._scripts.run(script, marker, *args, container=self._container)
                if result.exit_code == 0:
                    return True
            if view.state != "running":
                return False
            raise ApiRequestRejectedError(
                f"{self._description}: its processes cannot be signalled",
                hint="End them with a command of the user that they run as.",
            )

        # The marker appears shortly after the start, and the exit code shortly after the end.
        is_sent = await _SIGNAL_POLICY.acall(send)
        if is_sent and name is None:
            await _SIGNAL_POLICY.acall(self._require_end)
        return is_sent

    async def _require_end(self) -> None:
        if await self.is_running():
            raise ApiRequestRejectedError(f"{self._description}: still running after SIGKILL")

    async def stdout(self) -> bytes:
        """Return the standard output until now."""
        return (await self._read_output())[Channel.STDOUT]

    async def stderr(self) -> bytes:
        """Return the standard error output until now."""
        return (await self._read_output())[Channel.STDERR]

    async def output(self, *, follow: bool = False) -> AsyncIterator[ExecOutput]:
        """Iterate over the output from its beginning, across lost connections.

        Args:
            follow: continue with new output until the command ends.

        Raises:
            ProcessNotFoundError: the sandbox has no record of the command.
            CommandLostError: the pod ended before the command did; raised after the output.
        """
        offsets = {Channel.STDOUT: 0, Channel.STDERR: 0}
        failures = 0
        while True:
            try:
                async with self._open_output(offsets, follow=follow) as session:
                    async for output in session:
                        yield output
                        offsets[output.channel] += len(output.data)
                        failures = 0
                    code = session.exit_code
                break
            except ResponseLostError:
                failures += 1
                if failures > _MAX_RECONNECTIONS:
                    raise
        if code == NO_COMMAND_CODE:
            raise self._missing_error()
        if code == LOST_CODE:
            raise self._lost_error()

    def _open_output(
        self, offsets: dict[Channel, int], *, follow: bool
    ) -> AbstractAsyncContextManager[AsyncExecSession]:
        positions = (str(offsets[Channel.STDOUT]), str(offsets[Channel.STDERR]))
        args = (record_group(self._container), self.id, *positions, "1" if follow else "0")
        return self._scripts.open(OUTPUT_SCRIPT, *args, container=self._container)

    async def _read_output(self) -> dict[Channel, bytes]:
        buffers = {Channel.STDOUT: bytearray(), Channel.STDERR: bytearray()}
        with suppress(CommandLostError):  # the output until then is there
            async for output in self.output():
                buffers[output.channel] += output.data
        return {channel: bytes(data) for channel, data in buffers.items()}

    async def _read_record(self) -> tuple[CommandView, str]:
        for view, marker in await read_records(self._scripts, self._container, self.id):
            return view, marker
        raise self._missing_error()

    def _missing_error(self) -> ProcessNotFoundError:
        hint = f"Run `holdfast sandbox ps {self._scripts.name}` to list all background commands."
        return ProcessNotFoundError(
            f"{self._description}: not found", hint=name_gateway(hint, self._scripts.gateway)
        )

    def _lost_error(self) -> CommandLostError:
        return CommandLostError(
            f"{self._description}: the pod or its supervisor ended before the command did"
        )

    def __repr__(self) -> str:
        return f"<{self._description}>"


async def start_background(
    scripts: ScriptRunner, launch: Launch, *, container: str | None
) -> AsyncBackgroundCommand:
    """Start a command in the background; see `AsyncSandbox.exec`."""
    handle = AsyncBackgroundCommand(scripts, launch.id, container=container)
    description = f"{launch.command[0]} in sandbox {scripts.name}"
    argv = launch.background_argv(record_group(container))
    try:
        result = await scripts.run_argv(argv, container=container)
    except ResponseLostError:
        # The record shows whether the command has started.
        records = await read_records(scripts, container, launch.id)
        if not records:
            raise
        return handle
    if result.exit_code:
        raise _start_error(result, launch, description)
    return handle


def _start_error(result: ExecResult, launch: Launch, description: str) -> HoldfastError:
    reason = result.stderr.decode(errors="replace").strip().rsplit("\n", 1)[-1]
    if result.exit_code == NO_DIRECTORY_CODE:
        return PathNotFoundError(
            f"{description}: {launch.cwd}: not a directory that the sandbox's user can enter",
            hint="Create the directory, or check the path.",
        )
    if result.exit_code == NO_RECORD_CODE:
        if "No space left" in reason or "Disk quota exceeded" in reason:
            return DiskFullError(f"{description}: no space left", hint="Delete files in the sandbox.")
        return ApiRequestRejectedError(
            f"{description}: no directory for its output: {reason}",
            hint="The sandbox's user needs write permission for /sandbox or /tmp.",
        )
    if result.exit_code == _NOT_FOUND_CODE:
        reason = f'exec: "{launch.command[0]}": executable file not found'
    return ApiRequestRejectedError(
        f"{description}: the command could not be started: {reason or 'no reason given'}", hint=START_HINT
    )


def signal_name(signal: Signal, *, argument: str = "signal") -> str:
    """The name of a signal for `kill -s`.

    Args:
        signal: its name, with or without `SIG`, or its number.
        argument: name of the argument, for the error.

    Raises:
        InvalidArgumentError: there is no such signal.
    """
    if isinstance(signal, bool) or not isinstance(signal, str | int):
        raise ArgumentTypeError(argument, f"must be a name or a number, not {signal!r}")
    try:
        if isinstance(signal, str) and not signal.isdigit():
            name = f"SIG{signal.upper().removeprefix('SIG')}"
            return signals.Signals[name].name.removeprefix("SIG")
        return signals.Signals(int(signal)).name.removeprefix("SIG")
    except (KeyError, ValueError):
        raise InvalidArgumentError(
            argument, f"{signal!r} is not a signal; use a name such as TERM or INT, or its number"
        ) from None
