"""`Objects` and `AsyncObjects`: operations on objects of any kind, for threads and for asyncio.

    objects = Objects(api_client("~/.kube/config"))
    objects.ensure(pod("hello", "busybox", command=["true"]), namespace="default")
    objects.wait("Pod", "hello", pod_succeeded, namespace="default", deadline=60)

`ensure`, `apply` and `delete` state an intent: they read first where needed and tolerate "already exists" and
"not found" after checking ownership. `create`, `patch`, `list` and `watch` are the plain verbs for
controllers, which have just read the object. All raise errors of `holdfast.errors` only. `resilient` wraps
the calls of the official client instead.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial, wraps
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from holdfast.errors import ApiRequestRejectedError, ArgumentTypeError
from holdfast.kube import conditions, idempotency
from holdfast.kube.client import run_sync
from holdfast.kube.client_limits import is_async_client
from holdfast.kube.failures import http_status
from holdfast.kube.rest_client import ApiRequest
from holdfast.kube.rest_mapping import (
    collection_reference,
    find_mapping,
    object_reference,
    parse_manifest,
    parse_new_manifest,
)
from holdfast.kube.retry_table import Verb, effective_verb, resource_version
from holdfast.kube.transport import DEFAULT_TIMEOUT, OperationResult, open_session
from holdfast.kube.watch import ChangeWatcher, ObjectListWaiter, ObjectWaiter
from holdfast.retry import Deadline, argument_checks

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractContextManager

    from holdfast.kube.conditions import WaitCondition, WaitListCondition
    from holdfast.kube.rest_mapping import ObjectReference, RestMapping
    from holdfast.kube.telemetry import Observer
    from holdfast.kube.watch import EventCallback
    from holdfast.retry import Policy

P = ParamSpec("P")
R = TypeVar("R")

FIELD_MANAGER = "holdfast"
_APPLY_PATCH = "application/apply-patch+yaml"


class ObjectList(NamedTuple):
    """All objects of a kind, and the resource version of the list."""

    items: list[dict[str, Any]]
    resource_version: str


class AsyncObjects:
    """Operations on objects of any kind, through a `kubernetes.aio.client.ApiClient`.

    Args:
        api_client: The client; its inner retries are disabled.
        policy: Attempts, backoff, deadline, budget, on_retry and stop, as for `resilient`.
        timeout: Seconds for one request; shortened to the deadline.
        observers: Called for each attempt; see `holdfast.kube.telemetry`.

    Raises:
        InvalidArgumentError: An argument has the wrong type or value.
    """

    _is_async = True

    def __init__(
        self,
        api_client: Any,
        policy: Policy | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        observers: tuple[Observer, ...] = (),
    ) -> None:
        if not hasattr(api_client, "rest_client") or is_async_client(api_client) is not self._is_async:
            library = "kubernetes.aio.client" if self._is_async else "kubernetes.client"
            raise ArgumentTypeError(
                "api_client", f"must be a {library}.ApiClient, not {type(api_client).__name__}"
            )
        self._session = open_session(api_client, policy=policy, timeout=timeout, observers=observers)
        self._to_json = api_client.sanitize_for_serialization

    async def get(
        self, kind: str, name: str, *, namespace: str | None = None, api_version: str | None = None
    ) -> dict[str, Any] | None:
        """Return the object, or None if it does not exist."""
        reference = object_reference(kind, name, namespace, api_version)
        with self._deadline():
            mapping = await find_mapping(self._session, reference)
            return await self._get(mapping, reference)

    async def list(
        self,
        kind: str,
        *,
        namespace: str | None = None,
        api_version: str | None = None,
        label_selector: str | None = None,
        chunk_size: int = 250,
    ) -> ObjectList:
        """Return all objects of a kind, in one namespace or in all of them; `chunk_size` in each response."""
        reference = collection_reference(kind, namespace, api_version)
        items: list[dict[str, Any]] = []
        query: dict[str, Any] = {"labelSelector": label_selector, "limit": str(chunk_size)}
        with self._deadline():
            mapping = await find_mapping(self._session, reference)
            path = mapping.list_path(reference.namespace)
            while True:
                request = ApiRequest(Verb.READ, path, mapping.plural, query=query)
                try:
                    page = await self._session.request("list", reference, request)
                except ApiRequestRejectedError as error:
                    # The server keeps the remaining pages of a list for some minutes only. As in client-go,
                    # the next request is for the whole list: pages could expire again.
                    if "continue" not in query or http_status(error.cause) != HTTPStatus.GONE:
                        raise
                    items, query = [], {"labelSelector": label_selector}
                    continue
                items += map(reference.with_type, page.get("items") or ())
                metadata = page.get("metadata") or {}
                if not metadata.get("continue"):
                    return ObjectList(items, str(metadata.get("resourceVersion", "")))
                query = {**query, "continue": metadata["continue"]}

    async def create(self, manifest: Any, *, namespace: str | None = None) -> dict[str, Any]:
        """Create an object, without reading first.

        Raises:
            ObjectConflictError: Another client has created an object of this name.
        """
        return await self._create(manifest, namespace, idempotency.create_object)

    async def ensure(
        self, manifest: Any, *, namespace: str | None = None, owner: str | None = None
    ) -> OperationResult:
        """Create an object exactly once, or accept an equal one.

        Returns:
            The effect is *created*, *unchanged* (exists and is ours) or *adopted* (exists and is equal).

        Raises:
            ObjectConflictError: The object exists and differs, is being deleted, or has another owner.
        """
        create = partial(idempotency.ensure_object, owner=owner)
        return await self._create(manifest, namespace, create, owner)

    async def apply(
        self,
        manifest: Any,
        *,
        namespace: str | None = None,
        field_manager: str = FIELD_MANAGER,
        force: bool = False,
    ) -> OperationResult:
        """Server-side apply: own and set the fields of the manifest.

        Returns:
            The effect is *created*, *changed* or *unchanged*.

        Raises:
            ObjectConflictError: Another manager owns a field, without `force`; or the version is not current.
        """
        body, reference = parse_manifest(manifest, namespace, self._to_json)
        if reference.name is None:
            body = idempotency.with_operation_id(body)
            reference = reference.with_name(idempotency.object_name(body))
        query = {"fieldManager": field_manager, "force": "true" if force else None}
        with self._deadline():
            mapping = await find_mapping(self._session, reference)
            # The response does not tell whether the apply changed anything. An apply without effect keeps the
            # resourceVersion.
            before = await self._get(mapping, reference)
            path = mapping.path(reference.namespace, reference.name)
            verb, write = effective_verb(Verb.PATCH, body), idempotency.PendingWrite(body)
            request = ApiRequest(verb, path, mapping.plural, "PATCH", query, body, _APPLY_PATCH)
            attempt = partial(idempotency.apply_object, write, request, reference, self._session.send)
            after = await self._session.call(verb, "apply", reference, attempt, write=write)
        if before is None:
            return OperationResult("created", after)
        is_same = resource_version(before) == resource_version(after)
        return OperationResult("unchanged" if is_same else "changed", after)

    async def patch(
        self,
        kind: str,
        name: str,
        patch: dict[str, Any],
        *,
        namespace: str | None = None,
        api_version: str | None = None,
        uid: str | None = None,
        subresource: str | None = None,
    ) -> dict[str, Any] | None:
        """Merge-patch an object or a subresource such as `status`; None if the object does not exist.

        With `uid` and `subresource`, each field of the patch replaces that field of the object as a whole.

        Raises:
            ObjectConflictError: The object has another `uid`: it was deleted and created again.
        """
        reference = object_reference(kind, name, namespace, api_version)
        body = patch if uid is None else idempotency.patch_with_uid(patch, uid, subresource)
        content_type = f"application/{'json' if isinstance(body, list) else 'merge'}-patch+json"
        verb, write = effective_verb(Verb.PATCH, body), idempotency.PendingWrite(body)
        with self._deadline():
            mapping = await find_mapping(self._session, reference)
            path = mapping.path(reference.namespace, reference.name) + (
                f"/{subresource}" if subresource else ""
            )
            request = ApiRequest(verb, path, mapping.plural, "PATCH", body=body, content_type=content_type)
            attempt = partial(idempotency.patch_object, write, request, reference, self._session.send)
            return await self._session.call(verb, "patch", reference, attempt, write=write)

    async def delete(  # noqa: PLR0913 (one for each option)
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
        grace_seconds: int | None = None,
    ) -> OperationResult:
        """Delete this object, but not a later one of the same name.

        Args:
            wait: Seconds within which the object must be gone; by default the call does not wait.
            resource_version: Delete only this version of the object.
            grace_seconds: Grace period of a pod; 0 does not wait for its kubelet.

        Returns:
            The effect is *deleted* or *absent*.

        Raises:
            ObjectConflictError: The object has another resource version.
        """
        reference = object_reference(kind, name, namespace, api_version)
        with self._deadline(0.0 if wait is None else argument_checks.check_seconds("wait", wait)):
            mapping = await find_mapping(self._session, reference)
            known = {"metadata": {"name": name, "uid": uid}}
            live = known if uid else await self._get(mapping, reference)
            if live is None:
                return OperationResult("absent", {"metadata": {"name": name}})
            uid = idempotency.require_uid(live)
            # The uid is a precondition: a repeated DELETE cannot delete a new object of the same name.
            body = idempotency.delete_options(uid, resource_version, propagation, grace_seconds)
            path = mapping.path(reference.namespace, name)
            request = ApiRequest(Verb.DELETE, path, mapping.plural, "DELETE", body=body)
            write = idempotency.PendingWrite()
            attempt = partial(idempotency.delete_object, write, request, uid, self._session.send)
            effect = await self._session.call(Verb.DELETE, "delete", reference, attempt, write=write)
            if effect == "deleted" and wait is not None:
                waiter = ObjectWaiter(self._session, mapping, reference, conditions.object_deleted(uid))
                await waiter.run(wait)
            return OperationResult(effect, live)

    async def wait(
        self,
        kind: str,
        name: str,
        until: WaitCondition,
        *,
        namespace: str | None = None,
        api_version: str | None = None,
        deadline: float = 180.0,
    ) -> dict[str, Any] | None:
        """Watch an object until a condition of `holdfast.kube`, or your own, is met.

        Raises:
            DeadlineExceededError: The condition is not met in time; the message has the last observation.
            WaitFailedError: The condition can no longer be met.
        """
        reference = object_reference(kind, name, namespace, api_version)
        with Deadline.after(argument_checks.check_seconds("deadline", deadline)):
            mapping = await find_mapping(self._session, reference)
            waiter = ObjectWaiter(self._session, mapping, reference, until)
            return await waiter.run(deadline)

    async def wait_many(
        self,
        kind: str,
        until: WaitListCondition,
        *,
        label_selector: str,
        namespace: str | None = None,
        api_version: str | None = None,
        deadline: float = 180.0,
    ) -> None:
        """Watch all objects with these labels until a condition on their list is met; raises as `wait`."""
        reference = collection_reference(kind, namespace, api_version)
        with Deadline.after(argument_checks.check_seconds("deadline", deadline)):
            mapping = await find_mapping(self._session, reference)
            waiter = ObjectListWaiter(self._session, mapping, reference, until, label_selector)
            await waiter.run(deadline)

    async def watch(
        self,
        kind: str,
        on_event: EventCallback,
        *,
        resource_version: str,
        namespace: str | None = None,
        api_version: str | None = None,
        label_selector: str | None = None,
    ) -> bool:
        """Call `on_event` for each change, bookmarks included, until the server ends the watch; no retries.

        Returns:
            False if the version is too old: list the objects and watch from the version of the list.

        Raises:
            TemporaryError: The connection was lost; a WatchDroppedError if the watch ended immediately.
            OperationCancelledError: The stop event of the policy is set.
        """
        reference = collection_reference(kind, namespace, api_version)
        mapping = await find_mapping(self._session, reference)
        watcher = ChangeWatcher(self._session, mapping, reference, on_event, resource_version, label_selector)
        return bool(await self._session.call(Verb.READ, "watch", reference, watcher.attempt, attempts=1))

    async def _create(
        self,
        manifest: Any,
        namespace: str | None,
        create: Callable[..., Coroutine[Any, Any, R]],
        owner: str | None = None,
    ) -> R:
        body, reference = parse_new_manifest(manifest, namespace, self._to_json)
        write = idempotency.PendingWrite(body)
        write.assign_operation_id(owner)
        with self._deadline():
            mapping = await find_mapping(self._session, reference)
            attempt = partial(create, write, mapping, reference, self._session.send)
            return await self._session.call(Verb.CREATE, "create", reference, attempt, write=write)

    def _deadline(self, extra_seconds: float = 0.0) -> AbstractContextManager[Any]:
        """One deadline for all requests of an operation: that of the policy."""
        seconds = self._session.policy.total_timeout
        return nullcontext() if math.isinf(seconds) else Deadline.after(seconds + extra_seconds)

    async def _get(self, mapping: RestMapping, reference: ObjectReference) -> dict[str, Any] | None:
        request = ApiRequest(Verb.READ, mapping.path(reference.namespace, reference.name), mapping.plural)
        attempt = partial(idempotency.none_if_not_found, self._session.send, request)
        return await self._session.call(Verb.READ, "read", reference, attempt)


class _BlockingOperations(AsyncObjects):
    """The same coroutines through a sync client; they block and never suspend (see `client.run_sync`)."""

    _is_async = False


def _sync_method(
    operation: Callable[Concatenate[AsyncObjects, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Objects, P], R]:
    """A method of `Objects` with the parameters and the docstring of an operation."""

    @wraps(operation)
    def method(self: Objects, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return run_sync(operation(self._operations, *args, **kwargs))

    return method


class Objects:
    """The operations of `AsyncObjects` as blocking calls, through a `kubernetes.client.ApiClient`."""

    def __init__(
        self,
        api_client: Any,
        policy: Policy | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        observers: tuple[Observer, ...] = (),
    ) -> None:
        self._operations = _BlockingOperations(api_client, policy, timeout=timeout, observers=observers)

    get = _sync_method(AsyncObjects.get)
    list = _sync_method(AsyncObjects.list)
    create = _sync_method(AsyncObjects.create)
    ensure = _sync_method(AsyncObjects.ensure)
    apply = _sync_method(AsyncObjects.apply)
    patch = _sync_method(AsyncObjects.patch)
    delete = _sync_method(AsyncObjects.delete)
    wait = _sync_method(AsyncObjects.wait)
    wait_many = _sync_method(AsyncObjects.wait_many)
    watch = _sync_method(AsyncObjects.watch)
