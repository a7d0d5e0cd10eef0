"""One call of one method of an API object: its arguments, what an attempt of it is, and its last look.

Not here: finding the method and repeating the attempt (`proxy`).
"""

from __future__ import annotations

import inspect
import sys
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.kube import stamp, writes
from holdfast.kube.chain import begun_while
from holdfast.kube.curfew import abounded, bounded
from holdfast.kube.exchange import LEAST, Link, exchange
from holdfast.kube.status import http_status
from holdfast.kube.steps import adrive, drive
from holdfast.kube.verbs import Method, Verb, verb_of_call
from holdfast.retry import Deadline, clock, current_deadline, retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.kube.steps import Steps

_SUFFIX = "_with_http_info"
_NOT_FOUND, _UNAUTHORIZED = 404, 401
# Below this a last look is not worth its request.
_SHORTEST_LOOK = 0.05


class CallPlan:
    """What all calls of one method have in common; made once for each method."""

    def __init__(self, link: Link, api: Any, name: str, method: Method, fn: Callable[..., Any]) -> None:
        self.link, self.api, self.method = link, api, method
        self.is_async = inspect.iscoroutinefunction(fn)
        self.fn = abounded(fn) if self.is_async else bounded(fn)
        self.operation = f"{type(api).__name__}.{name}"
        self.positions = {each: n for n, each in enumerate(inspect.signature(fn).parameters)}
        self.reader = self._find_reader(name)
        self._runs: dict[Verb, Callable[[Call], Any]] = {}
        self.run = self.run_of(method.verb)

    def _find_reader(self, name: str) -> tuple[Callable[..., Any], list[str]] | None:
        """The method that reads what this one writes, and which arguments it needs."""
        if self.method.verb not in {Verb.CREATE, Verb.REPLACE, Verb.DELETE}:
            return None
        suffix = _SUFFIX if name.endswith(_SUFFIX) else ""
        for first in ("read", "get"):
            reader = getattr(self.api, f"{first}_{self.method.resource}{suffix}", None)
            if reader is not None:
                wanted = inspect.signature(reader).parameters.values()
                read = reader if self.is_async else bounded(reader)
                return read, [each.name for each in wanted if each.default is inspect.Parameter.empty]
        return None

    def run_of(self, verb: Verb) -> Callable[[Call], Any]:
        """What carries out a call under the policy of its verb; made once."""
        run = self._runs.get(verb)
        if run is None:
            policy = self.link.policy_for(verb, self.operation)
            wrapped = retry(policy, operation=self.operation)
            run = self._runs[verb] = wrapped(_aattempt if self.is_async else self._attempt_of(verb))
        return run

    def _attempt_of(self, verb: Verb) -> Callable[[Call], Any]:
        """What an attempt in threads is: with nobody watching, no more than it takes."""
        if self.link.observers:
            return _attempt
        return Call.request if verb in {Verb.READ, Verb.ASK} else Call.write_at_once

    def argument(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One argument of a call, however it was passed."""
        if name in kwargs:
            return kwargs[name]
        index = self.positions.get(name)
        return args[index] if index is not None and index < len(args) else None


class Call:
    """One call, over all of its attempts."""

    __slots__ = ("_args", "_began", "_failed", "_kwargs", "_plan", "run", "verb", "write")

    def __init__(self, plan: CallPlan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._plan, self._args, self._kwargs = plan, args, kwargs
        self._failed: Exception | None = None
        self.verb = verb = plan.method.verb
        self.run = plan.run
        if verb is Verb.READ:
            self.write: writes.Write | None = None
            return
        self._began = clock.monotonic()
        body = plan.argument("body", args, kwargs)
        self.verb = verb_of_call(verb, body, dry_run=bool(plan.argument("dry_run", args, kwargs)))
        if self.verb is not verb:
            self.run = plan.run_of(self.verb)
        self.write = None if self.verb is Verb.ASK else writes.Write(body, self._plain)
        if self.write is not None and self.verb is Verb.CREATE:
            self.write.stamp()

    def attempt(self) -> Steps[Any]:
        """One attempt, with all that belongs to it."""
        if self.write is None:
            return self._request()
        if self.verb is Verb.CREATE:
            return writes.create(self.write, self._post, self._read if self._plan.reader else None)
        if self.verb is Verb.REPLACE:
            return writes.replace(
                self.write, self._request, self._read if self._plan.reader else None, self._plain
            )
        if self.verb is Verb.DELETE:
            return writes.delete(self.write, self._request, self._gone)
        return writes.once(self.write, self._request)

    def write_at_once(self) -> Any:
        """`attempt` in threads, its first request made without steps: most succeed, and pay half as much.

        What follows a failure is left to `attempt`, which meets the error where it would make the request.
        """
        try:
            return self.request()
        except Exception as error:  # noqa: BLE001 - raised again by the steps
            self._failed = error
        return drive(self.attempt())

    def request(self) -> Any:
        """One request in threads, as `exchange` makes it: all there is to a read, the first of a write."""
        handled = sys.exception()
        try:
            return self._renewing()
        except Exception as error:
            begun_while(error, handled)
            raise

    def _renewing(self) -> Any:
        fn, link = self._plan.fn, self._plan.link
        args, kwargs = self._args, self._kwargs
        if self.verb is Verb.CREATE and self.write is not None:
            args, kwargs = self._with_body(self.write.body)
        generation = link.credentials.generation
        try:
            return fn(*args, **self._timed(link.timeout_now(), kwargs))
        except Exception as error:
            if http_status(error) != _UNAUTHORIZED or not link.credentials.renew(generation):
                raise
        return fn(*args, **self._timed(link.timeout_now(), kwargs))

    def settle(self, error: Exception) -> Exception:
        return self._plan.link.settle(error, self._plan.method, self.write)

    def last_look(self) -> Steps[Any]:
        """After giving up on a write that may have happened: look once. None if that does not tell."""
        if self.write is None or not self.write.unknown or self.verb not in {Verb.CREATE, Verb.DELETE}:
            return None
        read, left = self._reading(stamp.name_of(self.write.body)), self._left()
        if read is None or left < _SHORTEST_LOOK or self._is_stopped():
            return None
        try:
            live = yield partial(read, _request_timeout=left)
        except Exception as error:  # noqa: BLE001 - then it stays unknown, and the first error tells more
            return self._gone() if self.verb is Verb.DELETE and http_status(error) == _NOT_FOUND else None
        return live if self.verb is Verb.CREATE and self.write.is_ours(live) else None

    def _is_stopped(self) -> bool:
        stop = self._plan.link.policy.stop
        return stop is not None and stop.is_set()

    def _left(self) -> float:
        """Seconds until the call's own deadline or one around it, at most those of one request."""
        policy, around = self._plan.link.policy, current_deadline()
        own = Deadline(min(self._began + policy.span, policy.until)).clip(self._plan.link.timeout)
        return own if around is None else around.clip(own)

    def _request(self) -> Steps[Any]:
        return self._exchange(
            lambda timeout: self._plan.fn(*self._args, **self._timed(timeout, self._kwargs))
        )

    def _with_body(self, body: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with another body."""
        args, kwargs = self._args, self._kwargs
        if "body" in kwargs:
            return args, {**kwargs, "body": body}
        index = self._plan.positions["body"]
        return (*args[:index], body, *args[index + 1 :]), kwargs

    def _post(self, body: Any) -> Steps[Any]:
        args, kwargs = self._with_body(body)
        return self._exchange(lambda timeout: self._plan.fn(*args, **self._timed(timeout, kwargs)))

    def _read(self, name: str | None = None) -> Steps[Any]:
        reading = self._reading(name or (stamp.name_of(self.write.body) if self.write else None))
        if reading is None:
            raise LookupError("no way to read this back")
        return self._exchange(lambda timeout: reading(_request_timeout=timeout))

    def _exchange(self, request: Callable[[float], Any]) -> Steps[Any]:
        if self._failed is None:
            return exchange(self._plan.link, self._plan.method, request)
        try:
            raise self._failed
        finally:
            self._failed = None  # else the error, its traceback and this call would keep each other alive

    def _plain(self, value: Any) -> Any:
        """A model as the JSON that would be sent."""
        return self._plan.link.api_client.sanitize_for_serialization(value)

    def _gone(self) -> Any:
        """What a delete returns whose object is no longer there to be returned."""
        name = self._plan.argument("name", self._args, self._kwargs)
        if type(self._plan.api).__name__ == "CustomObjectsApi":
            return {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {"name": name}}
        models = import_module(type(self._plan.api).__module__.partition(".api.")[0])
        return models.V1Status(status="Success", details=models.V1StatusDetails(name=name))

    def _timed(self, timeout: float, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Give the request a timeout; its own is cut to the deadline. A stream lasts as long as it lasts."""
        if "_request_timeout" in kwargs:
            return {**kwargs, "_request_timeout": _clipped(kwargs["_request_timeout"])}
        if kwargs.get("watch") or kwargs.get("follow"):
            return kwargs
        return {**kwargs, "_request_timeout": timeout}

    def _reading(self, name: str | None) -> Callable[..., Any] | None:
        if self._plan.reader is None:
            return None
        reader, wanted = self._plan.reader
        given = {each: self._plan.argument(each, self._args, self._kwargs) for each in wanted}
        given["name"] = name or given.get("name")
        return None if any(value is None for value in given.values()) else partial(reader, **given)


def _clipped(timeout: Any) -> Any:
    """A caller's own timeout, one number or one each for connecting and reading, within the deadline."""
    deadline = current_deadline()
    if deadline is None:
        return timeout
    if isinstance(timeout, tuple):
        return tuple(max(LEAST, deadline.clip(each)) for each in timeout)
    return max(LEAST, deadline.clip(timeout))


def _attempt(call: Call) -> Any:
    return drive(call.attempt())


async def _aattempt(call: Call) -> Any:
    return await adrive(call.attempt())
