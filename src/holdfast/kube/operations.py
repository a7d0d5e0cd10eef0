"""Ensure, apply, delete, read and wait for any object, as steps for threads and tasks alike.

Intent, not requests: each looks before it acts where it has to, tolerates "is there" after verifying that it
is ours, tolerates "is gone", and says what it did. Not here: how steps are carried out (`objects`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.errors import ClusterRefusedError, DeadlineError, ObjectConflictError, TemporaryError
from holdfast.kube import conditions, stamp, writes
from holdfast.kube.compare import differences
from holdfast.kube.exchange import Link, exchange
from holdfast.kube.harden import UnreadableAnswerError
from holdfast.kube.kinds import Home, home_of
from holdfast.kube.manifest import Target, fresh_manifest, manifest
from holdfast.kube.outcome import is_already_exists
from holdfast.kube.request import Request
from holdfast.kube.result import Result
from holdfast.kube.status import http_status, read_status
from holdfast.kube.verbs import Verb
from holdfast.kube.watch import StreamError, Watching, WatchingMany, goes_on
from holdfast.retry import checks

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.kube.steps import Steps

_NOT_FOUND, _CONFLICT = 404, 409
FIELD_MANAGER = "holdfast"


class Operations:
    """The steps of every helper; `perform` runs some of them under a policy, in threads or in tasks."""

    def __init__(self, link: Link, wire: Any, perform: Callable[..., Any]) -> None:
        self._link, self._wire, self._perform = link, wire, perform

    # One object ------------------------------------------------------------------------------------------

    def get(self, where: Target) -> Steps[dict[str, Any] | None]:
        """The object, or None if there is none."""
        home = yield from self._home(where)
        return (yield from self._get(home, where))

    def ensure(self, value: Any, namespace: str | None, owner: str | None) -> Steps[Result]:
        """Create it, or find it there alike and ours."""
        body, where = fresh_manifest(value, namespace, self._plain)
        home = yield from self._home(where)
        write = writes.Write(body)
        write.stamp(owner)
        attempt = partial(self._ensure_attempt, write, home, where, owner)
        result: Result = yield partial(self._perform, Verb.CREATE, "create", where, attempt, write)
        return result

    def _ensure_attempt(
        self, write: writes.Write, home: Home, where: Target, owner: str | None
    ) -> Steps[Result]:
        collection = home.path(where.namespace)

        def post(body: Any) -> Steps[Any]:
            return self._send(Request(Verb.CREATE, collection, home.plural, "POST", body=body))

        def read(name: str) -> Steps[Any]:
            return self._send(Request(Verb.READ, f"{collection}/{name}", home.plural))

        try:
            return Result("created", (yield from writes.create(write, post, read)))
        except Exception as error:
            if not is_already_exists(error):
                raise
        name = stamp.name_of(write.body)
        live = yield from read(name or "")
        return _judged(write.body, live, where.named(name), owner)

    def apply(self, value: Any, namespace: str | None, manager: str, *, force: bool) -> Steps[Result]:
        """Make it be like this: server-side apply, which owns just the fields that were sent."""
        body, where = manifest(value, namespace, self._plain)
        if where.name is None:
            body = stamp.stamped(body)
            where = where.named(stamp.name_of(body))
        home = yield from self._home(where)
        before = yield from self._get(home, where)
        query = {"fieldManager": manager, "force": "true" if force else None}
        request = Request(
            Verb.PATCH,
            home.path(where.namespace, where.name),
            home.plural,
            "PATCH",
            query,
            body,
            "application/apply-patch+yaml",
        )
        write = writes.Write(body)
        attempt = partial(self._apply_attempt, write, request, where)
        after = yield partial(self._perform, Verb.PATCH, "apply", where, attempt, write)
        if before is None:
            return Result("created", after)
        return Result("unchanged" if _version(before) == _version(after) else "changed", after)

    def _apply_attempt(self, write: writes.Write, request: Request, where: Target) -> Steps[Any]:
        try:
            return (yield from writes.once(write, partial(self._send, request)))
        except Exception as error:
            if http_status(error) != _CONFLICT:
                raise
            fields = ", ".join(read_status(error).causes) or "some fields"
            raise ObjectConflictError(
                f"{where}: another manager owns {fields}",
                hint="Leave those fields out, or apply with force=True to take them over.",
                cause=error,
            ) from error

    def delete(
        self,
        where: Target,
        uid: str | None,
        propagation: str | None,
        wait: float | None,
        version: str | None = None,
    ) -> Steps[Result]:
        """Delete this very object, not a later one of the same name; gone is fine.

        With a version it has to be as it was then: one that somebody has changed since is a conflict.
        """
        if wait is not None:
            checks.seconds("wait", wait)
        home = yield from self._home(where)
        live: dict[str, Any] | None = {"metadata": {"name": where.name, "uid": uid}}
        if uid is None:
            live = yield from self._get(home, where)
        if live is None:
            return Result("absent", {"metadata": {"name": where.name}})
        uid = _uid(live)
        as_seen = {"uid": uid, **({"resourceVersion": version} if version else {})}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": as_seen}
        body = {**options, **({"propagationPolicy": propagation} if propagation else {})}
        path = home.path(where.namespace, where.name)
        request = Request(Verb.DELETE, path, home.plural, "DELETE", body=body)
        write = writes.Write()
        attempt = partial(self._delete_attempt, write, request, uid)
        did = yield partial(self._perform, Verb.DELETE, "delete", where, attempt, write)
        if did == "deleted" and wait is not None:
            yield from self.wait(where, conditions.deleted(uid), wait)
        return Result(did, live)

    def _delete_attempt(self, write: writes.Write, request: Request, uid: str) -> Steps[Any]:
        try:
            yield from writes.once(write, partial(self._send, request))
        except Exception as error:
            status = http_status(error)
            if status not in {_NOT_FOUND, _CONFLICT}:
                raise
            if status == _CONFLICT:
                live = yield from self._absent_is_none(Request(Verb.READ, request.path, request.resource))
                if live is not None and live.get("metadata", {}).get("uid") == uid:
                    if write.unknown and live["metadata"].get("deletionTimestamp"):
                        # Our own delete, whose answer was lost, has made another version of it.
                        return "deleted"
                    raise
            return "deleted" if write.unknown else "absent"
        return "deleted"

    # Waiting ---------------------------------------------------------------------------------------------

    def wait(self, where: Target, until: Any, deadline: float) -> Steps[dict[str, Any] | None]:
        """Watch the object until a condition holds; DeadlineError says what was seen last."""
        checks.seconds("deadline", deadline)
        home = yield from self._home(where)
        watching = Watching(self._link, self._wire, home, where, until)
        return (yield from self._watch(watching, where, deadline))

    def wait_many(self, where: Target, labels: str, until: Any, deadline: float) -> Steps[None]:
        """The same for all objects with these labels."""
        checks.seconds("deadline", deadline)
        home = yield from self._home(where)
        watching = WatchingMany(self._link, self._wire, home, where, labels, until)
        yield from self._watch(watching, where, deadline)

    def _watch(self, watching: Watching, where: Target, deadline: float) -> Steps[dict[str, Any] | None]:
        terms = {"attempts": None, "deadline": deadline, "retry_on": goes_on}
        run = partial(self._perform, Verb.READ, "wait for", where, watching.attempt, None, terms)
        try:
            found: dict[str, Any] | None = yield run
        except Exception as error:
            if not isinstance(error, TemporaryError):
                raise
            refused = error.cause if isinstance(error.cause, StreamError) else error
            if isinstance(refused, StreamError) and not goes_on(refused):
                raise ClusterRefusedError(f"wait for {where}: {refused}", cause=refused) from error
            said = f"{where} was not as awaited within {deadline:g} s; last seen: {watching.sight.seen}"
            raise DeadlineError(said, cause=error) from error
        return found

    # Parts -----------------------------------------------------------------------------------------------

    def _get(self, home: Home, where: Target) -> Steps[dict[str, Any] | None]:
        request = Request(Verb.READ, home.path(where.namespace, where.name), home.plural)
        attempt = partial(self._absent_is_none, request)
        found: dict[str, Any] | None = yield partial(self._perform, Verb.READ, "read", where, attempt, None)
        return found

    def _absent_is_none(self, request: Request) -> Steps[Any]:
        try:
            return (yield from self._send(request))
        except Exception as error:
            if http_status(error) != _NOT_FOUND:
                raise
            return None

    def _home(self, where: Target) -> Steps[Home]:
        def send(request: Request) -> Any:
            return self._perform(Verb.READ, "look up", where, partial(self._send, request), None)

        return (yield from home_of(self._link.api_client, where, send))

    def _send(self, request: Request) -> Steps[Any]:
        return exchange(self._link, request.method, partial(self._wire.send, request))

    def _plain(self, model: Any) -> Any:
        return self._link.api_client.sanitize_for_serialization(model)


def _judged(sent: dict[str, Any], live: dict[str, Any], where: Target, owner: str | None) -> Result:
    """What is in the way of a create: ours and alike, alike, or a conflict."""
    theirs = stamp.annotation(live, stamp.OWNER)
    if theirs is not None and theirs != owner:
        raise ObjectConflictError(f"{where} belongs to {theirs!r}")
    if live.get("metadata", {}).get("deletionTimestamp"):
        raise ObjectConflictError(f"{where} is there, but is being deleted", hint="Wait until it is gone.")
    unlike = differences(sent, live)
    if unlike:
        raise ObjectConflictError(f"{where} is there, and differs in {', '.join(unlike)}")
    known = theirs is not None or (owner is None and stamp.annotation(live, stamp.OPERATION) is not None)
    return Result("unchanged" if known else "adopted", live)


def _uid(obj: dict[str, Any]) -> str:
    uid = obj.get("metadata", {}).get("uid")
    if not isinstance(uid, str):
        raise UnreadableAnswerError("the server said yes, but what followed has no uid")
    return uid


def _version(obj: dict[str, Any]) -> Any:
    return obj.get("metadata", {}).get("resourceVersion")
