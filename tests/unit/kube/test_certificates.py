"""Keys that stand in a kubeconfig are on no disk, and are gone with their client."""

import asyncio
import gc
import os
import ssl
import tempfile
from pathlib import Path

import pytest
import yaml

from holdfast.errors import ArgumentError
from holdfast.kube import api_client, async_api_client
from holdfast.kube.reach import verified_context
from holdfast.testing.kubeconfigs import write_kubeconfig
from holdfast.testing.throwaway_pki import Authority

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no files in memory")


@pytest.fixture
def issued():
    return Authority("here").issue("somebody")


@pytest.fixture
def kubeconfig(tmp_path, issued):
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, url="https://127.0.0.1:1", authority=issued.certificate, client=issued)
    return path


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """Where temporary files would be."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def read(file):
    return Path(file).read_bytes()


def test_a_client_in_threads_reads_its_key_from_memory(kubeconfig, disk, issued):
    made = api_client(kubeconfig)
    assert read(made.configuration.key_file) == issued.key
    assert read(made.configuration.ssl_ca_cert) == issued.certificate
    assert list(disk.iterdir()) == []


def test_the_same_in_tasks(kubeconfig, disk, issued):
    async def main():
        async with await async_api_client(kubeconfig) as made:
            return read(made.configuration.key_file)

    assert asyncio.run(main()) == issued.key
    assert list(disk.iterdir()) == []


def test_what_is_held_goes_with_the_client(kubeconfig):
    made = api_client(kubeconfig)
    held = Path(made.configuration.key_file)
    assert held.exists()
    del made
    gc.collect()
    assert not held.exists()


def test_files_named_in_a_kubeconfig_are_found_beside_it(kubeconfig, issued, monkeypatch):
    content = yaml.safe_load(kubeconfig.read_text())
    user = content["users"][0]["user"]
    for name, data in (("client-key", issued.key), ("client-certificate", issued.certificate)):
        del user[f"{name}-data"]
        user[name] = f"{name}.pem"
        (kubeconfig.parent / f"{name}.pem").write_bytes(data)
    kubeconfig.write_text(yaml.safe_dump(content))
    monkeypatch.chdir(kubeconfig.parent)
    made = api_client(kubeconfig.name)
    assert made.configuration.key_file == str(kubeconfig.parent / "client-key.pem")


def changed(kubeconfig, change):
    content = yaml.safe_load(kubeconfig.read_text())
    change(content)
    kubeconfig.write_text(yaml.safe_dump(content))


def held():
    """How many files in memory this process has open."""
    gc.collect()
    names = (each.readlink().name for each in Path("/proc/self/fd").iterdir() if each.is_symlink())
    return sum("memfd:certificate" in name for name in names)


def test_a_broken_user_of_another_context_does_not_matter(kubeconfig, issued):
    broken = {"name": "other", "user": {"client-key-data": "%"}}
    changed(kubeconfig, lambda content: content["users"].insert(0, broken))
    before = held()
    made = api_client(kubeconfig)
    assert read(made.configuration.key_file) == issued.key
    assert held() - before == 2, "one for the key, one for the certificate, which is its own authority here"


def test_of_two_users_with_one_name_the_first_is_taken(kubeconfig, issued):
    again = {"name": "test", "user": {"token": "t"}}
    changed(kubeconfig, lambda content: content["users"].append(again))
    assert read(api_client(kubeconfig).configuration.key_file) == issued.key


def test_a_client_that_cannot_be_made_leaves_nothing_open(kubeconfig):
    before = held()
    changed(kubeconfig, lambda content: content["clusters"][0]["cluster"].update({"proxy-url": 5}))
    with pytest.raises(ArgumentError):
        api_client(kubeconfig)
    assert held() == before


def test_a_program_that_is_asked_for_a_token_can_read_what_it_is_told_of_the_cluster(kubeconfig, tmp_path):
    told = tmp_path / "told"
    status = '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t"}}'
    command = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", f"echo \"$KUBERNETES_EXEC_INFO\" > {told}; echo '{status}'"],
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    changed(kubeconfig, lambda content: content["users"][0].update(user={"exec": command}))
    made = api_client(kubeconfig)
    assert made.configuration.api_key["BearerToken"] == "Bearer t"
    assert "certificate-authority-data" in told.read_text()


def test_an_unknown_context_is_told_and_leaves_nothing_open(kubeconfig):
    before = held()
    with pytest.raises(ArgumentError, match="nowhere"):
        api_client(kubeconfig, context="nowhere")
    assert held() == before


def test_a_pair_that_is_read_once_is_on_no_disk(disk, issued, monkeypatch):
    seen = []
    monkeypatch.setattr(
        ssl.SSLContext,
        "load_cert_chain",
        lambda _, file, **__: seen.append((read(file), list(disk.iterdir()))),
    )
    verified_context(issued.certificate, issued.certificate, issued.key)
    assert seen == [(issued.certificate + b"\n" + issued.key, [])]


@pytest.mark.parametrize("data", ["%%%", "AAAAA"])
def test_data_that_is_no_certificate_is_told_in_one_line(kubeconfig, data):
    content = yaml.safe_load(kubeconfig.read_text())
    content["users"][0]["user"]["client-key-data"] = data
    kubeconfig.write_text(yaml.safe_dump(content))

    async def main():
        await async_api_client(kubeconfig)

    with pytest.raises(ArgumentError, match="kubeconfig"):
        asyncio.run(main())
