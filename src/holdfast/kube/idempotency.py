"""Writes that may be repeated after a lost response: one attempt of each kind of write.

A create carries an operation id, by which a later attempt recognises the object that an earlier one created.
`generateName` is resolved in the client: the server would choose another name for each attempt. A
`PendingWrite` carries what one attempt has learned to the next. `retry_table` decides what is repeated.
"""

from __future__ import annotations

import copy
import os
import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

from holdfast.errors import ObjectConflictError, UnreadableResponseError
from holdfast.kube.failures import FailureClass, classify, http_status, is_already_exists, parse_status
from holdfast.kube.manifest_diff import OPERATION_ID_ANNOTATION, OWNER_ANNOTATION, differences, is_identical
from holdfast.kube.rest_client import ApiRequest
from holdfast.kube.retry_table import NO_METADATA, UID_PATH, VERSION_PATH, Verb, metadata_field
from holdfast.kube.transport import OperationResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from holdfast.kube.rest_mapping import ObjectReference, RestMapping

    SendRequest: TypeAlias = Callable[[], Awaitable[Any]]
    Send: TypeAlias = Callable[[ApiRequest], Awaitable[Any]]

# The alphabet that the API server uses for generateName: no vowels, no digits that look like letters.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_MAX_BASE_LENGTH = 63 - _SUFFIX_LENGTH
# Within one attempt, a create is repeated this often if the existing object has just been deleted.
_MAX_CREATE_ATTEMPTS = 3


# Bodies: models of the official client, or dicts -----------------------------------------------------------


def with_operation_id(body: Any, *, owner: str | None = None) -> Any:
    """Copy an object and give it a name and an operation id; an existing id is kept."""
    own = metadata_field(body, "annotations", "annotations")
    if own is NO_METADATA:
        return body
    annotations = {OPERATION_ID_ANNOTATION: os.urandom(16).hex()}
    if owner is not None:
        annotations[OWNER_ANNOTATION] = owner
    fields: dict[str, Any] = {"annotations": {**annotations, **(own or {})}}
    base = metadata_field(body, "generateName", "generate_name")
    if base and object_name(body) is None:
        fields["name"] = generate_name(base)
    return _with_metadata(body, **fields)


def generate_name(base: str) -> str:
    """A unique name with the prefix of `generateName`."""
    return base[:_MAX_BASE_LENGTH] + "".join(secrets.choice(_ALPHABET) for _ in range(_SUFFIX_LENGTH))


def with_new_generated_name(body: Any) -> Any | None:
    """Copy an object and give it another generated name; None if it has no `generateName`."""
    base = metadata_field(body, "generateName", "generate_name")
    return _with_metadata(body, name=generate_name(base)) if base else None


def annotation(body: Any, key: str) -> str | None:
    """Return an annotation of an object; None if it has no text of that key."""
    annotations = metadata_field(body, "annotations", "annotations")
    value = annotations.get(key) if isinstance(annotations, dict) else None
    return value if isinstance(value, str) else None


def object_name(body: Any) -> str | None:
    """Return the name of an object; None if it has none yet."""
    name = metadata_field(body, "name", "name")
    return name if isinstance(name, str) and name else None


def _with_metadata(body: Any, **fields: Any) -> Any:
    if isinstance(body, dict):
        return {**body, "metadata": {**(body.get("metadata") or {}), **fields}}
    changed = copy.copy(body)
    changed.metadata = copy.copy(body.metadata)
    for name, value in fields.items():
        setattr(changed.metadata, name, value)
    return changed


# Writes through any client ---------------------------------------------------------------------------------


class PendingWrite:
    """What is known about one write, over all of its attempts."""

    __slots__ = ("_to_json", "body", "has_caller_id", "has_generated_name", "maybe_applied")

    def __init__(self, body: Any = None, to_json: Callable[[Any], Any] | None = None) -> None:
        self.body = body
        self.has_generated_name = False
        self.has_caller_id = False
        self.maybe_applied = False
        self._to_json = to_json

    def assign_operation_id(self, owner: str | None = None) -> None:
        """Give the body an operation id, and a name if it has none."""
        self.has_generated_name = object_name(self.body) is None
        # An id that the caller has set may be that of an earlier run, or of an object that was copied.
        self.has_caller_id = annotation(self.body, OPERATION_ID_ANNOTATION) is not None
        self.body = with_operation_id(self.body, owner=owner)

    def record_failure(self, error: BaseException) -> None:
        """Remember an ambiguous failure; a later rejection does not prove that the write was not applied."""
        if classify(error) is FailureClass.AMBIGUOUS:
            self.maybe_applied = True

    def is_own_object(self, live: Any) -> bool:
        """Whether an attempt of this write created the object; with a caller's id it must also be equal."""
        operation_id, live = annotation(self.body, OPERATION_ID_ANNOTATION), response_object(live)
        if operation_id is None or annotation(live, OPERATION_ID_ANNOTATION) != operation_id:
            return False
        to_json = self._to_json or (lambda value: value)
        return not self.has_caller_id or not differences(to_json(self.body), to_json(live))


