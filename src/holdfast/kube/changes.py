"""Create, patch, list and follow any object: the plain verbs of a controller, as steps like the helpers.

Unlike `ensure` and `apply` they do not look first: who calls them has just looked. Not here: how steps are
carried out (`objects`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import ObjectConflictError
from holdfast.kube import writes
from holdfast.kube.manifest import fresh_manifest
from holdfast.kube.operations import Operations
from holdfast.kube.request import Request
from holdfast.kube.status import http_status, read_status
from holdfast.kube.verbs import Verb, verb_of_call
from holdfast.kube.watch import Following

if TYPE_CHECKING:
    from holdfast.kube.manifest import Target
    from holdfast.kube.steps import Steps
    from holdfast.kube.watch import Told

_NOT_FOUND, _GONE, _INVALID = 404, 410, 422
_MERGE = "application/merge-patch+json"


class Listed(NamedTuple):
    """All objects of a kind at one moment, and the version of that moment."""

    items: list[dict[str, Any]]
    version: str


class Changes(Operations):
    """The helpers' steps and those of the plain verbs."""

    def create(self, value: Any, namespace: str | None) -> Steps[dict[str, Any]]:
        """Make it; one of that name that another has made is a conflict."""
        body, where = fresh_manifest(value, namespace, self._plain)
        home = yield from self._home(where)
        write = writes.Write(body)
        write.stamp()
        collection = home.path(where.namespace)

        def post(body: Any) -> Steps[Any]:
            return self._send(Request(Verb.CREATE, collection, home.plural, "POST", body=body))

        def read(name: str) -> Steps[Any]:
            return self._send(Request(Verb.READ, f"{collection}/{name}", home.plural))

        attempt = partial(writes.create, write, post, read)
        made: dict[str, Any] = yield partial(self._perform, Verb.CREATE, "create", where, attempt, write)
        return made

    def patch(
        self, where: Target, patch: dict[str, Any], uid: str | None, subresource: str | None
    ) -> Steps[dict[str, Any] | None]:
        """Merge this into the object, or into a part of it such as its status; None if it is not there.

        With a uid only that very object is changed: another one of its name is a conflict.
        """
        if uid is not None:
            patch = {**patch, "metadata": {**patch.get("metadata", {}), "uid": uid}}
        home = yield from self._home(where)
        path = home.path(where.namespace, where.name) + (f"/{subresource}" if subresource else "")
        verb = verb_of_call(Verb.PATCH, patch)
        request = Request(verb, path, home.plural, "PATCH", body=patch, content_type=_MERGE)
        write = writes.Write(patch)
        attempt = partial(self._patch_attempt, write, request, where)
        found: dict[str, Any] | None = yield partial(self._perform, verb, "patch", where, attempt, write)
        return found

    def _patch_attempt(self, write: writes.Write, request: Request, where: Target) -> Steps[Any]:
        try:
            return (yield from writes.once(write, partial(self._send, request)))
        except Exception as error:
            status = http_status(error)
            if status == _NOT_FOUND:
                return None
            if status != _INVALID or "metadata.uid" not in read_status(error).causes:
                raise
            raise ObjectConflictError(f"{where} is another one by now", cause=error) from error

    def follow(self, where: Target, labels: str | None, version: str, told: Told) -> Steps[bool]:
        """Tell of each change since a version until the stream ends; False if that version is too old."""
        home = yield from self._home(where)
        following = Following(self._link, self._wire, home, where, labels, version, told)
        run = partial(self._perform, Verb.READ, "watch", where, following.attempt, None, {"attempts": 1})
        return bool((yield run))

    def list(self, where: Target, labels: str | None, chunk: int) -> Steps[Listed]:
        """All objects of a kind, in one namespace or in all, a chunk at a time."""
        home = yield from self._home(where)
        path = home.path(where.namespace) if where.namespace else f"{home.root}/{home.plural}"
        items: list[dict[str, Any]] = []
        query: dict[str, Any] = {"labelSelector": labels, "limit": str(chunk)}
        while True:
            request = Request(Verb.READ, path, home.plural, query=dict(query))
            attempt = partial(self._send, request)
            try:
                answer = yield partial(self._perform, Verb.READ, "list", where, attempt, None)
            except Exception as error:
                cause = getattr(error, "cause", None)
                # The server keeps a list together for some minutes only.
                if "continue" not in query or cause is None or http_status(cause) != _GONE:
                    raise
                items, query = [], {"labelSelector": labels, "limit": str(chunk)}
                continue
            # Items of a list do not say what they are.
            kind = {"apiVersion": where.api_version, "kind": where.kind}
            items += [{**kind, **item} for item in answer.get("items") or ()]
            about = answer.get("metadata") or {}
            if not about.get("continue"):
                return Listed(items, str(about.get("resourceVersion", "")))
            query["continue"] = about["continue"]
