"""`wait` on a node that cannot pull the sandbox's image: the client pushes it and replaces the pod."""

import asyncio

import msgspec
import pytest
from aiohttp import web
from tests.unit.client.conftest import open_transport

from holdfast.api import Phase, SandboxView
from holdfast.client import AsyncSandbox, Sandbox
from holdfast.errors import (
    ContainerEngineUnreachableError,
    ImageNotFoundError,
    OperationCancelledError,
    WaitFailedError,
)
from holdfast.sandbox import from_request

PATH = "/v1/sandboxes/a"
IMAGE = "holdfast/sandbox:1"


def view(phase, reason="", message=""):
    return SandboxView(name="a", id="1", phase=Phase(phase), reason=reason, message=message, image=IMAGE)


MISSING = view("Pending", "ErrImagePull", "manifest: not found")


class FakeSandbox:
    """The routes of one sandbox; each watch stream sends the next of `streams` and stays open."""

    def __init__(self, server, *streams):
        self.streams = list(streams)
        self.calls = []
        server.answers |= {
            f"{PATH}/events": self._events,
            f"{PATH}/suspend": self._action("suspend"),
            f"{PATH}/resume": self._action("resume"),
        }

    def _action(self, name):
        async def answer(request):
            self.calls.append(name)
            return web.Response(body=msgspec.json.encode(view("Pending")))

        return answer

    async def _events(self, request):
        self.calls.append("watch")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for state in self.streams.pop(0):
            await response.write(f"event: sandbox\ndata: {msgspec.json.encode(state).decode()}\n\n".encode())
        await asyncio.Event().wait()
        return response


def wait_sync(server, push, **options):
    with Sandbox("a", server.access, push_image=push) as sandbox:
        return sandbox.wait(timeout=20, **options)


def wait_async(server, push, **options):
    async def run():
        async with open_transport(server.access) as transport:
            return await AsyncSandbox("a", transport, push_image=push).wait(timeout=20, **options)

    return asyncio.run(run())


both = pytest.mark.parametrize("wait", [wait_sync, wait_async])


@both
def test_image_is_pushed_and_pod_is_replaced(fake_server, wait):
    fake = FakeSandbox(fake_server, [MISSING], [view("Suspended")], [view("Pending"), view("Ready")])
    images = []
    assert wait(fake_server, lambda image: images.append(image) or True).phase == "Ready"
    assert images == [IMAGE]
    assert fake.calls == ["watch", "suspend", "watch", "resume", "watch"]


@both
def test_nothing_is_pushed_when_the_image_is_present(fake_server, wait):
    fake = FakeSandbox(fake_server, [view("Pending"), view("Ready")])
    assert wait(fake_server, pytest.fail).phase == "Ready"
    assert fake.calls == ["watch"]


@both
def test_without_local_image_the_registry_may_still_have_it(fake_server, wait):
    fake = FakeSandbox(fake_server, [MISSING], [view("Pending"), view("Ready")])
    assert wait(fake_server, lambda image: False).phase == "Ready"
    assert fake.calls == ["watch", "watch"]


@both
def test_missing_image_is_reported_with_the_message_of_the_node(fake_server, wait):
    FakeSandbox(fake_server, [MISSING], [MISSING])
    with pytest.raises(WaitFailedError, match="manifest: not found"):
        wait(fake_server, lambda image: False)


def fail_to_push(image):
    raise ContainerEngineUnreachableError("engine: does not answer", hint="Start it.")


@both
def test_failed_push_is_the_cause_of_the_failed_wait(fake_server, wait):
    FakeSandbox(fake_server, [MISSING], [MISSING])
    with pytest.raises(WaitFailedError, match=r"not found.*pushing the image failed: engine: does") as caught:
        wait(fake_server, fail_to_push)
    assert caught.value.hint == "Start it."
    assert isinstance(caught.value.cause, ContainerEngineUnreachableError)


@both
def test_wait_succeeds_after_a_failed_push_if_the_node_gets_the_image(fake_server, wait):
    FakeSandbox(fake_server, [MISSING], [view("Pending"), view("Ready")])
    assert wait(fake_server, fail_to_push).phase == "Ready"


@both
def test_interrupted_push_ends_the_wait(fake_server, wait):
    def push(image):
        raise OperationCancelledError("interrupted")

    FakeSandbox(fake_server, [MISSING])
    with pytest.raises(OperationCancelledError):
        wait(fake_server, push)


@both
def test_image_that_is_nowhere_has_to_be_built(fake_server, wait):
    def push(image):
        raise ImageNotFoundError("image: not on this machine", hint="Pull it.")

    missing = msgspec.structs.replace(MISSING, image=from_request.CURRENT_IMAGES[0])
    FakeSandbox(fake_server, [missing], [missing])
    with pytest.raises(WaitFailedError, match="image: not on this machine") as caught:
        wait(fake_server, push)
    assert "`holdfast image build " in caught.value.hint


@pytest.mark.parametrize("name", ["sandbox", "sandbox-full"])
def test_missing_own_image_names_the_build_command(fake_server, name):
    image = next(image for image in from_request.CURRENT_IMAGES if image.startswith(f"holdfast/{name}:"))
    missing = msgspec.structs.replace(MISSING, image=image)
    FakeSandbox(fake_server, [missing], [missing])
    with pytest.raises(WaitFailedError) as caught:
        wait_sync(fake_server, lambda image: False)
    assert f"`holdfast image build {name}`" in caught.value.hint
    assert "`holdfast image load FILE`" in caught.value.hint


@both
def test_pushed_image_that_still_fails_is_reported(fake_server, wait):
    FakeSandbox(fake_server, [MISSING], [view("Suspended")], [MISSING])
    pushes = []
    with pytest.raises(WaitFailedError, match="manifest: not found"):
        wait(fake_server, lambda image: pushes.append(image) or True)
    assert pushes == [IMAGE]


@both
@pytest.mark.parametrize("reason", ["CrashLoopBackOff", "InvalidImageName"])
def test_other_failures_push_nothing(fake_server, wait, reason):
    FakeSandbox(fake_server, [view("Pending", reason)])
    with pytest.raises(WaitFailedError):
        wait(fake_server, pytest.fail)


@both
def test_wait_for_other_phase_pushes_nothing(fake_server, wait):
    FakeSandbox(fake_server, [MISSING, view("Suspended")])
    assert wait(fake_server, pytest.fail, phase="Suspended").phase == "Suspended"
