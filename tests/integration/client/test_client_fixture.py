"""The pytest fixture that gives a test a fresh sandbox, as a user's own tests use it."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.apiserver

USER_TEST_MODULE = """
import pytest

seen = []

@pytest.mark.sandbox(image="app:2", workspace=False, timeout=60)
def test_one(sandbox):
    view = sandbox.get()
    assert (view.phase, view.image) == ("Ready", "app:2")
    assert sandbox.name.startswith("test-one-")
    seen.append(sandbox.name)

@pytest.mark.sandbox(image="app:1", workspace=False, timeout=60)
def test_each_has_its_own(sandbox, sandboxes):
    assert sandbox.name not in seen
    with sandboxes.temporary("app:1", workspace=False, timeout=60) as other:
        assert {sandbox.name, other.name} <= {view.name for view in sandboxes}
    assert False, "a failed test also deletes its sandboxes"
"""


def test_each_test_gets_new_sandbox_that_is_deleted(source, sandboxes, tmp_path):
    (tmp_path / "test_mine.py").write_text(USER_TEST_MODULE)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--strict-markers",
        str(tmp_path),
    ]
    ended = subprocess.run(
        words, env=source.holdfast.environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "1 failed, 1 passed" in ended.stdout, ended.stdout
    assert "a failed test also deletes its sandboxes" in ended.stdout
    for view in sandboxes:
        sandboxes.sandbox(view.name).wait_gone(timeout=60)
    assert list(sandboxes) == []
