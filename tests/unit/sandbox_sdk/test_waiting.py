"""What a wait makes of each state, and of an event stream in pieces, cut, or silent."""

import asyncio
import time

import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import SandboxMissingError, UsageError, WaitFailedError, WaitTimeoutError
from holdfast.sandbox.api import ClaimReason
from holdfast.sandbox.sdk import waiting
from holdfast.sandbox.sdk.connection import Connection
from holdfast.sandbox.sdk.handle import AsyncSandbox
from holdfast.sandbox.sdk.waiting import EventReader, StreamEvent, judge
from holdfast.sandbox.sdk.watching import _HINTS
from holdfast.sandbox.wire import Phase, SandboxView
from holdfast.server.views import claim_view

EVENTS = "/v1/sandboxes/a/events"


def view(phase, reason="", message="", **more):
    return SandboxView(name="a", id="1", phase=Phase(phase), reason=reason, message=message, **more)


@pytest.mark.parametrize(
    ("seen", "wanted", "how"),
    [
        (view("Ready"), "Ready", "done"),
        (view("Pending"), "Ready", ""),
        (view("Pending", "ContainerCreating"), "Ready", ""),
        (view("Pending", "ImagePullBackOff", "no such image"), "Ready", "hopeless"),
        (view("Pending", "ErrImagePull", "i/o timeout"), "Ready", "doubtful"),
        (view("Pending", "ErrImagePull", "manifest: Not Found"), "Ready", "hopeless"),
        (view("Pending", "Unschedulable"), "Ready", "doubtful"),
        (view("Pending", "Unschedulable", "pod has unbound immediate PersistentVolumeClaims."), "Ready", ""),
        (view("Pending", "ReconcilerError"), "Ready", "doubtful"),
        (view("Pending", "Error", "it ended with exit code 3"), "Ready", "doubtful"),
        (view("Pending", "Completed", "it ended with exit code 0"), "Ready", "doubtful"),
        (view("Pending", "StartError", "no such file"), "Ready", "hopeless"),
        (view("Pending", "CrashLoopBackOff"), "Ready", "hopeless"),
        (view("Pending", "WarmPoolNotFound"), "Ready", "hopeless"),
        (view("Failed", "PodFailed"), "Ready", "doubtful"),
        (view("Failed", "PodFailed", failed_pods="Keep"), "Ready", "hopeless"),
        (view("Finished"), "Ready", "hopeless"),
        (view("Expired"), "Ready", "hopeless"),
        (view("Deleting"), "Ready", "hopeless"),
        (view("Suspended"), "Ready", "hopeless"),
        (view("Ready"), "Suspended", ""),
        (view("Suspended"), "Suspended", "done"),
        (view("Pending", "ImagePullBackOff"), "Suspended", ""),
        (view("Deleting"), "Suspended", "hopeless"),
        (view("Failed"), "Finished", ""),
        (view("Deleting"), "Failed", "hopeless"),
    ],
)
def test_every_state_is_done_hopeless_doubtful_or_on_its_way(seen, wanted, how):
    found = judge(seen, Phase(wanted))
    assert [name for name in ("done", "hopeless", "doubtful") if getattr(found, name)][:1] == (
        [how] if how else []
    )


CLAIMS = {
    ClaimReason.TEMPLATE_NOT_FOUND: "hopeless",
    ClaimReason.WARM_POOL_NOT_FOUND: "hopeless",
    ClaimReason.INVALID_METADATA: "hopeless",
    ClaimReason.ENV_REJECTED: "hopeless",
    ClaimReason.CLAIM_TEMPLATES_ERROR: "hopeless",
    ClaimReason.CLAIM_EXPIRED: "hopeless",
    ClaimReason.ADOPTION_CONFLICT: "doubtful",  # the one that has the name may be on its way out
    ClaimReason.SANDBOX_MISSING: "doubtful",  # it gets another one, unless it has finished
    ClaimReason.SANDBOX_CREATE_PENDING: "",
    ClaimReason.SANDBOX_NOT_READY: "",
}


