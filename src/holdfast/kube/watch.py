"""Waits by watching: one list, then events, until a condition holds or one deadline has passed.

A dropped connection is resumed at the last version seen; "too old" (410) lists again, after a backoff; an
error inside the stream is an answer like any other. Not here: what is waited for (`conditions`) and sleeping.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.errors import ArgumentError, CancelledError, TemporaryError, WaitFailedError
from holdfast.kube.conditions import Sight, Until
from holdfast.kube.exchange import Link, exchange
from holdfast.kube.policy_table import may_repeat
from holdfast.kube.request import Request
from holdfast.kube.status import http_status, read_status
from holdfast.kube.verbs import Verb
from holdfast.retry import current_deadline

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from holdfast.kube.kinds import Home
    from holdfast.kube.manifest import Target
    from holdfast.kube.steps import Steps

    # Takes the type of an event and its object.
    Told: TypeAlias = Callable[[str, dict[str, Any]], None]

_GONE = 410
# A connection on which nothing comes for this long, bookmarks included, is taken for dead.
_SILENCE = 90.0
# A stream that ends sooner than this was refused rather than used up.
_REFUSED = 1.0
_LONGEST_STREAM = 3600
# A timeout of nothing would be taken for none.
_LEAST = 0.001


class StreamError(TemporaryError):
    """The server ended a watch with an error event."""

    code = "watch-stream"

    def __init__(self, status: int, reason: str, retry_after: float | None) -> None:
        super().__init__(f"the watch ended with {status} {reason}".rstrip())
        self.status = status
        self.headers = {"Retry-After": f"{retry_after:.3f}"} if retry_after else {}


class StreamDroppedError(TemporaryError):
    """The watch ended as soon as it had begun."""

    code = "watch-dropped"


def goes_on(error: Exception) -> bool:
    """Whether a wait survives this error."""
    if http_status(error) == _GONE or isinstance(error, StreamDroppedError):
        return True
    return may_repeat(Verb.READ)(error)


class Watching:
    """One wait for one object, over all of its connections."""

    def __init__(self, link: Link, wire: Any, home: Home, where: Target, until: Until) -> None:
        self._link, self._wire, self._until = link, wire, until
        self._path, self._name, self._where = home.path(where.namespace), where.name, where
        self._plural = home.plural
        self._version: str | None = None
        self.object: dict[str, Any] | None = None
        self.sight = Sight(seen="nothing was seen yet")

    def attempt(self) -> Steps[dict[str, Any] | None]:
        """List if needed, then watch until it is over; raises what `goes_on` judges."""
        try:
            if self._version is None:
                yield from self._list()
            while not self.sight.done:
                self._check_time()
                yield from self._stream()
        except Exception as error:
            if http_status(error) == _GONE:
                self._version = None
            raise
        return self.object

    def _list(self) -> Steps[None]:
        request = self._request({})
        answer = yield from exchange(self._link, request.method, partial(self._wire.send, request))
        items = answer.get("items") if isinstance(answer.get("items"), list) else []
        version = answer.get("metadata", {}).get("resourceVersion")
        self._version = version if isinstance(version, str) else None
        self._listed([item for item in items if isinstance(item, dict)])

    def _stream(self) -> Steps[None]:
        began = time.monotonic()
        request = self._request(
            {
                "watch": "true",
                "resourceVersion": self._version,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": self._seconds(),
            }
        )
        stop = self._link.policy.stop
        open_stream = partial(self._wire.stream, request, silence=self._silence(), stop=stop)
        stream = yield from exchange(self._link, request.method, lambda timeout: open_stream(timeout=timeout))
        try:
            while not self.sight.done:
                # A server that goes on sending, or goes silent, does not make the wait any longer.
                self._check_time()
                event = yield partial(stream.next, self._silence())
                if event is None:
                    break
                self._take(event)
        finally:
            stream.close()
        if not self.sight.done and time.monotonic() - began < _REFUSED:
            raise StreamDroppedError("the watch ended as soon as it had begun")

    def _take(self, event: dict[str, Any]) -> None:
        kind, obj = event.get("type"), event["object"]
        if kind == "ERROR":
            status, code = read_status(obj), obj.get("code")
            raise StreamError(code if isinstance(code, int) else 500, status.reason, status.retry_after)
        version = obj.get("metadata", {}).get("resourceVersion")
        if isinstance(version, str):
            self._version = version
        if kind in {"ADDED", "MODIFIED", "DELETED"}:
            self._changed(obj, there=kind != "DELETED")

    def _listed(self, items: list[dict[str, Any]]) -> None:
        self._look(items[0] if items else None)

    def _changed(self, obj: dict[str, Any], *, there: bool) -> None:
        self._look(obj if there else None)

    def _look(self, obj: dict[str, Any] | None) -> None:
        # Items of a list do not say what they are.
        self.object = obj if obj is None else self._named(obj)
        self._judge(self.object)

    def _named(self, obj: dict[str, Any]) -> dict[str, Any]:
        return {**obj, "kind": self._where.kind, "apiVersion": self._where.api_version}

    def _judge(self, seen: Any) -> None:
        try:
            sight = self._until(seen)
        except Exception as broken:
            raise ArgumentError("until", f"raised {type(broken).__name__} on {self._where}") from broken
        self.sight = sight if isinstance(sight, Sight) else Sight(done=bool(sight), seen="not so yet")
        if self.sight.failed:
            raise WaitFailedError(f"{self._where}: {self.sight.failed}")

    def _request(self, query: dict[str, Any]) -> Request:
        selector = {"fieldSelector": f"metadata.name={self._name}"}
        return Request(Verb.READ, self._path, self._plural, query={**selector, **query})

    def _check_time(self) -> None:
        stop, deadline = self._link.policy.stop, current_deadline()
        if stop is not None and stop.is_set():
            raise CancelledError(f"watching {self._where} was stopped")
        if deadline is not None:
            deadline.check(f"watching {self._where}")

    def _seconds(self) -> int:
        """How long the server is asked to keep the stream open; it knows whole seconds only."""
        deadline = current_deadline()
        left = _LONGEST_STREAM if deadline is None else deadline.clip(_LONGEST_STREAM)
        return max(1, math.ceil(left))

    def _silence(self) -> float:
        """How long nothing may come: never beyond the deadline."""
        deadline = current_deadline()
        return _SILENCE if deadline is None else max(_LEAST, deadline.clip(_SILENCE))


class WatchingMany(Watching):
    """One wait for all objects of a kind with certain labels; the condition is given the list of them."""

    def __init__(self, link: Link, wire: Any, home: Home, where: Target, labels: str, until: Any) -> None:
        super().__init__(link, wire, home, where, until)
        self._labels = labels
        self._there: dict[str, dict[str, Any]] = {}

    def _listed(self, items: list[dict[str, Any]]) -> None:
        self._there = {_uid(item): self._named(item) for item in items}
        self._judge(list(self._there.values()))

    def _changed(self, obj: dict[str, Any], *, there: bool) -> None:
        if there:
            self._there[_uid(obj)] = self._named(obj)
        else:
            self._there.pop(_uid(obj), None)
        self._judge(list(self._there.values()))

    def _request(self, query: dict[str, Any]) -> Request:
        selector = {"labelSelector": self._labels}
        return Request(Verb.READ, self._path, self._plural, query={**selector, **query})


class Following(Watching):
    """All changes of a kind since a version, told one by one for as long as one connection lasts."""

    def __init__(
        self, link: Link, wire: Any, home: Home, where: Target, labels: str | None, version: str, told: Told
    ) -> None:
        super().__init__(link, wire, home, where, lambda _: Sight(seen="changes"))
        if not where.namespace:
            self._path = f"{home.root}/{home.plural}"
        self._labels, self._told = labels, told
        self._version = version

    def attempt(self) -> Steps[Any]:
        """True when the stream has ended; False when the version is too old to go on from."""
        try:
            yield from self._stream()
        except Exception as error:
            if http_status(error) != _GONE:
                raise
            return False
        return True

    def _take(self, event: dict[str, Any]) -> None:
        if event["type"] == "ERROR":
            super()._take(event)
        self._told(event["type"], event["object"])

    def _request(self, query: dict[str, Any]) -> Request:
        return Request(Verb.READ, self._path, self._plural, query={"labelSelector": self._labels, **query})


def _uid(obj: dict[str, Any]) -> str:
    return str(obj.get("metadata", {}).get("uid"))
