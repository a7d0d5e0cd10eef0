"""Checked by mypy and pyright, never run: secrets, updates and usage, sync and async alike."""

from typing import assert_type

from holdfast import Gateway, Sandbox
from holdfast.api import (
    SandboxSecret,
    SandboxSecretOptions,
    SandboxUpdateOptions,
    SandboxUpdateResult,
    SecretDeletion,
    SecretResult,
    SecretView,
    UsageReport,
)
from holdfast.client import AsyncSandbox, AsyncSecrets, Sandboxes, Secrets


def manage(secrets: Secrets, sandboxes: Sandboxes) -> None:
    assert_type(secrets.create("db", {"A": "text", "B": b"bytes"}, replace=True), SecretResult)
    assert_type(secrets.get("db"), SecretView)
    assert_type(secrets.list(), list[SecretView])
    assert_type(secrets.delete("db", ignore_missing=True), SecretDeletion)
    assert_type(sandboxes.usage(), UsageReport)
    secrets.create("db")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    secrets.create("db", {"A": 1})  # type: ignore[dict-item] # pyright: ignore[reportArgumentType]
    secrets.create("db", {"A": "1"}, replcae=True)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


def use(sandbox: Sandbox) -> None:
    mounted: SandboxSecretOptions = {"name": "tls", "path": "/run/tls"}
    sandbox.create(secrets=["db", mounted, SandboxSecret(name="x", path="/run/x")])
    sandbox.create(secrets=("db", "tls:/run/tls"))
    sandbox.create(secrets=[1])  # type: ignore[list-item] # pyright: ignore[reportArgumentType]
    assert_type(sandbox.update(memory="1Gi", cpu=None, env={"A": "1", "B": None}), SandboxUpdateResult)
    sandbox.update(memroy="1Gi")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    sandbox.update(workspace=False)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    sandbox.update(env={"A": 1})  # type: ignore[dict-item] # pyright: ignore[reportArgumentType]
    sandbox.update(failed_pods="Maybe")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def use_async(sandbox: AsyncSandbox, secrets: AsyncSecrets) -> None:
    assert_type(await sandbox.update(labels={"team": None}), SandboxUpdateResult)
    assert_type(await secrets.create("db", {"A": "text"}), SecretResult)
    await sandbox.update(memroy="1Gi")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


options: SandboxUpdateOptions = {"memory": "1Gi"}
Gateway("dev").sandbox("a").update(**options)