async def write_once(write: PendingWrite, request: SendRequest) -> Any:
    """Send a write and record whether it may have been applied."""
    try:
        return await request()
    except Exception as error:
        write.record_failure(error)
        raise


async def create_idempotently(
    write: PendingWrite, post: Callable[[Any], Awaitable[Any]], read: Callable[[str], Awaitable[Any]] | None
) -> Any:
    """POST; on AlreadyExists read the object: one with our operation id was created by an earlier attempt."""
    attempts_left = _MAX_CREATE_ATTEMPTS
    while True:
        attempts_left -= 1
        try:
            return await post(write.body)
        except Exception as error:
            write.record_failure(error)
            name = object_name(write.body)
            if read is None or name is None or not is_already_exists(error):
                raise
            try:
                # Not recorded in `write`: a failed read says nothing about the create.
                live = await read(name)
            except Exception as read_error:
                if http_status(read_error) == HTTPStatus.NOT_FOUND and attempts_left > 0:
                    # The object was deleted between the POST and this read.
                    continue
                if classify(read_error) is not FailureClass.DEFINITE:
                    raise
                # The client may not read the object, and gets the AlreadyExists.
                live = None
            if live is not None and write.is_own_object(live):
                return live
            if live is None or not write.has_generated_name or attempts_left <= 0:
                raise
            # The suffix is taken by an object of another client.
            write.body = with_new_generated_name(write.body)


async def replace_idempotently(
    write: PendingWrite, put: SendRequest, read: SendRequest | None, to_json: Callable[[Any], Any]
) -> Any:
    """PUT of a known version; after a lost response, a Conflict is a success if the object equals ours."""
    try:
        return await put()
    except Exception as error:
        write.record_failure(error)
        # Without an ambiguous attempt, the Conflict is due to another client, even if the objects are equal.
        if read is None or not write.maybe_applied or http_status(error) != HTTPStatus.CONFLICT:
            raise
        live = await read()
        if not is_identical(to_json(write.body), to_json(response_object(live))):
            raise
        return live


async def delete_idempotently(
    write: PendingWrite, request: SendRequest, deleted_response: Callable[[], Any]
) -> Any:
    """DELETE; after a lost response, "not found" is a success."""
    try:
        return await request()
    except Exception as error:
        write.record_failure(error)
        # Without an ambiguous attempt, the object did not exist, and the caller gets the 404.
        if not write.maybe_applied or http_status(error) != HTTPStatus.NOT_FOUND:
            raise
        return deleted_response()


def response_object(result: Any) -> Any:
    """The object that a client method returned; some variants return it with status and headers."""
    if isinstance(result, tuple):
        return result[0]
    return result.data if hasattr(result, "status_code") else result


# Writes of `Objects` ---------------------------------------------------------------------------------------


async def none_if_not_found(send: Send, request: ApiRequest) -> dict[str, Any] | None:
    """Send a request; return None if the API server answers 404."""
    try:
        live: dict[str, Any] = await send(request)
    except Exception as error:
        if http_status(error) != HTTPStatus.NOT_FOUND:
            raise
        return None
    return live


async def create_object(
    write: PendingWrite, mapping: RestMapping, reference: ObjectReference, send: Send
) -> dict[str, Any]:
    """Create an object; one attempt, which may follow an ambiguous one.

    Args:
        write: the write, with the operation id of all its attempts.
        mapping: path of the kind.
        reference: namespace of the object.
        send: sends one request.
    """
    collection = mapping.path(reference.namespace)

    def post(body: Any) -> Any:
        return send(ApiRequest(Verb.CREATE, collection, mapping.plural, "POST", body=body))

    def read(name: str) -> Any:
        return send(ApiRequest(Verb.READ, f"{collection}/{name}", mapping.plural))

    created: dict[str, Any] = await create_idempotently(write, post, read)
    return created


async def ensure_object(
    write: PendingWrite, mapping: RestMapping, reference: ObjectReference, send: Send, owner: str | None
) -> OperationResult:
    """Create an object, or accept an existing one that equals it; the arguments are those of `create_object`.

    Args:
        owner: owner that an existing object must have, if it has one.

    Raises:
        ObjectConflictError: the existing object differs, is being deleted or belongs to another owner.
    """
    try:
        return OperationResult("created", (await create_object(write, mapping, reference, send)))
    except Exception as error:
        if not is_already_exists(error):
            raise
    reference = reference.with_name(object_name(write.body))
    path = mapping.path(reference.namespace, reference.name)
    live = await send(ApiRequest(Verb.READ, path, mapping.plural))
    return _check_existing(write.body, live, reference, owner)


