"""Requests that are made again, streams that are not, and the ways in which a gateway cannot be reached."""

import asyncio
import errno
import gc
import json
import ssl
import subprocess
import sys

import aiohttp
import pytest
from aiohttp import web
from tests.unit.client.conftest import open_transport

from holdfast.api import SandboxView
from holdfast.client import AsyncSandbox, AsyncSandboxes, Sandbox, Sandboxes
from holdfast.client.errors import error_from_exception, rejected_certificate_error
from holdfast.errors import (
    ApiRefusedError,
    ApiRequestRejectedError,
    DiskFullError,
    GatewayUnavailableError,
    GatewayUnreachableError,
    HoldfastError,
    ObjectConflictError,
    PathNotFoundError,
    PathPermissionError,
    ResponseLostError,
    SandboxNotFoundError,
    UsageError,
)
from holdfast.testing.ephemeral_pki import EphemeralCA

VIEW = {"name": "a", "id": "1", "phase": "Ready"}
PATH = "/v1/sandboxes/a"


def ask(peer, work, **changes):
    async def all_of_it():
        async with open_transport(lambda: peer.access(**changes)) as connection:
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


def problem(status, code="x", hint="do it", **headers):
    headers = {key.replace("_", "-"): value for key, value in headers.items()}
    return status, {"code": code, "message": f"said {code}", "hint": hint}, headers


OK = (200, VIEW, {})


def test_response_is_decoded_to_model(fake_server):
    fake_server.answers[PATH] = answering(OK)
    assert ask(fake_server, get).name == "a"


@pytest.mark.parametrize(
    "trouble", [problem(503), problem(500), problem(429, Retry_After="1"), (None, "", {})]
)
def test_transient_errors_are_retried(fake_server, no_sleep, trouble):
    fake_server.answers[PATH] = answering(trouble, OK)
    assert ask(fake_server, get).phase == "Ready"
    assert len(fake_server.seen) == 2


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "bad-request", UsageError),
        (422, "invalid", UsageError),
        (404, "not-found", ApiRequestRejectedError),
        (409, "conflict", ObjectConflictError),
        (409, "path-denied", PathPermissionError),
        (404, "path-missing", PathNotFoundError),
        (409, "copy-failed", ApiRequestRejectedError),
        (409, "disk-full", DiskFullError),
        (401, "unauthorized", ApiRefusedError),
        (403, "forbidden", ApiRefusedError),
    ],
)
def test_rejection_is_raised_once_with_server_message(fake_server, status, code, kind):
    fake_server.answers[PATH] = answering(problem(status, code))
    with pytest.raises(kind) as raised:
        ask(fake_server, get)
    assert type(raised.value) is kind
    assert (raised.value.message, raised.value.hint) == (f"said {code}", "do it")
    assert len(fake_server.seen) == 1


def test_lost_response_has_own_class_and_is_not_retried(fake_server):
    lost = problem(502, "answer-lost")
    fake_server.answers["/v1/sandboxes/a/exec"] = answering(lost)

    async def opens(connection):
        async with connection.websocket("/v1/sandboxes/a/exec"):
            pass

    with pytest.raises(ResponseLostError, match="said answer-lost") as raised:
        ask(fake_server, opens)
    assert type(raised.value) is ResponseLostError
    assert len(fake_server.seen) == 1


def test_persistent_failure_is_raised_after_four_attempts(fake_server, no_sleep):
    fake_server.answers[PATH] = answering(problem(503))
    with pytest.raises(GatewayUnavailableError, match="said x"):
        ask(fake_server, get)
    assert len(fake_server.seen) == 4


def test_unrecognized_response_names_version(fake_server):
    fake_server.answers[PATH] = answering((200, {"name": 7}, {}))
    with pytest.raises(ApiRequestRejectedError, match="did not return a SandboxView"):
        ask(fake_server, get)


def test_unreachable_server_names_gateway_and_command(fake_server, no_sleep):
    with pytest.raises(GatewayUnreachableError, match="gateway dev does not answer") as raised:
        ask(fake_server, get, url="https://127.0.0.1:1")
    assert "holdfast status dev" in raised.value.hint


def test_untrusted_server_is_rejected(fake_server):
    with pytest.raises(ApiRefusedError, match="not the certificate of gateway"):
        ask(fake_server, get, ca=EphemeralCA().certificate)
    assert fake_server.seen == []


@pytest.mark.parametrize("code", [9, 10])
def test_certificate_outside_its_validity_names_the_clock(fake_server, code):
    invalid = ssl.SSLCertVerificationError(1, "certificate verify failed")
    invalid.verify_code, invalid.verify_message = code, "certificate is not yet valid"
    error = error_from_exception(invalid, fake_server.access())
    assert isinstance(error, ApiRefusedError)
    assert "is not valid by this machine's clock" in error.message
    assert error.hint.startswith("Correct the clock of this machine if it is wrong. Otherwise run `holdfast")


def test_foreign_client_certificate_is_rejected_permanently(fake_server):
    other = EphemeralCA().issue("client")
    with pytest.raises(ApiRefusedError, match="client certificate"):
        ask(fake_server, get, certificate=other.certificate, key=other.key)
    assert fake_server.seen == []


