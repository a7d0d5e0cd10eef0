"""Lets logic be written once and be carried out by threads or by tasks.

A piece of logic is a generator that yields calls to make and is sent their results, or has their errors
thrown in. Two drivers make the calls: one plain, one awaiting. Not here: any logic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias, TypeVar

R = TypeVar("R")

Ask: TypeAlias = Callable[[], Any]
Steps: TypeAlias = Generator[Ask, Any, R]


def drive(steps: Steps[R]) -> R:
    """Carry out the steps; whatever they ask for is called."""
    try:
        ask = next(steps)
        while True:
            try:
                answer = ask()
            except Exception as error:  # noqa: BLE001 - the steps raise what they do not handle
                ask = steps.throw(error)
            else:
                ask = steps.send(answer)
    except StopIteration as end:
        result: R = end.value
        return result
    finally:
        steps.close()


async def adrive(steps: Steps[R]) -> R:
    """Carry out the steps; whatever they ask for is awaited, if it can be."""
    try:
        ask = next(steps)
        while True:
            try:
                answer = ask()
                if isinstance(answer, Awaitable):
                    answer = await answer
            except Exception as error:  # noqa: BLE001
                ask = steps.throw(error)
            else:
                ask = steps.send(answer)
    except StopIteration as end:
        result: R = end.value
        return result
    finally:
        steps.close()
