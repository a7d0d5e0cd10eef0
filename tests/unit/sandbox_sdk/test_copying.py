"""Copies over a real connection: names as `cp` has them, flat memory, and what is refused."""

import os
import tracemalloc
from pathlib import Path, PurePosixPath

import pytest
from aiohttp import web

from holdfast.errors import UsageError
from holdfast.sandbox.sdk.copying import local_target, own_name, remote_path
from holdfast.sandbox.sdk.packing import packed
from holdfast.sandbox.sdk.problems import AnswerLostError
from holdfast.sandbox.sdk.sync import Sandbox

FILES = "/v1/sandboxes/a/files"
LARGE = 64 << 20


@pytest.fixture
def box(peer):
    with Sandbox("a", peer.access) as made:
        yield made


@pytest.mark.parametrize(
    ("text", "path"),
    [("x", "/sandbox/x"), ("/tmp/x", "/tmp/x"), (".", "/sandbox"), ("d/", "/sandbox/d"), ("/", "/")],
)
def test_paths_begin_in_the_workspace(text, path):
    assert str(remote_path(text)) == path


@pytest.mark.parametrize("text", ["../x", "/sandbox/../etc", "a/.."])
def test_steps_upwards_are_refused(text):
    with pytest.raises(UsageError, match="leads upwards"):
        remote_path(text)


def test_a_copy_goes_into_a_folder_or_gets_the_name(tmp_path):
    source = PurePosixPath("/sandbox/x")
    assert local_target(source, tmp_path) == (tmp_path, "x")
    assert local_target(source, f"{tmp_path}/new/") == (tmp_path / "new", "x")
    assert local_target(source, tmp_path / "y") == (tmp_path, "y")
    assert local_target(source, "y") == (Path(), "y")
    assert own_name(Path()) == Path.cwd().name


async def take_all(request):
    total = 0
    async for chunk in request.content.iter_any():
        total += len(chunk)
    return web.json_response({"entries": 1, "bytes": total})


def test_a_large_file_goes_up_with_flat_memory(peer, box, tmp_path):
    source = tmp_path / "large"
    with source.open("wb") as file:
        file.truncate(LARGE)
    peer.answers[FILES] = take_all
    counted = []
    tracemalloc.start()
    done = box.upload(source, "d/", progress=counted.append)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert done.bytes > LARGE
    assert sum(counted) == done.bytes
    assert peak < LARGE / 4
    assert peer.seen == [f"PUT {FILES}?path=/sandbox/d"]


def test_a_large_file_comes_down_whole_with_flat_memory(peer, box, tmp_path):
    source = tmp_path / "source"
    with source.open("wb") as file:
        file.write(os.urandom(1 << 20))
        file.truncate(LARGE)

    async def send(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in packed(source, "x", print):
            await response.write(chunk)
        return response

    peer.answers[FILES] = send
    tracemalloc.start()
    done = box.download("x", tmp_path / "goal")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert done.bytes == LARGE
    assert peak < LARGE / 4
    assert (tmp_path / "goal").read_bytes() == source.read_bytes()


def test_a_download_that_is_cut_is_an_error_and_leaves_nothing(peer, box, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3 << 20))
    goal = tmp_path / "goal"
    goal.mkdir()

    async def cut(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in list(packed(source, "my x", print))[:2]:
            await response.write(chunk)
        request.transport.abort()
        return response

    peer.answers[FILES] = cut
    with pytest.raises(AnswerLostError) as caught:
        box.download("my x", goal)
    assert list(goal.iterdir()) == []
    assert caught.value.code == "answer-lost"
    assert "the download of /sandbox/my x from sandbox a broke off" in caught.value.message
    assert "may not read" in caught.value.hint
    assert "`holdfast sandbox exec a -- tar -cf - '/sandbox/my x' >/dev/null`" in caught.value.hint
    assert "`holdfast up dev`" in caught.value.hint


def test_a_download_that_never_began_is_the_connections_failure_alone(peer, box, tmp_path, no_sleep):
    async def cut(request):
        request.transport.abort()
        return web.Response()

    peer.answers[FILES] = cut
    with pytest.raises(AnswerLostError) as caught:
        box.download("x", tmp_path)
    assert "tar" not in caught.value.hint


def test_a_refusal_in_the_middle_of_an_upload_is_the_servers_own_word(peer, box, tmp_path):
    source = tmp_path / "large"
    with source.open("wb") as file:
        file.truncate(LARGE)

    async def refuse(request):
        await request.content.readany()
        return web.json_response({"code": "unsafe-archive", "message": "no room", "hint": ""}, status=400)

    peer.answers[FILES] = refuse
    with pytest.raises(UsageError, match="no room"):
        box.upload(source, "d/")
    assert len(peer.seen) == 1


def test_what_is_not_there_is_said_before_anybody_is_asked(peer, box, tmp_path):
    with pytest.raises(UsageError, match="there is no"):
        box.upload(tmp_path / "nothing", "d/")
    with pytest.raises(UsageError, match="there is no folder"):
        box.download("x", tmp_path / "no" / "where")
    assert peer.seen == []


def test_a_link_that_is_named_itself_stands_for_what_it_leads_to(peer, box, tmp_path):
    (tmp_path / "real").write_bytes(b"x" * 5000)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    peer.answers[FILES] = take_all
    assert box.upload(tmp_path / "link", "d/").bytes > 5000
    (tmp_path / "real").unlink()
    with pytest.raises(UsageError, match="there is no"):
        box.upload(tmp_path / "link", "d/")


def test_odd_names_of_folders(peer, box, tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert own_name(Path("..")) == tmp_path.name
    assert own_name(Path("../sub")) == "sub"
    with pytest.raises(UsageError, match="whole of a sandbox"):
        box.download("/", tmp_path)
    assert peer.seen == []
