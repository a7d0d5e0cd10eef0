"""Files of a sandbox on real file systems in containers, with the programs of several userlands."""

from __future__ import annotations

import asyncio
import io
import os

import pytest
from tests.support.container_sandbox import container_sandbox
from tests.support.userlands import USERLANDS, UserlandContainer

from holdfast.client import portal
from holdfast.errors import (
    ArgumentTypeError,
    DiskFullError,
    InvalidArgumentError,
    ObjectConflictError,
    PathIsDirectoryError,
    PathNotDirectoryError,
    PathNotFoundError,
    PathPermissionError,
    ResponseLostError,
    UsageError,
)
from holdfast.remote import connect

pytestmark = pytest.mark.engine

USERS = {"root": "0", "nobody": "65534"}
NAMES = [
    "plain.txt", "-rf", "--", "two words", "new\nline\n", "ünï", "*", "q'\"\\", "$(reboot)", "%s\\0101",
    ".hidden", "..dots", "bad\udcff\udcfe", "\x1b[31m", "a=b:c", " ",
]  # fmt: skip


@pytest.fixture(scope="module", params=USERLANDS)
def container(request):
    with UserlandContainer(connect().client, request.param) as made:
        yield made


@pytest.fixture(params=USERS)
def files(container, request):
    """The files as a user sees them; the workspace is empty."""
    container.run("sh", "-c", "rm -rf /sandbox/* /sandbox/.[!.]* /small/* /small/.[!.]*")
    return container_sandbox(container, USERS[request.param]).files


def test_files_with_any_name_keep_their_content(files):
    written = {name: files.write(f"dir/{name}", repr(name)) for name in NAMES}
    assert {name: files.read_text(f"dir/{name}") for name in NAMES} == {name: repr(name) for name in NAMES}
    assert {entry.name: entry for entry in files.list("dir")} == written
    for name in NAMES:
        assert (written[name].path, written[name].size) == (f"/sandbox/dir/{name}", len(repr(name).encode()))


@pytest.mark.parametrize("name", ["-rf", "new\nline\n", "bad\udcff\udcfe"])
def test_file_with_any_name_can_be_changed(files, name):
    written = files.write(name, "x")
    assert (files.stat(name), files.exists(name)) == (written, True)
    files.rename(name, "other")
    files.rename("other", name)
    files.remove(name)
    assert files.list() == []


def test_listing_shows_types_sizes_modes_and_link_targets(container, files):
    files.write("dir/file", "12345", mode=0o640)
    container.run(
        "sh",
        "-c",
        "cd /sandbox/dir; mkdir sub; ln -s 'a/b\nc/' link; ln -s sub subs; mkfifo pipe; touch -d @5 file",
    )
    entries = {entry.name: entry for entry in files.list("dir")}
    assert {name: (entry.type, entry.link_target) for name, entry in entries.items()} == {
        "file": ("file", None), "sub": ("directory", None), "link": ("symlink", "a/b\nc/"),
        "subs": ("symlink", "sub"), "pipe": ("other", None),
    }  # fmt: skip
    file = entries["file"]
    assert (file.size, oct(file.mode), file.mtime.timestamp()) == (5, "0o640", 5)
    assert files.stat("dir/subs") == entries["subs"]
    assert [entry.name for entry in files.list("dir/subs")] == []


def test_large_directory_is_listed_completely(container, files):
    container.run(
        "sh",
        "-c",
        "mkdir /sandbox/d && cd /sandbox/d && i=0 && while [ $i -lt 500 ]; do i=$((i+1)); : >$i; done",
    )
    assert sorted(int(entry.name) for entry in files.list("d")) == list(range(1, 501))


def test_text_stream_and_open_files(files):
    files.write("text", "grüße\n")
    assert files.read_text("text") == "grüße\n"
    assert files.read_text("text", encoding="latin-1") != "grüße\n"
    content = os.urandom(3 << 20)
    source = io.BytesIO(b"skipped" + content)
    source.seek(7)
    assert files.write("large", source).size == len(content)
    assert b"".join(files.stream("large")) == content
    assert files.write("empty", b"").size == 0
    assert files.read("empty") == b""


def test_overwriting_keeps_mode_and_links(container, files):
    files.write("script", "old", mode=0o750)
    assert oct(files.write("script", "new").mode) == "0o750"
    container.run("sh", "-c", "ln -s script /sandbox/link; ln -s nowhere /sandbox/dangling")
    files.write("link", "through")
    files.write("dangling", "created")
    assert (files.read("script"), files.stat("link").type, files.read("nowhere")) == (
        b"through", "symlink", b"created",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda files: files.read("none"), PathNotFoundError),
        (lambda files: files.read("none/none"), PathNotFoundError),
        (lambda files: files.list("none"), PathNotFoundError),
        (lambda files: files.stat("none"), PathNotFoundError),
        (lambda files: files.remove("none"), PathNotFoundError),
        (lambda files: files.rename("none", "x"), PathNotFoundError),
        (lambda files: files.rename("file", "none/x"), PathNotFoundError),
        (lambda files: files.read("dir"), PathIsDirectoryError),
        (lambda files: files.write("dir", b""), PathIsDirectoryError),
        (lambda files: files.rename("file", "dir"), PathIsDirectoryError),
        (lambda files: files.read("file/x"), PathNotDirectoryError),
        (lambda files: files.write("file/x", b""), PathNotDirectoryError),
        (lambda files: files.list("file"), PathNotDirectoryError),
        (lambda files: files.make_dir("file"), PathNotDirectoryError),
        (lambda files: files.make_dir("file/x"), PathNotDirectoryError),
        (lambda files: files.rename("dir", "file"), PathNotDirectoryError),
        (lambda files: files.remove("dir"), ObjectConflictError),
        (lambda files: files.remove("."), InvalidArgumentError),
        (lambda files: files.remove("/", recursive=True), InvalidArgumentError),
        (lambda files: files.read("../x"), UsageError),
        (lambda files: files.read("a\0b"), UsageError),
        (lambda files: files.read("\ud800"), InvalidArgumentError),
        (lambda files: files.read(5), ArgumentTypeError),
        (lambda files: files.write("x", 5), ArgumentTypeError),
        (lambda files: files.write("x", io.StringIO("text")), ArgumentTypeError),
        (lambda files: files.write("x", b"", mode=0o10000), InvalidArgumentError),
    ],
)
@pytest.mark.parametrize("files", ["nobody"], indirect=True)
def test_error_is_of_the_tree_and_nothing_changes(files, call, error):
    files.write("file", "content")
    files.write("dir/entry", "content")
    with pytest.raises(error):
        call(files)
    assert sorted(entry.name for entry in files.list()) == ["dir", "file"]
    assert (files.read("file"), files.read("dir/entry")) == (b"content", b"content")


