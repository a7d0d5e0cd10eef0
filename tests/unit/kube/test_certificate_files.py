"""Keys that stand in a kubeconfig are on no disk, and are gone with their client."""

import asyncio
import gc
import os
import ssl
import tempfile
from pathlib import Path

import pytest
import yaml

from holdfast.errors import InvalidArgumentError
from holdfast.kube import api_client, async_api_client
from holdfast.kube.mtls import mtls_context
from holdfast.testing.ephemeral_pki import EphemeralCA, write_kubeconfig

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no files in memory")


@pytest.fixture
def certificate_bundle():
    return EphemeralCA().issue("somebody")


@pytest.fixture
def kubeconfig(tmp_path, certificate_bundle):
    path = tmp_path / "kubeconfig"
    write_kubeconfig(
        path, url="https://127.0.0.1:1", ca=certificate_bundle.certificate, client=certificate_bundle
    )
    return path


@pytest.fixture
def temporary_directory(tmp_path, monkeypatch):
    """Where temporary files would be."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def read(file):
    return Path(file).read_bytes()


def test_sync_client_reads_key_from_memory(kubeconfig, temporary_directory, certificate_bundle):
    made = api_client(kubeconfig)
    assert read(made.configuration.key_file) == certificate_bundle.key
    assert read(made.configuration.ssl_ca_cert) == certificate_bundle.certificate
    assert list(temporary_directory.iterdir()) == []


def test_async_client_reads_key_from_memory(kubeconfig, temporary_directory, certificate_bundle):
    async def main():
        async with await async_api_client(kubeconfig) as made:
            return read(made.configuration.key_file)

    assert asyncio.run(main()) == certificate_bundle.key
    assert list(temporary_directory.iterdir()) == []


def test_key_memory_is_released_with_client(kubeconfig):
    made = api_client(kubeconfig)
    held = Path(made.configuration.key_file)
    assert held.exists()
    del made
    gc.collect()
    assert not held.exists()


def test_relative_files_resolve_against_kubeconfig(kubeconfig, certificate_bundle, monkeypatch):
    content = yaml.safe_load(kubeconfig.read_text())
    user = content["users"][0]["user"]
    for name, data in (
        ("client-key", certificate_bundle.key),
        ("client-certificate", certificate_bundle.certificate),
    ):
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


def test_invalid_user_of_other_context_is_ignored(kubeconfig, certificate_bundle):
    broken = {"name": "other", "user": {"client-key-data": "%"}}
    changed(kubeconfig, lambda content: content["users"].insert(0, broken))
    before = held()
    made = api_client(kubeconfig)
    assert read(made.configuration.key_file) == certificate_bundle.key
    assert held() - before == 2, "one for the key, one for the certificate, which is its own authority here"


def test_first_of_duplicate_users_is_used(kubeconfig, certificate_bundle):
    again = {"name": "test", "user": {"token": "t"}}
    changed(kubeconfig, lambda content: content["users"].append(again))
    assert read(api_client(kubeconfig).configuration.key_file) == certificate_bundle.key


def test_failed_client_creation_leaves_nothing_open(kubeconfig):
    before = held()
    changed(kubeconfig, lambda content: content["clusters"][0]["cluster"].update({"proxy-url": 5}))
    with pytest.raises(InvalidArgumentError):
        api_client(kubeconfig)
    assert held() == before


def test_exec_plugin_can_read_cluster_info(kubeconfig, tmp_path):
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


def test_unknown_context_is_reported_and_leaves_nothing_open(kubeconfig):
    before = held()
    with pytest.raises(InvalidArgumentError, match="nowhere"):
        api_client(kubeconfig, context="nowhere")
    assert held() == before


def test_key_pair_is_never_written_to_disk(temporary_directory, certificate_bundle, monkeypatch):
    seen = []
    monkeypatch.setattr(
        ssl.SSLContext,
        "load_cert_chain",
        lambda _, file, **__: seen.append((read(file), list(temporary_directory.iterdir()))),
    )
    mtls_context(certificate_bundle.certificate, certificate_bundle.certificate, certificate_bundle.key)
    assert seen == [(certificate_bundle.certificate + b"\n" + certificate_bundle.key, [])]


@pytest.mark.parametrize("data", ["%%%", "AAAAA"])
def test_invalid_certificate_data_is_reported_in_one_line(kubeconfig, data):
    content = yaml.safe_load(kubeconfig.read_text())
    content["users"][0]["user"]["client-key-data"] = data
    kubeconfig.write_text(yaml.safe_dump(content))

    async def main():
        await async_api_client(kubeconfig)

    with pytest.raises(InvalidArgumentError, match="kubeconfig"):
        asyncio.run(main())
