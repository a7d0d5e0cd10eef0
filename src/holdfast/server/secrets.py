"""The secrets of one gateway, as labelled Kubernetes Secrets in the namespace of the sandboxes.

Another Secret of the namespace is never read for a client, replaced or deleted. Requests for one name may run
concurrently: every write carries the resourceVersion or uid that was read.
"""

# No `from __future__ import annotations`: Litestar reads the handlers' annotations at run time.
import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

from litestar import Controller, Request, Response, delete, get, post
from litestar.params import Parameter

from holdfast.api import (
    API_VERSION,
    NAME_PATTERN,
    SandboxSecret,
    SecretDeletion,
    SecretList,
    SecretRequest,
    SecretResult,
    SecretView,
)
from holdfast.errors import ObjectConflictError, SecretNotFoundError
from holdfast.retry import Policy, exponential
from holdfast.sandbox import (
    SECRET_LABEL,
    check_secret_size,
    env_problem,
    is_managed_secret,
    secret_manifest,
    secret_object_name,
    used_secrets,
)
from holdfast.server.errors import ApiError, conflict, not_found, unprocessable
from holdfast.server.namespace_client import NamespaceClient
from holdfast.server.requests import parse_body, problem_responses, response_spec

_CONFLICT_POLICY = Policy(attempts=6, backoff=exponential(0.02, cap=0.5), retry_on=ObjectConflictError)
_Users: TypeAlias = dict[str, list[str]]
"""Names of sandboxes by secret."""


class SecretService:
    """Lists, creates, replaces and deletes secrets, and checks those that a sandbox needs.

    Args:
        cluster: client for the namespace of the sandboxes.
    """

    def __init__(self, cluster: NamespaceClient) -> None:
        self._cluster = cluster

    async def list(self) -> SecretList:
        """List all secrets with the names of their keys."""
        listed, users = await asyncio.gather(
            self._cluster.objects.list(
                "Secret", namespace=self._cluster.namespace, label_selector=SECRET_LABEL
            ),
            self._users(),
        )
        views = [_present(secret, users) for secret in listed.items if is_managed_secret(secret)]
        return SecretList(items=sorted(views, key=lambda view: view.name))

    async def get(self, name: str) -> SecretView:
        """Return one secret.

        Raises:
            ApiError: 404 if it does not exist.
        """
        secret = await self._require(name)
        return _present(secret, await self._users())

    async def create(self, request: SecretRequest) -> SecretResult:
        """Create a secret, idempotently; replace the values of an existing one if requested.

        Raises:
            ApiError: 409 if it exists with other values, and `replace` is not set.
            UsageError: the values are too large.
        """
        check_secret_size(request.data)
        # Another request may create, replace or delete the secret between the read and the write.
        effect, secret = await _CONFLICT_POLICY.acall(self._write, request)
        return SecretResult(effect=effect, secret=_present(secret, await self._users()))

    async def _write(
        self, request: SecretRequest
    ) -> tuple[Literal["created", "replaced", "unchanged"], dict[str, Any]]:
        encoded = {key: base64.b64encode(value).decode() for key, value in request.data.items()}
        live = await self._find(request.name)
        if live is None:
            manifest = secret_manifest(request.name, encoded, namespace=self._cluster.namespace)
            return "created", await self._cluster.objects.create(manifest)
        before = live.get("data") or {}
        if before == encoded:
            return "unchanged", live
        if not request.replace:
            raise _differs(request.name, before, encoded)
        # A merge patch: null removes the keys that the request does not have.
        changes = {**dict.fromkeys(before), **encoded}
        metadata = {"resourceVersion": live["metadata"]["resourceVersion"]}
        replaced = await self._cluster.patch(live, {"metadata": metadata, "data": changes})
        if replaced is None:
            raise ObjectConflictError(f"secret {request.name}: deleted by another client")
        return "replaced", replaced

    async def delete(self, name: str) -> SecretDeletion:
        """Delete a secret and report which sandboxes use it.

        Raises:
            ApiError: 404 if it does not exist.
        """
        secret = await self._require(name)
        is_deleted = await self._cluster.delete(secret)
        users = await self._users()
        return SecretDeletion(deleted=is_deleted, sandboxes=users.get(name, []))

    async def require(self, uses: Sequence[SandboxSecret]) -> None:
        """Check that a sandbox with these secrets can start.

        Raises:
            ApiError: 422 if a secret does not exist, or a key cannot be an environment variable.
        """
        for name in dict.fromkeys(use.name for use in uses):
            secret = await self._find(name)
            if secret is None:
                raise unprocessable(
                    SecretNotFoundError.code, f"secret {name}: not found", _creation_hint(name)
                )
            if any(use.name == name and use.path is None for use in uses):
                _check_env(name, secret)

    async def _require(self, name: str) -> dict[str, Any]:
        secret = await self._find(name)
        if secret is None:
            raise not_found("Secret", name)
        return secret

    async def _find(self, name: str) -> dict[str, Any] | None:
        secret = await self._cluster.get("Secret", secret_object_name(name))
        if secret is not None and not is_managed_secret(secret):
            raise conflict(
                "secret-foreign",
                f"secret {name}: the Kubernetes Secret {secret_object_name(name)} is not managed by holdfast",
                "Choose another name.",
            )
        return secret

    async def _users(self) -> _Users:
        """Map each secret to the names of the sandboxes that use it."""
        listed = await self._cluster.objects.list(
            "Sandbox", namespace=self._cluster.namespace, api_version=API_VERSION
        )
        users: _Users = {}
        for sandbox in sorted(listed.items, key=lambda sandbox: str(sandbox["metadata"]["name"])):
            for name in dict.fromkeys(use.name for use in used_secrets(sandbox)):
                users.setdefault(name, []).append(sandbox["metadata"]["name"])
        return users


