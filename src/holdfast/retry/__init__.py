"""Retries: policies, backoffs, deadlines and a shared budget; independent of the rest of the product.

    from holdfast.retry import Policy, exponential, retry

    @retry(Policy(attempts=4, backoff=exponential(0.2, cap=10), deadline=60, retry_on=ConnectionError))
    def fetch() -> bytes: ...

    policy.call(fetch)                       # without a decorator
    await policy.acall(afetch)
    for attempt in policy.retry_context("fetch"):    # for a block of code
        with attempt:
            ...

Only this package sleeps. The module is callable like the decorator, so that `from holdfast import retry`
gives both (docs/decisions/0010-retry-library.md).
"""

import sys
from types import ModuleType
from typing import Any

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)


class _CallableModule(ModuleType):
    """This package, callable as its decorator."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        from holdfast.retry.runner import retry

        return retry(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
