"""Images are streamed into a command, which a stop ends; the engine adds frame headers to its output."""

import http.server
import json
import socketserver
import threading
from concurrent.futures import ThreadPoolExecutor

import docker
import pytest

from holdfast.containers import ContainerEngine, TransferProgress, transfer_images
from holdfast.containers.image_transfer import demultiplex_output
from holdfast.errors import OperationCancelledError


def frame(stream, content):
    return bytes([stream, 0, 0, 0]) + len(content).to_bytes(4, "big") + content


def test_stdout_and_stderr_keep_order_and_truncated_last_frame():
    output = frame(1, b"unpacking ") + frame(2, b"ctr: no\n")
    assert demultiplex_output(output) == "unpacking ctr: no\n"
    assert demultiplex_output(output[:-3]) == "unpacking ctr: "
    assert demultiplex_output(b"") == demultiplex_output(b"\x01\x00") == ""


class FakeEngineHandler(http.server.BaseHTTPRequestHandler):
    """Exports an image, and runs a command that reads its input and then works until it is disconnected."""

    def do_GET(self):
        if self.path.startswith("/v1.41/images/get?"):
            self.reply(b"image archive", missing=self.server.missing)
            if self.server.missing:
                self.server.is_waiting.set()
                assert self.server.ended.wait(30)
        else:
            assert self.path == "/v1.41/exec/e/json"
            self.reply(json.dumps({"ExitCode": None}).encode())

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/v1.41/containers/node/exec":
            self.reply(json.dumps({"Id": "e"}).encode())
            return
        assert self.path == "/v1.41/exec/e/start"
        self.close_connection = True
        self.send_response(101, "UPGRADED")
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", "tcp")
        self.end_headers()
        self.server.received.append(self.rfile.read())
        self.server.is_waiting.set()
        assert self.server.ended.wait(30)

    def reply(self, body, *, missing=0):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + missing))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass


class FakeEngineServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@pytest.fixture
def fake_engine(tmp_path):
    with FakeEngineServer(str(tmp_path / "docker.sock"), FakeEngineHandler) as server:
        server.received, server.is_waiting, server.ended = [], threading.Event(), threading.Event()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.ended.set()
        server.shutdown()


@pytest.mark.parametrize("missing", [0, 7], ids=["while importing", "while sending"])
def test_stop_ends_the_transfer(fake_engine, missing):
    fake_engine.missing = missing
    address = f"unix://{fake_engine.server_address}"
    engine = ContainerEngine(docker.APIClient(base_url=address, version="1.41"), address)
    stop, progress = threading.Event(), TransferProgress(13, lambda message, fraction: None)
    with ThreadPoolExecutor(1) as pool:
        transfer = pool.submit(
            transfer_images,
            engine,
            ["app:1"],
            engine,
            "node",
            ["ctr", "images", "import", "-"],
            progress=progress,
            read_timeout=30.0,
            stop=stop,
        )
        assert fake_engine.is_waiting.wait(30)
        stop.set()
        with pytest.raises(OperationCancelledError, match="the transfer was stopped"):
            transfer.result(20)
    if not missing:
        assert fake_engine.received == [b"image archive"]
