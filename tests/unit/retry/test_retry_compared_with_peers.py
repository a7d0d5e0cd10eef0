"""What other retry libraries get wrong: shown with them where they are at hand, and done right here."""

import time
from email.utils import formatdate

import pytest
import stamina
import tenacity

from holdfast.retry import Policy, constant, exponential, parse_retry_after, testing_mode


def interrupted(calls=[]):  # noqa: B006 - counts across calls on purpose
    calls.append(1)
    if len(calls) == 1:
        raise KeyboardInterrupt
    return "went on"


def test_ctrl_c_is_not_swallowed_by_negative_predicate_unlike_tenacity():
    theirs = tenacity.Retrying(
        retry=tenacity.retry_if_not_exception_type(ValueError), stop=tenacity.stop_after_attempt(2)
    )
    assert theirs(interrupted, []) == "went on"
    with pytest.raises(KeyboardInterrupt):
        Policy(retry_on=lambda error: not isinstance(error, ValueError)).call(interrupted, [])


def test_jitter_applies_at_cap_unlike_tenacity():
    wait = tenacity.wait_exponential_jitter(initial=1, max=5, jitter=1)
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.attempt_number = 30
    assert {wait(state) for _ in range(50)} == {5}
    ours, slept = Policy(attempts=40, backoff=exponential(1, cap=5), retry_on=OSError), None
    with testing_mode() as clock, pytest.raises(OSError):
        ours.call(_refused)
    slept = clock.sleeps[10:]
    assert len(set(slept)) == len(slept)
    assert max(slept) <= 5


def _refused():
    raise ConnectionRefusedError


def outcome_of(tries, failures):
    calls = []

    def body():
        calls.append(1)
        if len(calls) <= failures:
            raise OSError

    try:
        for attempt in tries:
            with attempt:
                body()
    except OSError:
        return len(calls), "failed"
    return len(calls), "ok"


@pytest.mark.parametrize("failures", range(5))
def test_attempts_and_results_match_stamina(failures):
    """An oracle for the plain cases: same calls, same outcome."""
    theirs = stamina.retry_context(on=OSError, attempts=3, wait_initial=0, wait_max=0, wait_jitter=0)
    ours = Policy(attempts=3, backoff=constant(0), retry_on=OSError).retry_context("x")
    assert outcome_of(ours, failures) == outcome_of(theirs, failures)


def test_time_limit_is_not_exceeded_unlike_tenacity():
    """tenacity checks its limit after the attempt, and then sleeps on."""
    began, slept = time.monotonic(), []
    theirs = tenacity.Retrying(
        stop=tenacity.stop_after_delay(0.05),
        wait=tenacity.wait_fixed(10),
        sleep=slept.append,
        retry=tenacity.retry_if_exception_type(OSError),
    )
    with pytest.raises(tenacity.RetryError):
        theirs(_refused)
    assert time.monotonic() - began < 5
    assert sum(slept) >= 10
    with testing_mode() as clock, pytest.raises(OSError):
        Policy(attempts=None, deadline=0.05, backoff=constant(10), retry_on=OSError).call(_refused)
    assert sum(clock.sleeps) < 0.05


def test_http_date_is_parsed():
    assert (
        parse_retry_after(formatdate(2_000_000_007, usegmt=True), formatdate(2_000_000_000, usegmt=True)) == 7
    )


def test_retry_after_is_never_shortened():
    with testing_mode() as clock, pytest.raises(OSError):
        Policy(attempts=50, retry_after=lambda _: 4.0, retry_on=OSError).call(_refused)
    assert min(clock.sleeps) >= 4.0
