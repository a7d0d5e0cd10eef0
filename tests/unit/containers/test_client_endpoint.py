"""The engine's endpoint: DOCKER_HOST or a Docker context, with TLS files."""

import hashlib
import json

import pytest

from holdfast.containers.client import engine_endpoint
from holdfast.errors import UsageError


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path):
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


def write_pem_files(directory):
    directory.mkdir(parents=True)
    for name in ("ca", "cert", "key"):
        (directory / f"{name}.pem").write_text("x")
    return directory


def write_context(directory, name, host):
    """Write a context like `docker context create`; return its TLS directory."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    meta = directory / "contexts" / "meta" / digest
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(
        json.dumps(
            {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False}}}
        )
    )
    return directory / "contexts" / "tls" / digest / "docker"


def test_default_socket():
    assert engine_endpoint().address == "unix:///var/run/docker.sock"


def test_docker_host_with_certificates(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", "tcp://far:2376")
    assert engine_endpoint().tls is None
    monkeypatch.setenv("DOCKER_CERT_PATH", str(write_pem_files(tmp_path / "certs")))
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    endpoint = engine_endpoint()
    assert endpoint.address == "tcp://far:2376"
    assert endpoint.tls.ca_cert == str(tmp_path / "certs" / "ca.pem")
    assert endpoint.tls.verify


def test_missing_certificates(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", "tcp://far:2376")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="DOCKER_CERT_PATH"):
        engine_endpoint()


def test_context_provides_certificates(monkeypatch, tmp_path):
    write_pem_files(write_context(tmp_path / "docker", "lab", "tcp://lab:2376"))
    (tmp_path / "docker" / "config.json").write_text("{}")
    monkeypatch.setenv("DOCKER_CONTEXT", "lab")
    endpoint = engine_endpoint()
    assert endpoint.address == "tcp://lab:2376"
    assert endpoint.tls.cert[0].endswith("cert.pem")
    assert endpoint.tls.verify


def test_unknown_context_is_named(monkeypatch):
    monkeypatch.setenv("DOCKER_CONTEXT", "ghost")
    with pytest.raises(UsageError, match="ghost"):
        engine_endpoint()


def test_ssh_context(monkeypatch, tmp_path):
    write_context(tmp_path / "docker", "far", "ssh://me@far")
    (tmp_path / "docker" / "config.json").write_text('{"currentContext": "far"}')
    assert engine_endpoint().address == "ssh://me@far"
