"""The pytest fixture that gives a test a fresh sandbox, as a user's own tests use it."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.apiserver

TESTS = """
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
    with sandboxes.fresh("app:1", workspace=False, timeout=60) as other:
        assert {sandbox.name, other.name} <= {view.name for view in sandboxes}
    assert False, "also a test that fails leaves nothing behind"
"""


def test_every_test_gets_a_fresh_one_and_leaves_none(source, boxes, tmp_path):
    (tmp_path / "test_mine.py").write_text(TESTS)
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
    assert "leaves nothing behind" in ended.stdout
    for view in boxes:
        boxes.sandbox(view.name).wait_gone(timeout=60)
    assert list(boxes) == []
