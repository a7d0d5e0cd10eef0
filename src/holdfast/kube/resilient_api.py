"""`resilient(api)`: a proxy for an API object of the official client, sync or aio, that retries failed calls.

The proxy has the methods, the type and the attributes of the API object. A call that fails is retried as
docs/reference/kubernetes-retries.md describes; the last error is raised unchanged. `objects` has the
operations that need more than one call.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from contextvars import copy_context
from functools import cache, partial, update_wrapper
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast.errors import ArgumentTypeError
from holdfast.kube import idempotency
from holdfast.kube.client import run_sync
from holdfast.kube.client_limits import TimeLimit, call_within, clip_to_deadline
from holdfast.kube.failures import http_status
from holdfast.kube.retry_table import INFO_SUFFIX, STREAM_SUFFIX, Verb, effective_verb, parse_method_name
from holdfast.kube.transport import DEFAULT_TIMEOUT, ApiSession, open_session
from holdfast.retry import Deadline, clock, current_deadline, retry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from holdfast.kube.retry_table import ApiMethod
    from holdfast.kube.telemetry import Observer
    from holdfast.retry import Policy

Api = TypeVar("Api")

_TIME_OPTIONS = {"_request_timeout", "_preload_content", "watch", "follow"}
# After an ambiguous failure of these verbs, the object is read to find out what happened.
_RESOLVED_VERBS = {Verb.CREATE, Verb.REPLACE, Verb.DELETE}
_MIN_VERIFY_SECONDS = 0.05
"""Below this, the final read of an ambiguous write cannot succeed."""


def resilient(
    api: Api,
    policy: Policy | None = None,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    refresh_credentials: Callable[[], Any] | None = None,
    observers: tuple[Observer, ...] = (),
    max_response_bytes: int | None = None,
) -> Api:
    """Wrap an API object such as `CoreV1Api(client)` so that its calls are retried.

    Disables the inner retries of the ApiClient, for all of its users.

    Args:
        api: An API object of `kubernetes.client` or `kubernetes.aio.client`.
        policy: Attempts, backoff, deadline, budget, on_retry and stop. The verb of a call determines which
            errors are retried. Policies without a budget share one budget for each API server.
        timeout: Seconds for one request without `_request_timeout`; shortened to the deadline.
        refresh_credentials: Called once after a 401, for all callers that were rejected; by default the hook
            of the client's configuration. With `kubernetes.aio` it may be a coroutine function; a plain
            function is then called in a thread.
        observers: Called for each attempt; see `holdfast.kube.telemetry`.
        max_response_bytes: Size limit for responses of the ApiClient; the last value set applies.

    Raises:
        ArgumentTypeError, InvalidArgumentError: An argument has the wrong type or value.
    """
    client = getattr(api, "api_client", None)
    if isinstance(api, type) or client is None or not hasattr(client, "rest_client"):
        raise ArgumentTypeError("api", f"must be an API object such as CoreV1Api(), not {type(api).__name__}")
    if isinstance(api, _ResilientApi):
        api = api._api  # noqa: SLF001 - wrapping twice must not retry twice
    session = open_session(
        client,
        policy=policy,
        timeout=timeout,
        refresh_credentials=refresh_credentials,
        observers=observers,
        max_response_bytes=max_response_bytes,
    )
    return cast("Api", _ResilientApi(api, session))


class _ResilientApi:
    """The proxy; wraps each method of the API object on first access."""

    def __init__(self, api: Any, session: ApiSession) -> None:
        self._api = api
        self._session = session

    @property
    def __class__(self) -> Any:
        """The class of the API object, for `isinstance`; `type()` still returns the proxy's class."""
        return type(self._api)

    @__class__.setter
    def __class__(self, kind: Any) -> None:
        raise TypeError("the class of a resilient API object cannot be changed")

    def __getattr__(self, name: str) -> Any:
        if name in {"_api", "_session"}:  # a copy or an unpickled object without attributes
            raise AttributeError(name)
        attribute = getattr(self._api, name)
        method = None if name.startswith("_") else parse_method_name(name)
        if method is None or not callable(attribute):
            return attribute
        wrapped = _wrap_method(BoundMethod(self._session, self._api, name, method, attribute))
        # Later accesses do not reach `__getattr__`. Two threads may wrap a method twice, with equal results.
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


def _wrap_method(method: BoundMethod) -> Callable[..., Any]:
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        call = BoundCall(method, args, kwargs)
        try:
            return await call.run(call)
        except Exception as error:
            result, final = await call.resolve_failure(error)
            if final is error:
                raise
        # Raised outside `except`: the error that it replaces must not become its context.
        if final is not None:
            raise final
        return result

    def call_blocking(*args: Any, **kwargs: Any) -> Any:
        if kwargs.pop("async_req", None):
            # Copies the context: the threads of the pool do not inherit the caller's deadline.
            in_context = partial(copy_context().run, call_blocking)
            return method.session.api_client.pool.apply_async(in_context, args, kwargs)
        call = BoundCall(method, args, kwargs)
        try:
            return call.run(call)
        except Exception as error:
            result, final = run_sync(call.resolve_failure(error))
            if final is error:
                raise
        if final is not None:
            raise final
        return result

    wrapper = call_async if method.is_async else call_blocking
    return cast("Callable[..., Any]", update_wrapper(wrapper, method.fn))


