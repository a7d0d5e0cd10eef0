"""`Objects` and `AsyncObjects`: operations on objects of any kind, for threads and for asyncio.

    objects = Objects(api_client("~/.kube/config"))
    objects.ensure(pod("hello", "busybox", command=["true"]), namespace="default")
    objects.wait("Pod", "hello", pod_succeeded, namespace="default", deadline=60)

Both raise errors of `holdfast.errors` only. `flows` implements the operations; `resilient` wraps the calls of
the official client instead.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from holdfast.errors import ArgumentTypeError
from holdfast.kube.client_limits import is_async_client
from holdfast.kube.flows import ObjectFlows
from holdfast.kube.rest_client import AsyncRestClient, RestClient
from holdfast.kube.transport import (
    DEFAULT_TIMEOUT,
    ApiSession,
    Flow,
    open_session,
    run_async,
    run_sync,
    validate_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from holdfast.kube.telemetry import Observer
    from holdfast.retry import Policy

P = ParamSpec("P")
R = TypeVar("R")


def _sync_method(
    flow: Callable[Concatenate[ObjectFlows, P], Flow[R]],
) -> Callable[Concatenate[Objects, P], R]:
    """A method of `Objects` with the parameters and the docstring of a flow."""

    @wraps(flow)
    def method(self: Objects, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return run_sync(flow(self._flows, *args, **kwargs))

    return method


def _async_method(
    flow: Callable[Concatenate[ObjectFlows, P], Flow[R]],
) -> Callable[Concatenate[AsyncObjects, P], Coroutine[Any, Any, R]]:
    """A method of `AsyncObjects` with the parameters and the docstring of a flow."""

    @wraps(flow)
    async def method(self: AsyncObjects, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await run_async(flow(self._flows, *args, **kwargs))

    return method


class Objects:
    """Operations on objects through a `kubernetes.client.ApiClient`."""

    def __init__(
        self,
        api_client: Any,
        policy: Policy | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        observers: tuple[Observer, ...] = (),
    ) -> None:
        session = _open_session(api_client, policy, timeout, observers, is_async=False)
        self._flows = ObjectFlows(session, RestClient(api_client), _call_with_policy)

    get = _sync_method(ObjectFlows.get)
    list = _sync_method(ObjectFlows.list)
    create = _sync_method(ObjectFlows.create)
    ensure = _sync_method(ObjectFlows.ensure)
    apply = _sync_method(ObjectFlows.apply)
    patch = _sync_method(ObjectFlows.patch)
    delete = _sync_method(ObjectFlows.delete)
    wait = _sync_method(ObjectFlows.wait)
    wait_many = _sync_method(ObjectFlows.wait_many)
    watch = _sync_method(ObjectFlows.watch)


class AsyncObjects:
    """The operations of `Objects` as coroutines, through a `kubernetes.aio.client.ApiClient`."""

    def __init__(
        self,
        api_client: Any,
        policy: Policy | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        observers: tuple[Observer, ...] = (),
    ) -> None:
        session = _open_session(api_client, policy, timeout, observers, is_async=True)
        self._flows = ObjectFlows(session, AsyncRestClient(api_client), _call_with_policy_async)

    get = _async_method(ObjectFlows.get)
    list = _async_method(ObjectFlows.list)
    create = _async_method(ObjectFlows.create)
    ensure = _async_method(ObjectFlows.ensure)
    apply = _async_method(ObjectFlows.apply)
    patch = _async_method(ObjectFlows.patch)
    delete = _async_method(ObjectFlows.delete)
    wait = _async_method(ObjectFlows.wait)
    wait_many = _async_method(ObjectFlows.wait_many)
    watch = _async_method(ObjectFlows.watch)


def _open_session(
    api_client: Any, policy: Policy | None, timeout: float, observers: tuple[Observer, ...], *, is_async: bool
) -> ApiSession:
    if not hasattr(api_client, "rest_client") or is_async_client(api_client) is not is_async:
        expected = "kubernetes.aio.client.ApiClient" if is_async else "kubernetes.client.ApiClient"
        raise ArgumentTypeError("api_client", f"must be a {expected}, not {type(api_client).__name__}")
    validate_options(policy, timeout, observers)
    return open_session(api_client, policy=policy, timeout=timeout, observers=observers)


def _call_with_policy(policy: Policy, attempt: Callable[[], Flow[Any]]) -> Any:
    return policy.call(lambda: run_sync(attempt()))


async def _call_with_policy_async(policy: Policy, attempt: Callable[[], Flow[Any]]) -> Any:
    return await policy.acall(lambda: run_async(attempt()))