@pytest.mark.parametrize("reason", ClaimReason)
def test_every_reason_of_a_claim_is_judged_on_purpose(reason):
    ready = {"type": "Ready", "status": "False", "reason": reason.value, "message": "so it is"}
    claim = {"metadata": {"name": "a", "uid": "u"}, "spec": {}, "status": {"conditions": [ready]}}
    found = judge(claim_view(claim), Phase.READY)
    told = "hopeless" if found.hopeless else "doubtful" if found.doubtful else ""
    assert told == CLAIMS[reason]


@pytest.mark.parametrize("reason", sorted((waiting.HOPELESS | waiting.DOUBTFUL) & set(ClaimReason)))
def test_a_claim_without_hope_comes_with_what_to_do(reason):
    assert reason in _HINTS


def test_words_say_phase_reason_and_the_first_line():
    assert waiting.words(view("Pending", "ErrImagePull", "no\nmore")) == "Pending (ErrImagePull: no)"
    assert waiting.words(view("Ready")) == "Ready"


STREAM = (
    b"event: sandbox\r\ndata: one\r\n\r\n: still here\n\nevent: deleted\ndata: two\ndata: lines\n\nid: 4\n\n"
)


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_are_whole_however_the_stream_is_cut(cuts):
    reader, found, at = EventReader(), [], 0
    for cut in sorted({*cuts, len(STREAM)}):
        found += reader.feed(STREAM[at:cut])
        at = cut
    assert found == [StreamEvent("sandbox", b"one"), StreamEvent("deleted", b"two\nlines")]


