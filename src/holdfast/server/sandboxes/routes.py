"""JSON routes of sandboxes."""

# No `from __future__ import annotations`: Litestar reads the handlers' annotations at run time.
from typing import Annotated, Any, Final

from litestar import Controller, Request, Response, delete, get, patch, post
from litestar.params import Parameter

from holdfast.api import (
    DeletionResult,
    OperatingMode,
    SandboxList,
    SandboxRequest,
    SandboxUpdate,
    SandboxUpdateResult,
    SandboxView,
)
from holdfast.server.requests import (
    ContinueToken,
    PageLimit,
    SandboxName,
    Selector,
    parse_body,
    problem_responses,
    response_spec,
)
from holdfast.server.sandboxes.service import SandboxService
from holdfast.server.sandboxes.update import update_sandbox

_KeepWorkspace = Annotated[bool, Parameter(description="Keep the PVCs with the data.")]
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
        json_body=SandboxRequest,
        responses={
            **problem_responses(409, 413, 415, 422),
            200: response_spec(SandboxView, "The sandbox existed, created by an identical request."),
        },
    )
    async def create(self, service: SandboxService, request: Request[Any, Any, Any]) -> Response[SandboxView]:
        created, view = await service.create(await parse_body(request, SandboxRequest))
        return Response(view, status_code=201 if created else 200)

    @get("/{name:str}", summary="Get a sandbox", operation_id="getSandbox", responses=problem_responses(404))
    async def get(self, service: SandboxService, name: SandboxName) -> SandboxView:
        return await service.get_with_events(name)

    @patch(
        "/{name:str}",
        summary="Update a sandbox",
        description="Idempotent. `pending` lists the fields that take effect with the next pod.",
        operation_id="updateSandbox",
        json_body=SandboxUpdate,
        responses=problem_responses(404, 409, 413, 415, 422),
    )
    async def update(
        self, service: SandboxService, name: SandboxName, request: Request[Any, Any, Any]
    ) -> SandboxUpdateResult:
        return await update_sandbox(service, name, await parse_body(request, SandboxUpdate))

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
