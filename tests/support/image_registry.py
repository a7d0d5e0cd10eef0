"""A real registry for tests (Debian's docker-registry): with a login, TLS, or tokens as Docker Hub has them.

Several may serve one folder, so that a test fills it through one without a login and pulls through another.
"""

from __future__ import annotations

import base64
import datetime as dt
import http.client
import json
import shutil
import socket
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from holdfast.pki import CertificateAuthority, KeyPair
from holdfast.retry import Policy, constant
from holdfast.testing.apiserver.processes import ChildProcess

if TYPE_CHECKING:
    from pathlib import Path

USER = "pu"
PASSWORD = "pl4nted-Secret-word"
LOGIN = f"{USER}:{PASSWORD}"
_BCRYPT_OF_PASSWORD = "$2y$05$0GUSI7sJkZY7AHmw6JBxx.eh5IvpZqfpz7enX.bQgRgx7xBJHZ.n6"
_REACHABLE_STATUSES = (200, 401)
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


class ImageRegistry:
    """`with Registry(folder, "127.0.0.1") as registry:`; `registry.host` is what image names begin with."""

    def __init__(
        self,
        folder: Path,
        address: str,
        *,
        login: bool = False,
        pair: KeyPair | None = None,
        tokens: TokenServer | None = None,
    ) -> None:
        self.host = f"{address}:{free_port(address)}"
        self._directory = folder / f"registry-{uuid.uuid4().hex[:6]}"
        self._directory.mkdir()
        self._pair = pair
        config = self._directory / "config.yml"
        config.write_text(json.dumps(self._config(folder / "images", login=login, tokens=tokens)))
        self.log = self._directory / "log"

    def __enter__(self) -> Self:
        if shutil.which("docker-registry") is None:
            pytest.fail("docker-registry is not installed (apt-get install docker-registry)")
        argv = ["/usr/bin/docker-registry", "serve", self._directory / "config.yml"]
        self._child = ChildProcess("docker-registry", argv, log=self.log)
        answers = Policy(attempts=None, deadline=20.0, backoff=constant(0.1), retry_on=OSError)
        answers.call(self._check_reachable)
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()

    def manifest(self, name: str, tag: str) -> dict:
        """What the registry has under a tag; for one without TLS and login."""
        connection = http.client.HTTPConnection(self.host, timeout=10)
        connection.request("GET", f"/v2/{name}/manifests/{tag}", headers={"Accept": _MANIFEST})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        return json.loads(answer.read())

    def _check_reachable(self) -> None:
        if self._pair is not None:
            socket.create_connection(self.host.split(":"), timeout=2).close()
            return
        connection = http.client.HTTPConnection(self.host, timeout=2)
        connection.request("GET", "/v2/")
        assert connection.getresponse().status in _REACHABLE_STATUSES

    def _config(self, images: Path, *, login: bool, tokens: TokenServer | None) -> dict:
        config: dict = {
            "version": 0.1,
            "log": {"level": "info", "accesslog": {"disabled": False}},
            "storage": {"filesystem": {"rootdirectory": str(images)}},
            "http": {"addr": self.host},
        }
        if login:
            file = self._directory / "htpasswd"
            file.write_text(f"{USER}:{_BCRYPT_OF_PASSWORD}\n")
            config["auth"] = {"htpasswd": {"realm": "test", "path": str(file)}}
        if tokens is not None:
            config["auth"] = {"token": tokens.settings}
        if self._pair is not None:
            certificate, key = self._directory / "server.crt", self._directory / "server.key"
            certificate.write_bytes(self._pair.certificate)
            key.write_bytes(self._pair.key)
            config["http"]["tls"] = {"certificate": str(certificate), "key": str(key)}
        return config


class TokenServer:
    """Issues signed tokens to clients with the login, as Docker Hub's token service does."""

    def __init__(self, folder: Path, address: str) -> None:
        authority = CertificateAuthority(at=dt.datetime.now(dt.UTC))
        self._pair = authority.issue_server(["tokens"])
        roots = folder / "token-roots.pem"
        roots.write_bytes(authority.certificate)
        self._server = ThreadingHTTPServer((address, 0), self._handler())
        self.requests: list[str] = []
        self.settings = {
            "realm": f"http://{address}:{self._server.server_address[1]}/token",
            "service": "test",
            "issuer": "test",
            "rootcertbundle": str(roots),
        }

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = self.headers.get("Authorization") == basic_auth_header(LOGIN)
                outer.requests.append("login" if known else "anonymous")
                scopes = parse_qs(urlsplit(self.path).query).get("scope", [])
                body = json.dumps({"token": outer.token(scopes if known else [])}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                """The newer token request; clients use the older one after this response."""
                self.send_error(405)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        return Handler

    def token(self, scopes: list[str]) -> str:
        """A JSON web token for scopes such as `repository:name:pull`."""
        now = int(time.time())
        access = [dict(zip(("type", "name", "actions"), scope.split(":"), strict=True)) for scope in scopes]
        for item in access:
            item["actions"] = item["actions"].split(",")
        certificate = x509.load_pem_x509_certificate(self._pair.certificate)
        der = certificate.public_bytes(serialization.Encoding.DER)
        head = {"typ": "JWT", "alg": "ES256", "x5c": [base64.b64encode(der).decode()]}
        claims = {
            "iss": "test", "sub": USER, "aud": "test", "exp": now + 300, "nbf": now - 30, "iat": now,
            "jti": uuid.uuid4().hex, "access": access,
        }  # fmt: skip
        signed = f"{_encode_json(head)}.{_encode_json(claims)}"
        key = serialization.load_pem_private_key(self._pair.key, None)
        r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_base64url(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def basic_auth_header(login: str) -> str:
    return "Basic " + base64.b64encode(login.encode()).decode()


def free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _encode_json(value: dict) -> str:
    return _base64url(json.dumps(value).encode())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