def _check_env(name: str, secret: Mapping[str, Any]) -> None:
    for key, encoded in sorted((secret.get("data") or {}).items()):
        try:
            value = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            value = b"\xff"
        if problem := env_problem(key, value):
            raise unprocessable(
                "secret-env", f"secret {name}: {problem}", f"Mount it as files: use {name}:/secrets/{name}."
            )


def _present(secret: Mapping[str, Any], users: _Users) -> SecretView:
    metadata = secret["metadata"]
    name = metadata["labels"][SECRET_LABEL]
    return SecretView(
        name=name,
        keys=sorted(secret.get("data") or {}),
        created=metadata.get("creationTimestamp"),
        sandboxes=users.get(name, []),
    )


def _differs(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> ApiError:
    """The error of a secret with other values; it names the keys only."""
    keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return conflict(
        "secret-differs",
        f"secret {name}: exists, and differs in {', '.join(keys)}",
        "Add `--replace` to replace its values, or choose another name.",
    )


def _creation_hint(name: str) -> str:
    return f"Run `holdfast secret create {name}` with KEY=VALUE lines on its standard input."


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
    async def list(self, secrets: SecretService) -> SecretList:
        return await secrets.list()

    @post(
        summary="Create a secret, or replace its values",
        description="Idempotent: 201 if this request created it, 200 if it exists with these values.",
        operation_id="createSecret",
        request_max_body_size=_MAX_BODY_BYTES,
        json_body=SecretRequest,
        responses={
            **problem_responses(409, 413, 415, 422),
            200: response_spec(SecretResult, "The secret existed; its values are those of the request."),
        },
    )
    async def create(self, secrets: SecretService, request: Request[Any, Any, Any]) -> Response[SecretResult]:
        result = await secrets.create(await parse_body(request, SecretRequest))
        return Response(result, status_code=201 if result.effect == "created" else 200)

    @get(
        "/{name:str}",
        summary="Get a secret with the names of its keys",
        operation_id="getSecret",
        responses=problem_responses(404, 409),
    )
    async def get(self, secrets: SecretService, name: _SecretName) -> SecretView:
        return await secrets.get(name)

    @delete(
        "/{name:str}",
        summary="Delete a secret",
        operation_id="deleteSecret",
        status_code=200,
        responses=problem_responses(404, 409),
    )
    async def remove(self, secrets: SecretService, name: _SecretName) -> SecretDeletion:
        return await secrets.delete(name)
