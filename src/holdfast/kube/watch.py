"""Waits for conditions by watching: one list, then events, until the condition is met or a deadline expires.

A dropped connection resumes at the last resource version; "too old" (410) lists again after a backoff; an
error event is handled like an error response. `conditions` has the conditions.
"""

from __future__ import annotations

import math
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from holdfast.errors import (
    ApiRequestRejectedError,
    DeadlineExceededError,
    InvalidArgumentError,
    OperationCancelledError,
    TemporaryError,
    WaitFailedError,
    WatchDroppedError,
    WatchStreamError,
)
from holdfast.kube.client_limits import clip_to_deadline
from holdfast.kube.conditions import WaitResult
from holdfast.kube.failures import http_status, parse_status
from holdfast.kube.rest_client import ApiRequest
from holdfast.kube.retry_table import Verb, is_retryable
from holdfast.retry import current_deadline

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from holdfast.kube.rest_mapping import ObjectReference, RestMapping
    from holdfast.kube.transport import ApiSession

    # Takes the type of an event and its object.
    EventCallback: TypeAlias = Callable[[str, dict[str, Any]], None]

# A connection without any event for this long, bookmarks included, is considered dead.
_IDLE_TIMEOUT = 90.0
# A stream that ends sooner than this was rejected; the next one needs a backoff.
_MIN_STREAM_SECONDS = 1.0
_MAX_STREAM_SECONDS = 3600


def _is_recoverable(error: Exception) -> bool | None:
    """Whether a wait continues after this error."""
    if http_status(error) == HTTPStatus.GONE or isinstance(error, WatchDroppedError):
        return True
    return is_retryable(Verb.READ, error)


class ObjectWaiter:
    """One wait for one object, over all of its connections."""

    def __init__(
        self,
        session: ApiSession,
        mapping: RestMapping,
        reference: ObjectReference,
        until: Callable[[Any], Any],
        label_selector: str | None = None,
    ) -> None:
        self._session, self._reference = session, reference
        self._until, self._label_selector = until, label_selector
        self._path, self._plural = mapping.path(reference.namespace), mapping.plural
        self._resource_version: str | None = None
        self.object: dict[str, Any] | None = None
        self.result = WaitResult(observed="nothing yet")

    async def run(self, deadline: float) -> dict[str, Any] | None:
        """Watch until the condition is met, over any number of connections, at most `deadline` seconds."""
        # Every API server ends watches from time to time, so reconnects are not counted.
        overrides: dict[str, Any] = {"attempts": None, "deadline": deadline, "retry_on": _is_recoverable}
        try:
            return await self._session.call(Verb.READ, "wait for", self._reference, self.attempt, **overrides)
        except TemporaryError as error:
            stream_error = error.cause if isinstance(error.cause, WatchStreamError) else error
            if isinstance(stream_error, WatchStreamError) and not _is_recoverable(stream_error):
                message = f"wait for {self._reference}: {stream_error}"
                raise ApiRequestRejectedError(message, cause=stream_error) from error
            problem = f"condition not met within {deadline:g} s; last seen: {self.result.observed}"
            raise DeadlineExceededError(f"{self._reference}: {problem}", cause=error) from error

    async def attempt(self) -> dict[str, Any] | None:
        """List unless a resource version is known, then watch until the condition is met."""
        try:
            if self._resource_version is None:
                await self._list()
            while not self.result.done:
                self._check_deadline()
                await self._stream()
        except Exception as error:
            if http_status(error) == HTTPStatus.GONE:
                # The server no longer has that version: the next attempt lists.
                self._resource_version = None
            raise
        return self.object

    async def _list(self) -> None:
        response = await self._session.send(self._request({}))
        items: Any = response.get("items")
        version = response.get("metadata", {}).get("resourceVersion")
        self._resource_version = version if isinstance(version, str) else None
        rows = items if isinstance(items, list) else []
        self._handle_list([item for item in rows if isinstance(item, dict)])

    async def _stream(self) -> None:
        began = time.monotonic()
        request = self._request(
            {
                "watch": "true",
                "resourceVersion": self._resource_version,
                "allowWatchBookmarks": "true",
                # Ends the watch on the server too, which may not notice that this client is gone.
                "timeoutSeconds": max(1, math.ceil(clip_to_deadline(_MAX_STREAM_SECONDS))),
            }
        )
        stream = await self._session.stream(request, clip_to_deadline(_IDLE_TIMEOUT))
        try:
            while not self.result.done:
                # Checked for each event: neither frequent events nor silence may extend the wait.
                self._check_deadline()
                event = await stream.next(clip_to_deadline(_IDLE_TIMEOUT))
                if event is None:
                    break
                self._handle_event(event)
        finally:
            # An unfinished response never returns its connection to the pool.
            stream.close()
        if not self.result.done:
            # `stop` ends a stream as well.
            self._check_deadline()
            if time.monotonic() - began < _MIN_STREAM_SECONDS:
                raise WatchDroppedError("the watch ended immediately")

    def _handle_event(self, event: dict[str, Any]) -> None:
        kind, obj = event.get("type"), event["object"]
        if kind == "ERROR":
            # The HTTP status of the stream was 200; the Status in this event takes its place.
            status, code = parse_status(obj), obj.get("code")
            raise WatchStreamError(code if isinstance(code, int) else 500, status.reason, status.retry_after)
        # Bookmarks too: they keep the version recent, so that a reconnect does not end with 410.
        version = obj.get("metadata", {}).get("resourceVersion")
        if isinstance(version, str):
            self._resource_version = version
        if kind in {"ADDED", "MODIFIED", "DELETED"}:
            self._handle_change(obj, exists=kind != "DELETED")

    def _handle_list(self, items: list[dict[str, Any]]) -> None:
        self._evaluate_object(items[0] if items else None)

    def _handle_change(self, obj: dict[str, Any], *, exists: bool) -> None:
        self._evaluate_object(obj if exists else None)

    def _evaluate_object(self, obj: dict[str, Any] | None) -> None:
        self.object = obj if obj is None else self._reference.with_type(obj)
        self._evaluate(self.object)

    def _evaluate(self, observed: Any) -> None:
        try:
            result = self._until(observed)
        except Exception as broken:
            raise InvalidArgumentError(
                "until", f"raised {type(broken).__name__} on {self._reference}"
            ) from broken
        self.result = (
            result
            if isinstance(result, WaitResult)
            else WaitResult(done=bool(result), observed="not met yet")
        )
        if self.result.failed:
            raise WaitFailedError(f"{self._reference}: {self.result.failed}")

    def _request(self, query: dict[str, Any]) -> ApiRequest:
        name = self._reference.name
        selectors = {
            "fieldSelector": None if name is None else f"metadata.name={name}",
            "labelSelector": self._label_selector,
        }
        return ApiRequest(Verb.READ, self._path, self._plural, query={**selectors, **query})

    def _check_deadline(self) -> None:
        stop, deadline = self._session.policy.stop, current_deadline()
        if stop is not None and stop.is_set():
            raise OperationCancelledError(f"watch {self._reference}: stopped")
        if deadline is not None:
            deadline.check(f"watch {self._reference}")


