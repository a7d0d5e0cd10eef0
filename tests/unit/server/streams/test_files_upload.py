"""An upload puts whole files in place or nothing: with real shells and `tar`, over real sockets."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from kubernetes.aio import client
from tests.support.gateway_api_server import LOOPBACK
from tests.support.spdy_pod import RunningPod, run_locally, spdy_pod

from holdfast.server.errors import ApiError
from holdfast.server.sandboxes import SandboxService
from holdfast.server.streams import files

LARGE = os.urandom(700_000)
FOLDER = object()


@pytest.fixture(params=["dash", "bash"])
def shell(request):
    return request.param


@pytest.fixture
def workspace(tmp_path):
    made = tmp_path / "work space"
    made.mkdir()
    return made


def archive(**entries):
    """An archive with these files, folders and links (as paths)."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as writer:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            entry.mode = 0o750 if content is FOLDER else 0o640
            if content is FOLDER:
                entry.type = tarfile.DIRTYPE
            elif isinstance(content, Path):
                entry.type, entry.linkname = tarfile.SYMTYPE, str(content)
            else:
                entry.size = len(content)
            writer.addfile(entry, io.BytesIO(content) if entry.isreg() else None)
    return made.getvalue()


class InterruptedUploadError(Exception):
    """The client is gone."""


def uploaded(shell, workspace, data, *, cut_at=None):
    """Upload an archive; `cut_at` bytes of it if the client is killed then."""

    async def body():
        for start in range(0, len(data[:cut_at]), 10_000):
            yield data[start : min(start + 10_000, cut_at or len(data))]
        if cut_at is not None:
            raise InterruptedUploadError

    async def run():
        async with (
            asyncio.timeout(30),
            spdy_pod(run_locally(shell)) as port,
            client.ApiClient(client.Configuration(host=f"http://{LOOPBACK}:{port}")) as api,
        ):
            service = SandboxService(RunningPod(api, "ns"), endpoint=None, workspace=None)
            return await files.upload(service, "a", str(workspace), body())

    return asyncio.run(run())


def seen(folder):
    return {
        str(path.relative_to(folder)): path.readlink()
        if path.is_symlink()
        else path.is_dir() or path.read_bytes()
        for path in folder.rglob("*")
    }


def test_upload_creates_files_and_directories(shell, workspace):
    entries = {"tree": FOLDER, "tree/large": LARGE, "tree/link": Path("large"), "file": b"x"}
    result = uploaded(shell, workspace, archive(**entries))
    assert (result.entries, result.bytes) == (4, len(LARGE) + 1)
    assert seen(workspace) == {"tree": True, "tree/large": LARGE, "tree/link": Path("large"), "file": b"x"}
    assert (workspace / "tree").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("cut_at", [0, 100, 512, 5_000, 400_000, 700_512])
def test_interrupted_upload_keeps_old_content_and_leaves_nothing(shell, workspace, cut_at):
    (workspace / "file").write_bytes(b"old")
    with pytest.raises(InterruptedUploadError):
        uploaded(shell, workspace, archive(file=LARGE, tree=FOLDER), cut_at=cut_at)
    assert seen(workspace) == {"file": b"old"}
    uploaded(shell, workspace, archive(file=LARGE, tree=FOLDER))
    assert seen(workspace) == {"file": LARGE, "tree": True}


def test_archive_that_ends_after_an_entry_is_rejected(shell, workspace):
    """`tar` accepts it: nothing but the end-of-archive blocks is missing."""
    data = archive(one=b"1" * 512, two=b"2" * 512)
    with pytest.raises(ApiError, match="archive is incomplete") as caught:
        uploaded(shell, workspace, data[:1024])
    assert (caught.value.status, caught.value.problem.code) == (409, "copy-failed")
    assert seen(workspace) == {}


