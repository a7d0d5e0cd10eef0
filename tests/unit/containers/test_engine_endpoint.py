"""Which engine is meant: DOCKER_HOST, a Docker context, with their TLS material."""

import hashlib
import json

import pytest

from holdfast.containers.engine import engine_endpoint
from holdfast.errors import UsageError


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


def pems(folder):
    folder.mkdir(parents=True)
    for name in ("ca", "cert", "key"):
        (folder / f"{name}.pem").write_text("x")
    return folder


def context(folder, name, host):
    """A context as `docker context create` writes it."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    meta = folder / "contexts" / "meta" / digest
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(
        json.dumps(
            {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False}}}
        )
    )
    return folder / "contexts" / "tls" / digest / "docker"


def test_the_default_socket():
    assert engine_endpoint().address == "unix:///var/run/docker.sock"


def test_docker_host_with_certificates(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", "tcp://far:2376")
    assert engine_endpoint().tls is None
    monkeypatch.setenv("DOCKER_CERT_PATH", str(pems(tmp_path / "certs")))
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    found = engine_endpoint()
    assert found.address == "tcp://far:2376"
    assert found.tls.ca_cert == str(tmp_path / "certs" / "ca.pem")
    assert found.tls.verify


def test_certificates_that_are_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", "tcp://far:2376")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="DOCKER_CERT_PATH"):
        engine_endpoint()


def test_a_context_brings_its_certificates(monkeypatch, tmp_path):
    pems(context(tmp_path / "docker", "lab", "tcp://lab:2376"))
    (tmp_path / "docker" / "config.json").write_text("{}")
    monkeypatch.setenv("DOCKER_CONTEXT", "lab")
    found = engine_endpoint()
    assert found.address == "tcp://lab:2376"
    assert found.tls.cert[0].endswith("cert.pem")
    assert found.tls.verify


def test_an_unknown_context_is_named(monkeypatch):
    monkeypatch.setenv("DOCKER_CONTEXT", "ghost")
    with pytest.raises(UsageError, match="ghost"):
        engine_endpoint()


def test_a_context_by_ssh(monkeypatch, tmp_path):
    context(tmp_path / "docker", "far", "ssh://me@far")
    (tmp_path / "docker" / "config.json").write_text('{"currentContext": "far"}')
    assert engine_endpoint().address == "ssh://me@far"
