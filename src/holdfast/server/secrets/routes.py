"""JSON routes of secrets."""

# No `from __future__ import annotations`: Litestar reads the handlers' annotations at run time.
from typing import Annotated, Any, Final

from litestar import Controller, Request, Response, delete, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter

from holdfast.api import NAME_PATTERN, SecretDeletion, SecretList, SecretRequest, SecretResult, SecretView
from holdfast.server.sandboxes import parse_body, problem_responses
from holdfast.server.secrets.store import SecretStore

_SecretName = Annotated[
    str, Parameter(description="Name of the secret.", pattern=NAME_PATTERN, max_length=63)
]
# 1 MiB of values, encoded with base64, and their keys.
_MAX_BODY_BYTES = 2 << 20


class SecretRoutes(Controller):
    """Create, list and delete secrets. The values can be written, but not read."""

    path: Final = "/v1/secrets"  # type: ignore[misc]
    tags: Final = ["secrets"]  # type: ignore[misc]

    @get(
        summary="List secrets with the names of their keys",
        operation_id="listSecrets",
        responses=problem_responses(),
    )
    async def list(self, secrets: SecretStore) -> SecretList:
        return await secrets.list()

    @post(
        summary="Create a secret, or replace its values",
        description="Idempotent: 201 if this request created it, 200 if it exists with these values.",
        operation_id="createSecret",
        request_max_body_size=_MAX_BODY_BYTES,
        responses={
            **problem_responses(409, 413, 415, 422),
            200: ResponseSpec(
                data_container=SecretResult,
                description="The secret existed; its values are those of the request.",
                generate_examples=False,
            ),
        },
    )
    async def create(self, secrets: SecretStore, request: Request[Any, Any, Any]) -> Response[SecretResult]:
        body = await request.body()
        result = await secrets.create(parse_body(request.headers.get("content-type"), body, SecretRequest))
        return Response(result, status_code=201 if result.effect == "created" else 200)

    @get(
        "/{name:str}",
        summary="Get a secret with the names of its keys",
        operation_id="getSecret",
        responses=problem_responses(404, 409),
    )
    async def get(self, secrets: SecretStore, name: _SecretName) -> SecretView:
        return await secrets.get(name)

    @delete(
        "/{name:str}",
        summary="Delete a secret",
        operation_id="deleteSecret",
        status_code=200,
        responses=problem_responses(404, 409),
    )
    async def remove(self, secrets: SecretStore, name: _SecretName) -> SecretDeletion:
        return await secrets.delete(name)
