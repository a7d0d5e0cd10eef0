"""The scripts that change the volume, run by a real shell in a temporary directory."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from holdfast.errors import ContainerEngineError, DiskFullError
from holdfast.gateway.upgrade import datastore
from holdfast.gateway.upgrade.upgrade_steps import check_free_space

ID = "20260101T000000Z-abcdef"


@pytest.fixture
def state(tmp_path):
    (tmp_path / "etcd").mkdir()
    (tmp_path / "etcd" / "db").write_text("old")
    (tmp_path / "version.json").write_text("{}")
    return tmp_path


def run(state, script, *arguments):
    return subprocess.run(
        ["/bin/sh", "-c", script, "helper", *arguments],
        cwd=state,
        capture_output=True,
        text=True,
        check=False,
    )


def take_snapshot(state, id_=ID):
    result = run(state, datastore._TAKE_SCRIPT, "etcd", id_, f"record of {id_}")
    assert result.returncode == 0, result.stderr
    return result


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_snapshot_is_complete_when_recorded(state):
    assert int(take_snapshot(state).stdout) > 0
    assert names(state / "snapshots") == [ID]
    assert (state / "snapshots" / ID / "data" / "db").read_text() == "old"
    assert (state / "upgrade.json").read_text() == f"record of {ID}"


def test_failed_copy_leaves_nothing(state):
    # Larger than the file size limit, so that the copy starts and fails.
    (state / "etcd" / "wal").write_bytes(b"x" * 3_000_000)
    result = run(state, "trap '' XFSZ; ulimit -f 1000\n" + datastore._TAKE_SCRIPT, "etcd", ID, "record")
    assert result.returncode != 0
    assert names(state / "snapshots") == []
    assert not (state / "upgrade.json").exists()
    assert (state / "etcd" / "db").read_text() == "old"


def test_rollback_is_marked_only_while_snapshot_exists(state):
    refused = run(state, datastore._MARK_ROLLBACK_SCRIPT, "etcd", ID, "back")
    assert refused.returncode == 1
    assert "rollback is not possible" in refused.stdout
    assert not (state / "upgrade.json").exists()
    take_snapshot(state)
    assert run(state, datastore._MARK_ROLLBACK_SCRIPT, "etcd", ID, "back").returncode == 0
    assert (state / "upgrade.json").read_text() == "back"


def test_restored_snapshot_is_not_restored_again(state):
    take_snapshot(state)
    (state / "etcd" / "db").write_text("new")
    assert run(state, datastore._RESTORE_SCRIPT, "etcd", ID, "record").returncode == 0
    assert (state / "etcd" / "db").read_text() == "old"
    assert (state / "etcd.failed" / "db").read_text() == "new"
    (state / "etcd" / "db").write_text("written since")
    # A killed cleanup has deleted the failed files, but not written the record yet.
    (state / "etcd.failed" / "db").unlink()
    (state / "etcd.failed").rmdir()
    assert run(state, datastore._RESTORE_SCRIPT, "etcd", ID, "record").returncode == 0
    assert (state / "etcd" / "db").read_text() == "written since"


def test_restore_without_space_changes_nothing(state):
    (state / "etcd" / "wal").write_bytes(b"x" * 3_000_000)
    take_snapshot(state)
    before = names(state)
    result = run(state, "trap '' XFSZ; ulimit -f 1000\n" + datastore._RESTORE_SCRIPT, "etcd", ID, "record")
    assert result.returncode != 0
    assert names(state) == before


def test_old_snapshots_are_removed_and_current_one_kept(state):
    newer = [f"2027010{day}T000000Z-abcdef" for day in range(1, 5)]
    for id_ in (*newer, ID):
        take_snapshot(state, id_)
    assert run(state, datastore._FINISH_UPGRADE_SCRIPT, "etcd", ID, "upgraded").returncode == 0
    assert names(state / "snapshots") == [ID, *newer[-2:]]
    assert (state / "upgrade.json").read_text() == "upgraded"


def test_free_space_matches_volume_tools(state):
    (state / "etcd" / "db").write_bytes(b"x" * 3_000_000)
    space = datastore._parse_space(run(state, datastore._SPACE_SCRIPT, "etcd").stdout)
    assert 3_000_000 <= space.data < 4_000_000
    assert abs(space.free - shutil.disk_usage(state).free) < 1 << 30
    assert datastore._parse_space(run(state, datastore._SPACE_SCRIPT, "none-yet").stdout).data == 0
    with pytest.raises(ContainerEngineError, match="cannot parse the free space"):
        datastore._parse_space("df: not found")


@pytest.mark.parametrize(("free", "copies", "fits"), [(216, 2, True), (215, 2, False), (116, 1, True)])
def test_snapshot_and_restore_must_fit_before_start(free, copies, fits):
    space = datastore.VolumeSpace(data=100 << 20, free=free << 20)
    if fits:
        check_free_space("holdfast-x", space, copies)
        return
    with pytest.raises(DiskFullError, match=r"225 MB are free.*needs 226 MB; nothing was changed") as raised:
        check_free_space("holdfast-x", space, copies)
    assert raised.value.exit_code == 3
