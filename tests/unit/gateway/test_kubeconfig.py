"""The host's kubeconfig: pointed at the published port, merged without touching foreign entries."""

import stat

import pytest
import yaml

from holdfast.errors import DamagedFileError, TemporaryError
from holdfast.gateway import kubeconfig

NODE = yaml.safe_dump(
    {
        "clusters": [
            {
                "name": "n",
                "cluster": {"server": "https://127.0.0.1:6443", "certificate-authority-data": "Y2E="},
            }
        ],
        "users": [{"name": "n", "user": {"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"}}],
        "contexts": [],
    }
).encode()


def test_the_hosts_kubeconfig_has_the_published_port_and_the_gateways_name():
    made = yaml.safe_load(kubeconfig.for_host(NODE, name="dev", server="https://127.0.0.1:26443"))
    assert made["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:26443"
    assert made["current-context"] == "holdfast-dev"
    assert {made[part][0]["name"] for part in ("clusters", "users", "contexts")} == {"holdfast-dev"}


def test_its_credentials_can_be_read_back():
    found = kubeconfig.credentials(kubeconfig.for_host(NODE, name="dev", server="https://h:1"))
    assert (found.ca, found.certificate, found.key) == (b"ca", b"cert", b"key")
    assert found.server == "https://h:1"


@pytest.mark.parametrize("content", [b"", b"[]", b"clusters: []", b"\xff\xfe", b"{"])
def test_a_half_written_node_kubeconfig_is_a_passing_state(content):
    with pytest.raises(TemporaryError):
        kubeconfig.for_host(content, name="dev", server="https://h:1")


def test_merging_keeps_every_foreign_entry(tmp_path):
    target = tmp_path / "config"
    theirs = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "work", "cluster": {"server": "https://work"}}],
        "users": [{"name": "work", "user": {"token": "t"}}],
        "contexts": [{"name": "work", "context": {"cluster": "work", "user": "work"}}],
        "current-context": "work",
        "preferences": {"colors": True},
    }
    target.write_text(yaml.safe_dump(theirs))
    ours = kubeconfig.for_host(NODE, name="dev", server="https://h:1")
    kubeconfig.merge_into(target, ours, name="dev")
    kubeconfig.merge_into(target, ours, name="dev")
    merged = yaml.safe_load(target.read_text())
    assert [entry["name"] for entry in merged["clusters"]] == ["work", "holdfast-dev"]
    assert merged["users"][0] == theirs["users"][0]
    assert merged["preferences"] == {"colors": True}
    assert merged["current-context"] == "holdfast-dev"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert kubeconfig.remove_from(target, name="dev")
    assert [entry["name"] for entry in yaml.safe_load(target.read_text())["clusters"]] == ["work"]


def test_a_file_that_is_no_kubeconfig_is_left_as_it_is(tmp_path):
    target = tmp_path / "config"
    target.write_text("- not\n- a kubeconfig\n")
    with pytest.raises(DamagedFileError):
        kubeconfig.merge_into(target, kubeconfig.for_host(NODE, name="d", server="https://h"), name="d")
    assert target.read_text() == "- not\n- a kubeconfig\n"


def test_the_file_to_merge_into_is_the_one_that_kubectl_reads(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")
    assert kubeconfig.default_target() == tmp_path / "a"
