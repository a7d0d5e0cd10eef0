"""The API's OpenAPI document: the routes as the framework knows them, the models as msgspec checks them.

The framework's own rendering of the models leaves out what it does not know (patterns of keys, unions with
bounds); what is published has to be what is checked. Not here: the routes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.sandbox.wire import Deletion, Problem, SandboxList, SandboxRequest, SandboxView, Unpacked
from holdfast.server.models import GatewayInfo
from holdfast.server.paths import PATTERN

_MODELS = (GatewayInfo, SandboxRequest, SandboxView, SandboxList, Deletion, Unpacked, Problem)
_TEMPLATE = "#/components/schemas/{name}"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_TEXT = {"schema": {"type": "string"}}
_PATTERNS = {"path": {"pattern": PATTERN}}
"""Of what is checked by hand, for better words than the framework's."""
_BODIES = {
    "uploadFiles": {"application/x-tar": _BINARY, "application/octet-stream": _BINARY},
    "createSandbox": {"application/json": {"schema": {"$ref": _TEMPLATE.format(name="SandboxRequest")}}},
}
_STREAMS = {"application/x-tar": _BINARY, "text/event-stream": _TEXT, "text/plain": _TEXT}


def document(made: dict[str, Any]) -> dict[str, Any]:
    """The framework's document, made exact."""
    _, models = msgspec.json.schema_components(_MODELS, ref_template=_TEMPLATE)
    for path in made["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict) and "responses" in operation:
                _operation(operation)
    made["paths"].pop("/schema/openapi.json", None)
    made["components"] = {
        "schemas": {name: models[name] for name in sorted(models)},
        "securitySchemes": {
            "clientCertificate": {
                "type": "mutualTLS",
                "description": "A client certificate of this gateway's own CA.",
            }
        },
    }
    made["security"] = [{"clientCertificate": []}]
    return made


def _operation(operation: dict[str, Any]) -> None:
    success = operation["responses"].get("200") or {}
    for kind, schema in _STREAMS.items():
        if any(each.startswith(kind) for each in success.get("content") or ()):
            success["content"] = {kind: schema}
    for parameter in operation.get("parameters") or ():
        parameter["schema"] = _parameter(parameter["schema"]) | _PATTERNS.get(parameter["name"], {})
    body = _BODIES.get(operation.get("operationId", ""))
    if body is not None:
        operation["requestBody"] = {"required": True, "content": body}
    for status, response in operation["responses"].items():
        if status in ("429", "503"):
            about = "Seconds after which it may be tried again."
            response["headers"] = {
                "Retry-After": {"description": about, "schema": {"type": "string", "pattern": "^[0-9]+$"}}
            }


def _parameter(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that may be left out is not one that may be null; and a bound of zero is a bound."""
    kinds = [each for each in schema.get("oneOf") or () if each != {"type": "null"}]
    if len(kinds) == 1:
        schema = {**kinds[0], **{key: value for key, value in schema.items() if key != "oneOf"}}
    if schema.get("type") == "integer":
        schema.setdefault("minimum", 0)
    return schema
