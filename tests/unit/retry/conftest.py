"""One way to run a policy's call form and its async form by the same test."""

import asyncio

import pytest


class Sync:
    name = "sync"

    @staticmethod
    def call(policy, fn, *args, **kwargs):
        return policy.call(fn, *args, **kwargs)


class Async:
    name = "async"

    @staticmethod
    def call(policy, fn, *args, **kwargs):
        async def afn(*args, **kwargs):
            await asyncio.sleep(0)
            return fn(*args, **kwargs)

        afn.__qualname__, afn.__module__ = fn.__qualname__, fn.__module__
        return asyncio.run(policy.acall(afn, *args, **kwargs))


@pytest.fixture(params=[Sync, Async], ids=lambda each: each.name)
def driver(request):
    return request.param


@pytest.fixture
def script():
    """Create a function that raises or returns one item per call and repeats the last one."""

    def make(*items):
        left = list(items)

        def scripted():
            scripted.calls += 1
            item = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(item, BaseException) or (
                isinstance(item, type) and issubclass(item, BaseException)
            ):
                raise item
            return item

        scripted.calls = 0
        return scripted

    return make
