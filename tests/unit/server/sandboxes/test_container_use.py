"""The last use of sandboxes is written while it lasts, rarely, and without blocking streams."""

from __future__ import annotations

import asyncio
from datetime import datetime
from itertools import pairwise

import pytest
from tests.support.virtual_time import run_virtual

from holdfast.errors import ApiRequestRejectedError, TemporaryError
from holdfast.server.sandboxes.container_use import ActivityTracker

IDLE, EVERY = 2, 0.5


class Notes:
    """Records written timestamps."""

    def __init__(self, *failures):
        self.failures = list(failures)
        self.written = []

    async def write(self, sandbox, moment):
        self.written.append((asyncio.get_running_loop().time(), datetime.fromisoformat(moment)))
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)

    @property
    def gaps(self):
        times = [at for at, _ in self.written]
        return [after - before for before, after in pairwise(times)]


def sandbox(idle=str(IDLE), uid="u"):
    annotations = {} if idle is None else {"holdfast.dev/idle-suspend-after": idle}
    return {"metadata": {"name": "a", "uid": uid, "annotations": annotations}}


async def ended(usage):
    """Wait until all pending writes are done."""
    await asyncio.gather(*(used.writer_task for used in list(usage._active.values()) if used.writer_task))
    assert usage._active == {}


def test_activity_is_recorded_at_start_and_end():
    async def run():
        notes = Notes()
        usage = ActivityTracker(notes.write)
        async with usage.track(sandbox()):
            assert len(notes.written) == 1
        left = datetime.now().astimezone()
        await ended(usage)
        assert len(notes.written) == 2
        assert abs((notes.written[-1][1] - left).total_seconds()) < 0.1

    run_virtual(run())


def test_long_activity_is_recorded_periodically():
    async def run():
        notes = Notes()
        usage = ActivityTracker(notes.write)
        async with usage.track(sandbox()):
            await asyncio.sleep(IDLE * 1.2)
            assert asyncio.get_running_loop().time() - notes.written[-1][0] < IDLE / 2
        await ended(usage)
        assert len(notes.written) >= 4
        assert min(notes.gaps) >= EVERY * 0.9

    run_virtual(run())


def test_concurrent_activity_is_recorded_once():
    async def run():
        notes = Notes()
        usage = ActivityTracker(notes.write)

        async def use():
            async with usage.track(sandbox()):
                await asyncio.sleep(0.01)

        await asyncio.gather(*(use() for _ in range(50)))
        await ended(usage)
        assert len(notes.written) == 2
        assert min(notes.gaps) >= EVERY * 0.9

    run_virtual(run())


@pytest.mark.parametrize("idle", [None, "0", "soon", "-1", "1" * 30])
def test_nothing_is_recorded_without_idle_timeout(idle):
    async def run():
        notes = Notes()
        async with ActivityTracker(notes.write).track(sandbox(idle)):
            pass
        assert notes.written == []

    run_virtual(run())


def test_failed_write_is_ignored_and_repeated():
    async def run():
        notes = Notes(TemporaryError("not now"), TemporaryError("not now"))
        usage = ActivityTracker(notes.write)
        async with usage.track(sandbox()):
            pass
        await ended(usage)
        assert len(notes.written) == 3

    run_virtual(run())


def test_permanently_rejected_write_is_not_retried_forever():
    async def run():
        notes = Notes(*(ApiRequestRejectedError("no") for _ in range(9)))
        usage = ActivityTracker(notes.write)
        async with usage.track(sandbox()):
            pass
        await ended(usage)
        assert len(notes.written) == 2

    run_virtual(run())


def test_activity_ending_in_error_is_finished():
    async def run():
        notes = Notes()
        usage = ActivityTracker(notes.write)
        with pytest.raises(KeyError):
            async with usage.track(sandbox()):
                raise KeyError
        await ended(usage)

    run_virtual(run())