@pytest.mark.parametrize(
    ("reason", "names_clock"),
    [
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", True),
        ("SSLV3_ALERT_BAD_CERTIFICATE", True),
        ("TLSV1_ALERT_UNKNOWN_CA", False),
    ],
)
def test_certificate_that_the_server_finds_invalid_names_the_clock_of_its_host(
    fake_server, reason, names_clock
):
    alert = ssl.SSLError(1, reason)
    alert.reason = reason
    error = rejected_certificate_error(fake_server.access(), alert)
    assert ("clock of the gateway's host" in error.hint) is names_clock
    assert "holdfast up dev" in error.hint


def test_renewed_certificates_are_loaded_immediately(fake_server):
    fake_server.answers[PATH] = answering(OK)
    other = EphemeralCA().issue("client")
    old = fake_server.access(certificate=other.certificate, key=other.key)
    found = [old, fake_server.access()]

    async def work():
        async with open_transport(lambda: found.pop(0) if len(found) > 1 else found[0]) as connection:
            return await get(connection)

    assert asyncio.run(work()).name == "a"


def test_moved_gateway_is_found_on_second_attempt(fake_server, no_sleep):
    fake_server.answers[PATH] = answering(OK)
    found = [fake_server.access(url="https://127.0.0.1:1"), fake_server.access()]

    async def work():
        async with open_transport(lambda: found.pop(0) if len(found) > 1 else found[0]) as connection:
            return await get(connection)

    assert asyncio.run(work()).name == "a"


def test_rejected_websocket_has_server_message(fake_server):
    fake_server.answers[f"{PATH}/exec"] = answering(problem(409, "not-ready"))

    async def work(connection):
        async with connection.websocket(f"{PATH}/exec"):
            pytest.fail("it was opened")

    with pytest.raises(ObjectConflictError, match="said not-ready"):
        ask(fake_server, work)


def test_cut_websocket_handshake_is_not_retried(fake_server, no_sleep):
    fake_server.answers[f"{PATH}/exec"] = answering((None, "", {}))

    async def work(connection):
        async with connection.websocket(f"{PATH}/exec"):
            pytest.fail("it was opened")

    with pytest.raises(ResponseLostError):
        ask(fake_server, work)
    assert len(fake_server.seen) == 1


def test_cut_stream_is_an_error_for_reader(fake_server):
    async def cut(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"some")
        request.transport.abort()
        return response

    fake_server.answers[f"{PATH}/logs"] = cut

    async def work(connection):
        async with connection.stream("GET", f"{PATH}/logs") as answer:
            async for _ in answer.content.iter_any():
                pass

    with pytest.raises(ResponseLostError):
        ask(fake_server, work)
    assert len(fake_server.seen) == 1


@pytest.mark.parametrize(
    "own",
    [FileNotFoundError(2, "x"), BrokenPipeError(32, "x"), ConnectionResetError(104, "x"), TimeoutError()],
)
@pytest.mark.parametrize("way", ["stream", "socket"])
def test_caller_exceptions_are_not_translated(fake_server, own, way):
    async def greet(request):
        opened = web.WebSocketResponse()
        await opened.prepare(request)
        await opened.receive()
        return opened

    fake_server.answers = {f"{PATH}/logs": answering(OK), f"{PATH}/exec": greet}

    async def work(connection):
        opened = (
            connection.stream("GET", f"{PATH}/logs")
            if way == "stream"
            else connection.websocket(f"{PATH}/exec")
        )
        async with opened:
            raise own

    with pytest.raises(type(own)) as raised:
        ask(fake_server, work)
    assert raised.value is own


@pytest.mark.parametrize(
    "error", [aiohttp.ClientPayloadError(), aiohttp.ClientConnectionResetError("x"), ConnectionError("lost")]
)
def test_client_library_errors_are_translated(fake_server, error):
    fake_server.answers[f"{PATH}/logs"] = answering(OK)

    async def work(connection):
        async with connection.stream("GET", f"{PATH}/logs"):
            raise error

    with pytest.raises(ResponseLostError):
        ask(fake_server, work)


def test_keys_are_not_shown(fake_server):
    assert "PRIVATE" not in repr(fake_server.access())
    assert "CERTIFICATE" not in repr(fake_server.access())


def test_unknown_sandbox_names_its_gateway(fake_server):
    fake_server.answers[PATH] = answering(problem(404, "sandbox-missing"))
    with pytest.raises(SandboxNotFoundError, match="said sandbox-missing on gateway dev") as raised:
        ask(fake_server, get, gateway="dev")
    assert raised.value.hint == "do it"
    assert len(fake_server.seen) == 1


@pytest.mark.parametrize("status", [404, 409, 422, 503])
def test_hint_of_server_names_the_gateway(fake_server, no_sleep, status):
    fake_server.answers[PATH] = answering(
        problem(status, hint="Run `holdfast sandbox list` or `holdfast up`.")
    )
    with pytest.raises(HoldfastError) as raised:
        ask(fake_server, get, gateway="my dev")
    assert raised.value.hint == "Run `holdfast sandbox list --gateway 'my dev'` or `holdfast up`."


