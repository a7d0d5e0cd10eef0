"""The examples that use a gateway, run as a reader runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.support.holdfast_cli import HoldfastCli

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def holdfast(tmp_path_factory):
    return HoldfastCli(tmp_path_factory.mktemp("reader"))


@pytest.fixture(scope="module")
def gateway(new_gateway):
    made = new_gateway("examples")
    made.up("--use")
    return made


def run_example(gateway, *words):
    return subprocess.run(
        [sys.executable, *words], env=gateway.holdfast.environment, cwd=EXAMPLES.parent, timeout=600,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def sandbox_names(gateway):
    return gateway.holdfast("sandbox", "list", "-o", "name", "-g", gateway.name).split()


def test_agent_corrects_its_program(gateway):
    ended = run_example(gateway, "examples/agent_loop.py", "--gateway", gateway.name)
    assert ended.returncode == 0, ended.stderr
    assert "NameError" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "5050"
    assert sandbox_names(gateway) == []


def test_ten_sandboxes_find_the_defect_of_the_project(gateway):
    ended = run_example(gateway, "examples/parallel_tests.py", "--gateway", gateway.name)
    results = re.findall(r"^seed \d+: (?:passed|failed)$", ended.stdout, re.MULTILINE)
    assert len(results) == 10, ended.stderr
    assert ended.returncode == 1, "the order of six strings is right with one seed of 720 only"
    assert "test_names_are_sorted" in ended.stdout
    assert sandbox_names(gateway) == []


def test_suite_with_fixtures_passes(gateway):
    ended = run_example(
        gateway, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", "examples/pytest_suite"
    )
    assert ended.returncode == 0, ended.stdout
    assert "5 passed" in ended.stdout
    assert sandbox_names(gateway) == []


def test_service_runs_code_in_sandboxes_of_its_pool(gateway):
    service = subprocess.Popen(
        [sys.executable, "examples/warm_pool_service.py", "--port=0", "--size=1", "--gateway", gateway.name],
        env=gateway.holdfast.environment, cwd=EXAMPLES.parent, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        ready = service.stdout.readline()
        assert ready.startswith("ready at http://127.0.0.1:")
        for number in (6, 7):
            request = urllib.request.Request(ready.split()[2], data=f"print({number} * 7)".encode())
            with urllib.request.urlopen(request, timeout=120) as response:
                assert json.load(response) == {"exit_code": 0, "stdout": f"{number * 7}\n", "stderr": ""}
    finally:
        service.kill()
        service.wait()
    gateway.holdfast("pool", "delete", "service", "--yes", "-g", gateway.name)
    assert sandbox_names(gateway) == []
