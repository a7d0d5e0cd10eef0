"""The example of a resumable deployment: it continues, and survives every case of the crash matrix."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from examples import deploy

SCRIPT = Path(deploy.__file__)
COLUMNS = {"1.0": ["name"], "1.1": ["name", "country"]}


def run_deploy(site, version, *options):
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(site), version, *options],
        capture_output=True,
        text=True,
        check=False,
    )


def columns(site):
    with closing(sqlite3.connect(site / "app.db")) as database:
        return [row[1] for row in database.execute("PRAGMA table_info(visitors)")]


def test_deployments_continue_and_skip_what_is_done(tmp_path):
    first = run_deploy(tmp_path, "1.0")
    assert (first.returncode, first.stdout) == (0, "1.0 is live: 4 steps ran, 0 were done\n"), first.stderr
    assert "1.0" in (tmp_path / "current" / "index.html").read_text()
    (tmp_path / "current").unlink()
    assert run_deploy(tmp_path, "1.0").returncode == 0
    assert (tmp_path / "current").is_symlink()
    assert run_deploy(tmp_path, "1.1").returncode == 0
    assert columns(tmp_path) == COLUMNS["1.1"]
    assert "1.1" in (tmp_path / "current" / "index.html").read_text()


def test_plan_changes_nothing(tmp_path):
    planned = run_deploy(tmp_path / "site", "1.0", "--plan")
    assert planned.returncode == 0, planned.stderr
    assert "copy-release" in planned.stdout
    assert not (tmp_path / "site" / "current").exists()


def observe(site):
    """What must be the same after any failure; announcements may repeat."""
    version = (site / "current").readlink().name
    return {
        "page": (site / "current" / "index.html").read_text(),
        "columns as of the version": columns(site) == COLUMNS[version],
        "announced last": (site / "announcements").read_text().splitlines()[-1],
        "temporary files": [path.name for path in site.rglob("*.tmp")],
    }


@pytest.mark.timeout(300)
def test_deployment_survives_crashes(crash_matrix):
    report = crash_matrix(
        deploy.build, params={"version": "1.0"}, changed_params={"version": "1.1"}, observe=observe
    )
    assert report.at_least_once == ("announce",)
    assert all(finding.reached for finding in report.findings)
