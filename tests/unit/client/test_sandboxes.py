"""Arguments of the client for all sandboxes, and outcomes of operations on several, without a gateway."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.virtual_time import run_virtual

from holdfast.client import AsyncSandbox, BulkOutcome, BulkResult, Sandboxes
from holdfast.client.bulk import run_for_each, share_pushes, wait_for_each
from holdfast.errors import (
    ArgumentTypeError,
    ContainerEngineError,
    PermanentError,
    ResponseLostError,
    SandboxNotFoundError,
    TemporaryError,
    UsageError,
    WaitTimeoutError,
)
from holdfast.retry import Deadline


def test_selector_of_another_type_is_rejected_with_its_form():
    with Sandboxes(pytest.fail) as sandboxes, pytest.raises(ArgumentTypeError) as caught:
        list(sandboxes.list(selector={"team": "blue"}))
    assert str(caught.value) == "selector: must be text such as 'team=blue', not {'team': 'blue'}"


@pytest.mark.parametrize("selector", ["", "a=b,", "a in ()", "a>1", "a=\x1b[31m", "x" * 10_000])
def test_invalid_selector_is_rejected_before_a_request(selector):
    with Sandboxes(pytest.fail) as sandboxes:
        for method in (sandboxes.list, sandboxes.watch):
            with pytest.raises(UsageError, match="not a label selector") as caught:
                next(method(selector=selector))
            assert len(str(caught.value)) < 200
            assert str(caught.value).isprintable() or "…" in str(caught.value)


def test_one_name_instead_of_a_list_is_rejected():
    with Sandboxes(pytest.fail) as sandboxes, pytest.raises(ArgumentTypeError, match="list of names"):
        sandboxes.delete("abc")


def test_failure_of_one_does_not_stop_the_others():
    running, most, seen = 0, 0, []

    async def operate(name):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        if name.startswith("bad"):
            raise SandboxNotFoundError(f"sandbox {name}: not found")
        return name.upper()

    names = [f"a{number}" for number in range(60)] + ["bad1", "bad2", "a0"]
    result = asyncio.run(run_for_each(names, operate, seen.append))
    assert [outcome.name for outcome in result] == names[:-1]
    assert len(seen) == len(result) == 62
    assert result.outcomes[3] == BulkOutcome(name="a3", result="A3")
    assert [outcome.name for outcome in result.failed] == ["bad1", "bad2"]
    assert 2 <= most <= 24
    with pytest.raises(PermanentError) as caught:
        result.raise_for_failures()
    assert str(caught.value) == "2 of 62 sandboxes: failed: bad1, bad2"
    assert isinstance(caught.value.cause, SandboxNotFoundError)


@pytest.mark.parametrize("operation", ["delete", "suspend", "resume"])
def test_all_requests_are_sent_before_the_first_wait(monkeypatch, operation):
    """Otherwise the pods of many sandboxes would stop in groups, one after another."""
    requested, waited, seen = [], [], []

    async def request(self, **_):
        if self.name == "bad":
            raise SandboxNotFoundError("sandbox bad: not found")
        requested.append(self.name)
        return f"result of {self.name}"

    async def wait(self, *_, **__):
        assert len(requested) == 40
        waited.append(self.name)
        return f"result of {self.name}"

    for method, fake in ((operation, request), ("wait", wait), ("wait_gone", wait)):
        monkeypatch.setattr(AsyncSandbox, method, fake)
    names = [f"a{number}" for number in range(20)] + ["bad"] + [f"b{number}" for number in range(20)]
    with Sandboxes(pytest.fail) as sandboxes:
        result = getattr(sandboxes, operation)(names, wait=True, on_outcome=seen.append)
        assert [outcome.name for outcome in result] == names
        assert [outcome.name for outcome in result.failed] == ["bad"]
        assert result.outcomes[-1].result == "result of b19"
        assert sorted(waited) == sorted(requested)
        assert sorted(outcome.name for outcome in seen) == sorted(names)
        waited.clear()
        assert len(getattr(sandboxes, operation)(names).failed) == 1
        assert waited == []


def test_success_raises_nothing_and_many_failures_are_shortened():
    BulkResult([BulkOutcome(name="a", result=1)]).raise_for_failures()
    outcomes = [BulkOutcome(name=f"s{number}", error=UsageError("x: y")) for number in range(7)]
    with pytest.raises(PermanentError, match="s0, s1, s2, s3, s4 and 2 more"):
        BulkResult(outcomes).raise_for_failures()


def test_a_temporary_failure_makes_the_error_temporary():
    lost = ResponseLostError("b: lost")
    outcomes = [BulkOutcome(name="a", error=UsageError("a: no")), BulkOutcome(name="b", error=lost)]
    with pytest.raises(TemporaryError) as caught:
        BulkResult(outcomes).raise_for_failures()
    assert caught.value.cause is lost


def test_error_of_the_callback_is_raised_as_it_is():
    async def operate(name):
        return name

    def fail(_outcome):
        raise UsageError("callback: failed")

    with pytest.raises(UsageError, match="callback"):
        asyncio.run(run_for_each(["a", "b"], operate, fail))


def test_names_have_to_be_text():
    with pytest.raises(UsageError, match="must contain names, not 7"):
        asyncio.run(run_for_each(["a", 7], None, None))


def test_defect_in_an_operation_is_raised():
    async def operate(_name):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(run_for_each(["a"], operate, None))


def wait_virtual(ready_after, names, seconds):
    """Wait for sandboxes that become ready at these virtual times, or never; return the names that failed."""

    async def run():
        loop = asyncio.get_running_loop()

        async def wait(name, most):
            left = ready_after.get(name, float("inf")) - loop.time()
            if left > most:
                await asyncio.sleep(most)
                raise WaitTimeoutError(f"sandbox {name}: not Ready within {most:g} s")
            await asyncio.sleep(max(0.0, left))
            return name

        result = await wait_for_each(names, wait, Deadline.after(seconds), None)
        return [outcome.name for outcome in result.failed], loop.time()

    return run_virtual(run())


def test_sandboxes_that_never_become_ready_do_not_block_those_that_are():
    stuck, ready = [f"stuck{n}" for n in range(60)], [f"ready{n}" for n in range(20)]
    failed, seconds = wait_virtual(dict.fromkeys(ready, 0.0), stuck + ready, 30.0)
    assert failed == stuck
    assert seconds <= 40


def test_late_sandbox_is_found_in_a_later_turn():
    names = [f"stuck{n}" for n in range(30)] + ["late"]
    failed, _ = wait_virtual({"late": 45.0}, names, 90.0)
    assert failed == names[:-1]


def test_few_sandboxes_wait_without_turns():
    failed, seconds = wait_virtual({"a": 100.0}, ["a", "b"], 120.0)
    assert (failed, seconds) == (["b"], pytest.approx(120.0, abs=1))


def test_missing_image_is_pushed_once_for_all_sandboxes():
    pushed = []

    def push(image):
        pushed.append(image)
        return True

    shared = share_pushes(push)
    with ThreadPoolExecutor() as pool:
        assert all(pool.map(shared, ["own:1"] * 8))
    assert (pushed, share_pushes(None)) == (["own:1"], None)


def test_failed_push_is_not_repeated_for_other_sandboxes():
    pushed = []

    def push(image):
        pushed.append(image)
        raise ContainerEngineError("engine: failed")

    shared = share_pushes(push)
    for _ in range(2):
        with pytest.raises(ContainerEngineError, match="engine: failed"):
            shared("own:1")
    assert pushed == ["own:1"]