def _check_existing(
    sent: dict[str, Any], live: dict[str, Any], reference: ObjectReference, owner: str | None
) -> OperationResult:
    """Decide about an object that exists already: ours, equal, or a conflict."""
    live_owner = annotation(live, OWNER_ANNOTATION)
    if live_owner is not None and live_owner != owner:
        raise ObjectConflictError(f"{reference}: belongs to {live_owner!r}")
    if live.get("metadata", {}).get("deletionTimestamp"):
        raise ObjectConflictError(f"{reference}: being deleted", hint="Wait until it is deleted, then retry.")
    paths = differences(sent, live)
    if paths:
        raise ObjectConflictError(f"{reference}: exists and differs in {', '.join(paths)}")
    has_id = annotation(live, OPERATION_ID_ANNOTATION) is not None
    is_ours = live_owner is not None or (owner is None and has_id)
    return OperationResult("unchanged" if is_ours else "adopted", live)


async def apply_object(
    write: PendingWrite, request: ApiRequest, reference: ObjectReference, send: Send
) -> Any:
    """Apply an object on the server side.

    Raises:
        ObjectConflictError: another manager owns fields of the manifest.
    """
    try:
        return await write_once(write, lambda: send(request))
    except Exception as error:
        fields = ", ".join(parse_status(error).invalid_fields)
        # Without fields, the resourceVersion of the manifest is not the current one.
        if http_status(error) != HTTPStatus.CONFLICT or not fields:
            raise
        raise ObjectConflictError(
            f"{reference}: another manager owns {fields}",
            hint="Remove those fields from the manifest, or apply with force=True to take them over.",
            cause=error,
        ) from error


def patch_with_uid(patch: dict[str, Any], uid: str, subresource: str | None) -> Any:
    """A patch of exactly this object: a merge patch, or a JSON patch for a subresource."""
    if not subresource:
        return {**patch, "metadata": {**patch.get("metadata", {}), "uid": uid}}
    # For a custom resource, the server ignores metadata in a request to a subresource, and with it the uid. A
    # JSON patch tests the stored object. Without a resourceVersion in the patch, it does not conflict with
    # clients that change the spec.
    tests = [{"op": "test", "path": UID_PATH, "value": uid}]
    if version := patch.get("metadata", {}).get("resourceVersion"):
        tests.append({"op": "test", "path": VERSION_PATH, "value": version})
    fields = [
        {"op": "add", "path": f"/{key}", "value": value} for key, value in patch.items() if key != "metadata"
    ]
    return [*tests, *fields]


async def patch_object(
    write: PendingWrite, request: ApiRequest, reference: ObjectReference, send: Send
) -> dict[str, Any] | None:
    """Patch an object; return None if it does not exist.

    Raises:
        ObjectConflictError: an object with another uid has this name.
    """
    try:
        patched: dict[str, Any] = await write_once(write, lambda: send(request))
    except Exception as error:
        status, fields = http_status(error), parse_status(error).invalid_fields
        if status == HTTPStatus.NOT_FOUND:
            return None
        # A merge patch has no preconditions: the API server rejects another uid as a change of an immutable
        # field. A failed test of a JSON patch is a 422 without fields.
        is_test_failure = isinstance(request.body, list) and not fields
        if status != HTTPStatus.UNPROCESSABLE_ENTITY or not (is_test_failure or "metadata.uid" in fields):
            raise
        has_version = is_test_failure and any(one["path"] == VERSION_PATH for one in request.body)
        what = "uid or version" if has_version else "uid"
        raise ObjectConflictError(f"{reference}: the {what} has changed", cause=error) from error
    return patched


def require_uid(obj: dict[str, Any]) -> str:
    """The uid of an object that the server returned."""
    uid = obj.get("metadata", {}).get("uid")
    if not isinstance(uid, str):
        raise UnreadableResponseError("HTTP success, but the object has no uid")
    return uid


def delete_options(
    uid: str, resource_version: str | None, propagation: str | None, grace_seconds: int | None
) -> dict[str, Any]:
    """The DeleteOptions for exactly this object, and this version of it if there is one."""
    preconditions = {"uid": uid, **({"resourceVersion": resource_version} if resource_version else {})}
    options: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": preconditions,
        "propagationPolicy": propagation or None,
        "gracePeriodSeconds": grace_seconds,
    }
    return {key: value for key, value in options.items() if value is not None}


async def delete_object(
    write: PendingWrite, request: ApiRequest, uid: str, send: Send
) -> Literal["deleted", "absent"]:
    """Delete exactly the object with this uid; "absent" if it was gone before the first attempt."""
    try:
        await write_once(write, lambda: send(request))
    except Exception as error:
        status = http_status(error)
        if status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
            raise
        # A precondition failed. If the uid differs, the object is gone and a new one has its name.
        if status == HTTPStatus.CONFLICT:
            live = await none_if_not_found(send, ApiRequest(Verb.READ, request.path, request.resource))
            if live is not None and live.get("metadata", {}).get("uid") == uid:
                if write.maybe_applied and live["metadata"].get("deletionTimestamp"):
                    # An earlier attempt, whose response was lost, has changed the resource version.
                    return "deleted"
                raise
        return "deleted" if write.maybe_applied else "absent"
    return "deleted"
