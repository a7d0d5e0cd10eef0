"""Registry settings as the files of containerd and kubelet: who is asked, in which order, with what."""

import base64
import json
import tomllib

import pytest

from holdfast.engine.secret import Secret
from holdfast.errors import BadSettingError
from holdfast.gateway.registries import NO_LOGINS, Sources, node_files
from holdfast.gateway.registries_sources import read_sources
from holdfast.gateway.settings_model import Registries

FOLDER = "/state/registries"
PEM = b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"


def files(registries, **more):
    return node_files(Sources(registries=registries, **more), FOLDER)


def hosts(registries, host, **more):
    return tomllib.loads(files(registries, **more).hosts[f"{host}/hosts.toml"].decode())


def test_nothing_is_asked_for():
    made = files(Registries())
    assert made.hosts == {}
    assert made.logins == NO_LOGINS


def test_mirrors_come_first_in_their_order_and_the_registry_last():
    mirrors = {"docker.io": ("https://one.example.org", "http://two.example.org:5000")}
    made = hosts(Registries(mirrors=mirrors), "docker.io")
    assert made["server"] == "https://registry-1.docker.io"
    assert list(made["host"]) == [*mirrors["docker.io"], "https://registry-1.docker.io"]


def test_ca_and_login_of_a_mirror_are_looked_up_by_its_own_host():
    login = Secret("x", "user:pass:word")
    registries = Registries(
        mirrors={"docker.io": ("https://one.example.org:5000",)},
        ca_files={"one.example.org:5000": "/ca.pem"},
        credentials={"one.example.org:5000": "env:X"},
    )
    more = {"logins": {"one.example.org:5000": login}, "authorities": {"one.example.org:5000": PEM}}
    table = hosts(registries, "docker.io", **more)["host"]["https://one.example.org:5000"]
    assert table["ca"] == f"{FOLDER}/one.example.org:5000/ca.crt"
    assert base64.b64decode(table["header"]["Authorization"].removeprefix("Basic ")) == b"user:pass:word"
    own = hosts(registries, "docker.io", **more)["host"]["https://registry-1.docker.io"]
    assert "header" not in own
    assert files(registries, **more).hosts["one.example.org:5000/ca.crt"] == PEM


def test_an_insecure_registry_is_asked_with_tls_first_and_without_last():
    made = hosts(Registries(insecure=("lan:5000",)), "lan:5000")
    assert made["server"] == "http://lan:5000"
    assert list(made["host"]) == ["https://lan:5000", "http://lan:5000"]
    assert made["host"]["https://lan:5000"]["skip_verify"] is True


def test_the_kubelet_knows_docker_hub_by_its_old_name():
    credentials = {"docker.io": "env:X", "example.org": "env:X"}
    logins = {host: Secret("x", "u:p") for host in credentials}
    made = files(Registries(credentials=credentials), logins=logins)
    assert list(json.loads(made.logins)["auths"]) == ["https://index.docker.io/v1/", "example.org"]
    assert "u:p" not in repr(made)
    assert base64.b64encode(b"u:p").decode() not in repr(made)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        (b"nothing", "no PEM certificate"),
        (PEM + b"-----BEGIN PRIVATE KEY-----\n", "private key"),
    ],
)
def test_a_ca_file_that_is_none_is_named(tmp_path, content, why):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadSettingError, match=why) as caught:
        read_sources(Registries(ca_files={"example.org": str(path)}))
    assert "example.org" in caught.value.message
