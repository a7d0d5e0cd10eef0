"""JSON routes of templates and warm pools, and the event stream of a pool."""

# No `from __future__ import annotations`: Litestar reads the handlers' annotations at run time.
from typing import Annotated, Any, Final

from litestar import Controller, Request, Response, delete, get, patch, post
from litestar.params import Parameter
from litestar.response import Stream

from holdfast.api import (
    PoolChange,
    PoolDeletionResult,
    PoolList,
    PoolRequest,
    PoolView,
    TemplateDeletionResult,
    TemplateList,
    TemplateRequest,
    TemplateView,
)
from holdfast.server.pools.service import PoolService
from holdfast.server.pools.templates import TemplateService
from holdfast.server.requests import (
    OBJECT_NAME_PATTERN,
    ContinueToken,
    PageLimit,
    Selector,
    parse_body,
    problem_responses,
    response_spec,
)
from holdfast.server.streams import event_stream

_TemplateName = Annotated[
    str, Parameter(description="Name of the template.", pattern=OBJECT_NAME_PATTERN, max_length=253)
]
_PoolName = Annotated[
    str, Parameter(description="Name of the pool.", pattern=OBJECT_NAME_PATTERN, max_length=253)
]


def _create_options(noun: str, body: Any, view: Any) -> dict[str, Any]:
    """Return the options of a route that creates an object once."""
    existing = response_spec(view, f"The {noun} existed, with the same options.")
    return {
        "summary": f"Create a {noun}",
        "description": f"Idempotent: 201 if this request created the {noun}, 200 if it existed.",
        "json_body": body,
        "responses": {**problem_responses(409, 413, 415, 422), 200: existing},
    }


class TemplateRoutes(Controller):
    """Create, read and delete templates."""

    path: Final = "/v1/templates"  # type: ignore[misc]
    tags: Final = ["templates"]  # type: ignore[misc]

    @get(summary="List templates", operation_id="listTemplates", responses=problem_responses(410, 422))
    async def list(
        self,
        templates: TemplateService,
        limit: PageLimit = 100,
        continue_token: ContinueToken = None,
        selector: Selector = None,
    ) -> TemplateList:
        return await templates.list(limit, continue_token, selector)

    @post(operation_id="createTemplate", **_create_options("template", TemplateRequest, TemplateView))
    async def create(
        self, templates: TemplateService, request: Request[Any, Any, Any]
    ) -> Response[TemplateView]:
        created, view = await templates.create(await parse_body(request, TemplateRequest))
        return Response(view, status_code=201 if created else 200)

    @get(
        "/{name:str}", summary="Get a template", operation_id="getTemplate", responses=problem_responses(404)
    )
    async def get(self, templates: TemplateService, name: _TemplateName) -> TemplateView:
        return await templates.get(name)

    @delete(
        "/{name:str}",
        summary="Delete a template and report the pools that still use it",
        operation_id="deleteTemplate",
        status_code=200,
        responses=problem_responses(404),
    )
    async def remove(self, templates: TemplateService, name: _TemplateName) -> TemplateDeletionResult:
        return await templates.delete(name)


class PoolRoutes(Controller):
    """Create, read, scale, watch and delete warm pools."""

    path: Final = "/v1/pools"  # type: ignore[misc]
    tags: Final = ["pools"]  # type: ignore[misc]

    @get(summary="List pools", operation_id="listPools", responses=problem_responses(410, 422))
    async def list(
        self,
        pools: PoolService,
        limit: PageLimit = 100,
        continue_token: ContinueToken = None,
        selector: Selector = None,
    ) -> PoolList:
        return await pools.list(limit, continue_token, selector)

    @post(operation_id="createPool", **_create_options("pool", PoolRequest, PoolView))
    async def create(self, pools: PoolService, request: Request[Any, Any, Any]) -> Response[PoolView]:
        created, view = await pools.create(await parse_body(request, PoolRequest))
        return Response(view, status_code=201 if created else 200)

    @get(
        "/{name:str}/events",
        summary="Watch the state of a pool as Server-Sent Events",
        description="Events: `pool` with a PoolView, then `deleted` with the last view, or `problem`.",
        operation_id="watchPool",
        media_type="text/event-stream",
        responses=problem_responses(404),
    )
    async def watch(self, pools: PoolService, name: _PoolName) -> Stream:
        return event_stream(await pools.watch(name))

    @get("/{name:str}", summary="Get a pool", operation_id="getPool", responses=problem_responses(404))
    async def get(self, pools: PoolService, name: _PoolName) -> PoolView:
        return await pools.get(name)

    @patch(
        "/{name:str}",
        summary="Change the size of a pool",
        operation_id="scalePool",
        json_body=PoolChange,
        responses=problem_responses(404, 409, 413, 415, 422),
    )
    async def scale(self, pools: PoolService, name: _PoolName, request: Request[Any, Any, Any]) -> PoolView:
        return await pools.scale(name, (await parse_body(request, PoolChange)).size)

    @delete(
        "/{name:str}",
        summary="Delete a pool and report the sandboxes that were created from it",
        operation_id="deletePool",
        status_code=200,
        responses=problem_responses(404),
    )
    async def remove(self, pools: PoolService, name: _PoolName) -> PoolDeletionResult:
        return await pools.delete(name)
