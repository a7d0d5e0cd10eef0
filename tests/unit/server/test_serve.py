"""The gateway's own API as a real process on loopback: mutual TLS or nothing, and health beside it."""

from __future__ import annotations

import datetime as dt
import http.client
import json
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import __version__
from holdfast.pki import issue
from holdfast.retry import Policy, constant

LOOPBACK = "127.0.0.1"


def free_ports(count):
    listeners = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def write(folder, **parts):
    for name, content in parts.items():
        (folder / name).write_bytes(content)


@pytest.fixture(scope="module")
def bundle():
    return issue(["localhost", LOOPBACK], at=dt.datetime.now(dt.UTC))


class Running:
    def __init__(self, folder, bundle) -> None:
        self.folder, self.bundle = folder, bundle
        self.port, self.health_port = free_ports(2)
        write(folder, crt=bundle.server.certificate, key=bundle.server.key, ca=bundle.ca)
        self.process = subprocess.Popen(self.argv(), stderr=subprocess.PIPE, text=True)

    def argv(self, **changes):
        files = {"certificate": "crt", "key": "key", "client-ca": "ca"}
        words = {name: str(self.folder / file) for name, file in files.items()}
        words |= {
            "name": "dev",
            "host": LOOPBACK,
            "port": str(self.port),
            "health-port": str(self.health_port),
        }
        options = [word for name, value in {**words, **changes}.items() for word in (f"--{name}", value)]
        return [str(Path(sys.executable).parent / "holdfast"), "server", "run", *options]

    def health(self, path="/healthz"):
        connection = http.client.HTTPConnection(LOOPBACK, self.health_port, timeout=5)
        connection.request("GET", path)
        return connection.getresponse().status

    def get(self, path, pair=None, ca=None, **context):
        verified = ssl.create_default_context(cadata=(ca or self.bundle.ca).decode())
        for name, value in context.items():
            setattr(verified, name, value)
        if pair is not None:
            write(self.folder, client=pair.certificate + b"\n" + pair.key)
            verified.load_cert_chain(self.folder / "client")
        connection = http.client.HTTPSConnection(LOOPBACK, self.port, timeout=5, context=verified)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.fixture(scope="module")
def running(tmp_path_factory, bundle):
    made = Running(tmp_path_factory.mktemp("server"), bundle)
    try:
        up = Policy(attempts=None, deadline=60, backoff=constant(0.05), retry_on=OSError)
        up.call(made.health)
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def test_health_says_ok_in_plain_text_and_nothing_else(running):
    assert (running.health(), running.health("/v1/gateway")) == (200, 404)


def test_a_client_of_this_gateway_learns_which_one_it_is(running, bundle):
    assert running.get("/v1/gateway", bundle.client) == (200, {"name": "dev", "version": __version__})


def test_the_api_describes_itself(running, bundle):
    status, document = running.get("/schema/openapi.json", bundle.client)
    assert (status, list(document["paths"])) == (200, ["/v1/gateway"])
    assert running.get("/nothing", bundle.client)[0] == 404


def test_nobody_without_a_certificate_of_this_ca_gets_in(running):
    stranger = issue([LOOPBACK], at=dt.datetime.now(dt.UTC)).client
    for pair in (None, stranger):
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            running.get("/v1/gateway", pair)


def test_an_expired_client_does_not_get_in(tmp_path_factory, running, bundle):
    from holdfast.pki import Authority

    past = Authority(at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)).client()
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        running.get("/v1/gateway", past)


def test_older_tls_is_refused(running, bundle):
    with pytest.raises((ssl.SSLError, ConnectionError)):
        running.get("/v1/gateway", bundle.client, maximum_version=ssl.TLSVersion.TLSv1_2)


def test_a_file_that_cannot_be_used_is_one_clear_line(running):
    missing = subprocess.run(
        running.argv(certificate="/nowhere/tls.crt"), capture_output=True, text=True, check=False
    )
    assert (missing.returncode, missing.stdout) == (3, "")
    assert "certificates cannot be used" in missing.stderr
    assert "Traceback" not in missing.stderr


def test_a_taken_port_is_one_clear_line(running):
    (other,) = free_ports(1)
    taken = subprocess.run(
        running.argv(**{"health-port": str(other)}), capture_output=True, text=True, check=False
    )
    assert taken.returncode == 3
    assert f"port {running.port} cannot be listened on" in taken.stderr
    assert "Traceback" not in taken.stderr


def test_sigterm_ends_it_cleanly(running):
    """Last in this file: the server is gone afterwards."""
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(30) == 0
