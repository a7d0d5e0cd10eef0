"""The API's streams on a real gateway: commands, ports, logs and files, of one sandbox that really runs."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import io
import json
import random
import tarfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from tests.support.controller_process import install_crds
from tests.support.gateway import HELPER_IMAGE
from tests.support.gateway_api_server import LOOPBACK, GatewayApiServer
from tests.support.manual_reconciler import ManualReconciler
from tests.support.schemathesis import run_schemathesis, statuses_by_operation

from holdfast.api import Channel, encode_frame, encode_resize_frame, parse_exit_code
from holdfast.kube import Objects, api_client
from holdfast.pki import issue_bundle
from holdfast.retry import Policy, constant

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

NAME = "talks"
ROOT = "/v1/sandboxes"
MIB = 1 << 20
SCRIPT = "echo started; mkdir -p /sandbox/tree; exec tail -f /dev/null"
EVENTUALLY = Policy(attempts=None, deadline=60, backoff=constant(0.2), retry_on=AssertionError)


class Client:
    """The API, asked by one sandbox's user."""

    def __init__(self, server: GatewayApiServer) -> None:
        self.server = server
        self.path = f"{server.url}{ROOT}/{NAME}"

    @asynccontextmanager
    async def session(self):
        tls = self.server.context(self.server.bundle.client)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls), timeout=aiohttp.ClientTimeout(total=None)
        ) as session:
            yield session

    def execute(self, *words, stdin=None, early=b"", **query):
        """Run a command to its end: what each channel said, and the exit code."""
        return asyncio.run(self._execute(words, stdin, early, query))

    async def _execute(self, words, stdin, early, query):
        asked = [("command", word) for word in words] + list(query.items())
        said = dict.fromkeys(Channel, b"")
        async with self.session() as session:
            if stdin is not None:
                asked.append(("stdin", "true"))
            async with session.ws_connect(f"{self.path}/exec", params=asked, max_msg_size=0) as socket:
                if early:
                    await socket.send_bytes(early)
                # To end the input of a terminal is to hang up.
                last = "tty" not in query
                sending = asyncio.ensure_future(self._send(socket, stdin or b"", last=last))
                async for message in socket:
                    said[message.data[0]] += message.data[1:]
                # A command may end before its input was sent; then the server has closed the WebSocket.
                with suppress(aiohttp.ClientConnectionResetError):
                    await sending
        assert socket.close_code == 1000
        return said, parse_exit_code(said[Channel.STATUS])

    async def _send(self, socket, data, *, last):
        for at in range(0, len(data), 50_000):
            await socket.send_bytes(encode_frame(Channel.STDIN, data[at : at + 50_000]))
        if last:
            await socket.send_bytes(encode_frame(Channel.CLOSE, bytes((Channel.STDIN,))))

    def put(self, data, path="/sandbox"):
        return asyncio.run(self._put(data, path))

    async def _put(self, data, path):
        async with (
            self.session() as session,
            session.put(f"{self.path}/files", params={"path": path}, data=data) as answer,
        ):
            return answer.status, await answer.json()

    def get(self, path):
        async def run():
            async with (
                self.session() as session,
                session.get(f"{self.path}/files", params={"path": path}) as answer,
            ):
                return answer.status, await answer.read()

        return asyncio.run(run())


@pytest.fixture(scope="module")
def server(bare_gateway, tmp_path_factory):
    """The API from source in front of a real gateway, with one sandbox that is ready."""
    home = bare_gateway.holdfast.home
    kubeconfig = home / "config" / "gateways" / bare_gateway.name / "kubeconfig"
    bundle = issue_bundle(["localhost", LOOPBACK], at=dt.datetime.now(dt.UTC))
    with api_client(kubeconfig) as api:
        install_crds(api)
        made = GatewayApiServer(
            tmp_path_factory.mktemp("server"), bundle, kubeconfig=kubeconfig, streams="40"
        )
        try:
            made.wait_ready()
            body = {
                "name": NAME, "image": HELPER_IMAGE, "command": ["/bin/sh", "-c", SCRIPT],
                "workspace": {"size": "3Gi", "seed": False},
            }  # fmt: skip
            assert made.request_json("POST", ROOT, body)[0] == 201
            ManualReconciler(Objects(api), "default").reconcile_until_ready(NAME)
            yield made
        finally:
            made.stop()


