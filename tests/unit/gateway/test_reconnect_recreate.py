"""`up --recreate` and `up --wipe` replace a gateway once, even if they reconnect after that."""

import pytest
from tests.support.stubs import stub

from holdfast.errors import ConnectionLostError
from holdfast.events import EventBus, StepFailed, StepFinished, StepSkipped
from holdfast.gateway import commands, reconnect
from holdfast.gateway.context import UpOptions

REPLACED = {"step": "replace-old", "title": "Replacement"}


@pytest.fixture
def up(monkeypatch, tmp_path):
    """Run `up` with a connection that is cut after an event; return command and options of each attempt."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    stub(monkeypatch, reconnect, "_check_lock_available", lambda *_: None)

    def run(event, **options):
        attempts = []

        def run_up(command, gateway, bus):
            attempts.append((command, gateway.options))
            if len(attempts) == 1:
                bus.emit(event)
                raise ConnectionLostError("lost the connection")
            return "result"

        stub(monkeypatch, commands, "_run_up", run_up)
        assert commands.up("dev", EventBus(), options=UpOptions(remote="me@far", **options)) == "result"
        return attempts

    return run


@pytest.mark.parametrize(
    "event",
    [StepFinished(**REPLACED, seconds=1.0), StepSkipped(**REPLACED, reason="done by the run before")],
)
@pytest.mark.parametrize("option", ["recreate", "wipe"])
def test_replacement_is_not_repeated_after_a_lost_connection(up, event, option):
    requested = UpOptions(remote="me@far", **{option: True})
    command = f"up --{option}"
    assert up(event, **{option: True}) == [(command, requested), (command, UpOptions(remote="me@far"))]


def test_failed_replacement_is_repeated(up):
    failed = StepFailed(**REPLACED, seconds=1.0, code="lock-lost", error="lost")
    first, second = up(failed, recreate=True)
    assert first == second