def test_upload_merges_with_existing_directory(shell, workspace):
    (workspace / "tree" / "deep").mkdir(parents=True)
    (workspace / "tree" / "deep" / "other").write_bytes(b"kept")
    (workspace / "tree" / "file").write_bytes(b"old")
    many = {f"tree/deep/{number}": b"n" for number in range(450)}
    uploaded(shell, workspace, archive(**{"tree": FOLDER, "tree/deep": FOLDER, "tree/file": b"new"}, **many))
    expected = {"tree": True, "tree/deep": True, "tree/deep/other": b"kept", "tree/file": b"new", **many}
    assert seen(workspace) == expected


def test_upload_replaces_links_and_does_not_follow_them(shell, workspace, tmp_path):
    (tmp_path / "outside").mkdir()
    (workspace / "to folder").symlink_to(tmp_path / "outside")
    (workspace / "to file").symlink_to(tmp_path / "outside")
    entries = {"to folder": FOLDER, "to folder/x": b"x", "to file": b"y"}
    uploaded(shell, workspace, archive(**entries))
    assert seen(workspace) == {"to folder": True, "to folder/x": b"x", "to file": b"y"}
    assert seen(tmp_path / "outside") == {}


def test_upload_with_unusual_names(shell, workspace):
    names = ["-rf", ".hidden", "..double", "*", "a\nb", "ünï", "$(x)", "[a]", " "]
    entries = {name: name.encode() for name in names} | {"d": FOLDER} | {f"d/{name}": b"d" for name in names}
    (workspace / "d").mkdir()
    uploaded(shell, workspace, archive(**entries))
    assert seen(workspace) == {**entries, "d": True}


def test_upload_removes_leftovers_of_killed_uploads_only(shell, workspace):
    ended = subprocess.Popen(["true"])
    ended.wait()
    dead, running = workspace / f".holdfast-upload-{ended.pid}", workspace / f".holdfast-upload-{os.getpid()}"
    for left in (dead, running):
        (left / "tree").mkdir(parents=True)
    uploaded(shell, workspace, archive(file=b"x"))
    assert not dead.exists()
    assert seen(running) == {"tree": True}


def test_file_replaces_empty_directory_and_directory_replaces_file(shell, workspace):
    """As `tar` does when it extracts over existing files."""
    (workspace / "x").mkdir()
    (workspace / "tree").write_bytes(b"old")
    uploaded(shell, workspace, archive(**{"x": b"file", "tree": FOLDER, "tree/y": b"y"}))
    assert seen(workspace) == {"x": b"file", "tree": True, "tree/y": b"y"}


def test_file_does_not_replace_directory_with_files(shell, workspace):
    (workspace / "x").mkdir()
    (workspace / "x" / "kept").write_bytes(b"")
    with pytest.raises(ApiError, match="exit code 1") as caught:
        uploaded(shell, workspace, archive(x=b"file"))
    assert caught.value.problem.code == "copy-failed"
    assert seen(workspace) == {"x": True, "x/kept": b""}


def test_header_with_negative_size_is_rejected(shell, workspace):
    entry = bytearray(tarfile.TarInfo("x").tobuf(tarfile.USTAR_FORMAT))
    entry[124:136] = b"\xff" * 11 + b"\xa8"
    entry[148:156] = b" " * 8
    entry[148:156] = b"%06o\0 " % sum(entry)
    with pytest.raises(ApiError) as caught:
        uploaded(shell, workspace, bytes(entry) + b"x" * 2048)
    assert caught.value.problem.code == "copy-failed"
    assert seen(workspace) == {}


def test_missing_target_directory_is_reported(shell, workspace):
    with pytest.raises(ApiError, match="not found in the sandbox") as caught:
        uploaded(shell, workspace / "none", archive(x=b"1"))
    assert caught.value.problem.code == "path-missing"


def test_archive_with_sparse_files_is_extracted(shell, workspace, tmp_path):
    with (tmp_path / "sparse").open("wb") as file:
        for number in range(60):
            file.seek(number << 16)
            file.write(b"x" * 4096)
    data = subprocess.check_output(["tar", "-C", tmp_path, "-Scf", "-", "sparse"])
    assert uploaded(shell, workspace, data).entries == 1
    assert seen(workspace) == {"sparse": (tmp_path / "sparse").read_bytes()}
