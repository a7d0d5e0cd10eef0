"""Requests that are made again, streams that are not, and the ways in which a gateway cannot be reached."""

import asyncio
import gc
import json
import subprocess
import sys

import aiohttp
import pytest
from aiohttp import web

from holdfast.errors import (
    ClusterRefusedError,
    ObjectConflictError,
    SandboxMissingError,
    UsageError,
)
from holdfast.kube.reach import ApiRefusedError
from holdfast.sandbox.sdk.connection import Connection
from holdfast.sandbox.sdk.handle import AsyncSandbox
from holdfast.sandbox.sdk.problems import AnswerLostError, NotReachedError, ServerTroubleError
from holdfast.sandbox.sdk.sync import Sandbox
from holdfast.sandbox.wire import SandboxView
from holdfast.testing.throwaway_pki import Authority

VIEW = {"name": "a", "id": "1", "phase": "Ready"}
PATH = "/v1/sandboxes/a"


def ask(peer, work, **changes):
    async def all_of_it():
        async with Connection(lambda: peer.access(**changes)) as connection:
            return await work(connection)

    return asyncio.run(all_of_it())


def get(connection):
    return connection.call("GET", PATH, SandboxView)


def answering(*answers):
    """One answer after the other; the last one for ever."""
    left = list(answers)

    async def answer(request):
        status, body, headers = left.pop(0) if len(left) > 1 else left[0]
        if status is None:
            request.transport.abort()
            return web.Response()
        return web.Response(status=status, body=json.dumps(body), headers=headers)

    return answer


def problem(status, code="x", **headers):
    headers = {key.replace("_", "-"): value for key, value in headers.items()}
    return status, {"code": code, "message": f"said {code}", "hint": "do it"}, headers


OK = (200, VIEW, {})


def test_an_answer_is_the_model_it_must_be(peer):
    peer.answers[PATH] = answering(OK)
    assert ask(peer, get).name == "a"


@pytest.mark.parametrize(
    "trouble", [problem(503), problem(500), problem(429, Retry_After="1"), (None, "", {})]
)
def test_what_may_pass_is_asked_again(peer, no_sleep, trouble):
    peer.answers[PATH] = answering(trouble, OK)
    assert ask(peer, get).phase == "Ready"
    assert len(peer.seen) == 2


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "bad-request", UsageError),
        (422, "invalid", UsageError),
        (404, "sandbox-missing", SandboxMissingError),
        (404, "not-found", ClusterRefusedError),
        (409, "conflict", ObjectConflictError),
        (401, "unauthorized", ApiRefusedError),
        (403, "forbidden", ApiRefusedError),
    ],
)
def test_a_refusal_is_said_once_in_the_servers_words(peer, status, code, kind):
    peer.answers[PATH] = answering(problem(status, code))
    with pytest.raises(kind) as raised:
        ask(peer, get)
    assert type(raised.value) is kind
    assert (raised.value.message, raised.value.hint) == (f"said {code}", "do it")
    assert len(peer.seen) == 1


def test_an_answer_that_the_server_lost_has_a_class_of_its_own_and_opens_nothing_again(peer):
    lost = problem(502, "answer-lost")
    peer.answers["/v1/sandboxes/a/exec"] = answering(lost)

    async def opens(connection):
        async with connection.web_socket("/v1/sandboxes/a/exec"):
            pass

    with pytest.raises(AnswerLostError, match="said answer-lost") as raised:
        ask(peer, opens)
    assert type(raised.value) is AnswerLostError
    assert len(peer.seen) == 1


def test_trouble_that_stays_is_told_after_four_attempts(peer, no_sleep):
    peer.answers[PATH] = answering(problem(503))
    with pytest.raises(ServerTroubleError, match="said x"):
        ask(peer, get)
    assert len(peer.seen) == 4


def test_an_answer_that_is_none_of_ours_names_the_version(peer):
    peer.answers[PATH] = answering((200, {"name": 7}, {}))
    with pytest.raises(ClusterRefusedError, match="something else than a SandboxView"):
        ask(peer, get)


def test_a_server_that_is_not_there_names_gateway_and_command(peer, no_sleep):
    with pytest.raises(NotReachedError, match="gateway dev does not answer") as raised:
        ask(peer, get, url="https://127.0.0.1:1")
    assert "holdfast status dev" in raised.value.hint


def test_another_server_is_not_believed(peer):
    with pytest.raises(ApiRefusedError, match="not the expected gateway"):
        ask(peer, get, ca=Authority("another").certificate)
    assert peer.seen == []


def test_a_foreign_client_certificate_is_refused_for_good(peer):
    other = Authority("another").issue("client")
    with pytest.raises(ApiRefusedError, match="client certificate"):
        ask(peer, get, certificate=other.certificate, key=other.key)
    assert peer.seen == []


def test_certificates_that_were_renewed_meanwhile_are_taken_at_once(peer):
    peer.answers[PATH] = answering(OK)
    other = Authority("another").issue("client")
    old = peer.access(certificate=other.certificate, key=other.key)
    found = [old, peer.access()]

    async def work():
        async with Connection(lambda: found.pop(0) if len(found) > 1 else found[0]) as connection:
            return await get(connection)

    assert asyncio.run(work()).name == "a"