def telling(*scripts):
    """One script for each stream: views, event names with them, or seconds of silence; then it is cut."""
    left = list(scripts)

    async def answer(request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for step in left.pop(0) if len(left) > 1 else left[0]:
            if isinstance(step, float):
                await asyncio.sleep(step)
                continue
            name, seen = step if isinstance(step, tuple) else ("sandbox", step)
            await response.write(f"event: {name}\ndata: {msgspec.json.encode(seen).decode()}\n\n".encode())
        return response

    return answer


def wait(peer, phase="Ready", **options):
    async def work():
        async with Connection(peer.access) as connection:
            return await AsyncSandbox("a", connection).wait(phase, **options)

    return asyncio.run(work())


def test_a_wait_hears_of_each_change_and_ends_with_the_right_one(peer):
    peer.answers[EVENTS] = telling(
        [view("Pending"), view("Pending", "ContainerCreating"), view("Ready"), 30.0]
    )
    heard = []
    assert wait(peer, told=heard.append).phase == "Ready"
    assert [each.reason for each in heard] == ["", "ContainerCreating", ""]
    assert len(peer.seen) == 1


def test_a_stream_that_is_cut_is_opened_again(peer, no_sleep):
    peer.answers[EVENTS] = telling([view("Pending")], [], [view("Ready"), 30.0])
    assert wait(peer).phase == "Ready"
    assert len(peer.seen) == 3


def test_a_problem_in_the_stream_is_gone_through(peer, no_sleep):
    trouble = ("problem", {"code": "x", "message": "the watch ended", "hint": ""})
    peer.answers[EVENTS] = telling([view("Pending"), trouble], [view("Ready"), 30.0])
    assert wait(peer).phase == "Ready"


def test_an_image_that_is_not_there_ends_the_wait_at_once_with_the_reason(peer):
    peer.answers[EVENTS] = telling([view("Pending", "ErrImagePull", "x:1 not found"), 30.0])
    began = time.monotonic()
    with pytest.raises(WaitFailedError, match="ErrImagePull: x:1 not found") as raised:
        wait(peer)
    assert time.monotonic() - began < 10
    assert "image" in raised.value.hint


def test_a_doubt_that_stays_ends_the_wait(peer, monkeypatch):
    monkeypatch.setattr("holdfast.sandbox.sdk.watching.DOUBT_SECONDS", 0.2)
    peer.answers[EVENTS] = telling([view("Pending", "Unschedulable", "no room"), 30.0])
    with pytest.raises(WaitFailedError, match="no room"):
        wait(peer)


def test_a_doubt_that_only_changes_its_words_has_not_passed(peer, monkeypatch):
    monkeypatch.setattr("holdfast.sandbox.sdk.watching.DOUBT_SECONDS", 0.5)
    told = [each for n in range(100) for each in (view("Pending", "Error", f"started {n} times"), 0.2)]
    peer.answers[EVENTS] = telling([*told, 30.0])
    began = time.monotonic()
    with pytest.raises(WaitFailedError, match="started"):
        wait(peer)
    assert time.monotonic() - began < 10


def test_a_doubt_that_passes_does_no_harm(peer, monkeypatch):
    monkeypatch.setattr("holdfast.sandbox.sdk.watching.DOUBT_SECONDS", 5)
    doubt = view("Pending", "Unschedulable", "no room")
    peer.answers[EVENTS] = telling([doubt, 0.1, view("Pending"), 0.1, view("Ready"), 30.0])
    assert wait(peer).phase == "Ready"


def test_a_failed_pod_is_waited_for_as_long_as_new_ones_come_soon(peer, monkeypatch):
    monkeypatch.setattr("holdfast.sandbox.sdk.watching.DOUBT_SECONDS", 0.5)
    failed = view("Failed", "PodFailed", "container main ended with exit code 3")
    often = [each for pause in (0.1, 0.2, 0.3) for each in (failed, pause, view("Pending"), 0.1)]
    peer.answers[EVENTS] = telling([*often, view("Ready"), 30.0])
    assert wait(peer).phase == "Ready"
    peer.answers[EVENTS] = telling([*often, failed, 30.0])
    with pytest.raises(WaitFailedError, match="exit code 3"):
        wait(peer)


def test_a_failed_pod_that_is_kept_ends_the_wait_at_once(peer):
    peer.answers[EVENTS] = telling([view("Failed", "PodFailed", "Evicted", failed_pods="Keep"), 30.0])
    began = time.monotonic()
    with pytest.raises(WaitFailedError, match="Evicted"):
        wait(peer)
    assert time.monotonic() - began < waiting.DOUBT_SECONDS


def test_ready_for_a_moment_is_not_steady(peer, monkeypatch):
    monkeypatch.setattr("holdfast.sandbox.sdk.watching.DOUBT_SECONDS", 0.2)
    ended = view("Pending", "Error", "it ended with exit code 3")
    peer.answers[EVENTS] = telling([view("Ready"), 0.1, ended, 30.0])
    assert wait(peer).phase == "Ready"
    with pytest.raises(WaitFailedError, match="exit code 3"):
        wait(peer, steady=2.0)


def test_ready_that_stays_is_steady_whatever_else_changes(peer):
    peer.answers[EVENTS] = telling([view("Ready"), 0.3, view("Ready", message="other words"), 30.0])
    began = time.monotonic()
    assert wait(peer, steady=0.6).message == "other words"
    assert 0.6 <= time.monotonic() - began < 10


def test_time_that_is_over_says_what_was_seen_last(peer):
    peer.answers[EVENTS] = telling([view("Pending", "ContainerCreating"), 30.0])
    with pytest.raises(WaitTimeoutError, match=r"within 0.3 s: Pending \(ContainerCreating\)"):
        wait(peer, timeout=0.3)


def test_one_that_is_deleted_meanwhile_is_said_to_be_missing(peer):
    peer.answers[EVENTS] = telling([view("Pending"), ("deleted", view("Pending"))])
    with pytest.raises(SandboxMissingError, match="deleted while"):
        wait(peer)


def test_gone_is_gone_by_event_or_by_404(peer):
    async def work():
        async with Connection(peer.access) as connection:
            await AsyncSandbox("a", connection).wait_gone(timeout=5)

    peer.answers[EVENTS] = telling([view("Deleting"), ("deleted", view("Deleting"))])
    asyncio.run(work())

    async def missing(_request):
        return web.json_response({"code": "sandbox-missing", "message": "none"}, status=404)

    peer.answers[EVENTS] = missing
    asyncio.run(work())


def test_a_phase_that_is_none_is_refused_with_those_there_are(peer):
    with pytest.raises(UsageError, match="no phase") as raised:
        wait(peer, "Running")
    assert "Suspended" in raised.value.hint
