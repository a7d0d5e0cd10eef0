"""The published client against processes of the router and the runtime, on loopback and without a cluster."""

from __future__ import annotations

import asyncio
import io
import os
import re
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from k8s_agent_sandbox.async_sandbox import AsyncSandbox
from k8s_agent_sandbox.exceptions import SandboxRequestError
from k8s_agent_sandbox.models import (
    SandboxDirectConnectionConfig,
    SandboxGatewayConnectionConfig,
    SandboxInClusterConnectionConfig,
)
from k8s_agent_sandbox.sandbox import Sandbox

MAIN = Path(__file__).resolve().parents[3] / "images" / "sandbox" / "main.py"
OPEN = {"ALLOW_UNAUTHENTICATED_ROUTER": "true", "ALLOW_LOOPBACK_POD_IP": "true"}
GATEWAY = "192.0.2.1"


@contextmanager
def program(*arguments, **environment):
    """Run the sandbox image's program; yields its port."""
    variables = os.environ | {"HOLDFAST_RUNTIME_LISTEN": "127.0.0.1"} | environment
    process = subprocess.Popen(
        [sys.executable, "-I", MAIN, *arguments], env=variables, stderr=subprocess.PIPE, text=True
    )
    try:
        yield int(re.fullmatch(r"listening on port (\d+)\n", process.stderr.readline())[1])
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    return tmp_path_factory.mktemp("workspace")


@pytest.fixture(scope="module")
def runtime(workspace):
    variables = {"SANDBOX_BASE_DIR": str(workspace), "SANDBOX_EXEC_TIMEOUT_SECONDS": "20"}
    with program(HOLDFAST_RUNTIME_PORT="0", **variables) as port:
        yield port


@pytest.fixture(scope="module")
def router():
    with program("router", HOLDFAST_ROUTER_PORT="0", PROXY_TIMEOUT_SECONDS="30", **OPEN) as port:
        yield port


class FakeCluster:
    """What the client reads from the API server, which does not exist here."""

    injected_api_client = None

    def get_sandbox(self, name, namespace):
        return {
            "metadata": {"name": name, "namespace": namespace},
            "status": {"podIPs": [{"ip": "127.0.0.1"}]},
        }

    def wait_for_gateway_ip(self, name, namespace, timeout):
        assert (name, namespace) == ("entry", "default")
        return GATEWAY


class FakeAsyncCluster(FakeCluster):
    """The same for the async client."""

    async def get_sandbox(self, name, namespace):
        return super().get_sandbox(name, namespace)


@contextmanager
def connected(way, name="box"):
    sandbox = Sandbox("claim", name, connection_config=way, k8s_helper=FakeCluster())
    try:
        yield sandbox
    finally:
        sandbox.close_connection()


def direct(router, runtime, **options):
    return SandboxDirectConnectionConfig(api_url=f"http://127.0.0.1:{router}", server_port=runtime, **options)


@pytest.fixture
def sandbox(router, runtime, workspace):
    with connected(direct(router, runtime)) as found:
        yield found


def test_commands(sandbox, workspace):
    ended = sandbox.commands.run("sh -c 'pwd; echo err >&2; exit 3'")
    assert (ended.stdout, ended.stderr, ended.exit_code) == (f"{workspace}\n", "err\n", 3)
    assert sandbox.commands.run("echo 'a b' $HOME | cat").stdout == "a b $HOME | cat\n"
    failed = sandbox.commands.run("no-such-program")
    assert (failed.exit_code, failed.timed_out) == (1, False)
    assert failed.stderr.startswith("Failed to execute command: ")
    stopped = sandbox.commands.run("sleep 600", command_timeout=0.2)
    assert (stopped.exit_code, stopped.timed_out) == (124, True)


def test_files(sandbox, workspace):
    content = os.urandom(3_000_000)
    sandbox.files.write('deep/er/ü " file', content)
    sandbox.files.write("deep/streamed", io.BytesIO(content))
    assert (workspace / "deep" / "streamed").read_bytes() == content
    assert sandbox.files.read('deep/er/ü " file') == content
    copy = io.BytesIO()
    assert sandbox.files.read_to("deep/streamed", copy) == len(content)
    assert copy.getvalue() == content
    assert sandbox.files.exists("deep/streamed")
    assert not sandbox.files.exists("deep/missing")
    found = {entry.name: (entry.type, entry.size) for entry in sandbox.files.list("deep")}
    assert found == {"er": ("directory", found["er"][1]), "streamed": ("file", len(content))}


def failure(call, *arguments, **options):
    """The status and the body of the error that a call of the client raises."""
    with pytest.raises(SandboxRequestError) as raised:
        call(*arguments, **options)
    return raised.value.status_code, raised.value.response.json()


