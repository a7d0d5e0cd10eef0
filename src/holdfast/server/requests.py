"""What all routes share: parameters, bodies, and the documented error responses."""

# No `from __future__ import annotations`: Litestar reads these annotations at run time.
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Request
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter

from holdfast.api import MAX_SELECTOR_LENGTH, SELECTOR_PATTERN, Problem
from holdfast.sandbox import describe_validation_error
from holdfast.server.errors import ApiError, bad_request

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


def response_spec(model: type[msgspec.Struct], description: str) -> ResponseSpec:
    """Return a documented response."""
    return ResponseSpec(data_container=model, description=description, generate_examples=False)


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
    all_statuses = sorted({400, 401, 429, 500, 503, *statuses})
    return {status: response_spec(Problem, descriptions[status]) for status in all_statuses}


async def parse_body(request: Request[Any, Any, Any], model: type[T]) -> T:
    """Parse the JSON body of a request; the option `json_body` of the route documents the same model.

    Litestar would accept a number as a timestamp, so the handlers do not use it.

    Raises:
        ApiError: 415 or 400; the message names the invalid field.
    """
    return parse_json(request.headers.get("content-type"), await request.body(), model)


def parse_json(media_type: str | None, body: bytes, model: type[T]) -> T:
    """Parse a body as JSON; raises like `parse_body`."""
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
