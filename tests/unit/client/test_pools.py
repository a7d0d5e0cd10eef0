"""Templates and pools against a peer: holdfast's own image is pushed in time, and waits end correctly."""

import asyncio

import msgspec
import pytest
from aiohttp import web
from tests.unit.client.conftest import open_transport

from holdfast.api import Phase, PoolDeletionResult, PoolView, TemplateView
from holdfast.client import AsyncPools, Pools, Templates
from holdfast.errors import (
    ContainerEngineError,
    GatewayUnreachableError,
    PoolNotFoundError,
    TemplateNotFoundError,
    UsageError,
    WaitFailedError,
    WaitTimeoutError,
)
from holdfast.sandbox import from_request

IMAGE = from_request.DEFAULT_IMAGE
PATH = "/v1/pools/p"


def view(phase="Pending", reason="", message="", *, size=2, ready=0, image=IMAGE):
    return PoolView(
        name="p", template="t", phase=Phase(phase), reason=reason, message=message, size=size, ready=ready,
        image=image,
    )  # fmt: skip


MISSING = view(reason="ErrImagePull", message="manifest: not found")
READY = view("Ready", ready=2)


def problem(code, status=404):
    body = {"code": code, "message": f"p: {code}", "hint": ""}
    return web.Response(status=status, body=msgspec.json.encode(body))


class FakePool:
    """The routes of pool `p` of template `t`; each watch sends the next of `streams` and stays open."""

    def __init__(self, server, *streams, exists=False, image=IMAGE, ready=0, log=None):
        self.streams, self.exists, self.log = list(streams), exists, [] if log is None else log
        self.view = view(size=1, ready=ready, image=image)
        server.answers |= {
            "/v1/pools": self._create,
            PATH: self._pool,
            f"{PATH}/events": self._events,
            "/v1/templates/t": self._template,
        }

    async def _template(self, request):
        return web.Response(body=msgspec.json.encode(TemplateView(name="t", image=self.view.image)))

    async def _create(self, request):
        self.log.append("create")
        return web.Response(status=200 if self.exists else 201, body=msgspec.json.encode(self.view))

    async def _pool(self, request):
        if request.method == "PATCH":
            self.log.append("scale")
        elif not self.exists:
            return problem("pool-missing")
        return web.Response(body=msgspec.json.encode(self.view))

    async def _events(self, request):
        self.log.append("watch")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for state in self.streams.pop(0):
            event = state if isinstance(state, bytes) else b"pool"
            data = msgspec.json.encode(view("Deleting") if isinstance(state, bytes) else state)
            await response.write(b"event: %s\ndata: %s\n\n" % (event, data))
        await asyncio.Event().wait()
        return response


def call_sync(server, method, *args, push=None, **options):
    with Pools(server.access, push_image=push) as pools:
        result = getattr(pools, method)(*args, **options)
        return (result, pools.is_new) if method == "create" else result


def call_async(server, method, *args, push=None, **options):
    async def run():
        async with open_transport(server.access) as transport:
            pools = AsyncPools(transport, push_image=push)
            result = await getattr(pools, method)(*args, **options)
            return (result, pools.is_new) if method == "create" else result

    return asyncio.run(run())


both = pytest.mark.parametrize("call", [call_sync, call_async])


@both
def test_own_image_is_pushed_before_the_pool_is_created(fake_server, call):
    fake = FakePool(fake_server)
    made, is_new = call(fake_server, "create", "p", "t", size=2, push=fake.log.append)
    assert (fake.log, is_new, made.name) == ([IMAGE, "create"], True, "p")


@both
@pytest.mark.parametrize(("fake", "size"), [({"image": "app:1"}, 2), ({}, 0), ({"exists": True}, 2)])
def test_nothing_is_pushed_that_the_new_pool_does_not_need(fake_server, call, fake, size):
    fake = FakePool(fake_server, **fake)
    _, is_new = call(fake_server, "create", "p", template="t", size=size, push=pytest.fail)
    assert (fake.log, is_new) == (["create"], not fake.exists)


def fail_to_push(image):
    raise ContainerEngineError("engine: failed", hint="Repair it.")


@both
def test_failed_push_does_not_prevent_a_pool_whose_image_may_be_in_the_gateway(fake_server, call):
    fake = FakePool(fake_server)
    call(fake_server, "create", "p", "t", size=2, push=fail_to_push)
    fake.exists = True
    call(fake_server, "scale", "p", 3, push=fail_to_push)
    assert fake.log == ["create", "scale"]


@both
def test_failed_push_is_the_cause_of_the_failed_wait(fake_server, call):
    FakePool(fake_server, [MISSING], [MISSING])
    with pytest.raises(WaitFailedError, match="pushing the image failed: engine: failed") as caught:
        call(fake_server, "wait", "p", push=fail_to_push, timeout=20)
    assert (caught.value.hint, type(caught.value.cause)) == ("Repair it.", ContainerEngineError)


@both
def test_own_image_is_pushed_before_a_pool_without_ready_sandboxes_grows(fake_server, call):
    fake = FakePool(fake_server, exists=True)
    call(fake_server, "scale", "p", 3, push=fake.log.append)
    assert fake.log == [IMAGE, "scale"]


