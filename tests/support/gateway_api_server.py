"""The gateway's API as a real process on loopback, and a client with its own certificates."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import subprocess
import sys
from pathlib import Path

from holdfast.retry import Policy, constant

LOOPBACK = "127.0.0.1"
UNREACHABLE_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: n, cluster: {server: "https://127.0.0.1:9"}}]
users: [{name: n, user: {token: none}}]
contexts: [{name: n, context: {cluster: n, user: n}}]
current-context: n
"""


def free_ports(count):
    listeners = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


class GatewayApiServer:
    """A server with the certificates of one bundle; without a kubeconfig its cluster is unreachable."""

    def __init__(self, folder: Path, bundle, *, kubeconfig: Path | None = None, **options: str) -> None:
        self.folder, self.bundle, self.options = folder, bundle, options
        self.port, self.health_port = free_ports(2)
        if kubeconfig is None:
            kubeconfig = folder / "kubeconfig"
            kubeconfig.write_text(UNREACHABLE_KUBECONFIG)
        self.kubeconfig = kubeconfig
        self.log = folder / "log"
        self.install_bundle(bundle)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(self.argv(), stderr=log, stdout=log)
        self.url = f"https://{LOOPBACK}:{self.port}"

    def install_bundle(self, bundle) -> None:
        """Replace the certificate files atomically, as a Secret volume does."""
        for name, content in {
            "crt": bundle.server.certificate,
            "key": bundle.server.key,
            "ca": bundle.ca,
        }.items():
            fresh = self.folder / f"{name}.new"
            fresh.write_bytes(content)
            fresh.rename(self.folder / name)

    def argv(self, **changes: str) -> list[str]:
        files = {"certificate": "crt", "key": "key", "client-ca": "ca"}
        words = {name: str(self.folder / file) for name, file in files.items()}
        words |= {
            "name": "dev", "host": LOOPBACK, "port": str(self.port), "health-port": str(self.health_port),
            "kubeconfig": str(self.kubeconfig), **self.options,
        }  # fmt: skip
        options = [word for name, value in {**words, **changes}.items() for word in (f"--{name}", value)]
        return [str(Path(sys.executable).parent / "holdfast"), "server", "run", *options]

    def wait_ready(self) -> GatewayApiServer:
        up = Policy(attempts=None, deadline=90, backoff=constant(0.05), retry_on=OSError)
        up.call(self.health)
        return self

    def health(self, path: str = "/healthz") -> int:
        connection = http.client.HTTPConnection(LOOPBACK, self.health_port, timeout=5)
        connection.request("GET", path)
        return connection.getresponse().status

    def context(self, pair=None, ca: bytes | None = None, **settings) -> ssl.SSLContext:
        verified = ssl.create_default_context(cadata=(ca or self.bundle.ca).decode())
        for name, value in settings.items():
            setattr(verified, name, value)
        if pair is not None:
            file = self.folder / "client"
            file.write_bytes(pair.certificate + b"\n" + pair.key)
            verified.load_cert_chain(file)
        return verified

    def connect(self, pair=None, ca: bytes | None = None, **settings) -> http.client.HTTPSConnection:
        context = self.context(pair, ca, **settings)
        return http.client.HTTPSConnection(LOOPBACK, self.port, timeout=30, context=context)

    def request_json(self, method: str, path: str, body=None, pair=None) -> tuple[int, object]:
        """One request as this bundle's client: the status, and the JSON of the answer."""
        connection = self.connect(pair or self.bundle.client)
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, json.loads(content)

    def get(self, path: str, pair=None, ca: bytes | None = None, **settings) -> tuple[int, object]:
        connection = self.connect(pair, ca, **settings)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
