"""REST models of secrets. No model has values in its `repr`, and no response contains them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from holdfast.api.rest_models import END_OF_TEXT, Name

SECRET_KEY_PATTERN = f"^(?![.]{{1,2}}{END_OF_TEXT}|[.][.])[-._A-Za-z0-9]+{END_OF_TEXT}"
MAX_SECRET_BYTES = 1 << 20
"""Kubernetes' limit for all values of a Secret."""
_MAX_KEYS = 256
# Only for the document: msgspec decodes base64 itself.
_BASE64_PATTERN = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

SecretKey: TypeAlias = Annotated[str, Meta(min_length=1, max_length=253, pattern=SECRET_KEY_PATTERN)]
SecretValue: TypeAlias = Annotated[bytes, Meta(extra_json_schema={"pattern": _BASE64_PATTERN})]
SecretData: TypeAlias = Annotated[dict[SecretKey, SecretValue], Meta(min_length=1, max_length=_MAX_KEYS)]


class SecretRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A secret to create. Sending the same request twice creates one secret.

    Attributes:
        name: name of the secret, unique on the gateway.
        data: the values by key, encoded with base64; at most 1 MiB.
        replace: whether to replace the values of an existing secret that differs.
    """

    name: Name
    data: SecretData
    replace: bool = False

    def __repr__(self) -> str:
        return f"SecretRequest(name={self.name!r}, data=<{len(self.data)} values>, replace={self.replace})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("name", self.name), ("keys", sorted(self.data)), ("replace", self.replace)]


class SecretView(msgspec.Struct, frozen=True, kw_only=True):
    """A secret without its values.

    Attributes:
        name: name of the secret.
        keys: names of the keys.
        created: creation time.
        sandboxes: sandboxes that use it.
    """

    name: str
    keys: list[str] = []
    created: str | None = None
    sandboxes: list[str] = []


class SecretList(msgspec.Struct, frozen=True, kw_only=True):
    """All secrets, sorted by name."""

    items: list[SecretView]


class SecretResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a creation: what changed, and the secret."""

    effect: Literal["created", "replaced", "unchanged"]
    secret: SecretView


class SecretDeletion(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a deletion.

    Attributes:
        deleted: whether the secret existed.
        sandboxes: sandboxes that use it; they cannot be resumed without it.
    """

    deleted: bool
    sandboxes: list[str] = []
