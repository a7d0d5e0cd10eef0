"""The API as a process on loopback: mutual TLS, and the health port."""

from __future__ import annotations

import datetime as dt
import http.client
import signal
import ssl
import subprocess

import pytest
from tests.support.gateway_api_server import LOOPBACK, GatewayApiServer, free_ports

from holdfast import __version__
from holdfast.pki import CertificateAuthority, CertificateBundle, issue_bundle
from holdfast.retry import Policy, constant

REFUSED = (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)
SOON = Policy(attempts=None, deadline=30, backoff=constant(0.1), retry_on=AssertionError)


def new_bundle():
    return issue_bundle(["localhost", LOOPBACK], at=dt.datetime.now(dt.UTC))


@pytest.fixture(scope="module")
def bundle():
    return new_bundle()


@pytest.fixture(scope="module")
def api_server(tmp_path_factory, bundle):
    made = GatewayApiServer(tmp_path_factory.mktemp("server"), bundle)
    try:
        yield made.wait_ready()
    finally:
        made.stop()


def ask_again(connection):
    connection.request("GET", "/v1/gateway")
    return connection.getresponse()


def test_health_is_plain_text_ok(api_server):
    assert (api_server.health(), api_server.health("/v1/gateway")) == (200, 404)


def test_client_learns_gateway_name(api_server, bundle):
    assert api_server.get("/v1/gateway", bundle.client) == (200, {"name": "dev", "version": __version__})


def test_openapi_document_is_served(api_server, bundle):
    status, document = api_server.get("/schema/openapi.json", bundle.client)
    assert status == 200
    assert {"/v1/gateway", "/v1/sandboxes", "/v1/sandboxes/{name}/files"} <= set(document["paths"])
    assert document["components"]["schemas"]["SandboxRequest"]["additionalProperties"] is False


def test_every_error_is_json_with_code(api_server, bundle):
    for path, expected in {
        "/nothing": (404, "not-found"),
        "/v1/sandboxes?limit=0": (400, "bad-request"),
    }.items():
        status, problem = api_server.get(path, bundle.client)
        assert (status, problem["code"]) == expected
        assert "\n" not in problem["message"]


def test_unreachable_cluster_is_a_temporary_error(api_server, bundle):
    connection = api_server.connect(bundle.client)
    connection.request("GET", "/v1/sandboxes/a")
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("Retry-After")) == (503, "1")
    assert b"Traceback" not in answer.read()


def test_client_without_certificate_is_rejected(api_server):
    for pair in (None, new_bundle().client):
        with pytest.raises(REFUSED):
            api_server.get("/v1/gateway", pair)


def test_expired_client_certificate_is_rejected(tmp_path):
    now = dt.datetime.now(dt.UTC)
    # The CA is valid throughout: only the client certificate has expired.
    authority = CertificateAuthority(at=now - dt.timedelta(days=10))
    bundle = CertificateBundle(
        ca=authority.certificate, server=authority.issue_server([LOOPBACK]), client=authority.issue_client()
    )
    authority._not_after = now - dt.timedelta(minutes=1)
    ended = authority.issue_client()
    server = GatewayApiServer(tmp_path, bundle)
    try:
        server.wait_ready()
        assert server.get("/v1/gateway", bundle.client)[0] == 200
        with pytest.raises(REFUSED):
            server.get("/v1/gateway", ended)
    finally:
        server.stop()


def test_server_certificate_is_rejected_as_client(api_server, bundle):
    with pytest.raises(REFUSED):
        api_server.get("/v1/gateway", bundle.server)


def test_old_tls_versions_are_rejected(api_server, bundle):
    with pytest.raises((ssl.SSLError, ConnectionError)):
        api_server.get("/v1/gateway", bundle.client, maximum_version=ssl.TLSVersion.TLSv1_2)


def test_renewed_ca_is_loaded_and_old_clients_disconnected(tmp_path):
    old, new = new_bundle(), new_bundle()
    server = GatewayApiServer(tmp_path, old)
    try:
        server.wait_ready()
        kept = server.connect(old.client)
        kept.request("GET", "/v1/gateway")
        assert kept.getresponse().read()
        session = kept.sock.session
        server.install_bundle(new)

        def new_ones_get_in():
            try:
                assert server.get("/v1/gateway", new.client, new.ca)[0] == 200
            except ssl.SSLError as error:
                raise AssertionError(error) from error

        SOON.call(new_ones_get_in)
        with pytest.raises(REFUSED):
            server.get("/v1/gateway", old.client, new.ca)
        # The old connection is aborted, and no TLS session can be resumed.
        with pytest.raises(REFUSED):
            ask_again(kept)
        assert session is None or not session.has_ticket
    finally:
        server.stop()


def test_inconsistent_files_keep_old_certificates(tmp_path):
    bundle = new_bundle()
    server = GatewayApiServer(tmp_path, bundle)
    try:
        server.wait_ready()
        (tmp_path / "ca").write_bytes(b"rubbish")

        def it_was_noticed():
            assert "the previous certificates stay in use" in server.log.read_text()

        SOON.call(it_was_noticed)
        assert server.get("/v1/gateway", bundle.client)[0] == 200
    finally:
        server.stop()


def test_rate_limited_client_gets_retry_after(tmp_path):
    bundle = new_bundle()
    server = GatewayApiServer(tmp_path, bundle, **{"requests-per-second": "0.5"})
    try:
        server.wait_ready()
        assert server.get("/v1/gateway", bundle.client)[0] == 200
        connection = server.connect(bundle.client)
        connection.request("GET", "/v1/gateway")
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Retry-After")) == (429, "2")
    finally:
        server.stop()


def test_unusable_file_is_reported_in_one_line(api_server):
    missing = subprocess.run(
        api_server.argv(certificate="/nowhere/tls.crt"), capture_output=True, text=True, check=False
    )
    assert (missing.returncode, missing.stdout) == (3, "")
    assert "certificates: unusable" in missing.stderr
    assert "Traceback" not in missing.stderr


def test_taken_port_is_reported_in_one_line(api_server):
    (other,) = free_ports(1)
    taken = subprocess.run(
        api_server.argv(**{"health-port": str(other)}), capture_output=True, text=True, check=False
    )
    assert taken.returncode == 3
    assert f"port {api_server.port}: cannot listen on it" in taken.stderr
    assert "Traceback" not in taken.stderr


def test_sigterm_shuts_down_cleanly(api_server):
    """Last in this file: it stops the shared server."""
    api_server.process.send_signal(signal.SIGTERM)
    assert api_server.process.wait(30) == 0
