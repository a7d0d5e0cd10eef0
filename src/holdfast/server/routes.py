"""The routes about sandboxes that answer with JSON, and what each may answer with.

Not here: what they do (service.py) and the routes that stream (stream_routes.py).
"""

# No `from __future__ import annotations`: the framework reads the handlers' annotations as they stand.
from typing import Annotated, Any, Final

import msgspec
from litestar import Controller, Request, Response, delete, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter

from holdfast.sandbox.api import Mode
from holdfast.sandbox.mistakes import mistake
from holdfast.sandbox.wire import Deletion, Problem, SandboxList, SandboxRequest, SandboxView
from holdfast.server.problems import ApiError, bad_request
from holdfast.server.service import Service

_OBJECT_NAME = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$(?!\n)"
_LABEL = r"[A-Za-z0-9][A-Za-z0-9_./-]{0,250}=([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_MOST_ITEMS = 500

SandboxName = Annotated[
    str, Parameter(description="The sandbox's name.", pattern=_OBJECT_NAME, max_length=253)
]
_Limit = Annotated[int, Parameter(ge=1, le=_MOST_ITEMS, description="Sandboxes on one page.")]
_Continue = Annotated[
    str | None,
    Parameter(query="continue", min_length=1, max_length=4096, description="The `next` of the page before."),
]
_Label = Annotated[
    str | None,
    Parameter(
        pattern=f"^{_LABEL}(,{_LABEL}){{0,9}}$",
        max_length=2048,
        description="`key=value`, or several with commas.",
    ),
]
_Keep = Annotated[bool, Parameter(description="Keep the claim with the data.")]


def problems(*statuses: int) -> dict[int, ResponseSpec]:
    """The refusals that a route documents, beside those that every route has."""
    words = {
        400: "The request cannot be read.",
        401: "The client certificate is not trusted any more.",
        404: "There is no such sandbox.",
        409: "The sandbox is not as the request needs it.",
        410: "That page is no longer kept.",
        413: "The request is too large.",
        415: "The body is of another kind.",
        422: "The request can be read, but not be carried out.",
        429: "Too many requests or streams of this client.",
        500: "The server failed.",
        502: "The connection to the pod was lost; it may have been carried out.",
        503: "The cluster does not answer just now.",
    }
    return {
        status: ResponseSpec(data_container=Problem, description=words[status], generate_examples=False)
        for status in sorted({400, 401, 429, 500, 503, *statuses})
    }


class Sandboxes(Controller):
    """Make, look at, suspend, resume and delete sandboxes."""

    path: Final = "/v1/sandboxes"  # type: ignore[misc]
    tags: Final = ["sandboxes"]  # type: ignore[misc]

    @get(summary="List sandboxes", operation_id="listSandboxes", responses=problems(410, 422))
    async def list(
        self, service: Service, limit: _Limit = 100, after: _Continue = None, label: _Label = None
    ) -> SandboxList:
        return await service.list(limit, after, label)

    @post(
        summary="Make a sandbox",
        description="Sent twice it makes one: 201 where it was made now, 200 where the same was there.",
        operation_id="createSandbox",
        request_max_body_size=1 << 20,
        responses={
            **problems(409, 413, 415, 422),
            200: ResponseSpec(
                data_container=SandboxView,
                description="It was there, and is the same.",
                generate_examples=False,
            ),
        },
    )
    async def create(self, service: Service, request: Request[Any, Any, Any]) -> Response[SandboxView]:
        made, seen = await service.create(asked(request.headers.get("content-type"), await request.body()))
        return Response(seen, status_code=201 if made else 200)

    @get("/{name:str}", summary="One sandbox", operation_id="getSandbox", responses=problems(404))
    async def get(self, service: Service, name: SandboxName) -> SandboxView:
        return await service.get(name)

    @post(
        "/{name:str}/suspend",
        summary="Suspend: the pod goes, the workspace stays",
        operation_id="suspendSandbox",
        status_code=200,
        responses=problems(404, 409),
    )
    async def suspend(self, service: Service, name: SandboxName) -> SandboxView:
        return await service.set_mode(name, Mode.SUSPENDED)

    @post(
        "/{name:str}/resume",
        summary="Resume: a fresh pod on the same workspace",
        operation_id="resumeSandbox",
        status_code=200,
        responses=problems(404, 409),
    )
    async def resume(self, service: Service, name: SandboxName) -> SandboxView:
        return await service.set_mode(name, Mode.RUNNING)

    @delete(
        "/{name:str}",
        summary="Delete a sandbox, and say what became of its data",
        operation_id="deleteSandbox",
        status_code=200,
        responses=problems(404, 409),
    )
    async def remove(self, service: Service, name: SandboxName, keep_workspace: _Keep = False) -> Deletion:
        return await service.delete(name, keep_workspace=keep_workspace)


def asked(media_type: str | None, body: bytes) -> SandboxRequest:
    """The request in a body; read here, for the framework would take a number for a time."""
    if media_type is not None and media_type.partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "media-type", "the body has to be JSON", "Send it as application/json.")
    try:
        given = _whole_numbers(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request("bad-request", "the body is no JSON") from error
    try:
        return msgspec.convert(given, SandboxRequest)
    except msgspec.ValidationError as error:
        raise bad_request("bad-request", mistake(error, given)) from error


def _whole_numbers(value: Any) -> Any:
    """JSON has one kind of number: 60.0 is as whole as 60."""
    if not isinstance(value, dict):
        return value
    return {
        key: int(each) if isinstance(each, float) and each.is_integer() else each
        for key, each in value.items()
    }


def provided(value: Any) -> Any:
    """A dependency that is always the same."""
    from litestar.di import Provide

    return Provide(lambda: value, sync_to_thread=False, use_cache=True)