def test_delete_with_lost_response_succeeds(fake_server, no_sleep):
    fake_server.answers[PATH] = answering((None, "", {}), problem(404, "sandbox-missing"))

    def delete(connection):
        return AsyncSandbox("a", connection).delete()

    deletion = ask(fake_server, delete)
    assert (deletion.deleted, deletion.workspace) == (True, "unknown")
    fake_server.answers[PATH] = answering(problem(503), problem(404, "sandbox-missing"))
    with pytest.raises(SandboxNotFoundError):
        ask(fake_server, delete)
    ignoring = ask(fake_server, lambda connection: AsyncSandbox("a", connection).delete(ignore_missing=True))
    assert not ignoring.deleted


def test_distrusted_certificate_is_reloaded(fake_server):
    fake_server.answers[PATH] = answering(problem(401, "certificate-not-trusted"), OK)
    renewed = fake_server.authority.issue("client")
    found = [fake_server.access(), fake_server.access(certificate=renewed.certificate, key=renewed.key)]

    async def work():
        async with open_transport(lambda: found.pop(0) if len(found) > 1 else found[0]) as connection:
            return await get(connection)

    assert asyncio.run(work()).name == "a"
    assert len(fake_server.seen) == 2


def test_unclosed_client_releases_connection(fake_server):
    fake_server.answers[PATH] = answering(OK)
    box = Sandbox("a", fake_server.access)
    connection = box._transport
    assert box.get().name == "a"
    assert connection.is_open
    del box
    gc.collect()
    assert not connection.is_open


def run_program(peer, program):
    """Run a program that has a client `box`; return its standard output and error."""
    access = peer.access()
    fields = {name: getattr(access, name) for name in ("gateway", "url", "ca", "certificate", "key")}
    setup = (
        "from holdfast.client import GatewayEndpoint, Sandbox\n"
        f"box = Sandbox('a', lambda: GatewayEndpoint(**{fields!r}))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", setup + program], capture_output=True, text=True, check=True, timeout=60
    )
    return ended.stdout, ended.stderr


def test_program_without_close_exits_silently(fake_server):
    fake_server.answers[PATH] = answering(OK)
    assert run_program(fake_server, "print(box.get().name)") == ("a\n", "")


FORKING = """
import os, sys
box.get()
child = os.fork()
if child == 0:
    box.get()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
box.get()
"""


def test_forked_child_opens_own_connection_and_leaves_that_of_parent_open(fake_server):
    connections = []

    async def answer(request):
        connections.append(request.transport.get_extra_info("peername"))
        return web.json_response(VIEW)

    fake_server.answers[PATH] = answer
    assert run_program(fake_server, FORKING) == ("", "")
    parent, child, parent_again = connections
    assert parent == parent_again != child


def test_client_of_one_sandbox_does_not_close_shared_connection(fake_server):
    fake_server.answers[PATH] = answering(OK)
    with Sandboxes(fake_server.access) as sandboxes:
        with sandboxes.sandbox("a") as box:
            box.get()
        assert sandboxes._transport.is_open
    assert not sandboxes._transport.is_open

    async def work(connection):
        async with AsyncSandboxes(connection) as both:
            async with both.sandbox("a") as one:
                await one.get()
            assert connection.is_open
        assert not connection.is_open

    ask(fake_server, work)


def test_shared_connection_lives_as_long_as_its_last_client(fake_server):
    fake_server.answers[PATH] = answering(OK)
    box = Sandboxes(fake_server.access).sandbox("a")
    connection = box._transport
    box.get()
    gc.collect()
    assert connection.is_open
    del box
    gc.collect()
    assert not connection.is_open


def test_failure_to_resolve_endpoint_is_raised_unchanged():
    error = FileNotFoundError(2, "no certificate")

    def resolve():
        raise error

    async def work():
        async with open_transport(resolve) as connection:
            await get(connection)

    with pytest.raises(FileNotFoundError) as raised:
        asyncio.run(work())
    assert raised.value is error


@pytest.mark.parametrize("resolved", [0, 1], ids=["first connection", "after a lost connection"])
def test_full_disk_while_tunnel_is_opened_is_reported_as_such(fake_server, resolved):
    endpoints = [fake_server.access(url="https://127.0.0.1:1")] * resolved

    def resolve():
        if endpoints:
            return endpoints.pop()
        raise OSError(errno.ENOSPC, "No space left on device", "/home/me/tunnel.json")

    async def run():
        async with open_transport(resolve) as connection:
            await get(connection)

    with pytest.raises(DiskFullError, match=r"/home/me/tunnel.json: no space left on this machine"):
        asyncio.run(run())


def test_unreadable_configuration_is_not_reported_as_full_disk():
    def resolve():
        raise PermissionError(errno.EACCES, "Permission denied", "/home/me/gateway.json")

    async def run():
        async with open_transport(resolve) as connection:
            await get(connection)

    with pytest.raises(PermissionError):
        asyncio.run(run())