class ObjectListWaiter(ObjectWaiter):
    """One wait for all objects with certain labels; the condition receives the list of them."""

    _objects_by_uid: dict[str, dict[str, Any]]

    def _handle_list(self, items: list[dict[str, Any]]) -> None:
        self._objects_by_uid = {_uid(item): self._reference.with_type(item) for item in items}
        self._evaluate(list(self._objects_by_uid.values()))

    def _handle_change(self, obj: dict[str, Any], *, exists: bool) -> None:
        if exists:
            self._objects_by_uid[_uid(obj)] = self._reference.with_type(obj)
        else:
            self._objects_by_uid.pop(_uid(obj), None)
        self._evaluate(list(self._objects_by_uid.values()))


class ChangeWatcher(ObjectWaiter):
    """Reports all changes of a kind since a resource version, for the duration of one connection."""

    def __init__(
        self,
        session: ApiSession,
        mapping: RestMapping,
        reference: ObjectReference,
        on_event: EventCallback,
        resource_version: str,
        label_selector: str | None,
    ) -> None:
        super().__init__(
            session, mapping, reference, lambda _: WaitResult(observed="changes"), label_selector
        )
        self._path = mapping.list_path(reference.namespace)
        self._on_event = on_event
        self._resource_version = resource_version

    async def attempt(self) -> Any:
        """Return True when the stream has ended, and False when the resource version is too old."""
        try:
            await self._stream()
        except Exception as error:
            if http_status(error) != HTTPStatus.GONE:
                raise
            return False
        return True

    def _handle_event(self, event: dict[str, Any]) -> None:
        if event["type"] == "ERROR":
            super()._handle_event(event)
        self._on_event(event["type"], event["object"])


def _uid(obj: dict[str, Any]) -> str:
    return str(obj.get("metadata", {}).get("uid"))
