"""Status changes that can be deferred: progress while starting, and changed messages."""

from __future__ import annotations

from holdfast.controller.executor import is_deferrable


def row(kind, status, reason, message=""):
    return {"type": kind, "status": status, "reason": reason, "message": message}


def status(*rows, **more):
    return {"conditions": list(rows), **more}


COMING = row("Ready", "False", "DependenciesNotReady", "the pod is Pending")
READY = row("Ready", "True", "DependenciesReady")
AWAKE = row("Suspended", "False", "NotSuspended")


def test_first_status_is_delayed_only_while_starting():
    assert is_deferrable({}, status(COMING, AWAKE))
    assert not is_deferrable({}, status(READY, AWAKE))
    assert not is_deferrable({}, status(row("Ready", "False", "ReconcilerError"), AWAKE))
    assert not is_deferrable({}, status(row("Ready", "False", "PodFailed"), AWAKE))


def test_intermediate_states_are_delayed_and_final_state_is_not():
    first = status(COMING, AWAKE)
    placed = status({**COMING, "message": "image"}, AWAKE, row("PodScheduled", "True", "x"), nodeName="n")
    assert is_deferrable(first, placed)
    assert not is_deferrable(placed, status(READY, AWAKE, nodeName="n", podIPs=["10.0.0.1"]))


def test_important_conditions_are_not_delayed():
    asleep = status(row("Ready", "False", "SandboxSuspended"), row("Suspended", "True", "PodTerminated"))
    assert not is_deferrable(asleep, status(COMING, AWAKE))
    assert not is_deferrable(status(COMING, AWAKE), status(COMING, AWAKE, service="a"))
    assert not is_deferrable(status(READY, AWAKE), status(COMING, AWAKE))


def test_message_changes_are_delayed_and_addresses_are_not():
    assert is_deferrable(status(READY), status({**READY, "message": "still"}))
    assert not is_deferrable(status(READY, podIPs=["1"]), status(READY, podIPs=["2"]))
