"""Our own image in a gateway that lacks it: what is done at the first sign, and what is shown of it."""

import pytest

from holdfast.cli import sandbox_image
from holdfast.cli.progress import PlainProgress
from holdfast.cli.sandbox_common import stage
from holdfast.errors import WaitFailedError
from holdfast.sandbox.wire import Phase, SandboxView

LACKING = SandboxView(
    name="a", id="1", phase=Phase.PENDING, reason="ErrImagePull", image="holdfast/sandbox:1"
)
READY = SandboxView(name="a", id="1", phase=Phase.READY)


class Box:
    """A sandbox whose states come one after the other."""

    def __init__(self, shown, *states):
        self.shown, self.states, self.asked = shown, list(states), []
        self.made = False

    def wait_ready(self, heard):
        with stage(self.shown, "wait-sandbox", "Ready") as at:
            while (view := self.states.pop(0)) is not READY:
                heard(view, at)
                if not self.states:
                    raise WaitFailedError("no such image anywhere")
            return view

    def wait(self, phase, *, timeout):
        self.asked.append(f"wait {phase}")

    def __getattr__(self, name):
        return lambda: self.asked.append(name) or LACKING


def waited(monkeypatch, *states, has_image):
    pushed = []

    def push(_gateway, image, _shown):
        pushed.append(image)
        return has_image

    monkeypatch.setattr(sandbox_image, "_pushed", push)
    box = Box(PlainProgress(), *states)
    try:
        view = sandbox_image.with_own_image("dev", box, box.shown, box.wait_ready, timeout=1)
    except WaitFailedError as error:
        view = error
    return view, box.asked, pushed


def test_a_gateway_that_has_it_is_sent_nothing(monkeypatch):
    assert waited(monkeypatch, READY, has_image=True) == (READY, [], [])


def test_one_that_lacks_it_gets_it_and_a_fresh_pod_and_no_failure_is_shown(monkeypatch, capsys):
    view, asked, pushed = waited(monkeypatch, LACKING, READY, has_image=True)
    assert (view, pushed) == (READY, ["holdfast/sandbox:1"])
    assert asked == ["suspend", "wait Suspended", "resume"]
    said = capsys.readouterr().err
    assert "Ready: not yet: the gateway has no image holdfast/sandbox:1" in said
    assert "x Ready" not in said


def test_a_machine_without_it_waits_on_for_a_registry(monkeypatch):
    view, asked, _ = waited(monkeypatch, LACKING, LACKING, READY, has_image=False)
    assert (view, asked) == (READY, [])


def test_an_image_that_is_nowhere_is_told_in_the_nodes_words(monkeypatch):
    view, _, _ = waited(monkeypatch, LACKING, LACKING, LACKING, has_image=False)
    assert isinstance(view, WaitFailedError)
    assert view.message == "no such image anywhere"


def test_one_that_was_left_asleep_in_the_midst_of_that_is_woken_up(monkeypatch):
    asleep = SandboxView(name="a", id="1", phase=Phase.SUSPENDED, reason="SandboxSuspended")
    monkeypatch.setattr(Box, "get", lambda _box: asleep, raising=False)

    def resume(box):
        box.asked.append("resume")
        box.states.append(READY)

    monkeypatch.setattr(Box, "resume", resume, raising=False)
    view, asked, pushed = waited(monkeypatch, asleep, has_image=True)
    assert (view, asked, pushed) == (READY, ["resume"], [])


@pytest.mark.parametrize("reason", ["Unschedulable", "CrashLoopBackOff"])
def test_other_troubles_push_nothing(monkeypatch, reason):
    other = SandboxView(name="a", id="1", phase=Phase.PENDING, reason=reason)
    monkeypatch.setattr(Box, "get", lambda _box: other, raising=False)
    view, asked, pushed = waited(monkeypatch, other, has_image=True)
    assert isinstance(view, WaitFailedError)
    assert (asked, pushed) == ([], [])
