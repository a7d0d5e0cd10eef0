"""Copies over a real connection: names as `cp` has them, flat memory, and what is refused."""

import os
import tracemalloc
from pathlib import Path, PurePosixPath

import msgspec
import pytest
from aiohttp import web
from tests.support.hints import execute_hint
from tests.support.holdfast_cli import HoldfastCli

from holdfast.api import FAILURE_MARKER_HEADER, Problem
from holdfast.client import Sandbox
from holdfast.client.archive import pack
from holdfast.client.copy import LocalTarget, base_name, resolve_local_target
from holdfast.client.paths import remote_path
from holdfast.errors import (
    ApiRequestRejectedError,
    PathNotFoundError,
    PathPermissionError,
    ResponseLostError,
    TemporaryError,
    UsageError,
)

TAR_ERRORS = {
    "path-denied": PathPermissionError,
    "path-missing": PathNotFoundError,
    "copy-failed": ApiRequestRejectedError,
}
FILES = "/v1/sandboxes/a/files"
LARGE = 64 << 20


@pytest.fixture
def sandbox(fake_server):
    with Sandbox("a", fake_server.access) as made:
        yield made


@pytest.mark.parametrize(
    ("text", "path"),
    [("x", "/sandbox/x"), ("/tmp/x", "/tmp/x"), (".", "/sandbox"), ("d/", "/sandbox/d"), ("/", "/")],
)
def test_paths_start_in_workspace(text, path):
    assert str(remote_path(text)) == path


@pytest.mark.parametrize("text", ["../x", "/sandbox/../etc", "a/.."])
def test_parent_references_are_rejected(text):
    with pytest.raises(UsageError, match="is not allowed"):
        remote_path(text)


def test_copy_goes_into_directory_or_takes_name(tmp_path):
    source = PurePosixPath("/sandbox/x")
    assert resolve_local_target(source, tmp_path) == LocalTarget(tmp_path, "x", is_copy=True)
    assert resolve_local_target(source, f"{tmp_path}/") == LocalTarget(tmp_path, "x")
    assert resolve_local_target(source, f"{tmp_path}/.") == LocalTarget(tmp_path, "x")
    assert resolve_local_target(source, ".") == LocalTarget(Path(), "x")
    assert resolve_local_target(source, "..") == LocalTarget(Path(".."), "x")
    assert resolve_local_target(source, f"{tmp_path}/new/") == LocalTarget(tmp_path / "new", "x")
    assert resolve_local_target(source, tmp_path / "y") == LocalTarget(tmp_path, "y")
    assert resolve_local_target(source, "y") == LocalTarget(Path(), "y")
    assert base_name(Path()) == Path.cwd().name


async def take_all(request):
    total = 0
    async for chunk in request.content.iter_any():
        total += len(chunk)
    return web.json_response({"entries": 1, "bytes": total})


def test_large_upload_uses_constant_memory(fake_server, sandbox, tmp_path):
    source = tmp_path / "large"
    with source.open("wb") as file:
        file.truncate(LARGE)
    fake_server.answers[FILES] = take_all
    counted = []
    tracemalloc.start()
    done = sandbox.upload(source, "d/", progress=counted.append)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert done.bytes > LARGE
    assert sum(counted) == done.bytes
    assert peak < LARGE / 4
    assert fake_server.seen == [f"PUT {FILES}?path=/sandbox/d"]


