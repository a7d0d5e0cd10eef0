"""The Litestar application, its OpenAPI document and the health endpoint.

Litestar's rendering of the models omits key patterns and bounded unions, so msgspec renders them: the
published document describes exactly what is validated.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from litestar import Litestar, Request, Response, get
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.routes import HTTPRoute

from holdfast import __version__
from holdfast.server.errors import bad_request, problem_response
from holdfast.server.pools import PoolRoutes, PoolService, TemplateRoutes, TemplateService
from holdfast.server.requests import problem_responses
from holdfast.server.sandboxes import SandboxRoutes, SandboxService
from holdfast.server.secrets import SecretRoutes
from holdfast.server.streams import PATH_PATTERN, StreamRoutes, exec_in_sandbox, forward_port, watch_sandboxes
from holdfast.server.usage import UsageRoutes, UsageService


class GatewayInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway that serves this API."""

    name: str
    version: str
    """version of holdfast"""


_INJECTED = {"service", "templates", "pools", "secrets", "usage", "request"}
"""Parameters of handlers that do not come from the query."""
_WEBSOCKETS = (exec_in_sandbox, forward_port)
_REF_TEMPLATE = "#/components/schemas/{name}"
_BINARY_CONTENT = {"schema": {"type": "string", "format": "binary"}}
_TEXT_CONTENT = {"schema": {"type": "string"}}
_PARAMETER_PATTERNS = {"path": {"pattern": PATH_PATTERN}}
"""Patterns of parameters that the handlers validate themselves, with better messages."""
_UPLOAD = {"application/x-tar": _BINARY_CONTENT, "application/octet-stream": _BINARY_CONTENT}
_STREAM_CONTENT = {
    "application/x-tar": _BINARY_CONTENT,
    "text/event-stream": _TEXT_CONTENT,
    "text/plain": _TEXT_CONTENT,
}


