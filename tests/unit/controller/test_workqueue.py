"""The work queue deduplicates keys, never processes one twice at a time, retries failures, and requeues."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.support.virtual_time import run_virtual

from holdfast.controller.workqueue import WorkQueue


async def run_until(queue, until):
    task = asyncio.create_task(queue.run())
    try:
        async with asyncio.timeout(20):
            await until.wait()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_repeated_key_is_reconciled_once():
    async def scenario():
        seen, done = [], asyncio.Event()

        async def reconcile(key):
            seen.append(key)
            if key == "last":
                done.set()

        queue = WorkQueue(reconcile, workers=1)
        for key in ("a", "b", "a", "a", "last"):
            queue.add(key)
        await run_until(queue, done)
        return seen

    assert run_virtual(scenario()) == ["a", "b", "last"]


def test_key_added_during_reconcile_is_reconciled_again_but_not_concurrently():
    async def scenario():
        running, most, count, done = set(), 0, 0, asyncio.Event()

        async def reconcile(key):
            nonlocal most, count
            assert key not in running
            running.add(key)
            count += 1
            if count == 1:
                queue.add("a")
                queue.add("a")
            most = max(most, len(running))
            await asyncio.sleep(0)
            running.discard(key)
            if count == 2:
                done.set()

        queue = WorkQueue(reconcile, workers=8)
        queue.add("a")
        await run_until(queue, done)
        await asyncio.sleep(0)
        return most, count

    assert run_virtual(scenario()) == (1, 2)


def test_failed_reconcile_is_logged_and_retried_without_blocking_others():
    async def scenario():
        told, tries, done = [], [], asyncio.Event()

        async def reconcile(key):
            tries.append(key)
            if key == "bad" and tries.count("bad") < 2:
                raise ValueError("no")
            if key == "bad":
                done.set()

        queue = WorkQueue(reconcile, workers=1, on_failure=lambda key, error: told.append((key, str(error))))
        queue.add("bad")
        queue.add("good")
        await run_until(queue, done)
        return told, tries

    told, tries = run_virtual(scenario())
    assert told == [("bad", "no")]
    assert tries == ["bad", "good", "bad"]


def test_earliest_requeue_after_wins():
    async def scenario():
        times, done = [], asyncio.Event()
        loop = asyncio.get_running_loop()

        async def reconcile(_key):
            times.append(loop.time())
            if len(times) == 2:
                done.set()
            return 0.05

        queue = WorkQueue(reconcile, workers=1)
        queue.add("a")
        queue.add("a", delay=3600)
        await run_until(queue, done)
        return len(times)

    assert run_virtual(scenario()) == 2


def test_forgotten_key_is_not_requeued():
    async def scenario():
        seen, done = [], asyncio.Event()

        async def reconcile(key):
            seen.append(key)
            if key == "end":
                done.set()

        queue = WorkQueue(reconcile, workers=1)
        queue.add("a", delay=0.01)
        queue.forget("a")
        queue.add("end", delay=0.1)
        await run_until(queue, done)
        return seen

    assert run_virtual(scenario()) == ["end"]
