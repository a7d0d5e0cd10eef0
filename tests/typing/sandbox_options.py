"""Checked by mypy and pyright, never run: options of `create`, sync and async alike."""

from typing import assert_type

from holdfast import Gateway, Sandbox
from holdfast.api import DeletionResult, SandboxOptions, SandboxView, Workspace
from holdfast.client import AsyncSandbox, AsyncSandboxes, BulkResult, Sandboxes


def create(sandbox: Sandbox, sandboxes: Sandboxes) -> None:
    assert_type(sandbox.create("app:1", memory="512Mi", env={"A": "b"}, workspace=False), SandboxView)
    sandbox.create(image="app:1", command=["sleep", "9"], workspace=Workspace(size="10Gi"), cpu=None)
    sandboxes.create("a", workspace={"size": "10Gi", "seed": False}, failed_pods="Keep")
    with sandboxes.temporary("app:1", prefix="mine", memory="1Gi") as temporary:
        assert_type(temporary, Sandbox)
    sandbox.create(memroy="512Mi")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    sandbox.create(memory=512)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    sandbox.create(env={"A": 1})  # type: ignore[dict-item] # pyright: ignore[reportArgumentType]
    sandboxes.create("a", memroy="1Gi")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    sandboxes.create("a", workspace={"sice": "1Gi"})  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    sandboxes.temporary(memroy="1Gi")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    assert_type(sandboxes.delete(["a"], wait=True), BulkResult[DeletionResult])
    assert_type(sandboxes.wait(["a"], "Suspended").outcomes[0].result, SandboxView | None)
    sandboxes.list(selector={"team": "blue"})  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def create_async(sandbox: AsyncSandbox, sandboxes: AsyncSandboxes) -> None:
    assert_type(await sandbox.create("app:1", memory="512Mi", labels={"team": "blue"}), SandboxView)
    assert_type(await sandboxes.create("a", shutdown_after=60), AsyncSandbox)
    assert_type(await sandboxes.suspend(["a"]), BulkResult[SandboxView])
    async with sandboxes.temporary(memory="1Gi") as temporary:
        assert_type(temporary, AsyncSandbox)
    await sandbox.create(memroy="512Mi")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    await sandboxes.create("a", memroy="1Gi")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    sandboxes.temporary(memroy="1Gi")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


options: SandboxOptions = {"memory": "1Gi"}
Gateway("dev").sandbox("a").create(**options)
