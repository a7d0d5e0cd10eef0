"""Which statuses can wait: what is said on the way to ready, and other words for the same."""

from __future__ import annotations

from holdfast.controller.status_patch import can_wait


def row(kind, status, reason, message=""):
    return {"type": kind, "status": status, "reason": reason, "message": message}


def status(*rows, **more):
    return {"conditions": list(rows), **more}


COMING = row("Ready", "False", "DependenciesNotReady", "the pod is Pending")
READY = row("Ready", "True", "DependenciesReady")
AWAKE = row("Suspended", "False", "NotSuspended")


def test_the_first_status_waits_only_while_the_sandbox_is_on_its_way():
    assert can_wait({}, status(COMING, AWAKE))
    assert not can_wait({}, status(READY, AWAKE))
    assert not can_wait({}, status(row("Ready", "False", "ReconcilerError"), AWAKE))
    assert not can_wait({}, status(row("Ready", "False", "PodFailed"), AWAKE))


def test_stations_on_the_way_wait_and_its_end_does_not():
    first = status(COMING, AWAKE)
    placed = status({**COMING, "message": "image"}, AWAKE, row("PodScheduled", "True", "x"), nodeName="n")
    assert can_wait(first, placed)
    assert not can_wait(placed, status(READY, AWAKE, nodeName="n", podIPs=["10.0.0.1"]))


def test_what_matters_on_the_way_does_not_wait():
    asleep = status(row("Ready", "False", "SandboxSuspended"), row("Suspended", "True", "PodTerminated"))
    assert not can_wait(asleep, status(COMING, AWAKE))
    assert not can_wait(status(COMING, AWAKE), status(COMING, AWAKE, service="a"))
    assert not can_wait(status(READY, AWAKE), status(COMING, AWAKE))


def test_other_words_wait_in_any_state_and_addresses_of_a_ready_one_do_not():
    assert can_wait(status(READY), status({**READY, "message": "still"}))
    assert not can_wait(status(READY, podIPs=["1"]), status(READY, podIPs=["2"]))
