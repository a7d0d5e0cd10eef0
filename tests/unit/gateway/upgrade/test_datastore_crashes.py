"""The volume scripts converge after they are killed before, inside or after any of their commands."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess

import pytest

from holdfast.gateway.upgrade import datastore

ID, AGAIN = "20260101T000000Z-abcdef", "20260101T000001Z-abcdef"
KILLED = -9

# A wrapper around each command that changes files: it counts the calls, and at the requested moment kills the
# script together with itself. The moment `inside` leaves the command half done.
_WRAPPER = """#!/bin/sh
read -r number < "$WRAPPERS/count"
number=$((number + 1))
echo "$number" > "$WRAPPERS/count"
echo "{name}" >> "$WRAPPERS/calls"
moment=none
if [ "$number" = "$DIE_AT" ]; then moment=$MOMENT; fi
if [ $moment = fails ]; then exit 1; fi
if [ $moment = before ]; then kill -9 0; fi
if [ $moment = inside ]; then
  {partial}
  kill -9 0
fi
{complete} || exit
if [ $moment = after ]; then kill -9 0; fi
"""

_PARTIAL_COMMANDS = {
    "cp": 'if [ -d "$2" ]; then mkdir "$3" && echo half > "$3/db"; else echo half > "$3"; fi',
    "rm": 'for path; do if [ -d "$path" ]; then "{real}" -rf "$path/db"; fi; done',
    "mv": ":",
    "mkdir": ":",
    "chmod": ":",
    "sync": ":",
}


class Shell:
    """A real shell whose commands can be killed; `calls` are the commands that the last script started."""

    def __init__(self, directory):
        directory.mkdir()
        self._directory = directory
        for name, partial in _PARTIAL_COMMANDS.items():
            real = shutil.which(name)
            complete = ":" if name == "sync" else f'"{real}" "$@"'
            text = _WRAPPER.replace("{partial}", partial).replace("{complete}", complete)
            (directory / name).write_text(text.replace("{name}", name).replace("{real}", real))
            (directory / name).chmod(0o755)
        # A killed process loses no data that the kernel has accepted, so that `sync` is not necessary.
        (directory / "quiet").mkdir()
        (directory / "quiet" / "sync").symlink_to(shutil.which("true"))

    def run(self, state, script, *arguments, die_at=None, moment=""):
        """Run a script and kill it at one of its calls; 0 only counts the calls, None does not."""
        (self._directory / "count").write_text("0\n")
        (self._directory / "calls").write_text("")
        wrappers = self._directory / "quiet" if die_at is None else self._directory
        environment = {
            "PATH": f"{wrappers}:{os.environ['PATH']}",
            "WRAPPERS": str(self._directory),
            "DIE_AT": str(die_at),
            "MOMENT": moment,
        }
        return subprocess.run(
            ["/bin/sh", "-c", script, "helper", *arguments], cwd=state, env=environment, check=False,
            capture_output=True, text=True, start_new_session=True,
        )  # fmt: skip

    @property
    def calls(self):
        return (self._directory / "calls").read_text().split()


@pytest.fixture
def shell(tmp_path):
    return Shell(tmp_path / "wrappers")


@pytest.fixture
def new_state(tmp_path, shell):
    """A function that returns a copy of a volume after a failed upgrade."""
    model = tmp_path / "model"
    write(model, "old")
    assert shell.run(model, datastore._TAKE_SCRIPT, "etcd", ID, "record").returncode == 0
    write(model, "new")
    return copier(model)


def copier(model):
    """A function that returns a new copy of a volume."""
    numbers = itertools.count()

    def copy():
        return shutil.copytree(model, model.with_name(f"{model.name}-{next(numbers)}"))

    return copy


def write(state, text):
    (state / "etcd" / "wal").mkdir(parents=True, exist_ok=True)
    (state / "etcd" / "db").write_text(text)
    (state / "etcd" / "wal" / "0").write_text(text)
    (state / "version.json").write_text(text)


def tree(state):
    """All directories and files of the volume with their modes and contents."""
    return {
        str(path.relative_to(state)): (path.stat().st_mode, path.read_text() if path.is_file() else "")
        for path in sorted(state.rglob("*"))
    }


def moments(calls):
    """Every moment at which a script with these calls can be killed."""
    return [
        (number, moment)
        for number, name in enumerate(calls, start=1)
        for moment in ("before", "inside", "after")
        if moment != "inside" or name in ("cp", "rm")
    ]


def test_restore_converges_when_killed_anywhere(shell, new_state):
    undisturbed = new_state()
    assert shell.run(undisturbed, datastore._RESTORE_SCRIPT, "etcd", ID, "record", die_at=0).returncode == 0
    expected, calls = tree(undisturbed), shell.calls
    assert (undisturbed / "etcd" / "wal" / "0").read_text() == "old"
    assert (undisturbed / "version.json").read_text() == "old"
    assert (undisturbed / "etcd.failed" / "db").read_text() == "new"
    assert calls.count("mv") == 4, "each rename is tested separately"
    for number, moment in moments(calls):
        state, where = new_state(), f"{moment} {calls[number - 1]}, the {number}. of {calls}"
        killed = shell.run(
            state, datastore._RESTORE_SCRIPT, "etcd", ID, "record", die_at=number, moment=moment
        )
        assert killed.returncode == KILLED, where
        again = shell.run(state, datastore._RESTORE_SCRIPT, "etcd", ID, "record")
        assert again.returncode == 0, f"{where}: {again}"
        assert tree(state) == expected, where


def test_restore_converges_when_killed_twice(shell, new_state):
    """After the swap of the files has begun, a second run takes another path: kill that one too."""
    undisturbed = new_state()
    shell.run(undisturbed, datastore._RESTORE_SCRIPT, "etcd", ID, "record", die_at=0)
    expected, calls, pairs = tree(undisturbed), shell.calls, 0
    for number in range(1, len(calls) + 1):
        interrupted = new_state()
        shell.run(interrupted, datastore._RESTORE_SCRIPT, "etcd", ID, "record", die_at=number, moment="after")
        if not (interrupted / "etcd.failed").exists():
            continue
        new_copy = copier(interrupted)
        for second in range(1, len(calls) + 1):
            state = new_copy()
            killed = shell.run(
                state, datastore._RESTORE_SCRIPT, "etcd", ID, "record", die_at=second, moment="after"
            )
            if killed.returncode == 0:
                break  # the second run makes fewer calls than the first
            assert killed.returncode == KILLED
            assert shell.run(state, datastore._RESTORE_SCRIPT, "etcd", ID, "record").returncode == 0
            assert tree(state) == expected, (number, second, calls)
            pairs += 1
    assert pairs >= 15


def test_failed_restore_is_not_reported_done(shell, new_state):
    undisturbed = new_state()
    shell.run(undisturbed, datastore._RESTORE_SCRIPT, "etcd", ID, "record", die_at=0)
    expected, calls = tree(undisturbed), shell.calls
    for number, name in enumerate(calls[:-1], start=1):  # the last one is the cleanup of the trap
        state = new_state()
        failed = shell.run(
            state, datastore._RESTORE_SCRIPT, "etcd", ID, "record", die_at=number, moment="fails"
        )
        assert failed.returncode != 0, f"{name}, the {number}. of {calls}"
        assert shell.run(state, datastore._RESTORE_SCRIPT, "etcd", ID, "record").returncode == 0
        assert tree(state) == expected, f"{name}, the {number}. of {calls}"


def test_restore_cleanup_converges_when_killed_anywhere(shell, new_state):
    model = new_state()
    assert shell.run(model, datastore._RESTORE_SCRIPT, "etcd", ID, "record").returncode == 0
    older = model / "snapshots" / "20250101T000000Z-abcdef"
    (older / "data").mkdir(parents=True)
    (older / datastore._RESTORED_MARKER).touch()
    restored = copier(model)

    undisturbed = restored()
    assert (
        shell.run(undisturbed, datastore._FINISH_ROLLBACK_SCRIPT, "etcd", ID, "over", die_at=0).returncode
        == 0
    )
    expected, calls = tree(undisturbed), shell.calls
    assert (undisturbed / "upgrade.json").read_text() == "over"
    assert not (undisturbed / "etcd.failed").exists()
    for number, moment in moments(calls):
        state, where = restored(), f"{moment} {calls[number - 1]}, the {number}. of {calls}"
        killed = shell.run(
            state, datastore._FINISH_ROLLBACK_SCRIPT, "etcd", ID, "over", die_at=number, moment=moment
        )
        assert killed.returncode == KILLED, where
        # The next command repeats all scripts, because the record is not final yet.
        assert shell.run(state, datastore._RESTORE_SCRIPT, "etcd", ID, "record").returncode == 0, where
        assert (state / "etcd" / "db").read_text() == "old", where
        assert shell.run(state, datastore._FINISH_ROLLBACK_SCRIPT, "etcd", ID, "over").returncode == 0, where
        assert tree(state) == expected, where


def test_recorded_snapshot_is_complete_when_killed_anywhere(shell, tmp_path):
    write(tmp_path / "model", "old")
    new = copier(tmp_path / "model")
    undisturbed = new()
    assert shell.run(undisturbed, datastore._TAKE_SCRIPT, "etcd", AGAIN, AGAIN, die_at=0).returncode == 0
    expected, calls = tree(undisturbed), shell.calls
    for number, moment in moments(calls):
        state, where = new(), f"{moment} {calls[number - 1]}, the {number}. of {calls}"
        killed = shell.run(state, datastore._TAKE_SCRIPT, "etcd", ID, ID, die_at=number, moment=moment)
        assert killed.returncode == KILLED, where
        record = state / "upgrade.json"
        if record.exists():
            kept = state / "snapshots" / record.read_text() / "data" / "wal" / "0"
            assert kept.read_text() == "old", where
        # The second attempt takes another snapshot; a complete earlier one is kept until an upgrade succeeds.
        assert shell.run(state, datastore._TAKE_SCRIPT, "etcd", AGAIN, AGAIN).returncode == 0, where
        other = {path: entry for path, entry in tree(state).items() if f"snapshots/{ID}" not in path}
        assert other == expected, where
