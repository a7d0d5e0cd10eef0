"""Checked by mypy and pyright, never run: what users write, right and wrong."""

from collections.abc import Iterator
from pathlib import Path
from typing import assert_type

from holdfast import Gateway, Policy, Sandbox, retry
from holdfast.api import Phase, SandboxChange, SandboxView
from holdfast.client import AsyncSandbox, AsyncSandboxes, BulkResult, ExecResult, Sandboxes
from holdfast.errors import CommandFailedError
from holdfast.gateway import AsyncGateway, Diagnosis, GatewayPlan, GatewayResult, GatewayStatus
from holdfast.images import build_images, image_states, load_images, save_images
from holdfast.workflow import RunRecord


def gateways() -> None:
    gateway = Gateway("dev")
    assert_type(gateway.up(image="holdfast/node:0.1.0", port=26443, gpus="all"), GatewayResult)
    assert_type(gateway.up(settings={"timeouts.node_ready": 60}, use=True).server, str)
    assert_type(gateway.plan(port="auto"), GatewayPlan)
    assert_type(gateway.upgrade(timeout=60), GatewayResult)
    assert_type(gateway.status(), GatewayStatus)
    assert_type(gateway.status().node, str)
    if gateway.status().state == "runing":  # type: ignore[comparison-overlap] # pyright: ignore[reportUnnecessaryComparison]
        pass
    assert_type(gateway.doctor(fix=True), Diagnosis)
    assert_type(gateway.runs(), list[RunRecord])
    assert_type(gateway.kubeconfig, Path)
    assert_type(gateway.logs(tail=10), Iterator[str])
    assert_type(Gateway.all(), list[Gateway])
    assert_type(gateway.sandbox("box"), Sandbox)
    assert_type(gateway.sandboxes(), Sandboxes)
    gateway.up(imgae="x")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    gateway.up(port="26443")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    gateway.up(recreate="yes")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    gateway.plan(wipe=1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    gateway.upgrade(imgae="x")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    gateway.destroy(True)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    gateway.logs(tail="10")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    Gateway("dev", listner=print)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    Gateway(1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def sandboxes() -> None:
    with Gateway("dev").sandbox("box") as sandbox:
        assert_type(sandbox, Sandbox)
        assert_type(sandbox.name, str)
        assert_type(sandbox.create(), SandboxView)
        assert_type(sandbox.wait(timeout=60).phase, Phase)
        assert_type(sandbox.wait("Suspended"), SandboxView)
        assert_type(sandbox.exists(), bool)
        assert_type(sandbox.delete().deleted, bool)
        assert_type(sandbox.watch(), Iterator[SandboxView])
        assert_type(sandbox.logs(follow=True), Iterator[bytes])
        assert_type(sandbox.upload(Path("a"), "b").entries, int)
        assert_type(sandbox.download("a").skipped, list[str])
        with sandbox.forward(8080) as forward:
            assert_type(forward.address, tuple[str, int])
        sandbox.wait(60)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        sandbox.wait(timeout="60")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        sandbox.delete(True)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
        sandbox.delete(keep_workspaces=True)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
        sandbox.forward("8080")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        sandbox.logs(tail="1")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        sandbox.suspnd()  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]


def commands(sandbox: Sandbox) -> None:
    result = sandbox.exec("uname", "-a", env={"A": "b"}, cwd="project", timeout=10, check=True)
    assert_type(result, ExecResult)
    assert_type(result.exit_code, int)
    assert_type(result.text, str)
    assert_type(result.stdout, bytes)
    assert_type(result.stderr, bytes)
    with sandbox.session("sh", tty=True) as session:
        session.write(b"x")
        assert_type(session.exit_code, int)
        for output in session:
            assert_type(output.data, bytes)
    try:
        sandbox.exec("false", check=True)
    except CommandFailedError as error:
        assert_type(error.exit_code, int)
        assert_type(error.stdout, bytes)
    sandbox.exec("uname", timout=1)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
    sandbox.exec("uname", timeout="1")  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    sandbox.exec("uname", env={"A": 1})  # type: ignore[dict-item] # pyright: ignore[reportArgumentType]
    sandbox.exec("uname", 1)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    sandbox.exec(["uname"])  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    assert result.exitcode == 0  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]


def many(sandboxes: Sandboxes) -> None:
    for view in sandboxes:
        assert_type(view, SandboxView)
    assert_type(sandboxes.list(selector="team=blue"), Iterator[SandboxView])
    assert_type(sandboxes.watch(), Iterator[SandboxChange])
    assert_type(sandboxes.resume(["a", "b"]), BulkResult[SandboxView])
    sandboxes.list(selectr="x")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    sandboxes.delete(1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def asynchronous() -> None:
    async with Gateway("dev").sandbox("box") as sandbox:
        assert_type(sandbox, AsyncSandbox)
        assert_type(await sandbox.exec("true"), ExecResult)
        async with sandbox.session("sh") as session:
            async for output in session:
                assert_type(output.data, bytes)
        await sandbox.exec("uname", timout=1)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
    async with Gateway("dev").sandboxes() as sandboxes:
        assert_type(sandboxes, AsyncSandboxes)
        async for view in sandboxes:
            assert_type(view.name, str)


async def asynchronous_gateway() -> None:
    gateway = AsyncGateway("dev")
    assert_type(await gateway.up(image="holdfast/node:0.1.0", port=26443), GatewayResult)
    assert_type(await gateway.plan(port="auto"), GatewayPlan)
    assert_type(await gateway.status(), GatewayStatus)
    assert_type(await gateway.runs(), list[RunRecord])
    async for line in gateway.logs(follow=True):
        assert_type(line, str)
    async with gateway.sandbox("box") as sandbox:
        assert_type(sandbox, AsyncSandbox)
    await gateway.up(imgae="x")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    await gateway.upgrade(timeout="60")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


@retry(Policy(attempts=3, deadline=60))
def flaky(number: int) -> str:
    return str(number)


assert_type(flaky(1), str)
Policy(attempt=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
Policy(attempts="3")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
retry(policy=3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
retry(Policy(), operatoin="x")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def images(archive: Path) -> None:
    assert_type(build_images(["node"])[0].changed, bool)
    assert_type(image_states()[0].reference, str)
    assert_type(save_images(archive).size, int)
    assert_type(load_images(archive)[0].reference, str)
    build_images(["node"], refesh=True)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    save_images("file")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