def test_errors_are_also_those_of_python_and_name_the_path(files):
    with pytest.raises(FileNotFoundError, match=r"^/sandbox/no\\nne in sandbox box: not found$"):
        files.read("no\nne")
    files.make_dir("dir")
    with pytest.raises(IsADirectoryError, match="/sandbox/dir"):
        files.read("dir")
    with pytest.raises(NotADirectoryError, match="/dev/null"):
        files.list("/dev/null")


@pytest.mark.parametrize(
    "call",
    [
        lambda files: files.read("locked/x"),
        lambda files: files.read("unreadable"),
        lambda files: files.write("locked/x", b"1"),
        lambda files: files.write("/etc/holdfast/x", b"1"),
        lambda files: files.write("/etc/hostname", b"1"),
        lambda files: files.list("locked"),
        lambda files: files.stat("locked/x"),
        lambda files: files.exists("locked/x"),
        lambda files: files.make_dir("/etc/holdfast"),
        lambda files: files.remove("/etc/passwd"),
        lambda files: files.rename("/etc/passwd", "x"),
        lambda files: files.rename("mine", "/etc/mine"),
    ],
)
@pytest.mark.parametrize("files", ["nobody"], indirect=True)
def test_missing_permission_is_reported(container, files, call):
    container.run(
        "sh", "-c", "cd /sandbox && mkdir -m 700 locked && : >locked/x && (umask 077; : >unreadable)"
    )
    files.write("mine", b"")
    with pytest.raises(PathPermissionError, match="permission denied"):
        call(files)


def test_full_disk_is_reported_and_the_old_content_stays(container, files):
    files.write("/small/file", b"old")
    with pytest.raises(DiskFullError, match="/small/file in sandbox box: no space left"):
        files.write("/small/file", bytes(1 << 20))
    assert files.read("/small/file") == b"old"
    assert [entry.name for entry in files.list("/small")] == ["file"]


class _CutSourceError(Exception):
    pass


class _CutSource(io.BytesIO):
    """An open file whose second chunk cannot be read."""

    def read(self, size=-1):
        if self.tell():
            raise _CutSourceError
        return super().read(size)


@pytest.mark.parametrize("existing", [True, False])
def test_interrupted_write_changes_nothing(container, files, existing):
    """The input ends early, as that of a killed client or a cut connection does."""
    if existing:
        files.write("file", b"old")

    async def interrupt():
        writing = asyncio.ensure_future(files._delegate.write("file", _CutSource(bytes(3 << 20))))
        await asyncio.sleep(0.5)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)

    portal.run(interrupt())
    container.run("sh", "-c", "while ls -a /sandbox | grep -q holdfast-write; do sleep 0.1; done")
    assert files.exists("file") is existing
    assert [entry.name for entry in files.list()] == (["file"] if existing else [])
    if existing:
        assert files.read("file") == b"old"


def test_incomplete_content_is_never_renamed_into_place(files, monkeypatch):
    """The input ends cleanly but too early: a proxy closed it."""
    from holdfast.client import files as module

    monkeypatch.setattr(module, "_open_source", lambda data: (io.BytesIO(data[:5]), len(data)))
    with pytest.raises(ResponseLostError, match="has not arrived completely"):
        files.write("file", b"0123456789")
    assert files.list() == []


def test_remove_and_make_dir(files):
    files.make_dir("a/b/c")
    files.make_dir("a/b/c")
    files.write("a/b/c/file", "x")
    with pytest.raises(ObjectConflictError, match="not empty"):
        files.remove("a")
    files.remove("a", recursive=True)
    assert not files.exists("a")
    files.remove("a", ignore_missing=True)


def test_removing_and_renaming_a_link_leaves_its_target(container, files):
    files.write("dir/file", "x")
    container.run("ln", "-s", "dir", "/sandbox/link")
    files.rename("link", "moved")
    files.remove("moved", recursive=True)
    assert files.read("dir/file") == b"x"
    container.run("ln", "-s", "dir", "/sandbox/link")
    files.write("new", "y")
    files.rename("new", "link")  # replaces the link
    assert (files.read("link"), [entry.name for entry in files.list("dir")]) == (b"y", ["file"])
