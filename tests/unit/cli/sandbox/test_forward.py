"""`sandbox forward` fails before it listens if no connection could succeed."""

import pytest

from holdfast.api import Phase, SandboxView
from holdfast.cli.sandbox.forward import _require_running
from holdfast.errors import ObjectConflictError


def view(phase):
    return SandboxView(name="a", id="1", phase=phase)


@pytest.mark.parametrize("phase", [Phase.SUSPENDED, Phase.FINISHED, Phase.EXPIRED, Phase.DELETING])
def test_sandbox_without_a_pod_is_reported_with_its_phase(phase):
    with pytest.raises(ObjectConflictError, match=f"^sandbox a: {phase}; it has no pod") as caught:
        _require_running(view(phase), "a")
    assert ("resume a" in caught.value.hint) is (phase == Phase.SUSPENDED)


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.READY, Phase.FAILED])
def test_sandbox_that_runs_or_restarts_is_accepted(phase):
    _require_running(view(phase), "a")
