"""`resilient(api)`: a proxy for an API object of the official client, sync or aio, that retries failed calls.

The proxy has the methods, the type and the attributes of the API object. A call that fails is retried as
docs/reference/kubernetes-retries.md describes; the last error is raised unchanged. `objects` has the
operations that need more than one call.
"""

from __future__ import annotations

import asyncio
import inspect
from contextvars import copy_context
from functools import partial, update_wrapper
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast.errors import ArgumentTypeError
from holdfast.kube import idempotency
from holdfast.kube.client import run_sync
from holdfast.kube.client_limits import TimeLimit, clip_to_deadline
from holdfast.kube.failures import http_status
from holdfast.kube.retry_table import HTTP_INFO_SUFFIX, ApiMethod, Verb, effective_verb, parse_method_name
from holdfast.kube.transport import DEFAULT_TIMEOUT, ApiSession, open_session
from holdfast.retry import Deadline, clock, current_deadline, retry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from holdfast.kube.telemetry import Observer
    from holdfast.retry import Policy

Api = TypeVar("Api")

_NOT_FOUND = 404
_STREAM_SUFFIX = "_without_preload_content"
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
    async def call_with_retries(*args: Any, **kwargs: Any) -> Any:
        call = BoundCall(method, args, kwargs)
        try:
            result = call.run(call)
            return await result if method.is_async else result
        except Exception as error:
            verified = await call.verify_after_failure()
            if verified is not None:
                return verified
            final = call.finalize_error(error)
            if final is error:
                raise
        # Raised outside `except`: the error that it replaces must not become its context.
        raise final

    def call_blocking(*args: Any, **kwargs: Any) -> Any:
        if kwargs.pop("async_req", None):
            # Copies the context: the threads of the pool do not inherit the caller's deadline.
            in_context = partial(copy_context().run, call_blocking)
            return method.session.api_client.pool.apply_async(in_context, args, kwargs)
        return run_sync(call_with_retries(*args, **kwargs))

    wrapper = call_with_retries if method.is_async else call_blocking
    return cast("Callable[..., Any]", update_wrapper(wrapper, method.fn))


class BoundMethod:
    """One method of an API object: its verb, its parameters, and the method that reads what it writes."""

    def __init__(
        self, session: ApiSession, api: Any, name: str, method: ApiMethod, fn: Callable[..., Any]
    ) -> None:
        self.session, self.api, self.method = session, api, method
        self.is_async = inspect.iscoroutinefunction(fn)
        self.fn = fn
        self.operation = f"{type(api).__name__}.{name}"
        self.read_method = self._find_read_method(name)
        self.parameter_index = {parameter: n for n, parameter in enumerate(inspect.signature(fn).parameters)}
        self._runners: dict[Verb, Callable[[BoundCall], Any]] = {}

    def _find_read_method(self, name: str) -> tuple[Callable[..., Any], list[str]] | None:
        """The method that reads the written object, and its required arguments."""
        if self.method.verb not in {Verb.CREATE, Verb.REPLACE, Verb.DELETE}:
            return None
        suffix = HTTP_INFO_SUFFIX if name.endswith(HTTP_INFO_SUFFIX) else ""
        for prefix in ("read", "get"):
            reader = getattr(self.api, f"{prefix}_{self.method.resource}{suffix}", None)
            if reader is not None:
                parameters = inspect.signature(reader).parameters.values()
                required = [each.name for each in parameters if each.default is inspect.Parameter.empty]
                return reader, required
        return None

    def call_once(self, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Callable[[float], Any]:
        """A request function: given a timeout, it calls `fn` within that time."""
        return partial(_call_async if self.is_async else _call_sync, fn, args, kwargs)

    def runner(self, verb: Verb) -> Callable[[BoundCall], Any]:
        """The function that makes a call under the policy of its verb."""
        run = self._runners.get(verb)
        if run is None:
            decorate = retry(self.session.policy_for(verb, self.operation), operation=self.operation)
            run = self._runners[verb] = decorate(_run_attempt_async if self.is_async else _run_attempt)
        return run

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
            if self.verb is not Verb.QUERY:
                self.write = idempotency.PendingWrite(body, self._to_json)
            if self.write is not None and self.verb is Verb.CREATE:
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

    def finalize_error(self, error: Exception) -> Exception:
        return self._method.session.finalize_error(error, self._method.method, self.write)

    async def verify_after_failure(self) -> Any:
        """Read once after the last attempt of an ambiguous create or delete; None if that proves nothing."""
        if self.write is None or not self.write.maybe_applied or self.verb not in {Verb.CREATE, Verb.DELETE}:
            return None
        read, seconds = self._bind_read_method(), self._time_left()
        stop = self._method.session.policy.stop
        if read is None or seconds < _MIN_VERIFY_SECONDS or (stop is not None and stop.is_set()):
            return None
        try:
            live = await self._method.call_once(read[0], (), read[1])(seconds)
        except Exception as error:  # noqa: BLE001 - the outcome stays unknown; the caller raises the first error
            is_deleted = self.verb is Verb.DELETE and http_status(error) == _NOT_FOUND
            return self._deleted_response() if is_deleted else None
        return live if self.verb is Verb.CREATE and self.write.is_own_object(live) else None

    def _time_left(self) -> float:
        """Seconds until the call's own deadline or an enclosing one, at most the timeout of one request."""
        policy, enclosing = self._method.session.policy, current_deadline()
        own = Deadline(min(self._started_at + policy.total_timeout, policy.expires))
        seconds = own.clip(self._method.session.timeout)
        return seconds if enclosing is None else enclosing.clip(seconds)

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
        return method.session.attempt(method.method, method.call_once(fn, args, kwargs))

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
        arguments["name"] = name or idempotency.object_name(self.write.body) or arguments.get("name")
        return None if None in arguments.values() else (reader, arguments)


def _run_attempt(call: BoundCall) -> Any:
    return run_sync(call.attempt())


async def _run_attempt_async(call: BoundCall) -> Any:
    return await call.attempt()


async def _call_sync(fn: Callable[..., Any], args: Any, kwargs: dict[str, Any], timeout: float) -> Any:  # noqa: ASYNC109
    """Call a method within its timeout; within the deadline if it streams or has two timeouts."""
    kwargs = _with_timeout(kwargs, timeout)
    seconds = kwargs.get("_request_timeout")
    if not isinstance(seconds, int | float) or _is_streaming(fn, kwargs):
        deadline = current_deadline()
        if deadline is None:
            return fn(*args, **kwargs)
        seconds = deadline.remaining()
    with TimeLimit(seconds):
        return fn(*args, **kwargs)


async def _call_async(fn: Callable[..., Any], args: Any, kwargs: dict[str, Any], timeout: float) -> Any:  # noqa: ASYNC109
    """The same with `kubernetes.aio`: aiohttp bounds whole requests, but not the start of a stream."""
    kwargs = _with_timeout(kwargs, timeout)
    deadline = current_deadline() if _is_streaming(fn, kwargs) else None
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


def _is_streaming(fn: Callable[..., Any], kwargs: dict[str, Any]) -> bool:
    """Whether the caller reads the response after the call has returned."""
    if kwargs.get("_preload_content") is False or fn.__name__.endswith(_STREAM_SUFFIX):
        return True
    return bool(kwargs.get("watch") or kwargs.get("follow"))
