"""A repeated copy has the result of one copy, also if the interrupted command had already finished its work.

The uploads run the server's own code and script, with this machine's shell and `tar` as the sandbox.
"""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile
from contextlib import suppress

import pytest
from aiohttp import web
from kubernetes.aio import client
from tests.support.gateway_api_server import LOOPBACK
from tests.support.hints import execute_hint
from tests.support.holdfast_cli import HoldfastCli
from tests.support.spdy_pod import run_locally, spdy_pod

from holdfast.client import Sandbox
from holdfast.client.copy import upload
from holdfast.client.exec import ExecResult
from holdfast.client.transport import Transport
from holdfast.errors import UsageError
from holdfast.server.namespace_client import NamespaceClient
from holdfast.server.sandboxes import SandboxService
from holdfast.server.streams import files

FILES = "/v1/sandboxes/a/files"
TREE = {"a": b"1", "deep/b": b"2" * 100_000, "deep/er/c": b""}


class RunningPod(NamespaceClient):
    """A cluster with one sandbox, whose pod runs."""

    async def get(self, kind, name):
        metadata = {"name": name, "uid": "u", "ownerReferences": [{"uid": "u", "controller": True}]}
        status = {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}
        return {"kind": kind, "metadata": metadata, "spec": {"containers": [{"name": "c"}]}, "status": status}


@pytest.fixture
def tree(tmp_path):
    top = tmp_path / "tree"
    for name, content in TREE.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(content)
    (top / "link").symlink_to("deep/b")
    return top


@pytest.fixture
def place(tmp_path):
    """The directory that plays the sandbox, or receives downloads."""
    made = tmp_path / "place"
    made.mkdir()
    return made


@pytest.fixture
def upload_tree(fake_server, tree):
    """Upload the tree, or another path, to a target once: with the probe and the script of the real parts."""

    async def execute(*command):
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        output, _ = await process.communicate()
        return ExecResult(exit_code=process.returncode, stdout=output, stderr=b"")

    async def receive(request):
        async with (
            spdy_pod(run_locally("sh")) as port,
            client.ApiClient(client.Configuration(host=f"http://{LOOPBACK}:{port}")) as api,
        ):
            service = SandboxService(RunningPod(api, "ns"), endpoint=None, workspace=None)
            done = await files.upload(service, "a", request.query["path"], request.content.iter_any())
        return web.json_response({"entries": done.entries, "bytes": done.bytes})

    async def run(source, target):
        transport = Transport(fake_server.access)
        try:
            return await upload(transport, "a", source, target, execute)
        finally:
            await transport.close()

    fake_server.answers[FILES] = receive
    return lambda target, source=tree: asyncio.run(run(source, str(target)))


@pytest.fixture
def download_tree(fake_server, tree):
    """Download the tree, or an entry of it, to a target once; `tar` packs it as in a sandbox."""

    async def send(request):
        path = tree.parent / request.query["path"].removeprefix("/sandbox/")
        words = ("tar", "-C", path.parent, "-cf", "-", path.name)
        process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
        packed, _ = await process.communicate()
        return web.Response(body=packed)

    fake_server.answers[FILES] = send
    with Sandbox("a", fake_server.access) as sandbox:
        yield lambda target, source="tree": sandbox.download(source, target)


