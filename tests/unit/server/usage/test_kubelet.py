"""The kubelet's client against a real HTTPS server with certificates of a CA, on loopback."""

import asyncio
import datetime as dt
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast.errors import ApiRefusedError, TemporaryError, UnreadableResponseError
from holdfast.pki import issue_bundle
from holdfast.server.usage import Kubelet

LOOPBACK = "127.0.0.1"
SUMMARY = {"node": {"nodeName": "n"}, "pods": []}


class StatisticsServer(ThreadingHTTPServer):
    """Answers `/stats/summary` like a kubelet; `answer` is status and body."""

    def __init__(self, folder, names):
        self.received, self.answer = [], (200, json.dumps(SUMMARY))
        super().__init__((LOOPBACK, 0), _Handler)
        bundle = issue_bundle(names, at=dt.datetime.now(dt.UTC))
        (folder / "pair").write_bytes(bundle.server.certificate + b"\n" + bundle.server.key)
        (folder / "ca.crt").write_bytes(bundle.ca)
        (folder / "token").write_text("the-token\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "pair")
        self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.received.append((self.path, self.headers["Authorization"]))
        status, body = self.server.answer
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def start(tmp_path):
    servers = []

    def run(names=(LOOPBACK,)):
        folder = tmp_path / str(len(servers))
        folder.mkdir()
        servers.append(StatisticsServer(folder, list(names)))
        server = servers[-1]
        return server, Kubelet("n", LOOPBACK, port=server.server_port, credentials=folder)

    yield run
    for server in servers:
        server.shutdown()
        server.server_close()


def read(kubelet):
    return asyncio.run(kubelet.read_summary())


def test_summary_is_read_in_one_request_with_the_token(start):
    server, kubelet = start()
    assert read(kubelet) == SUMMARY
    assert server.received == [("/stats/summary", "Bearer the-token")]


def test_large_summary_is_read_completely(start):
    server, kubelet = start()
    pods = [{"podRef": {"name": f"p{number}", "uid": "x" * 500}} for number in range(4000)]
    server.answer = (200, json.dumps({**SUMMARY, "pods": pods}))
    assert len(read(kubelet)["pods"]) == 4000


def test_token_is_sent_to_no_server_with_another_certificate(start):
    """The address belongs to the node, but another program may answer there."""
    other, _ = start()
    _, kubelet = start()
    impostor = Kubelet("n", LOOPBACK, port=other.server_port, credentials=kubelet._credentials)
    with pytest.raises(ApiRefusedError, match="certificate is not valid"):
        read(impostor)
    assert other.received == []


def test_certificate_of_another_address_is_rejected(start):
    server, kubelet = start(["other.test"])
    with pytest.raises(ApiRefusedError, match="certificate is not valid"):
        read(kubelet)
    assert server.received == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((403, "Forbidden (verb=get, resource=nodes, subresource=stats)"), ApiRefusedError),
        ((401, "Unauthorized"), ApiRefusedError),
        ((500, "down"), UnreadableResponseError),
        ((200, "not json"), UnreadableResponseError),
        ((200, "[]"), UnreadableResponseError),
    ],
)
def test_other_answers_are_errors_that_name_the_node(start, answer, error):
    server, kubelet = start()
    server.answer = answer
    with pytest.raises(error, match="kubelet of node n"):
        read(kubelet)


def test_unreachable_kubelet_is_a_temporary_error(start):
    server, kubelet = start()
    server.shutdown()
    server.server_close()
    with pytest.raises(TemporaryError, match="does not answer"):
        read(kubelet)