@pytest.fixture(scope="module")
def client(server):
    return Client(server)


def test_ready_sandbox_reports_addresses(server):
    status, seen = server.request_json("GET", f"{ROOT}/{NAME}")
    assert (status, seen["phase"], seen["pod"], seen["workspace"]["phase"]) == (200, "Ready", NAME, "Bound")
    assert seen["pod_ip"]
    assert not seen["workspace"]["size_enforced"]


def test_exec_returns_stdout_stderr_and_exit_code(client):
    said, code = client.execute("sh", "-c", "echo out; echo err >&2; exit 7")
    assert (said[Channel.STDOUT], said[Channel.STDERR], code) == (b"out\n", b"err\n", 7)
    assert client.execute("true")[1] == 0
    said, code = client.execute("no-such-program")
    assert code is None
    assert b"no-such-program" in said[Channel.STATUS]


def test_stdin_is_delivered_completely_until_eof(client):
    data = random.Random(1).randbytes(5 * MIB)
    said, code = client.execute("cat", stdin=data)
    assert (hashlib.sha256(said[Channel.STDOUT]).digest(), code) == (hashlib.sha256(data).digest(), 0)


def test_terminal_uses_requested_size(client):
    # Nothing says when a new size is there but the size itself.
    script = 'until [ "$(stty size 2>/dev/null)" = "45 123" ]; do sleep 0.1; done; stty size; tty'
    said, code = client.execute("sh", "-c", script, stdin=b"", early=encode_resize_frame(123, 45), tty="true")
    assert code == 0
    assert b"45 123" in said[Channel.STDOUT]
    assert b"/dev/pts/" in said[Channel.STDOUT]


def test_client_disconnect_closes_stream_and_invalid_frame_is_rejected(client):
    async def run():
        async with client.session() as session:
            asked = [("command", "cat"), ("stdin", "true")]
            socket = await session.ws_connect(f"{client.path}/exec", params=asked)
            await socket.send_bytes(encode_frame(Channel.STDOUT, b"not mine"))
            while (message := await socket.receive()).type is aiohttp.WSMsgType.BINARY:
                pass
            assert (message.type, socket.close_code) == (aiohttp.WSMsgType.CLOSE, 1003)
            gone = await session.ws_connect(f"{client.path}/exec", params=[*asked, ("container", "sandbox")])
            await gone.close()

    asyncio.run(run())

    def nothing_is_left():
        said, _ = client.execute("sh", "-c", "ps | grep -c '[c]at$' || true")
        assert said[Channel.STDOUT].strip() == b"0"

    EVENTUALLY.call(nothing_is_left)


def test_concurrent_execs(client):
    async def run():
        words = [client._execute(("sh", "-c", f"echo {number}"), None, b"", {}) for number in range(20)]
        return await asyncio.gather(*words)

    found = asyncio.run(run())
    assert [said[Channel.STDOUT] for said, _ in found] == [b"%d\n" % number for number in range(20)]
    assert {code for _, code in found} == {0}


def test_port_forward_both_directions_and_refused_port(client):
    async def run():
        async with client.session() as session:
            # A service in the sandbox that sends back what it gets, for one connection.
            asked = [("command", word) for word in ("nc", "-l", "-p", "7000", "-e", "cat")]
            service = await session.ws_connect(f"{client.path}/exec", params=asked)

            async def talk():
                async with session.ws_connect(f"{client.path}/forward", params={"port": "7000"}) as socket:
                    data, got = random.Random(2).randbytes(3 * MIB), b""
                    for at in range(0, len(data), 50_000):
                        await socket.send_bytes(data[at : at + 50_000])
                    while len(got) < len(data):
                        message = await socket.receive()
                        assert message.type is aiohttp.WSMsgType.BINARY, message
                        got += message.data
                    assert got == data

            await EVENTUALLY.acall(talk)
            await service.close()
            async with session.ws_connect(f"{client.path}/forward", params={"port": "7001"}) as socket:
                message = await socket.receive()
                closed = (1011, "no process in the sandbox listens on that port")
                assert (message.data, message.extra) == closed

    asyncio.run(run())


