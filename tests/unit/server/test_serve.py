"""The gateway's own API as a real process on loopback: mutual TLS or nothing, and health beside it."""

from __future__ import annotations

import datetime as dt
import http.client
import signal
import ssl
import subprocess

import pytest
from tests.support.api_servers import LOOPBACK, ApiServer, free_ports

from holdfast import __version__
from holdfast.pki import Authority, Bundle, issue
from holdfast.retry import Policy, constant

REFUSED = (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)
SOON = Policy(attempts=None, deadline=30, backoff=constant(0.1), retry_on=AssertionError)


def new_bundle():
    return issue(["localhost", LOOPBACK], at=dt.datetime.now(dt.UTC))


@pytest.fixture(scope="module")
def bundle():
    return new_bundle()


@pytest.fixture(scope="module")
def running(tmp_path_factory, bundle):
    made = ApiServer(tmp_path_factory.mktemp("server"), bundle)
    try:
        yield made.wait()
    finally:
        made.stop()


def ask_again(connection):
    connection.request("GET", "/v1/gateway")
    return connection.getresponse()


def test_health_says_ok_in_plain_text_and_nothing_else(running):
    assert (running.health(), running.health("/v1/gateway")) == (200, 404)


def test_a_client_of_this_gateway_learns_which_one_it_is(running, bundle):
    assert running.get("/v1/gateway", bundle.client) == (200, {"name": "dev", "version": __version__})


def test_the_api_describes_itself(running, bundle):
    status, document = running.get("/schema/openapi.json", bundle.client)
    assert status == 200
    assert {"/v1/gateway", "/v1/sandboxes", "/v1/sandboxes/{name}/files"} <= set(document["paths"])
    assert document["components"]["schemas"]["SandboxRequest"]["additionalProperties"] is False


def test_every_refusal_is_one_line_of_json_with_a_code(running, bundle):
    for path, expected in {
        "/nothing": (404, "not-found"),
        "/v1/sandboxes?limit=0": (400, "bad-request"),
    }.items():
        status, problem = running.get(path, bundle.client)
        assert (status, problem["code"]) == expected
        assert "\n" not in problem["message"]


def test_a_cluster_that_does_not_answer_is_a_temporary_problem(running, bundle):
    connection = running.connect(bundle.client)
    connection.request("GET", "/v1/sandboxes/a")
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("Retry-After")) == (503, "1")
    assert b"Traceback" not in answer.read()


def test_nobody_without_a_certificate_of_this_ca_gets_in(running):
    for pair in (None, new_bundle().client):
        with pytest.raises(REFUSED):
            running.get("/v1/gateway", pair)


def test_an_expired_client_of_the_same_ca_does_not_get_in(tmp_path):
    now = dt.datetime.now(dt.UTC)
    # The CA lives long, before and after: what is refused is the end of the client's own certificate.
    authority = Authority(at=now - dt.timedelta(days=10))
    bundle = Bundle(ca=authority.certificate, server=authority.server([LOOPBACK]), client=authority.client())
    authority._end = now - dt.timedelta(minutes=1)
    ended = authority.client()
    server = ApiServer(tmp_path, bundle)
    try:
        server.wait()
        assert server.get("/v1/gateway", bundle.client)[0] == 200
        with pytest.raises(REFUSED):
            server.get("/v1/gateway", ended)
    finally:
        server.stop()


def test_the_certificate_of_a_server_is_none_of_a_client(running, bundle):
    with pytest.raises(REFUSED):
        running.get("/v1/gateway", bundle.server)


def test_older_tls_is_refused(running, bundle):
    with pytest.raises((ssl.SSLError, ConnectionError)):
        running.get("/v1/gateway", bundle.client, maximum_version=ssl.TLSVersion.TLSv1_2)


def test_a_renewed_ca_is_taken_up_and_who_came_in_under_the_old_one_is_cut(tmp_path):
    old, new = new_bundle(), new_bundle()
    server = ApiServer(tmp_path, old)
    try:
        server.wait()
        kept = server.connect(old.client)
        kept.request("GET", "/v1/gateway")
        assert kept.getresponse().read()
        session = kept.sock.session
        server.use(new)

        def new_ones_get_in():
            try:
                assert server.get("/v1/gateway", new.client, new.ca)[0] == 200
            except ssl.SSLError as error:
                raise AssertionError(error) from error

        SOON.call(new_ones_get_in)
        with pytest.raises(REFUSED):
            server.get("/v1/gateway", old.client, new.ca)
        # The connection from before is cut, and there is no session to come back with.
        with pytest.raises(REFUSED):
            ask_again(kept)
        assert session is None or not session.has_ticket
    finally:
        server.stop()


def test_files_that_do_not_fit_together_leave_the_old_ones_in_use(tmp_path):
    bundle = new_bundle()
    server = ApiServer(tmp_path, bundle)
    try:
        server.wait()
        (tmp_path / "ca").write_bytes(b"rubbish")

        def it_was_noticed():
            assert "the former ones stay in use" in server.log.read_text()

        SOON.call(it_was_noticed)
        assert server.get("/v1/gateway", bundle.client)[0] == 200
    finally:
        server.stop()


def test_a_client_that_asks_too_much_is_told_when_to_come_back(tmp_path):
    bundle = new_bundle()
    server = ApiServer(tmp_path, bundle, **{"requests-per-second": "0.5"})
    try:
        server.wait()
        assert server.get("/v1/gateway", bundle.client)[0] == 200
        connection = server.connect(bundle.client)
        connection.request("GET", "/v1/gateway")
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Retry-After")) == (429, "2")
    finally:
        server.stop()


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
