"""The registry files of containerd and kubelet: order of mirrors, certificates and logins."""

import base64
import json
import tomllib
from pathlib import Path

import pytest

from holdfast.errors import InvalidSettingError
from holdfast.gateway.registries import (
    EMPTY_AUTH_FILE,
    RegistrySources,
    read_registry_sources,
    render_registry_files,
)
from holdfast.gateway.settings import RegistrySettings
from holdfast.workflow import Secret

DIRECTORY = "/state/registries"
PEM = b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"


def files(registries, **more):
    return render_registry_files(RegistrySources(registries=registries, **more), DIRECTORY)


def hosts(registries, host, **more):
    return tomllib.loads(files(registries, **more).hosts[f"{host}/hosts.toml"].decode())


def test_no_settings_write_no_files():
    rendered = files(RegistrySettings())
    assert rendered.hosts == {}
    assert rendered.auth_file == EMPTY_AUTH_FILE


def test_mirrors_precede_registry_in_order():
    mirrors = {"docker.io": ("https://one.example.org", "http://two.example.org:5000")}
    rendered = hosts(RegistrySettings(mirrors=mirrors), "docker.io")
    assert rendered["server"] == "https://registry-1.docker.io"
    assert list(rendered["host"]) == [*mirrors["docker.io"], "https://registry-1.docker.io"]


def test_mirror_ca_and_login_use_mirror_host():
    login = Secret("x", "user:pass:word")
    registries = RegistrySettings(
        mirrors={"docker.io": ("https://one.example.org:5000",)},
        ca_files={"one.example.org:5000": "/ca.pem"},
        credentials={"one.example.org:5000": "env:X"},
    )
    more = {"logins": {"one.example.org:5000": login}, "ca_certificates": {"one.example.org:5000": PEM}}
    table = hosts(registries, "docker.io", **more)["host"]["https://one.example.org:5000"]
    assert table["ca"] == f"{DIRECTORY}/one.example.org:5000/ca.crt"
    assert base64.b64decode(table["header"]["Authorization"].removeprefix("Basic ")) == b"user:pass:word"
    registry = hosts(registries, "docker.io", **more)["host"]["https://registry-1.docker.io"]
    assert "header" not in registry
    assert files(registries, **more).hosts["one.example.org:5000/ca.crt"] == PEM


def test_mirror_with_any_character_is_valid_toml():
    mirror = "https://mirror.example.org/\N{SPOOL OF THREAD}\u00e4"
    assert mirror in hosts(RegistrySettings(mirrors={"docker.io": (mirror,)}), "docker.io")["host"]


def test_insecure_registry_tries_tls_first():
    rendered = hosts(RegistrySettings(insecure=("lan:5000",)), "lan:5000")
    assert rendered["server"] == "http://lan:5000"
    assert list(rendered["host"]) == ["https://lan:5000", "http://lan:5000"]
    assert rendered["host"]["https://lan:5000"]["skip_verify"] is True


def test_kubelet_uses_legacy_docker_hub_name():
    credentials = {"docker.io": "env:X", "example.org": "env:X"}
    logins = {host: Secret("x", "u:p") for host in credentials}
    rendered = files(RegistrySettings(credentials=credentials), logins=logins)
    assert list(json.loads(rendered.auth_file)["auths"]) == ["https://index.docker.io/v1/", "example.org"]
    assert "u:p" not in repr(rendered)
    assert base64.b64encode(b"u:p").decode() not in repr(rendered)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"nothing", "no PEM certificate"),
        (PEM + b" " * (1 << 20), "larger than 1048576 bytes"),
        (PEM + b"-----BEGIN PRIVATE KEY-----\n", "private key"),
    ],
)
def test_invalid_ca_file_is_named(tmp_path, content, reason):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidSettingError, match=reason) as caught:
        read_registry_sources(RegistrySettings(ca_files={"example.org": str(path)}))
    assert "example.org" in caught.value.message


def test_login_file_larger_than_the_limit_is_not_truncated(tmp_path):
    path = tmp_path / "login"
    path.touch(mode=0o600)
    path.write_text("user:" + "x" * (16 * 1024))
    with pytest.raises(InvalidSettingError, match="larger than 16384 bytes"):
        read_registry_sources(RegistrySettings(credentials={"example.org": f"file:{path}"}))


def test_mode_of_the_opened_login_file_decides(tmp_path, monkeypatch):
    """The file is replaced by one that other users can read, just before it is opened."""
    path, other, open_path = tmp_path / "login", tmp_path / "other", Path.open
    path.touch(mode=0o600)
    other.write_text("user:password")
    other.chmod(0o644)

    def replace_and_open(self, mode):
        other.replace(path)
        return open_path(self, mode)

    monkeypatch.setattr(Path, "open", replace_and_open)
    with pytest.raises(InvalidSettingError, match=r"other users can read the file \(mode 0644\)"):
        read_registry_sources(RegistrySettings(credentials={"example.org": f"file:{path}"}))
