"""What a wait makes of each state, and of an event stream in pieces, cut, or silent."""

import asyncio
import time
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from aiohttp import web
from hypothesis import given, strategies as st
from tests.support.virtual_time import run_virtual
from tests.unit.client.conftest import open_transport

from holdfast.api import Phase, SandboxClaimReason, SandboxView
from holdfast.client import AsyncSandbox, watch
from holdfast.client.base import ImagePush
from holdfast.client.event_stream import EventStreamParser, ServerSentEvent
from holdfast.client.watch import _HINTS, WaitState, evaluate
from holdfast.errors import HoldfastError, SandboxNotFoundError, UsageError, WaitFailedError, WaitTimeoutError
from holdfast.server.sandboxes.presenters import present_sandbox_claim

EVENTS = "/v1/sandboxes/a/events"


def view(phase, reason="", message="", **more):
    return SandboxView(name="a", id="1", phase=Phase(phase), reason=reason, message=message, **more)


@pytest.mark.parametrize(
    ("seen", "wanted", "how"),
    [
        (view("Ready"), "Ready", "reached"),
        (view("Pending"), "Ready", "pending"),
        (view("Pending", "ContainerCreating"), "Ready", "pending"),
        (view("Pending", "ImagePullBackOff", "no such image"), "Ready", "failed"),
        (view("Pending", "ErrImagePull", "i/o timeout"), "Ready", "suspect"),
        (view("Pending", "ErrImagePull", "manifest: Not Found"), "Ready", "failed"),
        (view("Pending", "Unschedulable"), "Ready", "suspect"),
        (
            view("Pending", "Unschedulable", "pod has unbound immediate PersistentVolumeClaims."),
            "Ready",
            "pending",
        ),
        (view("Pending", "ReconcilerError"), "Ready", "suspect"),
        (view("Pending", "Error", "exited with code 3"), "Ready", "suspect"),
        (view("Pending", "Completed", "exited with code 0"), "Ready", "suspect"),
        (view("Pending", "StartError", "no such file"), "Ready", "failed"),
        (view("Pending", "CrashLoopBackOff"), "Ready", "failed"),
        (view("Pending", "WarmPoolNotFound"), "Ready", "failed"),
        (view("Failed", "PodFailed"), "Ready", "suspect"),
        (view("Failed", "PodFailed", failed_pods="Keep"), "Ready", "failed"),
        (view("Finished"), "Ready", "failed"),
        (view("Expired"), "Ready", "failed"),
        (view("Deleting"), "Ready", "failed"),
        (view("Suspended"), "Ready", "failed"),
        (view("Ready"), "Suspended", "pending"),
        (view("Suspended"), "Suspended", "reached"),
        (view("Pending", "ImagePullBackOff"), "Suspended", "pending"),
        (view("Deleting"), "Suspended", "failed"),
        (view("Failed"), "Finished", "pending"),
        (view("Deleting"), "Failed", "failed"),
    ],
)
def test_every_phase_is_classified(seen, wanted, how):
    found = evaluate(seen, Phase(wanted))
    assert found is WaitState(how)


CLAIMS = {
    SandboxClaimReason.TEMPLATE_NOT_FOUND: "failed",
    SandboxClaimReason.WARM_POOL_NOT_FOUND: "failed",
    SandboxClaimReason.INVALID_METADATA: "failed",
    SandboxClaimReason.ENV_VARS_INJECTION_REJECTED: "failed",
    SandboxClaimReason.VOLUME_CLAIM_TEMPLATES_ERROR: "failed",
    SandboxClaimReason.CLAIM_EXPIRED: "failed",
    SandboxClaimReason.ADOPTION_CONFLICT: "suspect",  # the sandbox with that name may be terminating
    SandboxClaimReason.SANDBOX_MISSING: "suspect",  # a SandboxClaim that has not finished gets another one
    SandboxClaimReason.SANDBOX_CREATE_PENDING: "pending",
    SandboxClaimReason.SANDBOX_NOT_READY: "pending",
}


@pytest.mark.parametrize("reason", SandboxClaimReason)
def test_every_claim_reason_is_classified(reason):
    ready = {"type": "Ready", "status": "False", "reason": reason.value, "message": "so it is"}
    claim = {"metadata": {"name": "a", "uid": "u"}, "spec": {}, "status": {"conditions": [ready]}}
    found = evaluate(present_sandbox_claim(claim), Phase.READY)
    assert found is WaitState(CLAIMS[reason])


@pytest.mark.parametrize(
    "reason", sorted((watch.PERMANENT_REASONS | watch.SUSPECT_REASONS) & set(SandboxClaimReason))
)
def test_unrecoverable_claim_has_hint(reason):
    assert reason in _HINTS


def test_reference_lists_all_reasons():
    page = Path(__file__).parents[3] / "docs" / "reference" / "cli" / "sandbox.md"
    described = page.read_text().partition("## When a wait fails early")[2]
    reasons = watch.PERMANENT_REASONS | watch.SUSPECT_REASONS
    assert sorted(reason for reason in reasons if f"`{reason}`" not in described) == []


