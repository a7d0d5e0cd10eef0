"""Asynchronous client for the secrets of a gateway. The values can be written, but not read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from holdfast.api import SecretDeletion, SecretList, SecretRequest, SecretResult, SecretView
from holdfast.client.base import AsyncClient
from holdfast.errors import ArgumentTypeError, SecretNotFoundError, UsageError
from holdfast.sandbox import check_secret_size, validate_name

if TYPE_CHECKING:
    from builtins import list as List  # noqa: N812 (the method `list` hides the type)

_PATH = "/v1/secrets"


class AsyncSecrets(AsyncClient):
    """Client for the secrets of one gateway. The values can be written, but not read."""

    async def create(
        self, name: str, values: Mapping[str, str | bytes], *, replace: bool = False
    ) -> SecretResult:
        """Create a secret. If it exists with the same values, nothing happens.

        Sandboxes that mount it see replaced values within about two minutes; environment variables change
        when a sandbox is resumed.

        Args:
            name: name of the secret.
            values: the values by key.
            replace: replace the values of an existing secret that differs.

        Returns:
            What changed, and the secret with the sandboxes that use it.

        Raises:
            UsageError: the name or a key is not valid, or the values are larger than 1 MiB.
            ObjectConflictError: a secret with this name and other values exists.
        """
        body = build_secret_request(name, values, replace=replace)
        return (await self._transport.call_with_status("POST", _PATH, SecretResult, body=body))[1]

    async def list(self) -> List[SecretView]:
        """Return all secrets, sorted by name."""
        return (await self._transport.call("GET", _PATH, SecretList)).items

    async def get(self, name: str) -> SecretView:
        """Return the names of the keys of a secret, and the sandboxes that use it.

        Raises:
            SecretNotFoundError: no secret has this name.
        """
        return await self._transport.call("GET", f"{_PATH}/{validate_name(name, 'secret')}", SecretView)

    async def delete(self, name: str, *, ignore_missing: bool = False) -> SecretDeletion:
        """Delete a secret. Running sandboxes keep their values; they cannot be resumed without the secret.

        Args:
            name: name of the secret.
            ignore_missing: succeed if it does not exist.

        Raises:
            SecretNotFoundError: no secret has this name.
        """
        path = f"{_PATH}/{validate_name(name, 'secret')}"
        try:
            return await self._transport.call("DELETE", path, SecretDeletion)
        except SecretNotFoundError:
            if not ignore_missing:
                raise
            return SecretDeletion(deleted=False)


def build_secret_request(
    name: str, values: Mapping[str, str | bytes], *, replace: bool = False
) -> SecretRequest:
    """Build a request; no error quotes a value.

    Raises:
        UsageError: the name or a key is not valid, there is no value, or the values are too large.
    """
    validate_name(name, "secret")
    if not isinstance(values, Mapping):
        raise ArgumentTypeError(
            "values", f"must be a mapping of keys to text or bytes, not {type(values).__name__}"
        )
    data: dict[str, bytes] = {}
    for key, value in values.items():
        if not isinstance(value, str | bytes):
            raise ArgumentTypeError("values", f"{key!r} must be text or bytes, not {type(value).__name__}")
        data[key] = value.encode() if isinstance(value, str) else value
    if not data:
        raise UsageError(f"secret {name}: no values", hint="Pass at least one key with its value.")
    check_secret_size(data)
    try:
        return msgspec.convert({"name": name, "data": data, "replace": replace}, SecretRequest)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"secret {name}: invalid key",
            hint="Use at most 256 keys of at most 253 letters, digits, dashes, underscores and dots.",
        ) from error
