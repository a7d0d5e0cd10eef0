"""The routes that stream over HTTP: events, logs and files.

Not here: where the bytes come from (events.py, files.py), and WebSockets (socket_routes.py).
"""

# No `from __future__ import annotations`: the framework reads the handlers' annotations as they stand.
from typing import Annotated, Any, Final

from litestar import Controller, Request, get, put
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter
from litestar.response import Stream

from holdfast.sandbox.wire import Unpacked
from holdfast.server import events, files, pods
from holdfast.server.paths import LONGEST
from holdfast.server.routes import SandboxName, problems
from holdfast.server.service import Service

_Follow = Annotated[bool, Parameter(description="Go on as the log grows.")]
_Tail = Annotated[int | None, Parameter(ge=0, le=10_000_000, description="The last lines only.")]
_Previous = Annotated[bool, Parameter(description="Of the container that ran before.")]
_Container = Annotated[str | None, Parameter(min_length=1, max_length=63, description="Else the first one.")]
_Path = Annotated[
    str,
    Parameter(
        min_length=1,
        max_length=LONGEST,
        description="A whole path in the sandbox, without `..`.",
    ),
]
_TAR = "application/x-tar"


class Streams(Controller):
    """What comes piece by piece."""

    path: Final = "/v1/sandboxes/{name:str}"  # type: ignore[misc]
    tags: Final = ["streams"]  # type: ignore[misc]

    @get(
        "/events",
        summary="The sandbox's state now and at each change, as Server-Sent Events",
        description="`sandbox` with a SandboxView, then `deleted` with the last one, or `problem`.",
        operation_id="watchSandbox",
        media_type="text/event-stream",
        responses=problems(404),
    )
    async def events(self, service: Service, name: SandboxName) -> Stream:
        found = await events.stream(service, name)
        return Stream(found, media_type="text/event-stream", headers={"cache-control": "no-store"})

    @get(
        "/logs",
        summary="The log of the sandbox's container",
        operation_id="readLog",
        media_type="text/plain",
        responses=problems(404, 409, 422),
    )
    async def logs(
        self,
        service: Service,
        name: SandboxName,
        follow: _Follow = False,
        tail: _Tail = None,
        previous: _Previous = False,
        container: _Container = None,
    ) -> Stream:
        place = await pods.logged(service, name, container)
        query = {
            "container": place.container,
            "follow": str(follow).lower(),
            "previous": str(previous).lower(),
        }
        query |= {} if tail is None else {"tailLines": str(tail)}
        return Stream(await service.cluster.log(place.pod, query), media_type="text/plain; charset=utf-8")

    @get(
        "/files",
        summary="A file or folder as a tar archive",
        operation_id="downloadFiles",
        media_type=_TAR,
        responses=problems(404, 409, 502),
    )
    async def download(self, service: Service, name: SandboxName, path: _Path) -> Stream:
        return Stream(await files.download(service, name, path), media_type=_TAR)

    @put(
        "/files",
        summary="Unpack a tar archive into a folder",
        operation_id="uploadFiles",
        request_max_body_size=None,
        responses={
            **problems(404, 409, 502),
            200: ResponseSpec(
                data_container=Unpacked, description="It is unpacked.", generate_examples=False
            ),
        },
    )
    async def upload(
        self, service: Service, request: Request[Any, Any, Any], name: SandboxName, path: _Path
    ) -> Unpacked:
        return await files.upload(service, name, path, request.stream())
