"""Routes of streams: events, logs and files over HTTP, exec and port-forward over WebSockets.

Errors are sent as an HTTP response before the WebSocket is accepted.
"""

from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from typing import Annotated, Any, Final

from litestar import Controller, Request, WebSocket, get, put, websocket
from litestar.params import Parameter
from litestar.response import Stream

from holdfast.api import FAILURE_MARKER_HEADER, UploadResult
from holdfast.server.access_middleware import send_problem
from holdfast.server.errors import bad_request
from holdfast.server.requests import SandboxName, Selector, problem_responses, response_spec
from holdfast.server.sandboxes import SandboxService, find_container, use_container
from holdfast.server.streams import events, files, list_events, websocket_proxy
from holdfast.server.streams.files import MAX_PATH_LENGTH

# No `from __future__ import annotations`: Litestar reads the handlers' annotations at run time.


_Follow = Annotated[bool, Parameter(description="Follow the log.")]
_Tail = Annotated[
    int | None, Parameter(ge=0, le=10_000_000, description="Number of lines from the end of the log.")
]
_Previous = Annotated[bool, Parameter(description="Log of the previous container.")]
_Container = Annotated[
    str | None,
    Parameter(min_length=1, max_length=63, description="Container name; the default container if omitted."),
]
_Path = Annotated[
    str,
    Parameter(
        min_length=1,
        max_length=MAX_PATH_LENGTH,
        description="Absolute path in the sandbox, without `..`.",
    ),
]
_FailureMarker = Annotated[
    str,
    Parameter(
        header=FAILURE_MARKER_HEADER,
        pattern=r"^([0-9a-f]{32})?$",
        description="Random text. If `tar` in the sandbox fails after the response has started, the response "
        "ends with this text and a Problem as JSON. Without it, the response is cut off.",
    ),
]
_TAR_MEDIA_TYPE = "application/x-tar"


@get(
    "/v1/watch/sandboxes",
    summary="Watch all sandboxes as Server-Sent Events",
    description="Events: `sandbox` with a SandboxView for each sandbox, then `synced`, then `sandbox` for "
    "each change, `deleted` with the last view, or `problem`.",
    operation_id="watchSandboxes",
    media_type="text/event-stream",
    tags=["streams"],
    responses=problem_responses(422),
)
async def watch_sandboxes(service: SandboxService, selector: Selector = None) -> Stream:
    """Stream the states of all sandboxes."""
    return event_stream(await list_events.stream_list_events(service, selector))


def event_stream(events: AsyncIterator[bytes]) -> Stream:
    """Return a response with Server-Sent Events."""
    return Stream(events, media_type="text/event-stream", headers={"cache-control": "no-store"})


class StreamRoutes(Controller):
    """Streams over HTTP."""

    path: Final = "/v1/sandboxes/{name:str}"  # type: ignore[misc]
    tags: Final = ["streams"]  # type: ignore[misc]

    @get(
        "/events",
        summary="Watch the state of a sandbox as Server-Sent Events",
        description="Events: `sandbox` with a SandboxView, then `deleted` with the last view, or `problem`.",
        operation_id="watchSandbox",
        media_type="text/event-stream",
        responses=problem_responses(404),
    )
    async def events(self, service: SandboxService, name: SandboxName) -> Stream:
        return event_stream(await events.stream_events(service, name))

    @get(
        "/logs",
        summary="Read the log of a container",
        operation_id="readLog",
        media_type="text/plain",
        responses=problem_responses(404, 409, 422),
    )
    async def logs(
        self,
        service: SandboxService,
        name: SandboxName,
        follow: _Follow = False,
        tail: _Tail = None,
        previous: _Previous = False,
        container: _Container = None,
    ) -> Stream:
        target = await find_container(service, name, container)
        query = [("container", target.container), ("follow", str(follow).lower())]
        query += [("previous", str(previous).lower())]
        query += [] if tail is None else [("tailLines", str(tail))]
        return Stream(
            await service.cluster.stream_log(target.pod, query), media_type="text/plain; charset=utf-8"
        )

    @get(
        "/files",
        summary="Download a file or directory as a tar archive",
        operation_id="downloadFiles",
        media_type=_TAR_MEDIA_TYPE,
        responses=problem_responses(404, 409, 502),
    )
    async def download(
        self, service: SandboxService, name: SandboxName, path: _Path, failure_marker: _FailureMarker = ""
    ) -> Stream:
        archive = await files.download(service, name, path, failure_marker)
        return Stream(archive, media_type=_TAR_MEDIA_TYPE)

    @put(
        "/files",
        summary="Extract a tar archive into a directory",
        operation_id="uploadFiles",
        request_max_body_size=None,
        responses={
            **problem_responses(404, 409, 502),
            200: response_spec(UploadResult, "The archive was extracted."),
        },
    )
    async def upload(
        self, service: SandboxService, request: Request[Any, Any, Any], name: SandboxName, path: _Path
    ) -> UploadResult:
        return await files.upload(service, name, path, request.stream())