@both
@pytest.mark.parametrize(("ready", "size"), [(1, 3), (0, 1), (0, 0)])
def test_nothing_is_pushed_that_the_scaled_pool_does_not_need(fake_server, call, ready, size):
    fake = FakePool(fake_server, exists=True, ready=ready)
    call(fake_server, "scale", "p", size, push=pytest.fail)
    assert fake.log == ["scale"]


@both
def test_wait_pushes_a_missing_image_and_continues(fake_server, call):
    fake = FakePool(fake_server, [view(), MISSING], [MISSING, view(reason="ImagePullBackOff"), READY])
    seen = []
    push = lambda image: fake.log.append(image) or True  # noqa: E731
    assert call(fake_server, "wait", "p", push=push, on_change=seen.append, timeout=20) == READY
    assert fake.log == ["watch", IMAGE, "watch"]
    assert seen[-1] == READY


@both
def test_image_that_cannot_be_pushed_fails_the_wait_with_the_build_command(fake_server, call):
    FakePool(fake_server, [MISSING], [MISSING])
    with pytest.raises(WaitFailedError, match="manifest: not found") as caught:
        call(fake_server, "wait", "p", push=lambda image: False, timeout=20)
    assert "`holdfast image build sandbox`" in caught.value.hint


@pytest.mark.parametrize(
    ("state", "error", "words"),
    [
        (
            view(reason="CrashLoopBackOff", message="p-1: exit 1"),
            WaitFailedError,
            "holdfast pool get --gateway dev p",
        ),
        (view(reason="TemplateNotFound"), WaitFailedError, "holdfast template create --gateway dev t"),
        (view("Deleting"), PoolNotFoundError, "holdfast pool list"),
        (b"deleted", PoolNotFoundError, "holdfast pool list"),
    ],
)
def test_wait_ends_when_the_pool_cannot_become_ready(fake_server, state, error, words):
    FakePool(fake_server, [view(), state])
    with pytest.raises(error) as caught:
        call_sync(fake_server, "wait", "p", timeout=20)
    assert words in caught.value.hint


def test_wait_that_takes_too_long_shows_the_last_state(fake_server):
    FakePool(fake_server, [view(message="1 of 2 sandboxes are ready")])
    with pytest.raises(WaitTimeoutError, match=r"1 of 2 sandboxes are ready"):
        call_sync(fake_server, "wait", "p", timeout=0.5)


@pytest.mark.parametrize(("client", "path"), [(Pools, PATH), (Templates, "/v1/templates/p")])
def test_repeated_deletion_after_a_lost_response_is_a_success(fake_server, no_sleep, client, path):
    answers = [lambda request: request.transport.abort(), lambda request: None]

    async def answer(request):
        answers.pop(0)(request)
        return problem("pool-missing" if client is Pools else "template-missing")

    fake_server.answers[path] = answer
    with client(fake_server.access) as objects:
        assert objects.delete("p").deleted
    assert answers == []


@pytest.mark.parametrize(
    ("client", "error"), [(Pools, PoolNotFoundError), (Templates, TemplateNotFoundError)]
)
def test_deletion_of_what_does_not_exist(fake_server, client, error):
    async def answer(request):
        return problem(error.code)

    fake_server.answers |= {PATH: answer, "/v1/templates/p": answer}
    with client(fake_server.access) as objects:
        with pytest.raises(error, match="on gateway dev"):
            objects.delete("p")
        assert not objects.delete("p", ignore_missing=True).deleted


def test_deletion_reports_what_stays(fake_server):
    async def answer(request):
        return web.Response(body=msgspec.json.encode(PoolDeletionResult(deleted=True, sandboxes=["a"])))

    fake_server.answers[PATH] = answer
    assert call_sync(fake_server, "delete", "p").sandboxes == ["a"]


@pytest.mark.parametrize(
    ("client", "method", "args", "options"),
    [
        (Pools, "create", ("p", "t"), {"sise": 1}),
        (Pools, "create", ("p", "Bad"), {}),
        (Pools, "create", ("../p", "t"), {}),
        (Pools, "scale", ("p", -1), {}),
        (Pools, "get", ("a/../b",), {}),
        (Pools, "delete", ("",), {}),
        (Pools, "wait", ("P",), {}),
        (Templates, "create", ("t",), {"memroy": "1Gi"}),
        (Templates, "get", ("a/b",), {}),
        (Templates, "delete", ("?",), {}),
    ],
)
def test_invalid_argument_is_rejected_without_a_request(client, method, args, options):
    def resolve():
        raise AssertionError("the arguments are checked first")

    with client(resolve) as objects, pytest.raises(UsageError):
        getattr(objects, method)(*args, **options)


def test_unreachable_gateway_is_reported(fake_server, no_sleep):
    with (
        Templates(lambda: fake_server.access(url="https://127.0.0.1:9")) as templates,
        pytest.raises(GatewayUnreachableError),
    ):
        list(templates)
