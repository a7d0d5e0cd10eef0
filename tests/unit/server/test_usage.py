"""Use of sandboxes: noted while it lasts, not more often than needed, and never in anybody's way."""

from __future__ import annotations

import asyncio
from datetime import datetime
from itertools import pairwise

import pytest

from holdfast.errors import ClusterRefusedError, TemporaryError
from holdfast.server.usage import Usage

IDLE, EVERY = 2, 0.5


class Notes:
    """Keeps what is written, and when."""

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
    """Everything that was left to write is written."""
    await asyncio.gather(*(used.noting for used in list(usage._used.values()) if used.noting))
    assert usage._used == {}


def test_a_use_is_noted_before_it_begins_and_at_its_end_and_then_forgotten():
    async def run():
        notes = Notes()
        usage = Usage(notes.write)
        async with usage.of(sandbox()):
            assert len(notes.written) == 1
        left = datetime.now().astimezone()
        await ended(usage)
        assert len(notes.written) == 2
        assert abs((notes.written[-1][1] - left).total_seconds()) < 0.1

    asyncio.run(run())


def test_a_use_that_lasts_is_noted_again_and_again_but_not_too_often():
    async def run():
        notes = Notes()
        usage = Usage(notes.write)
        async with usage.of(sandbox()):
            await asyncio.sleep(IDLE * 1.2)
            newest = notes.written[-1][1]
            assert (datetime.now().astimezone() - newest).total_seconds() < IDLE / 2
        await ended(usage)
        assert len(notes.written) >= 4
        assert min(notes.gaps) >= EVERY * 0.9

    asyncio.run(run())


def test_many_uses_at_once_are_noted_as_one():
    async def run():
        notes = Notes()
        usage = Usage(notes.write)

        async def use():
            async with usage.of(sandbox()):
                await asyncio.sleep(0.01)

        await asyncio.gather(*(use() for _ in range(50)))
        await ended(usage)
        assert len(notes.written) == 2
        assert min(notes.gaps) >= EVERY * 0.9

    asyncio.run(run())


@pytest.mark.parametrize("idle", [None, "0", "soon", "-1", "1" * 30])
def test_nothing_is_noted_where_nobody_asked(idle):
    async def run():
        notes = Notes()
        async with Usage(notes.write).of(sandbox(idle)):
            pass
        assert notes.written == []

    asyncio.run(run())


def test_a_note_that_fails_harms_nobody_and_is_made_up_for():
    async def run():
        notes = Notes(TemporaryError("not now"), TemporaryError("not now"))
        usage = Usage(notes.write)
        async with usage.of(sandbox()):
            pass
        await ended(usage)
        assert len(notes.written) == 3

    asyncio.run(run())


def test_one_that_is_refused_for_good_is_not_tried_for_ever():
    async def run():
        notes = Notes(*(ClusterRefusedError("no") for _ in range(9)))
        usage = Usage(notes.write)
        async with usage.of(sandbox()):
            pass
        await ended(usage)
        assert len(notes.written) == 2

    asyncio.run(run())


def test_a_use_that_ends_in_an_error_is_over_as_well():
    async def run():
        notes = Notes()
        usage = Usage(notes.write)
        with pytest.raises(KeyError):
            async with usage.of(sandbox()):
                raise KeyError
        await ended(usage)

    asyncio.run(run())