def test_errors_of_the_runtime(sandbox, workspace):
    (workspace / "plain").write_text("x")
    (workspace / "outside").symlink_to("/etc")
    missing, no_directory, denied = (
        {"message": text} for text in ("File not found", "Path is not a directory", "Access denied")
    )
    assert failure(sandbox.files.read, "missing") == (404, missing)
    assert failure(sandbox.files.read_to, "missing", io.BytesIO()) == (404, missing)
    assert failure(sandbox.files.list, "missing") == (404, no_directory)
    assert failure(sandbox.files.list, "plain") == (404, no_directory)
    assert failure(sandbox.files.read, "outside/passwd") == (403, denied)
    assert failure(sandbox.files.read, "../x", allow_unsafe_paths=True) == (403, denied)
    assert failure(sandbox.files.write, "../x", b"x", allow_unsafe_paths=True) == (403, denied)
    assert failure(sandbox.files.list, "outside") == (403, denied)
    assert failure(sandbox.files.exists, "outside/passwd") == (403, denied)


def test_operations_of_the_other_runtime_are_not_implemented(sandbox):
    with pytest.raises(NotImplementedError):
        sandbox.files.delete("x")
    with pytest.raises(NotImplementedError):
        sandbox.commands.run("true", env={"A": "1"})


def test_unreachable_sandbox(router):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        unused = listener.getsockname()[1]
    with connected(direct(router, unused)) as sandbox:
        detail = {"detail": "Could not connect to the backend sandbox: box"}
        assert failure(sandbox.commands.run, "true") == (502, detail)


def test_invalid_sandbox_name(router, runtime):
    with connected(direct(router, runtime), name="no.label") as sandbox:
        assert failure(sandbox.commands.run, "true") == (400, {"detail": "Invalid sandbox ID format."})


def test_time_limit_of_the_router(runtime):
    with (
        program("router", HOLDFAST_ROUTER_PORT="0", PROXY_TIMEOUT_SECONDS="2", **OPEN) as router,
        connected(direct(router, runtime)) as sandbox,
    ):
        detail = {"detail": "Timed out waiting for the backend sandbox: box"}
        assert failure(sandbox.commands.run, "sleep 600", timeout=60) == (504, detail)
        assert sandbox.commands.run("echo again").stdout == "again\n"


def test_token_and_refused_pod_address(runtime):
    variables = {"ROUTER_AUTH_TOKEN": "secret", "HOLDFAST_ROUTER_PORT": "0"}
    with program("router", **variables) as router:
        with connected(direct(router, runtime)) as sandbox:
            detail = {"detail": "Missing or invalid Authorization header."}
            assert failure(sandbox.commands.run, "true") == (401, detail)
        wrong, right = ({"Authorization": f"Bearer {token}"} for token in ("other", "secret"))
        with connected(direct(router, runtime, extra_headers=wrong)) as sandbox:
            assert failure(sandbox.files.read, "x") == (401, {"detail": "Invalid token."})
        with connected(direct(router, runtime, extra_headers=right)) as sandbox:
            assert failure(sandbox.files.read, "x") == (400, {"detail": "Invalid target IP address."})


def test_gateway_mode(router, runtime, monkeypatch):
    """The client asks for the gateway's address on port 80; an HTTP proxy stands in for that address."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{router}")
    way = SandboxGatewayConnectionConfig(gateway_name="entry", server_port=runtime)
    with connected(way) as sandbox:
        assert sandbox.commands.run("echo hello").stdout == "hello\n"
        sandbox.files.write("by-gateway", b"content")
        assert sandbox.files.read("by-gateway") == b"content"
        assert sandbox.connector.connect() == f"http://{GATEWAY}"


def test_in_cluster_mode(runtime):
    with connected(SandboxInClusterConnectionConfig(server_port=runtime)) as sandbox:
        assert sandbox.commands.run("echo hello").stdout == "hello\n"
        assert failure(sandbox.files.read, "missing") == (404, {"message": "File not found"})


def test_async_client(router, runtime, workspace):
    async def use():
        way = direct(router, runtime)
        sandbox = AsyncSandbox("claim", "box", connection_config=way, k8s_helper=FakeAsyncCluster())
        try:
            ended = await asyncio.gather(*(sandbox.commands.run(f"echo {number}") for number in range(8)))
            assert [one.stdout for one in ended] == [f"{number}\n" for number in range(8)]
            content = os.urandom(1_000_000)
            await sandbox.files.write("async/file", content)
            await sandbox.files.write("async/streamed", io.BytesIO(content))
            assert await sandbox.files.read("async/file") == content
            assert await sandbox.files.exists("async/file")
            assert {entry.name for entry in await sandbox.files.list("async")} == {"file", "streamed"}
            errors = [
                (sandbox.files.read("missing"), 404, {"message": "File not found"}),
                (sandbox.files.list("missing"), 404, {"message": "Path is not a directory"}),
                (sandbox.files.read("../x", allow_unsafe_paths=True), 403, {"message": "Access denied"}),
            ]
            for call, status, body in errors:
                with pytest.raises(SandboxRequestError) as raised:
                    await call
                assert (raised.value.status_code, raised.value.response.json()) == (status, body)
        finally:
            await sandbox.close_connection()

    asyncio.run(use())
