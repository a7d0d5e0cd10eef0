"""Python code of a new user on a gateway whose node has no sandbox image: the first use brings the image."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.holdfast_cli import HoldfastCli
from tests.support.sandbox_programs import USER_TEST_MODULE

from holdfast.sandbox import from_request

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

README = Path(__file__).resolve().parents[2] / "README.md"
EXAMPLE = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[1]


@pytest.fixture(scope="module")
def holdfast(tmp_path_factory):
    return HoldfastCli(tmp_path_factory.mktemp("user"))


@pytest.fixture
def gateway(new_gateway):
    """A gateway that does not exist yet."""
    made = new_gateway("first")
    yield made
    made.force_destroy()


def run_python(gateway, folder, *words):
    return subprocess.run(
        [sys.executable, *words],
        env=gateway.holdfast.environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def sandbox_images(gateway):
    """The sandbox image in the node's container runtime, if it is there."""
    pod_images = gateway.get("nodes")["items"][0]["status"]["images"]
    return [name for image in pod_images for name in image["names"] if from_request.DEFAULT_IMAGE in name]


def test_readme_example_works_from_nothing(gateway, tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "file").write_text("x")
    assert 'Gateway("dev")' in EXAMPLE
    (tmp_path / "example.py").write_text(EXAMPLE.replace('"dev"', f'"{gateway.name}"'))
    ended = run_python(gateway, tmp_path, "example.py")
    assert (ended.returncode, ended.stdout.split()) == (0, ["0", "42"]), ended.stderr


def test_pytest_fixture_works_on_a_fresh_gateway(gateway, tmp_path):
    gateway.up("--use")
    assert sandbox_images(gateway) == []
    (tmp_path / "test_theirs.py").write_text(USER_TEST_MODULE)
    ended = run_python(gateway, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers")
    assert "1 passed" in ended.stdout, ended.stdout
