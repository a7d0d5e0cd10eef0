"""The example of the guide, extracted from the page, run as a command and by the crash matrix."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "write-a-workflow.md"


EXAMPLES = [
    code for code in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "def main()" in code
]


@pytest.fixture(params=EXAMPLES, ids=["functions", "classes"])
def guide_module(tmp_path, request):
    """An example of the guide, as a module."""
    code = request.param
    path = tmp_path / "publish.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location("publish", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["publish"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["publish"]


def run_guide_command(publish, world, title):
    return subprocess.run(
        [sys.executable, publish.__file__, world, title],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_guide_command_runs(guide_module, tmp_path):
    world = tmp_path / "world"
    world.mkdir()
    first = run_guide_command(guide_module, world, "Q3")
    assert (first.returncode, first.stdout) == (0, "done: 5 steps ran, 0 had nothing to do\n"), first.stderr
    assert run_guide_command(guide_module, world, "Q3").stdout == "done: 0 steps ran, 5 had nothing to do\n"
    (world / "report.txt").unlink()
    assert run_guide_command(guide_module, world, "Q3").stdout == "done: 1 steps ran, 4 had nothing to do\n"
    assert run_guide_command(guide_module, world, "Q4").stdout == "done: 4 steps ran, 1 had nothing to do\n"


def test_guide_command_reports_corrupted_store(guide_module, tmp_path):
    world = tmp_path / "world"
    world.mkdir()
    assert run_guide_command(guide_module, world, "Q3").stderr == ""
    store = world / ".publish" / "state.db"
    store.write_bytes(store.read_bytes()[:5000])
    told = run_guide_command(guide_module, world, "Q3").stderr
    assert f"{store} was damaged" in told
    assert "lost: reserve-id, build-archive, upload, list-in-index, announce" in told
    assert "Traceback" not in told


def test_guide_command_failure_has_hint(guide_module, tmp_path):
    world = tmp_path / "world"
    world.mkdir()
    (world / "server").write_text("in the way")
    failed = run_guide_command(guide_module, world, "Q3")
    assert failed.returncode == 1
    assert "Run the same command again to continue." in failed.stderr
    assert "Traceback" not in failed.stderr
    (world / "server").unlink()
    assert run_guide_command(guide_module, world, "Q3").stdout == "done: 3 steps ran, 2 had nothing to do\n"


def observe(world: Path):
    """What must be the same after any trouble: ids differ from run to run, and announcements may repeat."""
    (upload,) = (world / "server").iterdir()
    return {
        "uploaded": upload.read_text().replace(upload.name, "the id"),
        "listed": (world / "index").read_text().splitlines() == [upload.name],
        "announced last": (world / "outbox").read_text().splitlines()[-1],
    }


def effects(world: Path):
    index = world / "index"
    lines = index.read_text().splitlines() if index.exists() else []
    return {"list-in-index": max(Counter(lines).values(), default=0)}


def test_changed_title_after_finished_run_lists_id_once(guide_module, tmp_path):
    world = tmp_path / "world"
    world.mkdir()
    for title in ("Q3", "Q3", "Q4"):
        assert run_guide_command(guide_module, world, title).returncode == 0
    seen = observe(world)
    assert seen == {"uploaded": "Q4 (the id)\n", "listed": True, "announced last": "Q4 is out"}


def test_guide_example_passes_crash_matrix(guide_module, crash_matrix):
    report = crash_matrix(
        guide_module.build,
        params={"title": "Q3"},
        changed_params={"title": "Q4"},
        observe=observe,
        effects=effects,
    )
    assert report.at_least_once == ("announce",)
    groups = {finding.scenario for finding in report.findings}
    assert groups == {
        "killed", "torn store", "disk full", "read-only store", "concurrent runs", "changed input",
        "changed code", "clock jump",
    }  # fmt: skip
    assert "after a finished run" in {finding.case for finding in report.findings}
    assert all(finding.reached for finding in report.findings)