def test_summary_has_phase_reason_and_first_line():
    assert watch.summarize(view("Pending", "ErrImagePull", "no\nmore")) == "Pending (ErrImagePull: no)"
    assert watch.summarize(view("Ready")) == "Ready"


STREAM = (
    b"event: sandbox\r\ndata: one\r\n\r\n: still here\n\nevent: deleted\ndata: two\ndata: lines\n\nid: 4\n\n"
)


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_are_reassembled_from_any_chunks(cuts):
    reader, found, at = EventStreamParser(), [], 0
    for cut in sorted({*cuts, len(STREAM)}):
        found += reader.feed(STREAM[at:cut])
        at = cut
    assert found == [ServerSentEvent("sandbox", b"one"), ServerSentEvent("deleted", b"two\nlines")]


SILENCE = object()
"""In place of a view: the server keeps the stream open and sends nothing more."""


def telling(*scripts):
    """One script for each stream: views, event names with them, or SILENCE; then it is cut."""
    left = list(scripts)

    async def answer(request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for step in left.pop(0) if len(left) > 1 else left[0]:
            if step is SILENCE:
                await asyncio.Event().wait()
            name, seen = step if isinstance(step, tuple) else ("sandbox", step)
            await response.write(f"event: {name}\ndata: {msgspec.json.encode(seen).decode()}\n\n".encode())
        return response

    return answer


def wait(peer, phase="Ready", **options):
    async def work():
        async with open_transport(peer.access) as connection:
            return await AsyncSandbox("a", connection).wait(phase, **options)

    return asyncio.run(work())


def test_wait_reports_each_change_and_ends_at_target(fake_server):
    fake_server.answers[EVENTS] = telling(
        [view("Pending"), view("Pending", "ContainerCreating"), view("Ready"), SILENCE]
    )
    heard = []
    assert wait(fake_server, on_change=heard.append).phase == "Ready"
    assert [each.reason for each in heard] == ["", "ContainerCreating", ""]
    assert len(fake_server.seen) == 1


def test_cut_stream_is_reopened(fake_server, no_sleep):
    fake_server.answers[EVENTS] = telling([view("Pending")], [], [view("Ready"), SILENCE])
    assert wait(fake_server).phase == "Ready"
    assert len(fake_server.seen) == 3


def test_problem_in_stream_is_retried(fake_server, no_sleep):
    trouble = ("problem", {"code": "x", "message": "the watch ended", "hint": ""})
    fake_server.answers[EVENTS] = telling([view("Pending"), trouble], [view("Ready"), SILENCE])
    assert wait(fake_server).phase == "Ready"


def test_missing_image_ends_wait_immediately_with_reason(fake_server):
    fake_server.answers[EVENTS] = telling([view("Pending", "ErrImagePull", "x:1 not found"), SILENCE])
    began = time.monotonic()
    with pytest.raises(WaitFailedError, match="ErrImagePull: x:1 not found") as raised:
        wait(fake_server)
    assert time.monotonic() - began < 10
    assert "image" in raised.value.hint


class ScriptedTransport:
    """A transport whose event streams send views, or pause for seconds of virtual time."""

    on_retry = None
    gateway = "dev"

    def __init__(self, *scripts):
        self._scripts = list(scripts)
        self.calls = []

    async def call(self, method, path, response_type):
        self.calls.append((method, path, response_type))

    @asynccontextmanager
    async def stream(self, method, path):
        assert (method, path) == ("GET", EVENTS)
        yield SimpleNamespace(content=self)

    async def iter_any(self):
        for step in self._scripts.pop(0):
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield f"event: sandbox\ndata: {msgspec.json.encode(step).decode()}\n\n".encode()
        await asyncio.Event().wait()


def wait_virtual(*script, min_ready_seconds=0.0):
    """Wait for Ready; return the last view and the virtual seconds that it took."""

    async def run():
        view = await watch.wait_for_phase(
            ScriptedTransport(script), "a", Phase.READY, timeout=600, min_ready_seconds=min_ready_seconds
        )
        return view, asyncio.get_running_loop().time()

    return run_virtual(run())


GRACE = watch.SUSPECT_GRACE_SECONDS


def test_persistent_suspect_state_ends_wait():
    with pytest.raises(WaitFailedError, match="no room"):
        wait_virtual(view("Pending", "Unschedulable", "no room"))


def test_changed_message_does_not_reset_suspect_state():
    told = [each for n in range(9) for each in (view("Pending", "Error", f"started {n} times"), GRACE * 0.3)]
    with pytest.raises(WaitFailedError, match="started 3 times"):
        wait_virtual(*told)


def test_passing_suspect_state_is_tolerated():
    doubt = view("Pending", "Unschedulable", "no room")
    assert wait_virtual(doubt, GRACE / 2, view("Pending"), GRACE, view("Ready"))[0].phase == "Ready"


def test_failed_pod_is_awaited_while_it_is_recreated_soon():
    failed = view("Failed", "PodFailed", "container main exited with code 3")
    often = [each for n in (1, 2, 3) for each in (failed, GRACE * n / 4, view("Pending"), GRACE / 4)]
    assert wait_virtual(*often, view("Ready"))[0].phase == "Ready"
    with pytest.raises(WaitFailedError, match="exited with code 3"):
        wait_virtual(*often, failed)


def test_kept_failed_pod_ends_wait_immediately(fake_server):
    fake_server.answers[EVENTS] = telling(
        [view("Failed", "PodFailed", "Evicted", failed_pods="Keep"), SILENCE]
    )
    began = time.monotonic()
    with pytest.raises(WaitFailedError, match="Evicted"):
        wait(fake_server)
    assert time.monotonic() - began < watch.SUSPECT_GRACE_SECONDS


def test_briefly_ready_does_not_satisfy_min_ready_seconds():
    ended = view("Pending", "Error", "exited with code 3")
    assert wait_virtual(view("Ready"), 1.0, ended)[0].phase == "Ready"
    with pytest.raises(WaitFailedError, match="exited with code 3"):
        wait_virtual(view("Ready"), 1.0, ended, min_ready_seconds=2.0)


def test_continuously_ready_satisfies_min_ready_seconds():
    found, seconds = wait_virtual(
        view("Ready"), 3.0, view("Ready", message="other words"), min_ready_seconds=6.0
    )
    assert (found.message, seconds) == ("other words", 6.0)


def test_timeout_reports_last_state(fake_server):
    fake_server.answers[EVENTS] = telling([view("Pending", "ContainerCreating"), SILENCE])
    with pytest.raises(WaitTimeoutError, match=r"within 0.3 s: Pending \(ContainerCreating\)"):
        wait(fake_server, timeout=0.3)


@pytest.mark.parametrize("event", ["sandbox", "deleted"])
def test_deletion_during_wait_is_reported(fake_server, event):
    fake_server.answers[EVENTS] = telling([view("Pending"), (event, view("Deleting"))])
    with pytest.raises(SandboxNotFoundError, match="deleted or being deleted"):
        wait(fake_server)


def test_wait_for_deleting_ends_with_deletion(fake_server):
    fake_server.answers[EVENTS] = telling([view("Pending"), ("deleted", view("Deleting"))])
    assert wait(fake_server, "Deleting").phase == "Deleting"


def test_timeout_includes_restart_of_pod():
    transport = ScriptedTransport([6.0, view("Suspended")], [6.0, view("Ready")])

    async def run():
        with pytest.raises(WaitTimeoutError, match="not Ready within 10 s"):
            await watch.wait_for_phase(transport, "a", "Ready", timeout=10, push=ImagePush(True))
        return asyncio.get_running_loop().time()

    assert run_virtual(run()) == 10.0
    assert transport.calls == [
        ("POST", f"/v1/sandboxes/a/{action}", SandboxView) for action in ("suspend", "resume")
    ]


def test_missing_image_reports_remaining_time():
    transport = ScriptedTransport([4.0, view("Pending", "ErrImagePull", image="x:1")])
    with pytest.raises(watch.ImageMissingError) as raised:
        run_virtual(watch.wait_for_phase(transport, "a", "Ready", timeout=10, detect_missing_image=True))
    assert (raised.value.image, raised.value.seconds_left) == ("x:1", 6.0)


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        (
            view("Pending", "CrashLoopBackOff"),
            "Run `holdfast sandbox get{0} a` and `holdfast sandbox logs{0} a`.",
        ),
        (view("Suspended"), "Run `holdfast sandbox resume{0} a`."),
        (
            view("Pending"),
            (
                "Run `holdfast sandbox get{0} a` to see its state, or `holdfast sandbox wait{0} a` "
                "to keep waiting."
            ),
        ),
    ],
    ids=["failed", "suspended", "timeout"],
)
def test_hints_of_a_failed_wait_name_the_gateway(state, hint):
    with pytest.raises(HoldfastError) as caught:
        run_virtual(watch.wait_for_phase(ScriptedTransport([state]), "a", "Ready", timeout=2))
    assert caught.value.hint == hint.format(" --gateway dev")


def test_wait_gone_ends_by_event_or_404(fake_server):
    async def work():
        async with open_transport(fake_server.access) as connection:
            await AsyncSandbox("a", connection).wait_gone(timeout=5)

    fake_server.answers[EVENTS] = telling([view("Deleting"), ("deleted", view("Deleting"))])
    asyncio.run(work())

    async def missing(_request):
        return web.json_response({"code": "sandbox-missing", "message": "none"}, status=404)

    fake_server.answers[EVENTS] = missing
    asyncio.run(work())


def test_unknown_phase_is_rejected_with_valid_phases(fake_server):
    with pytest.raises(UsageError, match="not a phase") as raised:
        wait(fake_server, "Running")
    assert "Suspended" in raised.value.hint
