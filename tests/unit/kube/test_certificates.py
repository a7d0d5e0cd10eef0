"""Keys that stand in a kubeconfig are on no disk, and are gone with their client."""

import asyncio
import gc
import os
import tempfile
from pathlib import Path

import pytest
import yaml

from holdfast.errors import ArgumentError
from holdfast.kube import api_client, async_api_client
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


@pytest.mark.parametrize("data", ["%%%", "AAAAA"])
def test_data_that_is_no_certificate_is_told_in_one_line(kubeconfig, data):
    content = yaml.safe_load(kubeconfig.read_text())
    content["users"][0]["user"]["client-key-data"] = data
    kubeconfig.write_text(yaml.safe_dump(content))

    async def main():
        await async_api_client(kubeconfig)

    with pytest.raises(ArgumentError, match="kubeconfig"):
        asyncio.run(main())
