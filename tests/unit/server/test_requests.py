"""Paths, digests of requests, and errors as clients see them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar.utils import normalize_path

from holdfast.errors import (
    ClusterRefusedError,
    DamagedFileError,
    DeadlineError,
    ObjectConflictError,
    OutcomeUnknownError,
    UsageError,
)
from holdfast.sandbox.wire import (
    Channel,
    Event,
    Phase,
    SandboxRequest,
    SandboxView,
    Workspace,
    exit_code,
    frame,
    resize_frame,
)
from holdfast.server import paths
from holdfast.server.events import encoded
from holdfast.server.problems import ApiError, as_api_error
from holdfast.server.routes import asked
from holdfast.server.service import differing, digests
from holdfast.server.throttle import _STREAM


@pytest.mark.parametrize(
    "path", ["", "a", "../a", "./a", "/a/../b", "/..", "/a/..", "/a\0b", "/" + "a" * 5000]
)
def test_paths_with_detours_are_refused(path):
    with pytest.raises(ApiError) as caught:
        paths.checked(path)
    assert (caught.value.status, caught.value.problem.code) == (400, "bad-path")


@pytest.mark.parametrize(
    ("path", "folder", "name"),
    [
        ("/sandbox/x", "/sandbox", "x"), ("/sandbox/x/", "/sandbox", "x"), ("//sandbox//x", "/sandbox", "x"),
        ("/", "/", "."), ("/a/-rf", "/a", "-rf"), ("/..a/b..", "/..a", "b.."),
    ],
)  # fmt: skip
def test_paths_are_handed_to_tar_so_that_no_name_is_an_option(path, folder, name):
    assert paths.packing(path) == ["tar", "-C", folder, "-cf", "-", "--", name]
    assert paths.unpacking(path)[-1] == paths.checked(path)


@given(st.text(max_size=60))
def test_what_passes_is_whole_and_has_no_detours(path):
    try:
        normal = paths.checked(path)
    except ApiError:
        return
    assert normal.startswith("/")
    assert ".." not in normal.split("/")
    assert "//" not in normal


def request(**parts):
    return SandboxRequest(name="a", **parts)


def unlike(one, other):
    return differing(digests(one), digests(other))


def test_the_same_request_said_in_other_words_is_the_same():
    early = datetime(2030, 1, 1, 10, tzinfo=UTC)
    assert not unlike(request(), request(workspace=Workspace()))
    assert not unlike(request(env={"A": "1", "B": "2"}), request(env={"B": "2", "A": "1"}))
    moved = early.astimezone(timezone(timedelta(hours=2)))
    assert not unlike(request(shutdown_time=early), request(shutdown_time=moved))


def test_what_differs_is_named_also_where_it_was_left_out():
    assert unlike(request(image="a:1"), request(image="a:2")) == ["image"]
    assert unlike(request(env={"A": "1"}), request()) == ["env"]
    assert unlike(request(), request(command=["a"], workspace=False)) == ["command", "workspace"]


def test_digests_show_nothing_and_rubbish_is_no_former_request():
    assert "s3cr3t" not in digests(request(env={"TOKEN": "s3cr3t"}))
    assert differing("no json", digests(request(image="x"))) is None
    assert differing('{"a": 1}', digests(request(image="x"))) is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            {"labels": {"a": "b", "x.k8s.io/a": "b"}},
            "labels: x.k8s.io/a is reserved: k8s.io is Kubernetes' own domain",
        ),
        (
            {"labels": {"holdfast.dev/a": "b"}},
            "labels: holdfast.dev/a is reserved: holdfast.dev is holdfast's own domain",
        ),
        (
            {"labels": {"agents.x-k8s.io/a": "b"}},
            "labels: agents.x-k8s.io/a is reserved: agents.x-k8s.io is the sandbox API's own domain",
        ),
        ({"labels": {"a b": "c"}}, "labels: 'a b' is no key for a label"),
        ({"labels": {"a": "!"}}, "labels[...]: it does not have the form that is asked for"),
        ({"env": {"1A": "x"}}, "env: '1A' is no name for a variable"),
        ({"name": "A"}, "name: it does not have the form that is asked for"),
        ({"cpu": 3}, "cpu: expected `str | null`, got `int`"),
        ({"colour": "red"}, "Object contains unknown field `colour`"),
    ],
)
def test_a_request_that_is_no_request_is_told_the_field_and_the_reason_in_one_line(body, words):
    with pytest.raises(ApiError) as caught:
        asked("application/json", msgspec.json.encode({"name": "a", **body}))
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
        (DeadlineError("no"), 503, "deadline"),
        (DamagedFileError("no"), 500, "damaged-file"),
        (ClusterRefusedError("no", cause=RefusedError(422)), 422, "invalid"),
        (ClusterRefusedError("no", cause=RefusedError(400)), 422, "invalid"),
        (ClusterRefusedError("no", cause=RefusedError(410)), 410, "page-expired"),
        (ClusterRefusedError("no", cause=RefusedError(404)), 404, "not-found"),
        (ClusterRefusedError("no", cause=RefusedError(403)), 500, "cluster-refused"),
        (ClusterRefusedError("no", cause=forbidden("exceeded quota: boxes, used: 1")), 422, "forbidden"),
        (ClusterRefusedError("no", cause=forbidden(RIGHTS)), 500, "cluster-refused"),
        (RuntimeError("secret"), 500, "internal"),
    ],
)
def test_errors_as_clients_see_them(error, status, code):
    found = as_api_error(error)
    assert (found.status, found.problem.code) == (status, code)
    assert "secret" not in found.problem.message
    assert (found.headers.get("Retry-After") == "1") is (status == 503)


def test_exit_codes_out_of_a_status():
    assert exit_code(b'{"status":"Success"}') == 0
    cause = b'{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"%s"}]}}'
    assert [exit_code(cause % each) for each in (b"3", b"255", b"-1", b"x")] == [3, 255, None, None]
    assert [exit_code(each) for each in (b"", b"[]", b"{", b'{"status":"Failure","details":[]}')] == [
        None
    ] * 4


def test_frames():
    assert frame(Channel.STDIN, b"ab") == b"\0ab"
    assert frame(Channel.CLOSE, bytes((Channel.STDIN,))) == b"\xff\0"
    assert resize_frame(80, 24) == b'\x04{"Width":80,"Height":24}'


def test_an_event_is_one_line_of_data_whatever_is_in_it():
    shown = SandboxView(name="a", id="i", phase=Phase.PENDING, message="one\ntwo\r\nthree")
    lines = encoded(Event.STATE, shown).split(b"\n")
    assert (lines[0], lines[2:]) == (b"event: sandbox", [b"", b""])
    assert lines[1].startswith(b"data: {")


@pytest.mark.parametrize("path", ["events", "logs", "exec", "forward", "files"])
def test_streams_are_told_apart_from_other_requests(path):
    assert _STREAM.fullmatch(f"/v1/sandboxes/a/{path}")
    assert not _STREAM.fullmatch(f"/v1/sandboxes/{path}")
    assert not _STREAM.fullmatch("/v1/sandboxes/a/suspend")
    assert not _STREAM.fullmatch(f"/v1/sandboxes//{path}")


@given(
    st.lists(st.integers(1, 3), min_size=4, max_size=4), st.integers(0, 3), st.sampled_from(["exec", "files"])
)
def test_a_stream_is_one_however_many_slashes_its_address_has(slashes, ending, stream):
    words = ("v1", "sandboxes", "a", stream)
    path = "".join("/" * number + word for number, word in zip(slashes, words, strict=True)) + "/" * ending
    assert normalize_path(path) == f"/v1/sandboxes/a/{stream}"
    assert _STREAM.fullmatch(path)