class BoundMethod:
    """One method of an API object: its verb, its parameters, and the method that reads what it writes."""

    def __init__(
        self, session: ApiSession, api: Any, name: str, method: ApiMethod, fn: Callable[..., Any]
    ) -> None:
        self.session, self.api, self.method = session, api, method
        self.is_async = inspect.iscoroutinefunction(fn)
        self.call_once = _call_async if self.is_async else _call_sync
        self.fn = fn
        self.operation = f"{type(api).__name__}.{name}"
        self.read_method = self._find_read_method(name)
        self.parameter_index = {parameter: n for n, parameter in enumerate(inspect.signature(fn).parameters)}
        # The function that makes a call under the policy of its verb.
        self.runner = cache(self._create_runner)

    def _find_read_method(self, name: str) -> tuple[Callable[..., Any], list[str]] | None:
        """The method that reads the written object, and its required arguments."""
        if self.method.verb not in _RESOLVED_VERBS:
            return None
        suffix = INFO_SUFFIX if name.endswith(INFO_SUFFIX) else ""
        for prefix in ("read", "get"):
            reader = getattr(self.api, f"{prefix}_{self.method.resource}{suffix}", None)
            if reader is not None:
                parameters = inspect.signature(reader).parameters.values()
                required = [each.name for each in parameters if each.default is inspect.Parameter.empty]
                return reader, required
        return None

    def _create_runner(self, verb: Verb) -> Callable[[BoundCall], Any]:
        decorate = retry(self.session.policy_for(verb, self.operation), operation=self.operation)
        return decorate(_run_attempt_async if self.is_async else BoundCall.attempt_blocking)

    def argument(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One argument of a call, passed by position or by name."""
        if name in kwargs:
            return kwargs[name]
        index = self.parameter_index.get(name)
        return args[index] if index is not None and index < len(args) else None


class BoundCall:
    """One call of a method, over all of its attempts."""

    __slots__ = ("_args", "_kwargs", "_method", "_started_at", "run", "verb", "write")

    def __init__(self, method: BoundMethod, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._method, self._args, self._kwargs = method, args, kwargs
        self.verb = method.method.verb
        self.write: idempotency.PendingWrite | None = None
        if self.verb is not Verb.READ:
            self._started_at = clock.monotonic()
            body = method.argument("body", args, kwargs)
            dry_run = bool(method.argument("dry_run", args, kwargs))
            self.verb = effective_verb(self.verb, body, dry_run=dry_run)
            if self.verb in _RESOLVED_VERBS and _is_streaming(method.fn, kwargs):
                # The caller reads the response: an object that was read back cannot replace it.
                self.verb = Verb.INVOKE
            if self.verb is not Verb.QUERY:
                self.write = idempotency.PendingWrite(body, self._to_json)
            if self.write is not None and self.verb is Verb.CREATE:
                # Before the first attempt: all attempts send the same id and name, so that a later one
                # recognises the object of an earlier one.
                self.write.assign_operation_id()
        self.run = method.runner(self.verb)

    def attempt(self) -> Coroutine[Any, Any, Any]:
        """One attempt, and what is needed to resolve an earlier ambiguous one."""
        if self.write is None:
            return self._request()
        read = self._read_back if self._method.read_method else None
        if self.verb is Verb.CREATE:
            return idempotency.create_idempotently(self.write, self._post, read)
        if self.verb is Verb.REPLACE:
            return idempotency.replace_idempotently(self.write, self._request, read, self._to_json)
        if self.verb is Verb.DELETE:
            return idempotency.delete_idempotently(self.write, self._request, self._deleted_response)
        return idempotency.write_once(self.write, self._request)

    async def resolve_failure(self, error: Exception) -> tuple[Any, Exception | None]:
        """The result, if a last read proves that the write was applied, or the error to raise."""
        verified = await self._verify_write()
        final = self._method.session.finalize_error(error, self._method.method, self.write)
        return verified, final if verified is None else None

    async def _verify_write(self) -> Any:
        """Read once after the last attempt of an ambiguous create or delete; None if that proves nothing."""
        if self.write is None or not self.write.maybe_applied or self.verb not in {Verb.CREATE, Verb.DELETE}:
            return None
        read, session, policy = self._bind_read_method(), self._method.session, self._method.session.policy
        if read is None or (policy.stop is not None and policy.stop.is_set()):
            return None
        try:
            with Deadline(min(self._started_at + policy.total_timeout, policy.expires)):
                if clip_to_deadline(session.timeout) < _MIN_VERIFY_SECONDS:
                    return None
                live = await self._send(read[0], (), read[1])
        except Exception as error:  # noqa: BLE001 - the outcome stays unknown; the caller raises the first error
            is_deleted = self.verb is Verb.DELETE and http_status(error) == HTTPStatus.NOT_FOUND
            return self._deleted_response() if is_deleted else None
        return live if self.verb is Verb.CREATE and self.write.is_own_object(live) else None

    def attempt_blocking(self) -> Any:
        """One attempt with a sync client; one that writes nothing needs no coroutine."""
        if self.write is not None:
            return run_sync(self.attempt())
        method = self._method
        request = partial(_call_sync, method.fn, self._args, self._kwargs)
        return method.session.attempt_blocking(method.method, request)

    def _request(self) -> Coroutine[Any, Any, Any]:
        return self._send(self._method.fn, self._args, self._kwargs)

    def _post(self, body: Any) -> Coroutine[Any, Any, Any]:
        if "body" in self._kwargs:
            return self._send(self._method.fn, self._args, {**self._kwargs, "body": body})
        index = self._method.parameter_index["body"]
        args = (*self._args[:index], body, *self._args[index + 1 :])
        return self._send(self._method.fn, args, self._kwargs)

    def _read_back(self, name: str | None = None) -> Coroutine[Any, Any, Any]:
        read = self._bind_read_method(name)
        if read is None:
            raise LookupError("the object cannot be read back: its name or namespace is missing")
        return self._send(read[0], (), read[1])

    def _send(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        method = self._method
        return method.session.attempt(method.method, partial(method.call_once, fn, args, kwargs))

    def _to_json(self, value: Any) -> Any:
        """The JSON that the client would send for a model."""
        return self._method.session.api_client.sanitize_for_serialization(value)

    def _deleted_response(self) -> Any:
        """The result of a delete whose response was lost."""
        name = self._method.argument("name", self._args, self._kwargs)
        if type(self._method.api).__name__ == "CustomObjectsApi":
            return {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {"name": name}}
        models = import_module(type(self._method.api).__module__.partition(".api.")[0])
        return models.V1Status(status="Success", details=models.V1StatusDetails(name=name))

    def _bind_read_method(self, name: str | None = None) -> tuple[Callable[..., Any], dict[str, Any]] | None:
        """The method that reads the written object, and its arguments; None if one is unknown."""
        if self._method.read_method is None or self.write is None:
            return None
        reader, required = self._method.read_method
        arguments = {each: self._method.argument(each, self._args, self._kwargs) for each in required}
        # The name of a created object is in its body only; that of a deleted one is an argument.
        arguments["name"] = name or idempotency.object_name(self.write.body) or arguments.get("name")
        return None if None in arguments.values() else (reader, arguments)


async def _run_attempt_async(call: BoundCall) -> Any:
    return await call.attempt()


def _call_sync(fn: Callable[..., Any], args: Any, kwargs: dict[str, Any], timeout: float) -> Any:
    """Call a method within its timeout; within the deadline if it streams or has two timeouts."""
    # Most calls have none of these options. The limit alone costs less than a timeout of urllib3 would.
    if _TIME_OPTIONS.isdisjoint(kwargs):
        return call_within(TimeLimit(timeout), fn, args, kwargs)
    kwargs = _with_timeout(kwargs, timeout)
    if _is_bounded(fn, kwargs):
        return call_within(TimeLimit(kwargs["_request_timeout"]), fn, args, kwargs)
    # A timeout, if there is one, bounds each wait for bytes here. Only the deadline can bound the call.
    deadline = current_deadline()
    if deadline is None:
        return fn(*args, **kwargs)
    limit = TimeLimit(deadline.remaining())
    response = call_within(limit, fn, args, kwargs)
    # The caller reads the response later, without the deadline.
    limit.expires = math.inf
    return response


async def _call_async(fn: Callable[..., Any], args: Any, kwargs: dict[str, Any], timeout: float) -> Any:  # noqa: ASYNC109
    """The same with `kubernetes.aio`, whose timeout bounds whole requests, but not the start of a stream."""
    kwargs = _with_timeout(kwargs, timeout)
    deadline = None if _is_bounded(fn, kwargs) else current_deadline()
    if deadline is None:
        return await fn(*args, **kwargs)
    async with asyncio.timeout(deadline.remaining()):
        return await fn(*args, **kwargs)


def _with_timeout(kwargs: dict[str, Any], timeout: float) -> dict[str, Any]:
    """Add a request timeout; shorten the caller's own to the deadline. A watch has no default timeout."""
    if "_request_timeout" in kwargs:
        own = kwargs["_request_timeout"]
        own = tuple(map(clip_to_deadline, own)) if isinstance(own, tuple) else own and clip_to_deadline(own)
        return {**kwargs, "_request_timeout": own}
    return kwargs if kwargs.get("watch") or kwargs.get("follow") else {**kwargs, "_request_timeout": timeout}


def _is_bounded(fn: Callable[..., Any], kwargs: dict[str, Any]) -> bool:
    """Whether one timeout bounds the whole call."""
    return isinstance(kwargs.get("_request_timeout"), int | float) and not _is_streaming(fn, kwargs)


def _is_streaming(fn: Callable[..., Any], kwargs: dict[str, Any]) -> bool:
    """Whether the caller reads the response after the call has returned."""
    if kwargs.get("_preload_content") is False or fn.__name__.endswith(STREAM_SUFFIX):
        return True
    return bool(kwargs.get("watch") or kwargs.get("follow"))
