"""What is packed, and what an archive from an untrusted sandbox may write: below one folder, nowhere else."""

import io
import os
import stat
import tarfile

import pytest
from hypothesis import given, strategies as st

from holdfast.client import content_size
from holdfast.client.archive import is_escaping_link, pack
from holdfast.client.extraction import unpack
from holdfast.client.local_copies import LocalCopies
from holdfast.errors import ApiRequestRejectedError, TemporaryError, UsageError


def archive(*entries):
    """Entries as (name, kind, content or link)."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as writer:
        for name, kind, more in entries:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            entry.mode = 0o755 if kind == tarfile.DIRTYPE else 0o640
            if kind == tarfile.REGTYPE:
                entry.size = len(more)
                writer.addfile(entry, io.BytesIO(more))
            else:
                entry.linkname = more
                writer.addfile(entry)
    made.seek(0)
    return made


FILE, FOLDER, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.fixture
def tree(tmp_path):
    top = tmp_path / "tree"
    (top / "deep" / "er").mkdir(parents=True)
    (top / "deep" / "er" / "file").write_bytes(os.urandom(70_000))
    (top / "empty").touch(mode=0o600)
    (top / "run").write_text("#!/bin/sh\n")
    (top / "run").chmod(0o755)
    (top / "deep" / "up").symlink_to("../run")
    (top / ("long" * 60)).write_text("a name beyond what old archives hold")
    (top / "ünï").write_text("x")
    return top


def seen(folder):
    found = {}
    for path in sorted(folder.rglob("*")):
        kind = (
            "link" if path.is_symlink() else "folder" if path.is_dir() else stat.S_IMODE(path.stat().st_mode)
        )
        content = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (kind, content)
    return found


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_directory_round_trip(tree, tmp_path):
    skipped = []
    data = b"".join(pack(tree, "copy", skipped.append))
    goal = tmp_path / "goal"
    goal.mkdir()
    counted = []
    done = unpack(io.BytesIO(data), goal, rename=("copy", "other"), progress=counted.append)
    assert seen(goal / "other") == seen(tree)
    assert (skipped, done.skipped) == ([], [])
    assert sum(counted) == done.bytes == content_size(tree)
    assert not list(goal.rglob("*partial*"))


def test_unsupported_files_are_named_and_skipped(tree, tmp_path):
    os.mkfifo(tree / "pipe")
    (tree / "out").symlink_to("/etc/passwd")
    (tree / "up").symlink_to("../../other")
    skipped = []
    made = io.BytesIO(b"".join(pack(tree, "t", skipped.append)))
    with tarfile.open(fileobj=made) as reader:
        assert not {"t/pipe", "t/out", "t/up"} & set(reader.getnames())
    assert len(skipped) == 3
    assert any("/etc/passwd" in each for each in skipped)


def test_file_shrinking_during_read_is_an_error(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 3_000_000)
    chunks = pack(path, "log", print)
    next(chunks)
    next(chunks)
    path.write_bytes(b"")
    with pytest.raises(TemporaryError, match="truncated"):
        list(chunks)


def test_file_that_disappears_during_packing_is_an_error(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).touch()
    chunks = pack(tmp_path, "copy", print)
    next(chunks)
    next(chunks)  # the header of `a`: the directory is listed
    (tmp_path / "b").unlink()
    with pytest.raises(UsageError, match=f"{tmp_path}/b: cannot be read: No such file"):
        list(chunks)


@pytest.mark.parametrize("name", ["/etc/cron.d/x", "../x", "a/../../x", "a/b/../../../x", "./../x"])
def test_escaping_names_end_copy(tmp_path, name):
    goal = tmp_path / "goal"
    goal.mkdir()
    with pytest.raises(ApiRequestRejectedError, match="leads out of the copy"):
        unpack(archive(("ok", FILE, b"1"), (name, FILE, b"evil"), ("late", FILE, b"2")), goal)
    assert names(tmp_path) == ["goal"]
    assert names(goal) == ["ok"]


@pytest.mark.parametrize("other", [".bashrc", ".ssh/authorized_keys", "./late", "out.txt.bak", "mine"])
@pytest.mark.parametrize("kind", [FILE, FOLDER, LINK, HARD])
def test_unrequested_entry_ends_copy(tmp_path, other, kind):
    more = {FILE: b"evil", LINK: "out.txt", HARD: "out.txt"}.get(kind, "")
    with pytest.raises(ApiRequestRejectedError, match="leads out of the copy"):
        unpack(archive(("out.txt", FILE, b"1"), (other, kind, more)), tmp_path, rename=("out.txt", "mine"))
    assert names(tmp_path) == []


def test_hard_link_to_existing_file_ends_copy(tmp_path):
    (tmp_path / "secret").write_text("secret")
    made = archive(("x", FOLDER, ""), ("x/got", HARD, "secret"))
    with pytest.raises(ApiRequestRejectedError, match="leads out of the copy"):
        unpack(made, tmp_path, rename=("x", "y"))
    assert names(tmp_path) == ["secret"]


@pytest.mark.parametrize("target", ["/etc", "../..", "../../x", "d/../../..", "d/../x"])
def test_escaping_links_are_not_created(tmp_path, target):
    goal = tmp_path / "goal"
    goal.mkdir()
    done = unpack(archive(("a", FOLDER, ""), ("a/l", LINK, target), ("a/f", FILE, b"1")), goal)
    assert names(goal / "a") == ["f"]
    assert len(done.skipped) == 1
    assert target in done.skipped[0]


def test_nothing_is_written_through_existing_link(tmp_path):
    goal, outside = tmp_path / "goal", tmp_path / "outside"
    goal.mkdir()
    outside.mkdir()
    (goal / "a").symlink_to(outside)
    with pytest.raises(UsageError):
        unpack(archive(("a/f", FILE, b"evil")), goal)
    (goal / "f").symlink_to(outside / "file")
    unpack(archive(("f", FILE, b"mine")), goal)
    assert list(outside.iterdir()) == []
    assert (goal / "f").read_bytes() == b"mine"


def test_nothing_is_written_through_archive_link(tmp_path):
    goal = tmp_path / "goal"
    goal.mkdir()
    with pytest.raises(UsageError):
        unpack(archive(("a", FOLDER, ""), ("a/in", LINK, "."), ("a/in/f", FILE, b"x")), goal)
    assert not (goal / "a" / "f").exists()


def test_hard_links_stay_inside(tmp_path):
    goal, secret = tmp_path / "goal", tmp_path / "secret"
    goal.mkdir()
    secret.write_text("secret")
    unpack(archive(("a/f", FILE, b"1"), ("a/g", HARD, "a/f")), goal, rename=("a", "b"))
    assert (goal / "b" / "g").samefile(goal / "b" / "f")
    with pytest.raises(ApiRequestRejectedError):
        unpack(archive(("a/h", HARD, "../secret")), goal)
    (goal / "l").symlink_to(secret)
    unpack(archive(("h", HARD, "l")), goal)
    assert (goal / "h").is_symlink()


def test_devices_and_setuid_bits_are_dropped(tmp_path):
    made = archive(("f", FILE, b"x"), ("d", tarfile.CHRTYPE, ""), ("p", tarfile.FIFOTYPE, ""))
    done = unpack(made, tmp_path)
    assert names(tmp_path) == ["f"]
    assert len(done.skipped) == 2
    entry = tarfile.TarInfo("s")
    entry.mode = 0o6755
    unpack(io.BytesIO(entry.tobuf() + b"\0" * 1024), tmp_path)
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o755


def test_truncated_archive_leaves_no_partial_file(tmp_path):
    data = archive(("whole", FILE, b"1"), ("half", FILE, os.urandom(3_000_000))).getvalue()
    (tmp_path / "half").write_text("old")
    with pytest.raises(TemporaryError, match="archive is incomplete"):
        unpack(io.BytesIO(data[:1_000_000]), tmp_path)
    assert names(tmp_path) == ["half", "whole"]
    assert (tmp_path / "half").read_text() == "old"


def test_file_does_not_replace_directory(tmp_path):
    (tmp_path / "f").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        unpack(archive(("f", FILE, b"x")), tmp_path)
    assert names(tmp_path) == ["f"]


@pytest.mark.parametrize("target", ["neighbour", ".", "a", "./.bashrc", "..", "/etc/passwd"])
def test_single_link_is_not_copied(tmp_path, target):
    (tmp_path / "neighbour").write_text("mine")
    (tmp_path / "a").symlink_to(target)
    missed = []
    sent = b"".join(pack(tmp_path / "a", "a", missed.append))
    assert (len(missed), sent.strip(b"\0")) == (1, b"")
    goal = tmp_path / "goal"
    goal.mkdir()
    done = unpack(archive(("a", LINK, target)), goal, rename=("a", "b"))
    assert (names(goal), len(done.skipped)) == ([], 1)


PARTS = st.sampled_from(["..", ".", "a", "b"])


@given(where=st.lists(st.sampled_from("ab"), min_size=1, max_size=4), link=st.lists(PARTS, max_size=6))
def test_allowed_link_resolves_inside_copy(where, link):
    """Every folder on the way is a real one, as unpacking makes sure."""
    target = "/".join(link)
    if target and not is_escaping_link(target, tuple(where)):
        resolved = os.path.normpath("/".join(["/top", *where[:-1], target]))
        inside = "/".join(["/top", where[0]])
        assert resolved == inside or resolved.startswith(inside + "/")


DIRECTORY = (("d", FOLDER, ""), ("d/a", FILE, b"1" * 3_000_000), ("d/b", FILE, b"2"))


def test_interrupted_directory_has_no_name_and_repeated_copy_completes_it(tmp_path):
    data = archive(*DIRECTORY).getvalue()
    with pytest.raises(TemporaryError, match="archive is incomplete"):
        unpack(io.BytesIO(data[:-1_000_000]), tmp_path, rename=("d", "new"))
    assert names(tmp_path) == []
    unpack(io.BytesIO(data), tmp_path, rename=("d", "new"))
    assert (names(tmp_path), names(tmp_path / "new")) == (["new"], ["a", "b"])


def test_repeated_copy_removes_leftovers_of_killed_copy(tmp_path):
    (tmp_path / ".new.holdfast-partial" / "deep").mkdir(parents=True)
    (tmp_path / ".new.holdfast-partial" / "out").symlink_to("/etc")
    unpack(archive(*DIRECTORY), tmp_path, rename=("d", "new"))
    assert (names(tmp_path), names(tmp_path / "new")) == (["new"], ["a", "b"])


def test_directory_gets_its_name_after_all_files(tmp_path):
    listed = []
    unpack(
        archive(*DIRECTORY), tmp_path, rename=("d", "new"), progress=lambda _: listed.extend(names(tmp_path))
    )
    assert set(listed) == {".new.holdfast-partial"}


def test_repeated_copy_keeps_other_files(tmp_path):
    copies = LocalCopies("gateway", "box", "/d")
    unpack(archive(*DIRECTORY), tmp_path, rename=("d", "new"), copies=copies)
    (tmp_path / "new" / "other").write_text("kept")
    unpack(archive(*DIRECTORY), tmp_path, rename=("d", "new"), copies=copies)
    assert names(tmp_path / "new") == ["a", "b", "other"]


def test_skipped_entries_have_the_name_of_the_copy(tmp_path):
    done = unpack(archive(("d", FOLDER, ""), ("d/out", LINK, "/etc")), tmp_path, rename=("d", "new"))
    assert done.skipped == ["new/out: link out of the copy, to /etc"]
