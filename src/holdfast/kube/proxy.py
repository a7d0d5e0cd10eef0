"""`resilient(api)`: any API object of the official client, sync or aio, whose calls survive a bad server.

The proxy has the methods, the type and the attributes of what it wraps. A successful call is the wrapped
call; a failed one is repeated as docs/reference/kube-outcomes.md says, and its last error is raised as
itself. Not here: helpers that do more than one call (`objects`).
"""

from __future__ import annotations

from contextvars import copy_context
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast.errors import ArgumentKindError
from holdfast.kube.calls import Call, CallPlan
from holdfast.kube.exchange import DEFAULT_TIMEOUT, Link, check_terms, link
from holdfast.kube.steps import adrive, drive
from holdfast.kube.verbs import method_of
from holdfast.retry import checks

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.kube.telemetry import Observer
    from holdfast.retry import Policy

Api = TypeVar("Api")


def resilient(
    api: Api,
    policy: Policy | None = None,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    refresh_credentials: Callable[[], Any] | None = None,
    observers: tuple[Observer, ...] = (),
    largest_answer: int | None = None,
) -> Api:
    """The same API object, retrying what may be retried.

    - `policy`: attempts, backoff, deadline, budget, on_retry, stop; what is transient is decided here.
      Without a budget of its own it shares one with everybody who talks to the same server.
    - `timeout`: seconds for one request that names none; cut to what is left of the deadline.
    - `refresh_credentials`: called once after a 401, whoever was refused; by default the client's own hook.
      With `kubernetes.aio` it may be a coroutine function; a plain one is called in a thread.
    - `observers`: told of each attempt (`holdfast.kube.telemetry`).
    - `largest_answer`: bytes; of the client underneath, so the last one named counts.

    Switches off the retries of the ApiClient underneath, for everybody who uses it.
    """
    client = getattr(api, "api_client", None)
    if isinstance(api, type) or client is None or not hasattr(client, "rest_client"):
        raise ArgumentKindError("api", f"must be an API object such as CoreV1Api(), not {type(api).__name__}")
    check_terms(policy, timeout, observers, refresh_credentials)
    if isinstance(api, _Resilient):
        api = api._api  # noqa: SLF001 - wrapping twice must not retry twice
    terms = link(
        client,
        policy=policy,
        timeout=timeout,
        refresh=refresh_credentials,
        observers=observers,
        largest_answer=None if largest_answer is None else checks.count("largest_answer", largest_answer),
    )
    return cast("Api", _Resilient(api, terms))


class _Resilient:
    """Stands in for an API object: makes each of its methods resilient when it is first asked for."""

    def __init__(self, api: Any, terms: Link) -> None:
        self._api = api
        self._terms = terms

    @property
    def __class__(self) -> Any:
        """`isinstance` sees what was wrapped. `type()` does not: so that two layers can be told apart."""
        return type(self._api)

    @__class__.setter
    def __class__(self, kind: Any) -> None:
        raise TypeError("the class of a resilient API object cannot be changed")

    def __getattr__(self, name: str) -> Any:
        if name in {"_api", "_terms"}:  # of a copy that is not filled yet
            raise AttributeError(name)
        found = getattr(self._api, name)
        method = None if name.startswith("_") else method_of(name)
        if method is None or not callable(found):
            return found
        wrapped = _wrap(CallPlan(self._terms, self._api, name, method, found))
        self.__dict__[name] = wrapped
        return wrapped

    def __enter__(self) -> Any:
        self._api.__enter__()
        return self

    def __exit__(self, *exc: object) -> Any:
        return self._api.__exit__(*exc)

    async def __aenter__(self) -> Any:
        await self._api.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> Any:
        return await self._api.__aexit__(*exc)

    def __dir__(self) -> list[str]:
        return dir(self._api)

    def __repr__(self) -> str:
        return f"resilient({self._api!r})"


def _wrap(plan: CallPlan) -> Callable[..., Any]:
    wrapper = _in_tasks(plan) if plan.is_async else _in_threads(plan)
    return cast("Callable[..., Any]", update_wrapper(wrapper, plan.fn))


def _in_tasks(plan: CallPlan) -> Callable[..., Any]:
    async def aguarded(*args: Any, **kwargs: Any) -> Any:
        call = Call(plan, args, kwargs)
        try:
            return await call.run(call)
        except Exception as error:
            found = await adrive(call.last_look())
            if found is not None:
                return found
            settled = call.settle(error)
            if settled is error:
                raise
        # Outside, so that the error it takes the place of is not its context.
        raise settled

    return aguarded


def _in_threads(plan: CallPlan) -> Callable[..., Any]:
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if kwargs.pop("async_req", None):
            # With the deadline of whoever asks: the threads of the pool have none.
            within = partial(copy_context().run, guarded)
            return plan.link.api_client.pool.apply_async(within, args, kwargs)
        call = Call(plan, args, kwargs)
        try:
            return call.run(call)
        except Exception as error:
            found = drive(call.last_look())
            if found is not None:
                return found
            settled = call.settle(error)
            if settled is error:
                raise
        raise settled

    return guarded