def test_logs_and_tail(server):
    connection = server.connect(server.bundle.client)
    connection.request("GET", f"{ROOT}/{NAME}/logs?tail=1")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"started\n")
    assert answer.getheader("content-type").startswith("text/plain")
    status, problem = server.request_json("GET", f"{ROOT}/{NAME}/logs?container=none")
    assert (status, problem["code"]) == (422, "no-container")


def tar_archive(**files):
    room = io.BytesIO()
    with tarfile.open(fileobj=room, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o640
            archive.addfile(entry, io.BytesIO(content))
    return room.getvalue()


def test_files_round_trip_unchanged(client):
    data = random.Random(3).randbytes(2 * MIB + 17)
    assert client.put(tar_archive(small=b"x", large=data), "/sandbox/tree") == (
        200,
        {"entries": 2, "bytes": len(data) + 1},
    )
    status, archive = client.get("/sandbox/tree")
    assert status == 200
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        assert sorted(found.getnames()) == ["tree", "tree/large", "tree/small"]
        assert found.extractfile("tree/large").read() == data


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/sandbox/none", (404, "path-missing")), ("/sandbox/../etc", (400, "bad-path")),
        ("sandbox", (400, "bad-path")),
    ],
)  # fmt: skip
def test_missing_or_escaping_paths_are_rejected(client, path, expected):
    for status, body in (client.get(path), client.put(tar_archive(a=b"1"), path)):
        problem = body if isinstance(body, dict) else json.loads(body)
        assert (status, problem["code"]) == expected


def test_truncated_archive_is_reported(client):
    assert client.put(tar_archive(a=b"1" * 2000)[:700])[1]["code"] == "copy-failed"


# A log that is followed has no end while its pod runs.
KNOWN_FILES = f"""
[parameters]
"path.name" = "{NAME}"
"query.follow" = false
"query.path" = "/sandbox"
"""


@pytest.mark.slow
def test_schemathesis_logs_and_files_of_running_sandbox(server, tmp_path):
    """Not uploads: no document says what a tar archive is, so what is made up is never one."""
    report = tmp_path / "har.json"
    words = [word for one in ("readLog", "downloadFiles") for word in ("--include-operation-id", one)]
    made = run_schemathesis(
        server, tmp_path, *words, "--phases", "fuzzing", "--max-examples", "40", "--report", "har",
        "--report-har-path", str(report), config=KNOWN_FILES,
    )  # fmt: skip
    found = statuses_by_operation(report)
    assert made > 40  # of the log; a path that is fixed leaves a download nothing to make up
    assert 200 in found["GET logs"]
    assert 200 in found["GET files"]


def resident_memory(pid):
    """The memory of a process in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 // MIB


@pytest.mark.parametrize("size", [32, pytest.param(1024, marks=pytest.mark.slow)])
def test_large_file_round_trip_uses_constant_memory(client, size):
    """The file's content is never held: neither here nor there."""
    pid = client.server.process.pid
    before, most, piece = resident_memory(pid), 0, random.Random(4).randbytes(MIB)
    sent, got = hashlib.sha256(), hashlib.sha256()

    async def body():
        nonlocal most
        entry = tarfile.TarInfo("large")
        entry.size = size * MIB
        yield entry.tobuf()
        for number in range(size):
            turned = piece[number:] + piece[:number]
            sent.update(turned)
            most = max(most, resident_memory(pid))
            yield turned
        yield bytes(1024)

    async def back():
        nonlocal most
        left = size * MIB
        async with (
            client.session() as session,
            session.get(f"{client.path}/files", params={"path": "/sandbox/large"}) as answer,
        ):
            await answer.content.readexactly(512)
            while left:
                data = await answer.content.read(min(left, MIB))
                left -= len(data)
                got.update(data)
                most = max(most, resident_memory(pid))
            return await answer.content.read()

    assert client.put(body()) == (200, {"entries": 1, "bytes": size * MIB})
    assert set(asyncio.run(back())) == {0}
    assert got.digest() == sent.digest()
    client.execute("rm", "/sandbox/large")
    assert most - before < 24, f"{before} MiB before, {most} MiB at most"