ClientSocket = WebSocket[Any, Any, Any]
_MAX_COMMAND_WORDS = 4096
_MAX_PORT = 65535


@websocket("/v1/sandboxes/{name:str}/exec")
async def exec_in_sandbox(socket: ClientSocket, service: SandboxService, name: str) -> None:
    """Run a command; frames follow the Kubernetes protocol v5.channel.k8s.io."""
    async with AsyncExitStack() as stack:
        pod_stream = await _connect_and_accept(socket, _open_exec(socket, service, name, stack))
        if pod_stream is not None:
            await websocket_proxy.proxy_exec(socket, pod_stream, stdin=_bool_param(socket, "stdin"))


@websocket("/v1/sandboxes/{name:str}/forward")
async def forward_port(socket: ClientSocket, service: SandboxService, name: str) -> None:
    """Forward one connection to a port of the sandbox; frames contain raw bytes."""
    async with AsyncExitStack() as stack:
        pod_stream = await _connect_and_accept(socket, _open_port_forward(socket, service, name, stack))
        if pod_stream is not None:
            await websocket_proxy.proxy_port_forward(socket, pod_stream)


async def _connect_and_accept(
    socket: ClientSocket, opening: Awaitable[websocket_proxy.PodStream]
) -> websocket_proxy.PodStream | None:
    """Connect to the pod, then accept the client; on failure reject the handshake and leave nothing open."""
    try:
        pod_stream = await opening
    except Exception as error:  # noqa: BLE001 (any failure becomes a response)
        await send_problem(socket.scope, socket.send, error)
        return None
    try:
        await socket.accept()
    except BaseException:
        # A client that has disconnected must not leave a stream into the pod open.
        await pod_stream.close()
        raise
    return pod_stream


async def _open_exec(
    socket: ClientSocket, service: SandboxService, name: str, stack: AsyncExitStack
) -> websocket_proxy.PodStream:
    argv = socket.query_params.getall("command", [])
    if not argv or len(argv) > _MAX_COMMAND_WORDS or any("\0" in word for word in argv):
        raise bad_request("no-command", "command: missing or invalid; pass one `command` parameter per word")
    tty, stdin = _bool_param(socket, "tty"), _bool_param(socket, "stdin")
    container = socket.query_params.get("container")
    # On the stack of the handler: the sandbox counts as used until the proxy ends.
    target = await stack.enter_async_context(use_container(service, name, container))
    return await service.cluster.open_exec_stream(target, argv, stdin=stdin, tty=tty)


async def _open_port_forward(
    socket: ClientSocket, service: SandboxService, name: str, stack: AsyncExitStack
) -> websocket_proxy.PodStream:
    text = socket.query_params.get("port", "")
    port = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_PORT)) else 0
    if not 1 <= port <= _MAX_PORT:
        raise bad_request("bad-port", f"port: not a number from 1 to {_MAX_PORT}")
    target = await stack.enter_async_context(use_container(service, name))
    return await service.cluster.open_port_forward(target, port)


def _bool_param(socket: ClientSocket, name: str) -> bool:
    text = socket.query_params.get(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise bad_request("bad-request", f"{name}: must be true or false")
    return text in ("true", "1")
