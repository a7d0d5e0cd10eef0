"""The scripts on a volume, killed before, inside and after each of their commands, then run again."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from holdfast.gateway.upgrade import volume

ID, AGAIN = "20260101T000000Z-abcdef", "20260101T000001Z-abcdef"
KILLED = -9

# In the place of each command that changes something: counts itself, and at the moment asked for kills the
# shell that runs the script together with itself. What `inside` leaves is a command's work half done.
_STANDS_IN = """#!/bin/sh
read -r number < "$STAND_INS/count"
number=$((number + 1))
echo "$number" > "$STAND_INS/count"
echo "{name}" >> "$STAND_INS/calls"
moment=none
if [ "$number" = "$DIE_AT" ]; then moment=$MOMENT; fi
if [ $moment = fails ]; then exit 1; fi
if [ $moment = before ]; then kill -9 0; fi
if [ $moment = inside ]; then
  {half}
  kill -9 0
fi
{whole} || exit
if [ $moment = after ]; then kill -9 0; fi
"""

_HALVES = {
    "cp": 'if [ -d "$2" ]; then mkdir "$3" && echo half > "$3/db"; else echo half > "$3"; fi',
    "rm": 'for each; do if [ -d "$each" ]; then "{real}" -rf "$each/db"; fi; done',
    "mv": ":",
    "mkdir": ":",
    "chmod": ":",
    "sync": ":",
}


class Shell:
    """A real shell whose commands can be killed; `calls` are those that the last script has begun."""

    def __init__(self, folder):
        folder.mkdir()
        self._folder = folder
        for name, half in _HALVES.items():
            real = shutil.which(name)
            whole = ":" if name == "sync" else f'"{real}" "$@"'
            words = _STANDS_IN.replace("{half}", half).replace("{whole}", whole)
            (folder / name).write_text(words.replace("{name}", name).replace("{real}", real))
            (folder / name).chmod(0o755)
        # A killed process loses nothing that the kernel has: there is no need to wait for a disk.
        (folder / "quiet").mkdir()
        (folder / "quiet" / "sync").symlink_to(shutil.which("true"))

    def run(self, state, script, *arguments, die_at=None, moment=""):
        """Run a script that dies at one of its calls; at 0 they are only counted, at None not even that."""
        (self._folder / "count").write_text("0\n")
        (self._folder / "calls").write_text("")
        environment = {
            "PATH": f"{self._folder / 'quiet' if die_at is None else self._folder}:{os.environ['PATH']}",
            "STAND_INS": str(self._folder),
            "DIE_AT": str(die_at),
            "MOMENT": moment,
        }
        return subprocess.run(
            ["/bin/sh", "-c", script, "helper", *arguments], cwd=state, env=environment, check=False,
            capture_output=True, text=True, start_new_session=True,
        )  # fmt: skip

    @property
    def calls(self):
        return (self._folder / "calls").read_text().split()


@pytest.fixture
def shell(tmp_path):
    return Shell(tmp_path / "stand-ins")


@pytest.fixture
def new_state(tmp_path, shell):
    """Copies of a volume with a datastore, after an upgrade of it that failed."""
    model = tmp_path / "model"
    write(model, "old")
    assert shell.run(model, volume._TAKE, "etcd", ID, "record").returncode == 0
    write(model, "new")
    return copies(model)


def copies(model):
    """Makes a copy of a volume at each call."""
    made = []

    def make():
        made.append(model.with_name(f"{model.name}-{len(made)}"))
        return shutil.copytree(model, made[-1])

    return make


def write(state, words):
    (state / "etcd" / "wal").mkdir(parents=True, exist_ok=True)
    (state / "etcd" / "db").write_text(words)
    (state / "etcd" / "wal" / "0").write_text(words)
    (state / "version.json").write_text(words)


def tree(state):
    """All that is on the volume: folders, files with what they hold, and who may read them."""
    return {
        str(path.relative_to(state)): (path.stat().st_mode, path.read_text() if path.is_file() else "")
        for path in sorted(state.rglob("*"))
    }


def moments(calls):
    """Every moment at which a script that makes these calls is killed."""
    return [
        (number, moment)
        for number, name in enumerate(calls, start=1)
        for moment in ("before", "inside", "after")
        if moment != "inside" or name in ("cp", "rm")
    ]


def test_a_way_back_ends_the_same_wherever_it_was_killed(shell, new_state):
    undisturbed = new_state()
    assert shell.run(undisturbed, volume._RESTORE, "etcd", ID, die_at=0).returncode == 0
    expected, calls = tree(undisturbed), shell.calls
    assert (undisturbed / "etcd" / "wal" / "0").read_text() == "old"
    assert (undisturbed / "version.json").read_text() == "old"
    assert (undisturbed / "etcd.failed" / "db").read_text() == "new"
    assert calls.count("mv") == 4, "each rename is a moment of its own"
    for number, moment in moments(calls):
        state, where = new_state(), f"{moment} {calls[number - 1]}, the {number}. of {calls}"
        killed = shell.run(state, volume._RESTORE, "etcd", ID, die_at=number, moment=moment)
        assert killed.returncode == KILLED, where
        again = shell.run(state, volume._RESTORE, "etcd", ID)
        assert again.returncode == 0, f"{where}: {again}"
        assert tree(state) == expected, where


def test_a_way_back_that_is_killed_twice_ends_the_same(shell, new_state):
    """Once the files are being swapped, a second run walks another way: it is killed in that one too."""
    undisturbed = new_state()
    shell.run(undisturbed, volume._RESTORE, "etcd", ID, die_at=0)
    expected, calls, pairs = tree(undisturbed), shell.calls, 0
    for number in range(1, len(calls) + 1):
        begun = new_state()
        shell.run(begun, volume._RESTORE, "etcd", ID, die_at=number, moment="after")
        if not (begun / "etcd.failed").exists():
            continue
        anew = copies(begun)
        for second in range(1, len(calls) + 1):
            state = anew()
            killed = shell.run(state, volume._RESTORE, "etcd", ID, die_at=second, moment="after")
            if killed.returncode == 0:
                break  # the second run makes fewer calls than the first
            assert killed.returncode == KILLED
            assert shell.run(state, volume._RESTORE, "etcd", ID).returncode == 0
            assert tree(state) == expected, (number, second, calls)
            pairs += 1
    assert pairs >= 15


def test_a_way_back_whose_command_fails_does_not_say_that_it_is_done(shell, new_state):
    undisturbed = new_state()
    shell.run(undisturbed, volume._RESTORE, "etcd", ID, die_at=0)
    expected, calls = tree(undisturbed), shell.calls
    for number, name in enumerate(calls[:-1], start=1):  # the last one is the trap's, which tidies up
        state = new_state()
        failed = shell.run(state, volume._RESTORE, "etcd", ID, die_at=number, moment="fails")
        assert failed.returncode != 0, f"{name}, the {number}. of {calls}"
        assert shell.run(state, volume._RESTORE, "etcd", ID).returncode == 0
        assert tree(state) == expected, f"{name}, the {number}. of {calls}"


def test_the_end_of_a_way_back_is_the_same_wherever_it_was_killed(shell, new_state):
    model = new_state()
    assert shell.run(model, volume._RESTORE, "etcd", ID).returncode == 0
    older = model / "snapshots" / "20250101T000000Z-abcdef"
    (older / "data").mkdir(parents=True)
    (older / volume._RESTORED).touch()
    restored = copies(model)

    undisturbed = restored()
    assert shell.run(undisturbed, volume._FINISH_ROLLBACK, "etcd", ID, "over", die_at=0).returncode == 0
    expected, calls = tree(undisturbed), shell.calls
    assert (undisturbed / "upgrade.json").read_text() == "over"
    assert not (undisturbed / "etcd.failed").exists()
    for number, moment in moments(calls):
        state, where = restored(), f"{moment} {calls[number - 1]}, the {number}. of {calls}"
        killed = shell.run(state, volume._FINISH_ROLLBACK, "etcd", ID, "over", die_at=number, moment=moment)
        assert killed.returncode == KILLED, where
        # Whoever comes next walks the whole way again, as far as it is not written down.
        assert shell.run(state, volume._RESTORE, "etcd", ID).returncode == 0, where
        assert (state / "etcd" / "db").read_text() == "old", where
        assert shell.run(state, volume._FINISH_ROLLBACK, "etcd", ID, "over").returncode == 0, where
        assert tree(state) == expected, where


def test_a_snapshot_is_whole_where_the_record_names_it_wherever_its_taking_was_killed(shell, tmp_path):
    write(tmp_path / "model", "old")
    new = copies(tmp_path / "model")
    undisturbed = new()
    assert shell.run(undisturbed, volume._TAKE, "etcd", AGAIN, AGAIN, die_at=0).returncode == 0
    expected, calls = tree(undisturbed), shell.calls
    for number, moment in moments(calls):
        state, where = new(), f"{moment} {calls[number - 1]}, the {number}. of {calls}"
        killed = shell.run(state, volume._TAKE, "etcd", ID, ID, die_at=number, moment=moment)
        assert killed.returncode == KILLED, where
        record = state / "upgrade.json"
        if record.exists():
            kept = state / "snapshots" / record.read_text() / "data" / "wal" / "0"
            assert kept.read_text() == "old", where
        # The second try is another snapshot; one that was whole before stays until upgrades have gone well.
        assert shell.run(state, volume._TAKE, "etcd", AGAIN, AGAIN).returncode == 0, where
        found = {path: kept for path, kept in tree(state).items() if not path.startswith(f"snapshots/{ID}")}
        assert found == expected, where
