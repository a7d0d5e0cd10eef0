"""The first command of a user who has no gateway, on a container engine without one."""

import os

import pytest
from tests.support.hints import execute_hint
from tests.support.holdfast_cli import HoldfastCli
from tests.support.private_container_engine import PrivateContainerEngine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="a private container engine needs root"),
]


@pytest.fixture(scope="module")
def engine():
    with PrivateContainerEngine() as started:
        started.load_node_image()
        yield started


@pytest.fixture
def holdfast(engine, tmp_path):
    made = HoldfastCli(tmp_path, prefix=engine.prefix, DOCKER_HOST=engine.socket, HOLDFAST_WORKLOADS="false")
    yield made
    made.run("destroy", "default", "--data", "--yes", "default")


def test_hint_of_status_creates_the_first_gateway(holdfast):
    ended = holdfast.run("status")
    assert ended.returncode == 2
    execute_hint(holdfast, ended.stderr, "Run `holdfast up` to create one.")
    holdfast("status")


def test_hint_of_timeline_records_the_first_run(holdfast):
    ended = holdfast.run("timeline")
    assert ended.returncode == 2
    execute_hint(holdfast, ended.stderr, "Run `holdfast up`: it records the first run.")
    holdfast("timeline")


def test_hint_of_list_creates_the_first_gateway(holdfast):
    execute_hint(holdfast, holdfast("list"), "No gateways yet. Run `holdfast up` to create one.")
    assert "default" in holdfast("list")
