"""What a retried call costs when it succeeds, how soon a cancelled one ends, and what it leaves behind.

Prints one JSON object a line; baselines (a bare call, a loop by hand, the peers) come from the same run.
Every figure is the best of interleaved rounds, as the machine has other things to do.
"""

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
import tracemalloc

import backoff
import stamina
import tenacity

from holdfast.retry import Policy, constant, retry, testing_mode

QUICK = "--quick" in sys.argv
ROUNDS = 7 if QUICK else 25
CALLS = 2_000 if QUICK else 10_000
ok_all = True


def show(name, value, unit, baseline, target, *, ratio=None, within=None):
    """One line of the contract; `within` says whether the target is met."""
    global ok_all  # noqa: PLW0603 - the exit code
    ok = True if within is None else within
    ok_all = ok_all and ok
    what, figure = baseline
    if ratio is None:
        ratio = value / figure if figure else None
    line = {
        "name": name,
        "value": round(value, 4),
        "unit": unit,
        "baseline": {"what": what, "value": round(figure, 4)},
        "ratio": None if ratio is None else round(ratio, 3),
        "target": target,
        "ok": ok,
    }
    print(json.dumps(line), flush=True)


def bare():
    return 1


async def abare():
    return 1


def by_hand():
    for _ in range(4):
        try:
            return bare()
        except OSError:
            continue
    return None


def seconds_of(fn):
    clock = time.perf_counter
    began = clock()
    for _ in range(CALLS):
        fn()
    return clock() - began


async def aseconds_of(fn):
    clock = time.perf_counter
    began = clock()
    for _ in range(CALLS):
        await fn()
    return clock() - began


def best_of(functions, measure):
    """Microseconds for each, interleaved so that a noisy moment hits all alike."""
    best = dict.fromkeys(functions, float("inf"))
    gc.disable()
    try:
        for _ in range(ROUNDS):
            for name, fn in functions.items():
                best[name] = min(best[name], measure(fn))
    finally:
        gc.enable()
    return {name: seconds / CALLS * 1e6 for name, seconds in best.items()}


def success_path():
    policy = Policy(attempts=4, deadline=60, retry_on=OSError)
    figures = best_of(
        {
            "bare call": bare,
            "hand-written loop": by_hand,
            "holdfast": retry(policy)(bare),
            "backoff": backoff.on_exception(backoff.expo, OSError, max_tries=4)(bare),
            "stamina": stamina.retry(on=OSError, attempts=4)(bare),
            "tenacity": tenacity.retry(stop=tenacity.stop_after_attempt(4))(bare),
        },
        seconds_of,
    )
    floor = figures["bare call"]
    over = figures["holdfast"] - floor
    show("retry.sync.over_bare", over, "us", ("bare call", floor), "<= 1 us", within=over <= 1.0)
    for peer in ("hand-written loop", "backoff", "stamina", "tenacity"):
        show(f"retry.sync.{peer}", figures["holdfast"], "us", (peer, figures[peer]), "printed")


def async_success_path():
    policy = Policy(attempts=4, deadline=60, retry_on=OSError)
    functions = {
        "bare await": abare,
        "holdfast": retry(policy)(abare),
        "backoff": backoff.on_exception(backoff.expo, OSError, max_tries=4)(abare),
        "stamina": stamina.retry(on=OSError, attempts=4)(abare),
        "tenacity": tenacity.retry(stop=tenacity.stop_after_attempt(4))(abare),
    }
    figures = best_of(functions, lambda fn: asyncio.run(aseconds_of(fn)))
    floor = figures["bare await"]
    over = figures["holdfast"] - floor
    show("retry.async.over_bare", over, "us", ("bare await", floor), "<= 2 us", within=over <= 2.0)
    for peer in ("backoff", "stamina", "tenacity"):
        show(f"retry.async.{peer}", figures["holdfast"], "us", (peer, figures[peer]), "printed")


def refused():
    raise ConnectionRefusedError


def ctrl_c_once(sleep):
    """Milliseconds from the signal to the KeyboardInterrupt."""
    sent = []

    def interrupt():
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.1, interrupt)
    timer.start()
    try:
        sleep()
    except KeyboardInterrupt:
        ended = time.perf_counter()
    timer.join()
    return (ended - sent[0]) * 1000


def ctrl_c():
    policy = Policy(backoff=constant(30), retry_on=OSError)
    times = 3 if QUICK else 10
    ours = sorted(ctrl_c_once(lambda: policy.call(refused)) for _ in range(times))
    bare_sleep = sorted(ctrl_c_once(lambda: time.sleep(30)) for _ in range(times))
    middle = times // 2
    baseline = ("time.sleep", bare_sleep[middle])
    show("retry.ctrl_c", ours[middle], "ms", baseline, "<= 50 ms", within=ours[middle] <= 50)


async def cancel_once(sleep):
    task = asyncio.create_task(sleep())
    await asyncio.sleep(0.05)
    sent = time.perf_counter()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return (time.perf_counter() - sent) * 1000


def cancellation():
    async def arefused():
        raise ConnectionRefusedError

    async def use():
        policy = Policy(backoff=constant(30), retry_on=OSError)
        times = 3 if QUICK else 10
        ours = sorted([await cancel_once(lambda: policy.acall(arefused)) for _ in range(times)])
        theirs = sorted([await cancel_once(lambda: asyncio.sleep(30)) for _ in range(times)])
        return ours[times // 2], theirs[times // 2]

    ours, theirs = asyncio.run(use())
    show("retry.cancellation", ours, "ms", ("asyncio.sleep", theirs), "<= 50 ms", within=ours <= 50)


def memory():
    """Bytes that retried calls leave behind."""
    calls = 10_000 if QUICK else 100_000
    policy = Policy(attempts=3, backoff=constant(0.001), retry_on=OSError, deadline=60)

    def flaky(left):
        if left:
            left.pop()
            raise ConnectionResetError("again")
        return 1

    with testing_mode() as clock:
        for _ in range(1000):
            policy.call(flaky, [1])
        clock.sleeps.clear()
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for n in range(calls):
            policy.call(flaky, [1])
            if n % 1000 == 0:
                clock.sleeps.clear()
        clock.sleeps.clear()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    grown = (after - before) / 1024
    show(
        "retry.memory",
        grown,
        f"KiB after {calls} retried calls",
        ("none", 0.0),
        "<= 16 KiB",
        within=grown <= 16,
    )


if __name__ == "__main__":
    success_path()
    async_success_path()
    ctrl_c()
    cancellation()
    memory()
    sys.exit(0 if ok_all else 1)
