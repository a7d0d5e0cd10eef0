"""Paths, digests of requests, and errors as clients see them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st
from litestar.utils import normalize_path

from holdfast.api import (
    Channel,
    Phase,
    SandboxEventType,
    SandboxRequest,
    SandboxView,
    encode_frame,
    encode_resize_frame,
    parse_exit_code,
)
from holdfast.errors import (
    ApiRequestRejectedError,
    CorruptFileError,
    DeadlineExceededError,
    ObjectConflictError,
    OutcomeUnknownError,
    UsageError,
)
from holdfast.server.access_middleware import _STREAM_PATH
from holdfast.server.errors import ApiError, as_api_error
from holdfast.server.requests import parse_json
from holdfast.server.streams import files
from holdfast.server.streams.events import encode_event


@pytest.mark.parametrize(
    "path", ["", "a", "../a", "./a", "/a/../b", "/..", "/a/..", "/a\0b", "/" + "a" * 5000]
)
def test_paths_with_traversal_are_rejected(path):
    with pytest.raises(ApiError) as caught:
        files.validate_path(path)
    assert (caught.value.status, caught.value.problem.code) == (400, "bad-path")


@pytest.mark.parametrize(
    ("path", "folder", "name"),
    [
        ("/sandbox/x", "/sandbox", "x"), ("/sandbox/x/", "/sandbox", "x"), ("//sandbox//x", "/sandbox", "x"),
        ("/", "/", "."), ("/a/-rf", "/a", "-rf"), ("/..a/b..", "/..a", "b.."),
    ],
)  # fmt: skip
def test_paths_cannot_be_tar_options(path, folder, name):
    assert files.tar_create_command(path) == ["tar", "-C", folder, "-cf", "-", "--", name]
    assert files.tar_extract_command(path, "last")[-2:] == [files.validate_path(path), "last"]


@given(st.text(max_size=60))
def test_accepted_paths_are_absolute_and_normalized(path):
    try:
        normal = files.validate_path(path)
    except ApiError:
        return
    assert normal.startswith("/")
    assert ".." not in normal.split("/")
    assert "//" not in normal


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            {"labels": {"a": "b", "x.k8s.io/a": "b"}},
            "labels: x.k8s.io/a is reserved: the domain k8s.io belongs to Kubernetes",
        ),
        (
            {"labels": {"holdfast.dev/a": "b"}},
            "labels: holdfast.dev/a is reserved: the domain holdfast.dev belongs to holdfast",
        ),
        (
            {"labels": {"agents.x-k8s.io/a": "b"}},
            "labels: agents.x-k8s.io/a is reserved: the domain agents.x-k8s.io belongs to the sandbox API",
        ),
        ({"labels": {"a b": "c"}}, "labels: 'a b' is not a valid label key"),
        ({"labels": {"a": "!"}}, "labels[...]: invalid format"),
        ({"env": {"1A": "x"}}, "env: '1A' is not a valid environment variable name"),
        ({"name": "A"}, "name: invalid format"),
        ({"cpu": 3}, "cpu: expected `str | null`, got `int`"),
        ({"colour": "red"}, "Object contains unknown field `colour`"),
    ],
)
def test_invalid_request_names_field_and_reason_in_one_line(body, words):
    with pytest.raises(ApiError) as caught:
        parse_json("application/json", msgspec.json.encode({"name": "a", **body}), SandboxRequest)
    assert (caught.value.status, caught.value.problem.message) == (400, words)


class RefusedError(Exception):
    def __init__(self, status, body="", headers=None) -> None:
        super().__init__("refused")
        self.status, self.body, self.headers = status, body, headers or {}


RIGHTS = 'sandboxes.agents.x-k8s.io is forbidden: User "api" cannot create resource "sandboxes" in API group'


def forbidden(said):
    return RefusedError(403, msgspec.json.encode({"kind": "Status", "reason": "Forbidden", "message": said}))


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (UsageError("no"), 422, "usage"),
        (ObjectConflictError("no"), 409, "object-conflict"),
        (OutcomeUnknownError("no"), 503, "outcome-unknown"),
        (DeadlineExceededError("no"), 503, "deadline"),
        (CorruptFileError("no"), 500, "damaged-file"),
        (ApiRequestRejectedError("no", cause=RefusedError(422)), 422, "invalid"),
        (ApiRequestRejectedError("no", cause=RefusedError(400)), 422, "invalid"),
        (ApiRequestRejectedError("no", cause=RefusedError(410)), 410, "page-expired"),
        (ApiRequestRejectedError("no", cause=RefusedError(404)), 404, "not-found"),
        (ApiRequestRejectedError("no", cause=RefusedError(403)), 500, "cluster-refused"),
        (ApiRequestRejectedError("no", cause=forbidden("exceeded quota: boxes, used: 1")), 422, "forbidden"),
        (ApiRequestRejectedError("no", cause=forbidden(RIGHTS)), 500, "cluster-refused"),
        (RuntimeError("secret"), 500, "internal"),
    ],
)
def test_problem_json_errors(error, status, code):
    found = as_api_error(error)
    assert (found.status, found.problem.code) == (status, code)
    assert "secret" not in found.problem.message
    assert (found.headers.get("Retry-After") == "1") is (status == 503)


def test_exit_codes_from_status():
    assert parse_exit_code(b'{"status":"Success"}') == 0
    cause = b'{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"%s"}]}}'
    assert [parse_exit_code(cause % each) for each in (b"3", b"255", b"-1", b"x")] == [3, 255, None, None]
    assert [parse_exit_code(each) for each in (b"", b"[]", b"{", b'{"status":"Failure","details":[]}')] == [
        None
    ] * 4


def test_frames():
    assert encode_frame(Channel.STDIN, b"ab") == b"\0ab"
    assert encode_frame(Channel.CLOSE, bytes((Channel.STDIN,))) == b"\xff\0"
    assert encode_resize_frame(80, 24) == b'\x04{"Width":80,"Height":24}'


def test_event_is_one_data_line():
    shown = SandboxView(name="a", id="i", phase=Phase.PENDING, message="one\ntwo\r\nthree")
    lines = encode_event(SandboxEventType.STATE, shown).split(b"\n")
    assert (lines[0], lines[2:]) == (b"event: sandbox", [b"", b""])
    assert lines[1].startswith(b"data: {")


@pytest.mark.parametrize("path", ["events", "logs", "exec", "forward", "files"])
def test_stream_paths_are_recognized(path):
    assert _STREAM_PATH.fullmatch(f"/v1/sandboxes/a/{path}")
    assert not _STREAM_PATH.fullmatch(f"/v1/sandboxes/{path}")
    assert not _STREAM_PATH.fullmatch("/v1/sandboxes/a/suspend")
    assert not _STREAM_PATH.fullmatch(f"/v1/sandboxes//{path}")


def test_stream_of_all_sandboxes_is_recognized():
    for path in ("/v1/watch/sandboxes", "//v1//watch///sandboxes/"):
        assert _STREAM_PATH.fullmatch(path)
    assert not _STREAM_PATH.fullmatch("/v1/sandboxes")


@given(
    st.lists(st.integers(1, 3), min_size=4, max_size=4), st.integers(0, 3), st.sampled_from(["exec", "files"])
)
def test_repeated_slashes_do_not_hide_stream(slashes, ending, stream):
    words = ("v1", "sandboxes", "a", stream)
    path = "".join("/" * number + word for number, word in zip(slashes, words, strict=True)) + "/" * ending
    assert normalize_path(path) == f"/v1/sandboxes/a/{stream}"
    assert _STREAM_PATH.fullmatch(path)