def seen(folder):
    return {
        str(path.relative_to(folder)): path.readlink()
        if path.is_symlink()
        else path.is_dir() or path.read_bytes()
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("direction", ["upload_tree", "download_tree"])
class TestBothDirections:
    @pytest.fixture
    def copy(self, direction, request):
        return request.getfixturevalue(direction)

    def test_repeated_copy_of_directory_is_not_nested(self, copy, tree, place):
        first, second = copy(place / "new"), copy(place / "new")
        assert seen(place / "new") == seen(tree)
        assert first == second
        assert first.target.endswith(str(place / "new"))
        assert [path.name for path in place.iterdir()] == ["new"], "nothing beside the copy"

    def test_repeated_copy_into_a_directory_is_not_nested(self, copy, tree, place):
        for _ in range(2):
            assert copy(f"{place}/").target.endswith(str(place / "tree"))
        assert seen(place) == {"tree": True, **{f"tree/{name}": what for name, what in seen(tree).items()}}

    def test_earlier_copy_keeps_other_files(self, copy, tree, place):
        new = place / "new"
        copy(new)
        (new / "deep" / "kept").write_bytes(b"mine")
        (new / "a").write_bytes(b"old")
        new.chmod(0o711)
        copy(new)
        assert seen(new) == seen(tree) | {"deep/kept": b"mine"}
        assert new.stat().st_mode & 0o777 == 0o711

    def test_empty_directory_is_the_copy(self, copy, tree, place):
        (place / "empty").mkdir(mode=0o700)
        for _ in range(2):
            copy(place / "empty")
            assert seen(place / "empty") == seen(tree)
        assert (place / "empty").stat().st_mode & 0o777 == 0o700

    def test_link_to_directory_stands_for_the_directory(self, copy, tree, place):
        (place / "real").mkdir()
        (place / "link").symlink_to("real")
        copy(place / "link")
        assert (place / "link").is_symlink()
        assert seen(place / "real") == seen(tree)


def test_upload_is_merged_with_an_existing_directory(upload_tree, tree, place):
    (place / "deep").mkdir(mode=0o700)
    (place / "deep" / "kept").write_bytes(b"mine")
    (place / "a").write_bytes(b"old")
    place.chmod(0o711)
    upload_tree(place)
    assert seen(place) == seen(tree) | {"deep/kept": b"mine"}
    assert place.stat().st_mode & 0o777 == 0o711


@pytest.fixture
def own_files(place):
    """A home directory: files that a download must not replace."""
    (place / "deep").mkdir(mode=0o700)
    (place / "a").write_bytes(b"mine")
    (place / "deep" / "b").write_bytes(b"mine")
    return seen(place)


@pytest.mark.parametrize("end", ["", "/"])
def test_download_never_replaces_files_of_the_user(download_tree, tree, place, own_files, end):
    for _ in range(2):
        assert download_tree(f"{place}{end}").target == f"{place}/tree"
        assert seen(place) == own_files | {"tree": True} | {
            f"tree/{name}": what for name, what in seen(tree).items()
        }
    assert (place / "deep").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("target", [".", "..", "tree"])
def test_download_is_not_merged_with_a_directory_of_that_name(
    download_tree, tmp_path, place, own_files, target
):
    """Neither inside the target nor as the target: `cp box:.ssh ~` would add keys."""
    place.rename(tmp_path / "home")
    home = tmp_path / "home"
    (home / "tree").mkdir()
    (home / "tree" / "authorized_keys").write_bytes(b"mine")
    before = seen(home)
    words = {".": f"{home}/.", "..": f"{home}/deep/..", "tree": f"{home}"}
    with pytest.raises(UsageError, match="not an earlier copy of the same source") as caught:
        download_tree(words[target])
    assert seen(home) == before
    execute_hint(
        HoldfastCli(tmp_path),
        caught.value.hint,
        "Choose another target, or run `mv {} {}`, then run the same command again.",
    )
    download_tree(words[target])
    assert (home / "tree.old" / "authorized_keys").read_bytes() == b"mine"
    assert (home / "tree" / "a").read_bytes() == TREE["a"]


def test_download_without_an_entry_for_the_directory_is_not_merged_either(fake_server, place, own_files):
    """The sandbox chooses the first entry of the archive."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as writer:
        writer.addfile(tarfile.TarInfo("deep/b"))

    async def send(request):
        return web.Response(body=made.getvalue())

    fake_server.answers[FILES] = send
    with Sandbox("a", fake_server.access) as sandbox:
        for target in (f"{place}/deep", f"{place}/"):
            with suppress(UsageError):
                sandbox.download("deep", target)
            assert (place / "deep" / "b").read_bytes() == b"mine"


def test_copy_of_another_source_is_not_merged(download_tree, tree, place):
    download_tree(place / "copy")
    assert download_tree(place / "copy", "tree/deep/er").target == f"{place}/copy/er"
    assert download_tree(place / "other", "tree/deep/er").target == f"{place}/other"
    assert download_tree(place / "other").target == f"{place}/other/tree"


def test_directory_in_the_place_of_a_copy_is_not_merged(download_tree, place):
    download_tree(place / "copy")
    (place / "copy").rename(place / "moved")
    (place / "copy").mkdir()
    (place / "copy" / "a").write_bytes(b"mine")
    download_tree(place / "copy")
    assert (place / "copy" / "a").read_bytes() == b"mine"
    assert download_tree(place / "moved").target == f"{place}/moved"


def test_file_does_not_replace_a_directory(download_tree, place):
    (place / "a").mkdir()
    with pytest.raises(UsageError, match=f"^{place}/a: cannot be written: Is a directory"):
        download_tree(place, "tree/a")
    assert seen(place) == {"a": True}


def test_uploaded_file_goes_into_an_existing_directory(upload_tree, tree, place):
    for _ in range(2):
        assert upload_tree(place, tree / "a").target == f"a:{place}/a"
    assert seen(place) == {"a": b"1"}


def test_downloaded_file_goes_into_an_existing_directory(download_tree, place):
    for _ in range(2):
        assert download_tree(place, "tree/a").target == f"{place}/a"
    assert seen(place) == {"a": b"1"}


def test_links_of_merged_copy_stay_inside_it(upload_tree, tree, place):
    (tree / "deep" / "up").symlink_to("../a")
    (tree / "out").symlink_to("../place")
    assert upload_tree(place).skipped == [f"{tree}/out: link out of the copy, to ../place"]
    assert "out" not in seen(place)


def test_archive_cannot_replace_the_directory_it_is_merged_with(fake_server, place):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as writer:
        for name, kind in (("tree", tarfile.DIRTYPE), ("tree", tarfile.SYMTYPE)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc" if kind == tarfile.SYMTYPE else ""
            writer.addfile(entry)

    async def send(request):
        return web.Response(body=made.getvalue())

    fake_server.answers[FILES] = send
    with Sandbox("a", fake_server.access) as sandbox, pytest.raises(Exception, match="leads out of the copy"):
        sandbox.download("tree", place)
    assert place.is_dir()
    assert not place.is_symlink()