def test_large_download_is_complete_and_uses_constant_memory(fake_server, sandbox, tmp_path):
    source = tmp_path / "source"
    with source.open("wb") as file:
        file.write(os.urandom(1 << 20))
        file.truncate(LARGE)

    async def send(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in pack(source, "x", print):
            await response.write(chunk)
        return response

    fake_server.answers[FILES] = send
    tracemalloc.start()
    done = sandbox.download("x", tmp_path / "goal")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert done.bytes == LARGE
    assert peak < LARGE / 4
    assert (tmp_path / "goal").read_bytes() == source.read_bytes()


def test_cut_download_is_an_error_and_leaves_nothing(fake_server, sandbox, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3 << 20))
    goal = tmp_path / "goal"
    goal.mkdir()

    async def cut(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in list(pack(source, "my x", print))[:2]:
            await response.write(chunk)
        request.transport.abort()
        return response

    fake_server.answers[FILES] = cut
    with pytest.raises(ResponseLostError) as caught:
        sandbox.download("my x", goal)
    assert list(goal.iterdir()) == []
    assert caught.value.code == "answer-lost"
    message = "download of /sandbox/my x from sandbox a: interrupted: gateway dev: connection lost: "
    assert caught.value.message.startswith(message)
    assert "tar" not in caught.value.message
    hint = "Run `holdfast status dev` to check the gateway, or `holdfast up dev` to repair it."
    assert caught.value.hint == hint


@pytest.mark.parametrize("sent", [1, None], ids=["a part of the archive", "the whole archive"])
@pytest.mark.parametrize(("code", "kind"), TAR_ERRORS.items())
def test_failed_tar_is_the_only_cause_and_leaves_nothing(fake_server, sandbox, tmp_path, sent, code, kind):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3 << 20))
    goal = tmp_path / "goal"
    goal.mkdir()
    problem = Problem(code=code, message="tar: exit code 2 in the sandbox: x/y: denied", hint="Change it.")

    async def fail(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in list(pack(source, "x", print))[:sent]:
            await response.write(chunk)
        await response.write(request.headers[FAILURE_MARKER_HEADER].encode() + msgspec.json.encode(problem))
        return response

    fake_server.answers[FILES] = fail
    with pytest.raises(kind) as caught:
        sandbox.download("x", goal)
    assert list(goal.iterdir()) == []
    assert type(caught.value) is kind
    assert caught.value.message == f"download of /sandbox/x from sandbox a: {problem.message}"
    assert caught.value.hint == "Change it."


def test_download_that_never_started_is_a_connection_error(fake_server, sandbox, tmp_path, no_sleep):
    async def cut(request):
        request.transport.abort()
        return web.Response()

    fake_server.answers[FILES] = cut
    with pytest.raises(ResponseLostError) as caught:
        sandbox.download("x", tmp_path)
    assert "-cf" not in caught.value.hint


def test_rejection_during_upload_has_server_message(fake_server, sandbox, tmp_path):
    source = tmp_path / "large"
    with source.open("wb") as file:
        file.truncate(LARGE)

    async def refuse(request):
        await request.content.readany()
        return web.json_response({"code": "unsafe-archive", "message": "no room", "hint": ""}, status=400)

    fake_server.answers[FILES] = refuse
    with pytest.raises(UsageError, match="no room"):
        sandbox.upload(source, "d/")
    assert len(fake_server.seen) == 1


@pytest.fixture
def two_files(tmp_path):
    source = tmp_path / "two"
    source.mkdir()
    for name in ("a", "b"):
        (source / name).write_bytes(b"x" * (3 << 20))
    return source


def remove_second(source):
    (source / "b").unlink()


def truncate_first(source):
    (source / "a").write_bytes(b"")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (remove_second, UsageError, "b: cannot be read: No such file"),
        (truncate_first, TemporaryError, "a: truncated while it was copied"),
    ],
)
def test_local_error_during_upload_is_not_a_lost_connection(
    fake_server, sandbox, two_files, change, error, message
):
    sent = []

    def progress(count):
        sent.append(count)
        if len(sent) == 2:  # the headers of the directory and of the first file
            change(two_files)

    fake_server.answers[FILES] = take_all
    with pytest.raises(error, match=message) as caught:
        sandbox.upload(two_files, "d/", progress=progress)
    assert type(caught.value) is error


@pytest.mark.parametrize("error", [SystemExit(3), ValueError("mine"), BrokenPipeError(32, "x")])
def test_error_of_upload_callback_is_raised_in_the_caller(fake_server, sandbox, two_files, error):
    def fail(_):
        raise error

    fake_server.answers[FILES] = take_all
    with pytest.raises(type(error)) as caught:
        sandbox.upload(two_files, "d/", progress=fail)
    assert caught.value is error


def test_repeated_upload_names_each_skipped_entry_once(fake_server, sandbox, two_files, no_sleep):
    os.mkfifo(two_files / "pipe")

    async def refuse_once(request):
        answer = await take_all(request)
        if len(fake_server.seen) > 1:
            return answer
        problem = {"code": "x", "message": "not now", "hint": ""}
        return web.json_response(problem, status=503, headers={"Retry-After": "1"})

    fake_server.answers[FILES] = refuse_once
    assert sandbox.upload(two_files, "d/").skipped == [f"{two_files}/pipe: not a file, directory or link"]
    assert len(fake_server.seen) == 2


def test_missing_local_file_is_reported_before_request(fake_server, sandbox, tmp_path):
    with pytest.raises(UsageError, match="not found"):
        sandbox.upload(tmp_path / "nothing", "d/")
    with pytest.raises(UsageError, match="no such directory"):
        sandbox.download("x", tmp_path / "no" / "where")
    assert fake_server.seen == []


def test_hint_for_missing_directory_creates_it(fake_server, sandbox, tmp_path):
    goal = tmp_path / "no where" / "else"
    with pytest.raises(UsageError, match="no such directory") as caught:
        sandbox.download("x", goal)
    execute_hint(
        HoldfastCli(tmp_path),
        caught.value.hint,
        "Run `mkdir -p {}`, then run the same command again.",
    )
    assert goal.parent.is_dir()


def test_named_link_is_dereferenced(fake_server, sandbox, tmp_path):
    (tmp_path / "real").write_bytes(b"x" * 5000)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    fake_server.answers[FILES] = take_all
    assert sandbox.upload(tmp_path / "link", "d/").bytes > 5000
    (tmp_path / "real").unlink()
    with pytest.raises(UsageError, match="not found"):
        sandbox.upload(tmp_path / "link", "d/")


def test_unusual_directory_names(fake_server, sandbox, tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert base_name(Path("..")) == tmp_path.name
    assert base_name(Path("../sub")) == "sub"
    with pytest.raises(UsageError, match="root directory of a sandbox"):
        sandbox.download("/", tmp_path)
    assert fake_server.seen == []
