"""The scripts that work on a volume, run by a real shell in a folder."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from holdfast.errors import DiskFullError, EngineCallError
from holdfast.gateway.steps.snapshot import check_room
from holdfast.gateway.upgrade import volume

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


def take(state, id_=ID):
    ended = run(state, volume._TAKE, "etcd", id_, f"record of {id_}")
    assert ended.returncode == 0, ended.stderr
    return ended


def names(folder):
    return sorted(each.name for each in folder.iterdir())


def test_a_copy_is_whole_when_the_record_is_there(state):
    assert int(take(state).stdout) > 0
    assert names(state / "snapshots") == [ID]
    assert (state / "snapshots" / ID / "data" / "db").read_text() == "old"
    assert (state / "upgrade.json").read_text() == f"record of {ID}"


def test_a_copy_that_failed_leaves_nothing_behind(state):
    # Bigger than a file may become, so that the copy begins and does not end.
    (state / "etcd" / "wal").write_bytes(b"x" * 3_000_000)
    ended = run(state, "trap '' XFSZ; ulimit -f 1000\n" + volume._TAKE, "etcd", ID, "record")
    assert ended.returncode != 0
    assert names(state / "snapshots") == []
    assert not (state / "upgrade.json").exists()
    assert (state / "etcd" / "db").read_text() == "old"


def test_the_way_back_is_marked_only_while_the_snapshot_is_there(state):
    refused = run(state, volume._MARK_BACK, "back", ID)
    assert refused.returncode == 1
    assert "no way back" in refused.stdout
    assert not (state / "upgrade.json").exists()
    take(state)
    assert run(state, volume._MARK_BACK, "back", ID).returncode == 0
    assert (state / "upgrade.json").read_text() == "back"


def test_what_is_put_back_once_is_not_put_back_again(state):
    take(state)
    (state / "etcd" / "db").write_text("new")
    assert run(state, volume._RESTORE, "etcd", ID).returncode == 0
    assert (state / "etcd" / "db").read_text() == "old"
    assert (state / "etcd.failed" / "db").read_text() == "new"
    (state / "etcd" / "db").write_text("written since")
    # As a cleaning up that was killed leaves it: without the failed files, and not written down yet.
    (state / "etcd.failed" / "db").unlink()
    (state / "etcd.failed").rmdir()
    assert run(state, volume._RESTORE, "etcd", ID).returncode == 0
    assert (state / "etcd" / "db").read_text() == "written since"


def test_a_copy_back_that_did_not_fit_leaves_all_as_it_was(state):
    (state / "etcd" / "wal").write_bytes(b"x" * 3_000_000)
    take(state)
    before = names(state)
    ended = run(state, "trap '' XFSZ; ulimit -f 1000\n" + volume._RESTORE, "etcd", ID)
    assert ended.returncode != 0
    assert names(state) == before


def test_old_snapshots_go_and_the_current_one_stays_whatever_the_clock_said(state):
    newer = [f"2027010{day}T000000Z-abcdef" for day in range(1, 5)]
    for id_ in (*newer, ID):
        take(state, id_)
    assert run(state, volume._FINISH_UPGRADE, "upgraded", ID).returncode == 0
    assert names(state / "snapshots") == [ID, *newer[-2:]]
    assert (state / "upgrade.json").read_text() == "upgraded"


def test_the_room_on_the_volume_is_what_its_tools_say(state):
    (state / "etcd" / "db").write_bytes(b"x" * 3_000_000)
    found = volume._room_of(run(state, volume._ROOM, "etcd").stdout)
    assert 3_000_000 <= found.data < 4_000_000
    assert abs(found.free - shutil.disk_usage(state).free) < 1 << 30
    assert volume._room_of(run(state, volume._ROOM, "none-yet").stdout).data == 0
    with pytest.raises(EngineCallError, match="cannot be told"):
        volume._room_of("df: not found")


@pytest.mark.parametrize(("free", "copies", "fits"), [(216, 2, True), (215, 2, False), (116, 1, True)])
def test_a_copy_and_its_way_back_must_fit_before_anything_is_done(free, copies, fits):
    room = volume.Room(data=100 << 20, free=free << 20)
    if fits:
        check_room("holdfast-x", room, copies)
        return
    with pytest.raises(DiskFullError, match=r"225 MB free.*needs 226 MB; nothing was changed") as refused:
        check_room("holdfast-x", room, copies)
    assert refused.value.exit_code == 3
