"""The operations of `Objects` and `AsyncObjects`, written once as generators (see `transport.Flow`).

`ensure`, `apply` and `delete` state an intent: they read first where needed and tolerate "already exists" and
"not found" after checking ownership. `create`, `patch`, `list` and `watch` are the plain verbs for
controllers, which have just read the object.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.errors import (
    ApiRequestRejectedError,
    DeadlineExceededError,
    TemporaryError,
    UnreadableResponseError,
    WatchStreamError,
)
from holdfast.kube import conditions, idempotency
from holdfast.kube.failures import http_status
from holdfast.kube.rest_client import ApiRequest
from holdfast.kube.rest_mapping import (
    ObjectReference,
    RestMapping,
    collection_reference,
    find_mapping,
    object_reference,
    parse_manifest,
    parse_new_manifest,
)
from holdfast.kube.retry_table import ApiMethod, Verb, effective_verb
from holdfast.kube.transport import ApiSession, OperationResult, send_request, translate_error
from holdfast.kube.watch import ChangeWatcher, ObjectListWaiter, ObjectWaiter, WatchTarget, is_recoverable
from holdfast.retry import Deadline, argument_checks

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from holdfast.kube.conditions import WaitCondition, WaitListCondition
    from holdfast.kube.transport import Flow
    from holdfast.kube.watch import EventCallback
    from holdfast.retry import Policy

R = TypeVar("R")

FIELD_MANAGER = "holdfast"
_GONE = 410
_MERGE_PATCH, _APPLY_PATCH = "application/merge-patch+json", "application/apply-patch+yaml"
_READ_VERBS = {Verb.READ, Verb.QUERY}


class ObjectList(NamedTuple):
    """All objects of a kind, and the resource version of the list."""

    items: list[dict[str, Any]]
    resource_version: str


class ObjectFlows:
    """The operations; `call_with_policy(policy, attempt)` runs a flow under a policy, sync or async."""

    def __init__(
        self, session: ApiSession, rest_client: Any, call_with_policy: Callable[[Policy, Any], Any]
    ) -> None:
        self._session, self._rest_client, self._call_with_policy = session, rest_client, call_with_policy

    def get(
        self, kind: str, name: str, *, namespace: str | None = None, api_version: str | None = None
    ) -> Flow[dict[str, Any] | None]:
        """Return the object, or None if it does not exist."""
        reference = object_reference(kind, name, namespace, api_version)
        with self._deadline():
            mapping = yield from self._find_mapping(reference)
            return (yield from self._get(mapping, reference))

    def list(
        self,
        kind: str,
        *,
        namespace: str | None = None,
        api_version: str | None = None,
        label_selector: str | None = None,
        chunk_size: int = 250,
    ) -> Flow[ObjectList]:
        """Return all objects of a kind, in one namespace or in all of them."""
        reference = collection_reference(kind, namespace, api_version)
        first = {"labelSelector": label_selector, "limit": str(chunk_size)}
        items: list[dict[str, Any]] = []
        query: dict[str, Any] = dict(first)
        with self._deadline():
            mapping = yield from self._find_mapping(reference)
            path = mapping.list_path(reference.namespace)
            while True:
                request = ApiRequest(Verb.READ, path, mapping.plural, query=dict(query))
                try:
                    page = yield from self._run(Verb.READ, "list", reference, partial(self._send, request))
                except Exception as error:
                    cause = getattr(error, "cause", None)
                    # The server keeps the remaining pages of a list for some minutes only.
                    if "continue" not in query or cause is None or http_status(cause) != _GONE:
                        raise
                    items, query = [], dict(first)
                    continue
                # The items of a list have neither kind nor apiVersion.
                type_meta = {"apiVersion": reference.api_version, "kind": reference.kind}
                items += [{**type_meta, **item} for item in page.get("items") or ()]
                metadata = page.get("metadata") or {}
                if not metadata.get("continue"):
                    return ObjectList(items, str(metadata.get("resourceVersion", "")))
                query["continue"] = metadata["continue"]

    def create(self, manifest: Any, *, namespace: str | None = None) -> Flow[dict[str, Any]]:
        """Create an object, without reading first.

        Raises:
            ObjectConflictError: Another client has created an object of this name.
        """
        body, reference = parse_new_manifest(manifest, namespace, self._to_json)
        write = idempotency.PendingWrite(body)
        write.assign_operation_id()
        with self._deadline():
            mapping = yield from self._find_mapping(reference)
            attempt = partial(idempotency.create_object, write, mapping, reference, self._send)
            return (yield from self._run(Verb.CREATE, "create", reference, attempt, write))

    def ensure(
        self, manifest: Any, *, namespace: str | None = None, owner: str | None = None
    ) -> Flow[OperationResult]:
        """Create an object exactly once, or accept an equal one.

        Returns:
            The effect is *created*, *unchanged* (exists and is ours) or *adopted* (exists and is equal).

        Raises:
            ObjectConflictError: The object exists and differs, is being deleted, or has another owner.
        """
        body, reference = parse_new_manifest(manifest, namespace, self._to_json)
        write = idempotency.PendingWrite(body)
        write.assign_operation_id(owner)
        with self._deadline():
            mapping = yield from self._find_mapping(reference)
            attempt = partial(idempotency.ensure_object, write, mapping, reference, self._send, owner)
            return (yield from self._run(Verb.CREATE, "create", reference, attempt, write))

    def apply(
        self,
        manifest: Any,
        *,
        namespace: str | None = None,
        field_manager: str = FIELD_MANAGER,
        force: bool = False,
    ) -> Flow[OperationResult]:
        """Server-side apply: own and set the fields of the manifest.

        Returns:
            The effect is *created*, *changed* or *unchanged*.

        Raises:
            ObjectConflictError: Another field manager owns a field, and `force` is not set.
        """
        body, reference = parse_manifest(manifest, namespace, self._to_json)
        if reference.name is None:
            body = idempotency.with_operation_id(body)
            reference = reference.with_name(idempotency.object_name(body))
        query = {"fieldManager": field_manager, "force": "true" if force else None}
        with self._deadline():
            mapping = yield from self._find_mapping(reference)
            before = yield from self._get(mapping, reference)
            path = mapping.path(reference.namespace, reference.name)
            request = ApiRequest(Verb.PATCH, path, mapping.plural, "PATCH", query, body, _APPLY_PATCH)
            write = idempotency.PendingWrite(body)
            attempt = partial(idempotency.apply_object, write, request, reference, self._send)
            after = yield from self._run(Verb.PATCH, "apply", reference, attempt, write)
        if before is None:
            return OperationResult("created", after)
        is_same = _resource_version(before) == _resource_version(after)
        return OperationResult("unchanged" if is_same else "changed", after)

    def patch(
        self,
        kind: str,
        name: str,
        patch: dict[str, Any],
        *,
        namespace: str | None = None,
        api_version: str | None = None,
        uid: str | None = None,
        subresource: str | None = None,
    ) -> Flow[dict[str, Any] | None]:
        """Merge-patch an object or a subresource such as `status`; None if the object does not exist.

        Raises:
            ObjectConflictError: The object has another `uid`: it was deleted and created again.
        """
        reference = object_reference(kind, name, namespace, api_version)
        if uid is not None:
            patch = {**patch, "metadata": {**patch.get("metadata", {}), "uid": uid}}
        verb, write = effective_verb(Verb.PATCH, patch), idempotency.PendingWrite(patch)
        with self._deadline():
            mapping = yield from self._find_mapping(reference)
            path = mapping.path(reference.namespace, reference.name) + (
                f"/{subresource}" if subresource else ""
            )
            request = ApiRequest(verb, path, mapping.plural, "PATCH", body=patch, content_type=_MERGE_PATCH)
            attempt = partial(idempotency.patch_object, write, request, reference, self._send)
            return (yield from self._run(verb, "patch", reference, attempt, write))

    def delete(
        self,
        kind: str,
        name: str,
        *,
        namespace: str | None = None,
        api_version: str | None = None,
        uid: str | None = None,
        propagation: str | None = None,
        wait: float | None = None,
        resource_version: str | None = None,
    ) -> Flow[OperationResult]:
        """Delete this object, but not a later one of the same name.

        Args:
            wait: Seconds within which the object must be gone; by default the call does not wait.
            resource_version: Delete only this version of the object.

        Returns:
            The effect is *deleted* or *absent*.

        Raises:
            ObjectConflictError: The object has another resource version.
        """
        reference = object_reference(kind, name, namespace, api_version)
        with self._deadline(0.0 if wait is None else argument_checks.check_seconds("wait", wait)):
            mapping = yield from self._find_mapping(reference)
            live: dict[str, Any] | None = {"metadata": {"name": name, "uid": uid}}
            if uid is None:
                live = yield from self._get(mapping, reference)
            if live is None:
                return OperationResult("absent", {"metadata": {"name": name}})
            uid = _require_uid(live)
            body = _delete_options(uid, resource_version, propagation)
            path = mapping.path(reference.namespace, name)
            request = ApiRequest(Verb.DELETE, path, mapping.plural, "DELETE", body=body)
            write = idempotency.PendingWrite()
            attempt = partial(idempotency.delete_object, write, request, uid, self._send)
            effect = yield from self._run(Verb.DELETE, "delete", reference, attempt, write)
            if effect == "deleted" and wait is not None:
                waiter = ObjectWaiter(self._watch_target(mapping, reference), conditions.object_deleted(uid))
                yield from self._run_waiter(waiter, reference, wait)
            return OperationResult(effect, live)

    def wait(
        self,
        kind: str,
        name: str,
        until: WaitCondition,
        *,
        namespace: str | None = None,
        api_version: str | None = None,
        deadline: float = 180.0,
    ) -> Flow[dict[str, Any] | None]:
        """Watch an object until a condition of `holdfast.kube`, or your own, is met.

        Raises:
            DeadlineExceededError: The condition is not met in time; the message has the last observation.
            WaitFailedError: The condition can no longer be met.
        """
        reference = object_reference(kind, name, namespace, api_version)
        with Deadline.after(argument_checks.check_seconds("deadline", deadline)):
            mapping = yield from self._find_mapping(reference)
            waiter = ObjectWaiter(self._watch_target(mapping, reference), until)
            return (yield from self._run_waiter(waiter, reference, deadline))

    def wait_many(
        self,
        kind: str,
        until: WaitListCondition,
        *,
        label_selector: str,
        namespace: str | None = None,
        api_version: str | None = None,
        deadline: float = 180.0,
    ) -> Flow[None]:
        """Watch all objects with these labels until a condition on the list of them is met."""
        reference = collection_reference(kind, namespace, api_version)
        with Deadline.after(argument_checks.check_seconds("deadline", deadline)):
            mapping = yield from self._find_mapping(reference)
            target = self._watch_target(mapping, reference, label_selector)
            yield from self._run_waiter(ObjectListWaiter(target, until), reference, deadline)

    def watch(
        self,
        kind: str,
        on_event: EventCallback,
        *,
        resource_version: str,
        namespace: str | None = None,
        api_version: str | None = None,
        label_selector: str | None = None,
    ) -> Flow[bool]:
        """Call `on_event` for each change, bookmarks included, until the server ends the watch; no retries.

        Returns:
            False if the version is too old: list the objects and watch from the version of the list.
        """
        reference = collection_reference(kind, namespace, api_version)
        mapping = yield from self._find_mapping(reference)
        target = self._watch_target(mapping, reference, label_selector)
        watcher = ChangeWatcher(target, resource_version, on_event)
        return bool((yield from self._run(Verb.READ, "watch", reference, watcher.attempt, attempts=1)))

    # Helpers ---------------------------------------------------------------------------------------------

    def _run(
        self,
        verb: Verb,
        action: str,
        reference: ObjectReference,
        attempt: Callable[[], Flow[R]],
        write: idempotency.PendingWrite | None = None,
        **overrides: Any,
    ) -> Flow[R]:
        """Run attempts under the policy of a verb; raise errors of `holdfast.errors` only."""
        policy = self._session.policy_for(verb, f"{action} {reference.kind}")
        if overrides:
            policy = policy.replace(**overrides)
        try:
            result: R = yield partial(self._call_with_policy, policy, attempt)
        except Exception as error:
            final = self._session.finalize_error(error, ApiMethod(verb, reference.kind.lower()), write)
            final = translate_error(final, action, reference, is_write=verb not in _READ_VERBS)
            if final is error:
                raise
            raise final from error
        return result

    def _run_waiter(
        self, waiter: ObjectWaiter, reference: ObjectReference, deadline: float
    ) -> Flow[dict[str, Any] | None]:
        overrides: dict[str, Any] = {"attempts": None, "deadline": deadline, "retry_on": is_recoverable}
        try:
            return (yield from self._run(Verb.READ, "wait for", reference, waiter.attempt, **overrides))
        except TemporaryError as error:
            stream_error = error.cause if isinstance(error.cause, WatchStreamError) else error
            if isinstance(stream_error, WatchStreamError) and not is_recoverable(stream_error):
                message = f"wait for {reference}: {stream_error}"
                raise ApiRequestRejectedError(message, cause=stream_error) from error
            message = (
                f"{reference}: condition not met within {deadline:g} s; last seen: {waiter.result.observed}"
            )
            raise DeadlineExceededError(message, cause=error) from error

    def _deadline(self, extra_seconds: float = 0.0) -> AbstractContextManager[Any]:
        """One deadline for all requests of an operation: that of the policy."""
        seconds = self._session.policy.total_timeout
        return nullcontext() if math.isinf(seconds) else Deadline.after(seconds + extra_seconds)

    def _watch_target(
        self, mapping: RestMapping, reference: ObjectReference, label_selector: str | None = None
    ) -> WatchTarget:
        return WatchTarget(self._session, self._rest_client, mapping, reference, label_selector)

    def _get(self, mapping: RestMapping, reference: ObjectReference) -> Flow[dict[str, Any] | None]:
        request = ApiRequest(Verb.READ, mapping.path(reference.namespace, reference.name), mapping.plural)
        attempt = partial(idempotency.none_if_not_found, self._send, request)
        return (yield from self._run(Verb.READ, "read", reference, attempt))

    def _find_mapping(self, reference: ObjectReference) -> Flow[RestMapping]:
        def send(request: ApiRequest) -> Flow[Any]:
            return self._run(Verb.READ, "look up", reference, partial(self._send, request))

        return (yield from find_mapping(self._session.api_client, reference, send))

    def _send(self, request: ApiRequest) -> Flow[Any]:
        return send_request(self._session, request.method, partial(self._rest_client.send, request))

    def _to_json(self, model: Any) -> Any:
        return self._session.api_client.sanitize_for_serialization(model)


def _delete_options(uid: str, resource_version: str | None, propagation: str | None) -> dict[str, Any]:
    preconditions = {"uid": uid, **({"resourceVersion": resource_version} if resource_version else {})}
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
    return {**options, **({"propagationPolicy": propagation} if propagation else {})}


def _require_uid(obj: dict[str, Any]) -> str:
    uid = obj.get("metadata", {}).get("uid")
    if not isinstance(uid, str):
        raise UnreadableResponseError("HTTP success, but the object has no uid")
    return uid


def _resource_version(obj: dict[str, Any]) -> Any:
    return obj.get("metadata", {}).get("resourceVersion")