def test_a_gateway_that_moved_is_found_on_the_second_attempt(peer, no_sleep):
    peer.answers[PATH] = answering(OK)
    found = [peer.access(url="https://127.0.0.1:1"), peer.access()]

    async def work():
        async with Connection(lambda: found.pop(0) if len(found) > 1 else found[0]) as connection:
            return await get(connection)

    assert asyncio.run(work()).name == "a"


def test_a_socket_that_is_refused_says_the_servers_words(peer):
    peer.answers[f"{PATH}/exec"] = answering(problem(409, "not-ready"))

    async def work(connection):
        async with connection.web_socket(f"{PATH}/exec"):
            pytest.fail("it was opened")

    with pytest.raises(ObjectConflictError, match="said not-ready"):
        ask(peer, work)


def test_a_socket_whose_opening_was_cut_is_not_opened_twice(peer, no_sleep):
    peer.answers[f"{PATH}/exec"] = answering((None, "", {}))

    async def work(connection):
        async with connection.web_socket(f"{PATH}/exec"):
            pytest.fail("it was opened")

    with pytest.raises(AnswerLostError):
        ask(peer, work)
    assert len(peer.seen) == 1


def test_a_stream_that_is_cut_is_an_error_for_its_reader(peer):
    async def cut(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"some")
        request.transport.abort()
        return response

    peer.answers[f"{PATH}/logs"] = cut

    async def work(connection):
        async with connection.stream("GET", f"{PATH}/logs") as answer:
            async for _ in answer.content.iter_any():
                pass

    with pytest.raises(AnswerLostError):
        ask(peer, work)
    assert len(peer.seen) == 1


@pytest.mark.parametrize(
    "own",
    [FileNotFoundError(2, "x"), BrokenPipeError(32, "x"), ConnectionResetError(104, "x"), TimeoutError()],
)
@pytest.mark.parametrize("way", ["stream", "socket"])
def test_what_the_callers_own_work_raises_is_not_the_connections(peer, own, way):
    async def greet(request):
        opened = web.WebSocketResponse()
        await opened.prepare(request)
        await opened.receive()
        return opened

    peer.answers = {f"{PATH}/logs": answering(OK), f"{PATH}/exec": greet}

    async def work(connection):
        opened = (
            connection.stream("GET", f"{PATH}/logs")
            if way == "stream"
            else connection.web_socket(f"{PATH}/exec")
        )
        async with opened:
            raise own

    with pytest.raises(type(own)) as raised:
        ask(peer, work)
    assert raised.value is own


@pytest.mark.parametrize(
    "error", [aiohttp.ClientPayloadError(), aiohttp.ClientConnectionResetError("x"), ConnectionError("lost")]
)
def test_the_librarys_own_errors_are_the_connections(peer, error):
    peer.answers[f"{PATH}/logs"] = answering(OK)

    async def work(connection):
        async with connection.stream("GET", f"{PATH}/logs"):
            raise error

    with pytest.raises(AnswerLostError):
        ask(peer, work)


def test_keys_are_not_shown(peer):
    assert "PRIVATE" not in repr(peer.access())
    assert "CERTIFICATE" not in repr(peer.access())


def test_a_delete_whose_answer_was_lost_is_still_a_delete(peer, no_sleep):
    peer.answers[PATH] = answering((None, "", {}), problem(404, "sandbox-missing"))

    def delete(connection):
        return AsyncSandbox("a", connection).delete()

    assert ask(peer, delete).deleted
    peer.answers[PATH] = answering(problem(503), problem(404, "sandbox-missing"))
    with pytest.raises(SandboxMissingError):
        ask(peer, delete)
    ignoring = ask(peer, lambda connection: AsyncSandbox("a", connection).delete(ignore_missing=True))
    assert not ignoring.deleted


def test_a_certificate_that_the_server_stopped_trusting_is_looked_up_again(peer):
    peer.answers[PATH] = answering(problem(401, "certificate-not-trusted"), OK)
    renewed = peer.authority.issue("client")
    found = [peer.access(), peer.access(certificate=renewed.certificate, key=renewed.key)]

    async def work():
        async with Connection(lambda: found.pop(0) if len(found) > 1 else found[0]) as connection:
            return await get(connection)

    assert asyncio.run(work()).name == "a"
    assert len(peer.seen) == 2


def test_a_handle_that_nobody_closed_lets_go_of_its_connection(peer):
    peer.answers[PATH] = answering(OK)
    box = Sandbox("a", peer.access)
    connection = box._connection
    assert box.get().name == "a"
    assert connection.is_open
    del box
    gc.collect()
    assert not connection.is_open


def test_a_program_that_closes_nothing_ends_without_a_word(peer):
    peer.answers[PATH] = answering(OK)
    access = peer.access()
    fields = {name: getattr(access, name) for name in ("gateway", "url", "ca", "certificate", "key")}
    program = (
        "from holdfast.sandbox.sdk import Access, Sandbox\n"
        f"box = Sandbox('a', lambda: Access(**{fields!r}))\nprint(box.get().name)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("a\n", "")