def openapi_document(app: Litestar) -> dict[str, Any]:
    """Return Litestar's document with the schemas of msgspec, and with the security scheme."""
    handlers = [
        handler for route in app.routes if isinstance(route, HTTPRoute) for handler in route.route_handlers
    ]
    schema = app.openapi_schema.to_schema()
    _, models = msgspec.json.schema_components(_documented_models(handlers), ref_template=_REF_TEMPLATE)
    bodies = {handler.operation_id: _request_body(handler) for handler in handlers}
    for path in schema["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict) and "responses" in operation:
                _complete_operation(operation, bodies.get(operation.get("operationId")))
    schema["paths"].pop("/schema/openapi.json", None)
    schema["components"] = {
        "schemas": {name: models[name] for name in sorted(models)},
        "securitySchemes": {
            "clientCertificate": {
                "type": "mutualTLS",
                "description": "A client certificate that the CA of this gateway issued.",
            }
        },
    }
    schema["security"] = [{"clientCertificate": []}]
    return schema


def _documented_models(handlers: list[HTTPRouteHandler]) -> list[type[msgspec.Struct]]:
    """Return the models that routes return, as `Model` or `Response[Model]`, document and accept."""
    types: set[Any] = set()
    for handler in handlers:
        returned = handler.parsed_fn_signature.return_type
        types.update(field.annotation for field in (returned, *returned.inner_types))
        types.update(response.data_container for response in (handler.responses or {}).values())
        types.add(handler.opt.get("json_body"))
    return [each for each in types if isinstance(each, type) and issubclass(each, msgspec.Struct)]


def _request_body(handler: HTTPRouteHandler) -> dict[str, Any] | None:
    if handler.operation_id == "uploadFiles":
        return _UPLOAD
    model = handler.opt.get("json_body")
    return model and {"application/json": {"schema": {"$ref": _REF_TEMPLATE.format(name=model.__name__)}}}


def _complete_operation(operation: dict[str, Any], body: dict[str, Any] | None) -> None:
    success = operation["responses"].get("200") or {}
    for kind, schema in _STREAM_CONTENT.items():
        if any(media_type.startswith(kind) for media_type in success.get("content") or ()):
            success["content"] = {kind: schema}
    for parameter in operation.get("parameters") or ():
        parameter["schema"] = _parameter_schema(parameter["schema"]) | _PARAMETER_PATTERNS.get(
            parameter["name"], {}
        )
    if body is not None:
        operation["requestBody"] = {"required": True, "content": body}
    for status, response in operation["responses"].items():
        if status in ("429", "503"):
            about = "Seconds after which to retry."
            response["headers"] = {
                "Retry-After": {"description": about, "schema": {"type": "string", "pattern": "^[0-9]+$"}}
            }


def _parameter_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Make an optional parameter non-nullable, and give integers their implicit minimum."""
    kinds = [kind for kind in schema.get("oneOf") or () if kind != {"type": "null"}]
    if len(kinds) == 1:
        schema = {**kinds[0], **{key: value for key, value in schema.items() if key != "oneOf"}}
    if schema.get("type") == "integer":
        schema.setdefault("minimum", 0)
    return schema


# No `from __future__ import annotations`: Litestar reads the handlers' annotations at run time.


def create_app(
    name: str,
    service: SandboxService,
    templates: TemplateService,
    pools: PoolService,
    usage: UsageService,
) -> Litestar:
    """Create the application for clients.

    Args:
        name: Name of the gateway.
        service: The sandboxes of the gateway.
        templates: The templates of the gateway.
        pools: The warm pools of the gateway.
        usage: What the sandboxes use.
    """

    @get(
        "/v1/gateway",
        summary="Get the gateway",
        operation_id="getGateway",
        responses=problem_responses(),
        sync_to_thread=False,
    )
    def gateway() -> GatewayInfo:
        return GatewayInfo(name=name, version=__version__)

    # Rendered on first use: the handler needs `app`, which is created after it.
    document: dict[str, Any] = {}

    @get("/schema/openapi.json", include_in_schema=False, sync_to_thread=False)
    def openapi() -> Response[dict[str, Any]]:
        if not document:
            document.update(openapi_document(app))
        return Response(document, media_type="application/json")

    app = Litestar(
        route_handlers=[
            gateway,
            openapi,
            SandboxRoutes,
            SecretRoutes,
            UsageRoutes,
            StreamRoutes,
            watch_sandboxes,
            *_WEBSOCKETS,
            TemplateRoutes,
            PoolRoutes,
        ],
        dependencies={
            "service": Provide(lambda: service, sync_to_thread=False, use_cache=True),
            "templates": Provide(lambda: templates, sync_to_thread=False, use_cache=True),
            "pools": Provide(lambda: pools, sync_to_thread=False, use_cache=True),
            "usage": Provide(lambda: usage, sync_to_thread=False, use_cache=True),
            "secrets": Provide(lambda: service.secrets, sync_to_thread=False, use_cache=True),
        },
        # Litestar rejects some requests before any route runs; these answers have the same form.
        exception_handlers={Exception: problem_response},
        before_request=reject_unknown_parameters,
        openapi_config=OpenAPIConfig(title="holdfast gateway", version=__version__, path="/_framework"),
        logging_config=None,
        # `request.body()` holds a body in memory. The upload route streams its body and has no limit.
        request_max_body_size=1 << 20,
    )
    return app


async def reject_unknown_parameters(request: Request[Any, Any, Any]) -> None:
    """Reject query parameters that the route does not have.

    A misspelt selector would otherwise return all sandboxes, and the client might delete them.

    Raises:
        ApiError: 400; the hint lists the parameters of the route.
    """
    known = _query_parameters(request.route_handler)
    for name in request.query_params:
        if name not in known:
            hint = f"Use one of: {', '.join(sorted(known))}." if known else "Omit it."
            raise bad_request("bad-request", f"query parameter {name[:64]!r}: not known", hint)


@cache
def _query_parameters(handler: Any) -> frozenset[str]:
    return frozenset(
        getattr(field.kwarg_definition, "query", None) or name
        for name, field in handler.parsed_fn_signature.parameters.items()
        if name not in _INJECTED and not any(f"{{{name}:" in path for path in handler.paths)
    )


def options_middleware(app: Litestar) -> Any:
    """Wrap an application so that OPTIONS returns every method of a path."""
    allowed = [
        (re.compile(re.sub(r"\{[^}]*\}", "[^/]+", route.path)), ", ".join(sorted(route.methods)).encode())
        for route in app.routes
        if isinstance(route, HTTPRoute)
    ]

    async def handle(scope: Any, receive: Any, send: Any) -> None:
        is_options = scope["type"] == "http" and scope["method"] == "OPTIONS"
        methods = next((methods for path, methods in allowed if path.fullmatch(scope["path"])), b"")
        if not (is_options and methods):
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 204, "headers": [(b"allow", methods)]})
        await send({"type": "http.response.body", "body": b""})

    return handle


def health_app(is_ready: Callable[[], bool]) -> Any:
    """Create the ASGI application of the health port: 200 once the API accepts connections, 503 before."""

    # The probes of the kubelet present no client certificate, so that this port reveals only readiness.
    async def respond(scope: Any, receive: Any, send: Any) -> None:
        del receive
        if scope["type"] != "http":
            return
        if scope["path"] != "/healthz" or scope["method"] not in ("GET", "HEAD"):
            status, body = 404, b"not found\n"
        else:
            status, body = (200, b"ok\n") if is_ready() else (503, b"starting\n")
        headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body if scope["method"] == "GET" else b""})

    return respond
