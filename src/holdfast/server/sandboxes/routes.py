"""JSON routes of sandboxes and their documented responses."""

# No `from __future__ import annotations`: Litestar reads the handlers' annotations at run time.
from typing import Annotated, Any, Final, TypeVar

import msgspec
from litestar import Controller, Request, Response, delete, get, patch, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter

from holdfast.api import (
    MAX_SELECTOR_LENGTH,
    SELECTOR_PATTERN,
    DeletionResult,
    OperatingMode,
    Problem,
    SandboxList,
    SandboxRequest,
    SandboxUpdate,
    SandboxUpdateResult,
    SandboxView,
)
from holdfast.sandbox import describe_validation_error
from holdfast.server.errors import ApiError, bad_request
from holdfast.server.sandboxes.service import SandboxService
from holdfast.server.sandboxes.update import update_sandbox

T = TypeVar("T")

# In Python, `$` also matches before a final line break; the lookahead rejects it.
OBJECT_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$(?!\n)"
_MAX_PAGE_SIZE = 500

SandboxName = Annotated[
    str, Parameter(description="Name of the sandbox.", pattern=OBJECT_NAME_PATTERN, max_length=253)
]
PageLimit = Annotated[
    int, Parameter(ge=1, le=_MAX_PAGE_SIZE, description="Maximum number of objects per page.")
]
ContinueToken = Annotated[
    str | None,
    Parameter(
        query="continue", min_length=1, max_length=4096, description="The `next` token of the previous page."
    ),
]
Selector = Annotated[
    str | None,
    Parameter(
        pattern=SELECTOR_PATTERN,
        min_length=1,
        max_length=MAX_SELECTOR_LENGTH,
        description="Label selector, such as `team=blue,tier in (web, db),!old`.",
    ),
]
_KeepWorkspace = Annotated[bool, Parameter(description="Keep the PVCs with the data.")]


def problem_responses(*statuses: int) -> dict[int, ResponseSpec]:
    """Return the OpenAPI responses of these error statuses, and of those that every route has."""
    descriptions = {
        400: "The request is malformed.",
        401: "The client certificate is no longer trusted.",
        404: "The object does not exist.",
        409: "The state of the object does not allow the request.",
        410: "The page token has expired.",
        413: "The request is too large.",
        415: "The media type is not supported.",
        422: "The request is well-formed, but cannot be executed.",
        429: "The client has too many requests or streams.",
        500: "The server failed.",
        502: "The connection to the pod was lost; the request may have been executed.",
        503: "The cluster does not respond.",
    }
    return {
        status: ResponseSpec(
            data_container=Problem, description=descriptions[status], generate_examples=False
        )
        for status in sorted({400, 401, 429, 500, 503, *statuses})
    }


_CHANGE_RESPONSES: dict[str, Any] = {"status_code": 200, "responses": problem_responses(404, 409)}


class SandboxRoutes(Controller):
    """Create, read, suspend, resume and delete sandboxes."""

    path: Final = "/v1/sandboxes"  # type: ignore[misc]
    tags: Final = ["sandboxes"]  # type: ignore[misc]

    @get(summary="List sandboxes", operation_id="listSandboxes", responses=problem_responses(410, 422))
    async def list(
        self,
        service: SandboxService,
        limit: PageLimit = 100,
        continue_token: ContinueToken = None,
        selector: Selector = None,
    ) -> SandboxList:
        return await service.list(limit, continue_token, selector)

    @post(
        summary="Create a sandbox",
        description="Idempotent: 201 if this request created it, 200 if an identical one did.",
        operation_id="createSandbox",
        request_max_body_size=1 << 20,
        responses={
            **problem_responses(409, 413, 415, 422),
            200: ResponseSpec(
                data_container=SandboxView,
                description="The sandbox existed, created by an identical request.",
                generate_examples=False,
            ),
        },
    )
    async def create(self, service: SandboxService, request: Request[Any, Any, Any]) -> Response[SandboxView]:
        created, view = await service.create(
            parse_body(request.headers.get("content-type"), await request.body(), SandboxRequest)
        )
        return Response(view, status_code=201 if created else 200)

    @get("/{name:str}", summary="Get a sandbox", operation_id="getSandbox", responses=problem_responses(404))
    async def get(self, service: SandboxService, name: SandboxName) -> SandboxView:
        return await service.get_with_events(name)

    @patch(
        "/{name:str}",
        summary="Update a sandbox",
        description="Idempotent. `pending` lists the fields that take effect with the next pod.",
        operation_id="updateSandbox",
        responses=problem_responses(404, 409, 413, 415, 422),
    )
    async def update(
        self, service: SandboxService, name: SandboxName, request: Request[Any, Any, Any]
    ) -> SandboxUpdateResult:
        body = await request.body()
        update = parse_body(request.headers.get("content-type"), body, SandboxUpdate)
        return await update_sandbox(service, name, update)

    @post(
        "/{name:str}/suspend",
        summary="Suspend: delete the pod, keep the workspace",
        operation_id="suspendSandbox",
        **_CHANGE_RESPONSES,
    )
    async def suspend(self, service: SandboxService, name: SandboxName) -> SandboxView:
        return await service.set_operating_mode(name, OperatingMode.SUSPENDED)

    @post(
        "/{name:str}/resume",
        summary="Resume: start a new pod on the same workspace",
        operation_id="resumeSandbox",
        **_CHANGE_RESPONSES,
    )
    async def resume(self, service: SandboxService, name: SandboxName) -> SandboxView:
        return await service.set_operating_mode(name, OperatingMode.RUNNING)

    @delete(
        "/{name:str}",
        summary="Delete a sandbox and report what happened to its data",
        operation_id="deleteSandbox",
        **_CHANGE_RESPONSES,
    )
    async def remove(
        self, service: SandboxService, name: SandboxName, keep_workspace: _KeepWorkspace = False
    ) -> DeletionResult:
        return await service.delete(name, keep_workspace=keep_workspace)


def parse_body(media_type: str | None, body: bytes, model: type[T]) -> T:
    """Parse a request body.

    Litestar would accept a number as a timestamp, so the handlers do not use it.

    Raises:
        ApiError: 415 or 400; the message names the invalid field.
    """
    if media_type is not None and media_type.partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "media-type", "the body is not JSON", "Send application/json.")
    try:
        fields = _integral_floats_to_int(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request("bad-request", "the body is not valid JSON") from error
    try:
        return msgspec.convert(fields, model)
    except msgspec.ValidationError as error:
        raise bad_request("bad-request", describe_validation_error(error, fields)) from error


def _integral_floats_to_int(value: Any) -> Any:
    """Accept 60.0 where an integer is expected: JSON does not distinguish them."""
    if not isinstance(value, dict):
        return value
    return {
        key: int(item) if isinstance(item, float) and item.is_integer() else item
        for key, item in value.items()
    }
