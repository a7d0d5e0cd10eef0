"""The proxy: TLS with client certificates, kubeconfigs, start and stop, command line."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.errors import UsageError
from holdfast.testing.ephemeral_pki import EphemeralCA, write_key_pair, write_kubeconfig
from holdfast.testing.faults import FaultProxy, rule
from holdfast.testing.faults.proxy import Listener
from holdfast.testing.faults.request_log import RequestLog
from holdfast.testing.faults.rules import FaultSelector
from holdfast.testing.faults.upstream import Upstream, upstream_from_kubeconfig


def entry(path, listing, key):
    return json.loads(path.read_text())[listing][0][key]


def client_context(path, directory, *, with_certificate=True):
    authority = base64.b64decode(entry(path, "clusters", "cluster")["certificate-authority-data"])
    context = ssl.create_default_context(cadata=authority.decode())
    if with_certificate:
        user = entry(path, "users", "user")
        both = directory / "client.pem"
        both.write_bytes(
            base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"])
        )
        context.load_cert_chain(both)
    return context


def get(port, context):
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
    try:
        connection.request("GET", "/objects")
        return connection.getresponse().status
    finally:
        connection.close()


def test_tls_requires_kubeconfig_certificate(upstream, tmp_path):
    with FaultProxy(upstream.url) as proxy:
        assert proxy.url.startswith("https://127.0.0.1:")
        assert stat.S_IMODE(proxy.kubeconfig.stat().st_mode) == 0o600
        assert get(proxy.port, client_context(proxy.kubeconfig, tmp_path)) == 200
        stranger = client_context(proxy.kubeconfig, tmp_path, with_certificate=False)
        with pytest.raises(OSError):
            get(proxy.port, stranger)
        assert len(proxy.log) == 1


def test_resets_work_under_tls(upstream, tmp_path):
    with FaultProxy(upstream.url, rules=[rule("reset-before")]) as proxy:
        context = client_context(proxy.kubeconfig, tmp_path)
        with pytest.raises(ConnectionResetError):
            get(proxy.port, context)


def test_proxy_uses_kubeconfig_certificate_and_forwards_tokens(tmp_path):
    authority = EphemeralCA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*write_key_pair(authority.issue("server", server=True), tmp_path, "server"))
    context.load_verify_locations(cadata=authority.certificate.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    seen = {}

    def serve(listener):
        with listener, context.wrap_socket(listener.accept()[0], server_side=True) as sock:
            seen["name"] = dict(pair[0] for pair in sock.getpeercert()["subject"])["commonName"]
            seen["request"] = sock.recv(10_000)
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve, args=(listener,), daemon=True)
    thread.start()
    path = tmp_path / "kubeconfig"
    write_kubeconfig(
        path,
        url=f"https://127.0.0.1:{listener.getsockname()[1]}",
        ca=authority.certificate,
        client=authority.issue("alice"),
        user={"token": "abc"},
    )
    with FaultProxy(path) as proxy:
        assert entry(proxy.kubeconfig, "users", "user")["token"] == "abc"
        assert get(proxy.port, client_context(proxy.kubeconfig, tmp_path)) == 200
    thread.join()
    assert seen["name"] == "alice"
    assert b"Host: 127.0.0.1" in seen["request"]


def test_client_key_is_not_written_to_disk(tmp_path, monkeypatch):
    authority, path = EphemeralCA(), tmp_path / "kubeconfig"
    write_kubeconfig(
        path, url="https://127.0.0.1:1", ca=authority.certificate, client=authority.issue("alice")
    )
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert upstream_from_kubeconfig(path).tls is not None


def kubeconfig(tmp_path, **changes):
    path = tmp_path / "config"
    write_kubeconfig(path, url="https://127.0.0.1:1", ca=None, client=None)
    content = json.loads(path.read_text())
    content["clusters"][0]["cluster"].update(changes)
    path.write_text(json.dumps(content))
    return path


def test_relative_paths_resolve_against_kubeconfig(tmp_path):
    (tmp_path / "ca.crt").write_bytes(EphemeralCA().certificate)
    path = kubeconfig(tmp_path, **{"certificate-authority": "ca.crt", "tls-server-name": "api"})
    content = json.loads(path.read_text())
    content["users"][0]["user"] = {"tokenFile": "token"}
    path.write_text(json.dumps(content))
    upstream = upstream_from_kubeconfig(path)
    assert upstream.user == {"tokenFile": str(tmp_path / "token")}
    assert upstream.server_name == "api"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda d: d / "missing", "cannot be read as a kubeconfig"),
        (lambda d: kubeconfig(d, server="ftp://x"), "upstream: 'ftp://x'"),
        (lambda d: kubeconfig(d, **{"proxy-url": "http://x"}), "proxy-url"),
    ],
)
def test_invalid_kubeconfig_is_reported(tmp_path, make, words):
    with pytest.raises(UsageError, match=words):
        FaultProxy(make(tmp_path))


def test_unknown_context_is_named(tmp_path):
    with pytest.raises(UsageError, match="contexts: no entry named 'prod'"):
        FaultProxy(kubeconfig(tmp_path), context="prod")


def test_ports_are_validated_and_taken_port_is_named(upstream):
    with pytest.raises(UsageError, match="port: 70000"):
        FaultProxy(upstream.url, port=70_000)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        proxy = FaultProxy(upstream.url, port=taken.getsockname()[1])
        with pytest.raises(UsageError, match=r"port: \d+ cannot be listened on"):
            proxy.start()
        proxy.stop()


def test_failed_start_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    proxy = FaultProxy(Upstream("http://127.0.0.1:1", user={"token": object()}))
    with pytest.raises(TypeError):
        proxy.start()
    assert not list(tmp_path.iterdir())
    assert not [t for t in threading.enumerate() if t.name == "holdfast-fault-proxy"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), timeout=5)


@pytest.mark.parametrize("turns", range(8))
def test_end_of_earlier_outage_does_not_end_later_one(turns):
    """The later outage starts some iterations of the event loop after the earlier one."""

    async def scenario():
        listener = Listener(Upstream("http://127.0.0.1:1"), FaultSelector(), RequestLog(), None, 0)
        await listener.up()
        await listener.down("refuse", 0.0)
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.down("refuse")
        for _ in range(10):
            await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", listener.port)
        await listener.close()

    asyncio.run(scenario())


def test_later_of_two_concurrent_outages_lasts():
    async def scenario():
        listener = Listener(Upstream("http://127.0.0.1:1"), FaultSelector(), RequestLog(), None, 0)
        await listener.up()
        await asyncio.gather(listener.down("reset", 0.0), listener.down("refuse"))
        for _ in range(10):
            await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", listener.port)
        await listener.close()

    asyncio.run(scenario())


def test_stops_with_open_connections_and_leaves_nothing(upstream):
    proxy = FaultProxy(upstream.url, rules=[rule("stall-headers", seconds=600)], tls=False)
    proxy.start()
    directory = proxy.kubeconfig.parent
    with pytest.raises(UsageError, match="running already"):
        proxy.start()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        proxy.stop()
        with suppress(ConnectionError):  # reset or closed: both leave nothing to read
            assert sock.recv(1) == b""
    proxy.stop()
    assert not directory.exists()
    assert not [t for t in threading.enumerate() if t.name == "holdfast-fault-proxy"]


def run(*words, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast.testing.faults", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_command_line_serves_until_stopped(upstream, tmp_path):
    path, script, log = tmp_path / "config", tmp_path / "faults.toml", tmp_path / "log"
    write_kubeconfig(path, url=upstream.url, ca=None, client=None)
    script.write_text('[[rule]]\nfault = "unavailable"\nretry_after = "3"\ncount = 1\n')
    process = run("--kubeconfig", path, "--script", script, "--seed", 7, "--log", log)
    try:
        written = process.stdout.readline().strip().removeprefix("KUBECONFIG=")
        port = int(entry(Path(written), "clusters", "cluster")["server"].rpartition(":")[2])
        context = client_context(Path(written), tmp_path)
        assert [get(port, context), get(port, context)] == [503, 200]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    assert "seed 7" in said
    assert "2 requests, 1 faults (unavailable 1)" in said
    assert [json.loads(line)["status"] for line in log.read_text().splitlines()] == [503, 200]
    assert not Path(written).exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [("[[rule]]\nfault = 'gone'\ncuont = 1\n", "cuont"), ("[[rule]]\nfault = 'gon'", "rule 1: kind: 'gon'")],
)
def test_command_line_names_invalid_key(tmp_path, text, words):
    script = tmp_path / "faults.toml"
    script.write_text(text)
    process = run("--kubeconfig", kubeconfig(tmp_path), "--script", script)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 2
    assert words in said
    assert "Traceback" not in said


def test_command_line_requires_kubeconfig_and_has_help():
    process = run()
    assert "--kubeconfig is required" in process.communicate(timeout=20)[1]
    assert process.returncode == 2
    helped, listed = run("--help").communicate(timeout=20)[0], run("--list").communicate(timeout=20)[0]
    assert "--script" in helped
    assert "reset-after" in listed
