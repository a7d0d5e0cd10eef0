"""The commands and programs of the documentation, executed block by block on one gateway."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import record_terminal
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
    if gateway.holdfast.run("status", gateway.name).returncode != 0:
        gateway.up()  # a block that failed may have stopped it
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


@pytest.fixture
def environment(gateway):
    kubeconfig = gateway.holdfast.home / "config" / "gateways" / gateway.name / "kubeconfig"
    return {
        **gateway.holdfast.environment,
        "HOLDFAST_GATEWAY": gateway.name,
        "KUBECONFIG": str(kubeconfig),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


@pytest.mark.parametrize("name", BLOCKS)
def test_block_succeeds(clean_gateway, environment, name, tmp_path):
    ended = run_block(BLOCKS[name], tmp_path, environment, clean_gateway.name)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"


def without_durations(text):
    return re.sub(r" \(\d+\.\d s\)$", "", text, flags=re.MULTILINE)


def test_terminal_picture_shows_what_the_commands_print(clean_gateway, environment):
    del environment["HOLDFAST_GATEWAY"]  # else the printed commands name it
    with Gateway(clean_gateway.name).sandboxes().temporary():
        pass  # the gateway has the image now
    recorded = record_terminal.TEXT.read_text()
    printed = record_terminal.record(record_terminal.commands_of(recorded), environment)
    assert without_durations(printed) == without_durations(recorded), "run scripts/record_terminal.py"
