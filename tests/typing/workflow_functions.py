"""Checked by mypy and pyright, never run: steps from functions, and commands in the background."""

from typing import assert_type

from holdfast import Sandbox, Workflow
from holdfast.client import (
    AsyncBackgroundCommand,
    AsyncSandbox,
    BackgroundCommand,
    CommandView,
    ExecResult,
    FileEntry,
)
from holdfast.workflow import StepContext, absent, result_of

flow = Workflow("w")


@flow.step(repeat="safe")
def count(title: str) -> int:
    return len(title)


@flow.step(probe=absent, needs=[count])
def use(ctx: StepContext, n: int = result_of(count)) -> str:
    return ctx.run_id * n


assert_type(result_of(count), int)


@flow.step(repeat="sfe")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
def wrong(n: str = result_of(count)) -> None:  # type: ignore[assignment] # pyright: ignore[reportArgumentType]
    raise ValueError(n)


flow.step(prob=absent)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


def commands(sandbox: Sandbox) -> None:
    assert_type(sandbox.exec("true"), ExecResult)
    assert_type(sandbox.exec("true", background=False, timeout=3), ExecResult)
    command = sandbox.exec("true", background=True, env={"A": "b"})
    assert_type(command, BackgroundCommand)
    assert_type(command.wait(timeout=3), ExecResult)
    assert_type(command.poll(), int | None)
    assert_type(command.kill("INT"), bool)
    assert_type(sandbox.command("0123456789ab"), BackgroundCommand)
    assert_type(sandbox.commands(), list[CommandView])
    sandbox.exec("true", background=True, timeout=3)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    sandbox.exec("true", backgruond=True)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]


def files(sandbox: Sandbox) -> None:
    assert_type(sandbox.files.read("a"), bytes)
    assert_type(sandbox.files.read_text("a"), str)
    assert_type(sandbox.files.list(), list[FileEntry])
    assert_type(sandbox.files.write("a", "text", mode=0o600), FileEntry)
    sandbox.files.write("a", 5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def asynchronous(sandbox: AsyncSandbox) -> None:
    assert_type(await sandbox.exec("true"), ExecResult)
    assert_type(await sandbox.exec("true", background=True), AsyncBackgroundCommand)
    assert_type(await sandbox.files.read("a"), bytes)
    async for chunk in sandbox.files.stream("a"):
        assert_type(chunk, bytes)
