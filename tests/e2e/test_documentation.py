"""The commands and programs of the documentation, executed block by block on one gateway."""

from __future__ import annotations

import os

import pytest
from tests.support.documentation import blocks_for_gateway, run_block
from tests.support.holdfast_cli import HoldfastCli

from holdfast import Gateway

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

BLOCKS = {block.name: block for block in blocks_for_gateway()}


@pytest.fixture(scope="module")
def holdfast(tmp_path_factory):
    return HoldfastCli(tmp_path_factory.mktemp("reader"))


@pytest.fixture(scope="module")
def gateway(new_gateway):
    made = new_gateway("docs")
    made.up("--use")
    return made


@pytest.fixture
def clean_gateway(gateway, monkeypatch):
    """The gateway without objects of an earlier block, and running."""
    monkeypatch.setenv("HOLDFAST_HOME", str(gateway.holdfast.home))
    yield gateway
    gateway.up()
    api = Gateway(gateway.name)
    with api.sandboxes() as sandboxes, api.pools() as pools, api.templates() as templates:
        for pool in list(pools.list()):
            pools.delete(pool.name)
        for template in list(templates.list()):
            templates.delete(template.name)
        names = [view.name for view in sandboxes.list()]
        sandboxes.delete(names, ignore_missing=True, wait=True).raise_for_failures()
    with api.secrets() as secrets:
        for secret in list(secrets.list()):
            secrets.delete(secret.name)
    gateway.kubectl("delete", "pod", "web-0", "--ignore-not-found", "--wait=false")


@pytest.mark.parametrize("name", BLOCKS)
def test_block_succeeds(clean_gateway, name, tmp_path):
    environment = {
        **clean_gateway.holdfast.environment,
        "HOLDFAST_GATEWAY": clean_gateway.name,
        "KUBECONFIG": str(
            clean_gateway.holdfast.home / "config" / "gateways" / clean_gateway.name / "kubeconfig"
        ),
        "PATH": os.environ["PATH"],
    }
    ended = run_block(BLOCKS[name], tmp_path, environment, clean_gateway.name)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
