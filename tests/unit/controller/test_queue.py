"""The queue of keys: each once, never twice at a time, later after a failure, and on its own when asked."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from holdfast.controller.queue import Queue


async def drained(queue, until):
    task = asyncio.create_task(queue.run())
    try:
        async with asyncio.timeout(20):
            await until.wait()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_a_key_named_often_is_looked_at_once():
    async def scenario():
        seen, done = [], asyncio.Event()

        async def look(key):
            seen.append(key)
            if key == "last":
                done.set()

        queue = Queue(look, workers=1)
        for key in ("a", "b", "a", "a", "last"):
            queue.add(key)
        await drained(queue, done)
        return seen

    assert asyncio.run(scenario()) == ["a", "b", "last"]


def test_a_key_named_during_its_look_is_looked_at_again_and_never_twice_at_a_time():
    async def scenario():
        running, most, count, done = set(), 0, 0, asyncio.Event()

        async def look(key):
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

        queue = Queue(look, workers=8)
        queue.add("a")
        await drained(queue, done)
        await asyncio.sleep(0)
        return most, count

    assert asyncio.run(scenario()) == (1, 2)


def test_a_failed_look_is_told_and_repeated_and_others_go_on():
    async def scenario():
        told, tries, done = [], [], asyncio.Event()

        async def look(key):
            tries.append(key)
            if key == "bad" and tries.count("bad") < 2:
                raise ValueError("no")
            if key == "bad":
                done.set()

        queue = Queue(look, workers=1, failed=lambda key, error: told.append((key, str(error))))
        queue.add("bad")
        queue.add("good")
        await drained(queue, done)
        return told, tries

    told, tries = asyncio.run(scenario())
    assert told == [("bad", "no")]
    assert tries == ["bad", "good", "bad"]


def test_a_look_may_ask_for_the_next_one_and_the_earlier_time_counts():
    async def scenario():
        times, done = [], asyncio.Event()
        loop = asyncio.get_running_loop()

        async def look(_key):
            times.append(loop.time())
            if len(times) == 2:
                done.set()
            return 0.05

        queue = Queue(look, workers=1)
        queue.add("a")
        queue.add("a", delay=3600)
        await drained(queue, done)
        return len(times)

    assert asyncio.run(scenario()) == 2


def test_what_is_forgotten_does_not_come_back_by_itself():
    async def scenario():
        seen, done = [], asyncio.Event()

        async def look(key):
            seen.append(key)
            if key == "end":
                done.set()

        queue = Queue(look, workers=1)
        queue.add("a", delay=0.01)
        queue.forget("a")
        queue.add("end", delay=0.1)
        await drained(queue, done)
        return seen

    assert asyncio.run(scenario()) == ["end"]
