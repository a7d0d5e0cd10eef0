"""A tunnel that is cut in the health gate of an upgrade says nothing about the new version."""

from types import SimpleNamespace

import pytest

from holdfast.errors import EngineUnreachableError, HostUnreachableError, TemporaryError
from holdfast.gateway.upgrade import flow


class Runs:
    """Ends with these, one after the other, each in this step of the gate."""

    def __init__(self, failed, *ends, step="run-probe"):
        self.failed, self.ends, self.step, self.count = failed, list(ends), step, 0

    def __call__(self, *_plan):
        self.count += 1
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            self.failed.name = self.step
            raise end
        return end


@pytest.fixture
def failed(monkeypatch):
    monkeypatch.setattr(flow, "_planned", lambda work: ("upgrade", work, []))
    return flow.FailedStep()


def reached(monkeypatch, *opened):
    answers = list(opened)
    monkeypatch.setattr(flow, "reach", lambda _work: answers.pop(0))


def test_the_plan_goes_on_over_a_tunnel_that_had_to_be_opened_again(monkeypatch, failed):
    reached(monkeypatch, True, True)
    run = Runs(failed, TemporaryError("refused"), TemporaryError("refused"), "ended")
    assert flow._forward("work", run, failed) == "ended"
    assert failed.name == ""


def test_with_the_tunnel_up_the_version_is_to_blame(monkeypatch, failed):
    reached(monkeypatch, False)
    run = Runs(failed, TemporaryError("not ready"))
    with pytest.raises(TemporaryError, match="not ready"):
        flow._forward("work", run, failed)
    assert flow.is_unwell(TemporaryError("not ready"), failed.name)


def test_a_tunnel_that_is_cut_for_ever_ends_the_command(monkeypatch, failed):
    reached(monkeypatch, *[True] * 9)
    run = Runs(failed, *[TemporaryError("refused")] * 9)
    with pytest.raises(HostUnreachableError, match="gateway far was cut 3 times") as caught:
        flow._forward(SimpleNamespace(name="far"), run, failed)
    assert run.count == 3
    assert not flow.is_unwell(caught.value, "run-probe"), "it would be taken back"


@pytest.mark.parametrize(
    ("error", "step"), [(EngineUnreachableError("gone"), "run-probe"), (TemporaryError("no"), "push-images")]
)
def test_what_says_nothing_anyway_is_left_as_it_is(monkeypatch, failed, error, step):
    reached(monkeypatch)
    with pytest.raises(type(error)):
        flow._forward("work", Runs(failed, error, step=step), failed)
