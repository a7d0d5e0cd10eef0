"""Certificates and keys as values that can be handed around without showing what must not be seen.

They are plain classes on purpose: an encoder, `pickle` or a `repr` finds nothing to write down, so a key
reaches a file, a store or a log only where somebody asks for it by name.
Not here: what is in them (reading.py) and whether they are any good (judgement.py).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

if TYPE_CHECKING:
    from holdfast.pki.reasons import Reason

_SHORT = 12


class _Sealed:
    """Compared as a whole, shown by a digest of its public part, never pickled."""

    __slots__ = ()

    def _parts(self) -> tuple[bytes, ...]:
        raise NotImplementedError

    def _public(self) -> tuple[bytes, ...]:
        raise NotImplementedError

    @property
    def fingerprint(self) -> str:
        """A digest of the certificates alone: may be stored, shown and compared."""
        digest = hashlib.sha256()
        for part in self._public():
            digest.update(hashlib.sha256(part.strip()).digest())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Sealed) or type(other) is not type(self):
            return NotImplemented
        return self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._public())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.fingerprint[:_SHORT]})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} holds a private key and is not to be written down")


class Pair(_Sealed):
    """A certificate and its private key, both PEM."""

    __slots__ = ("certificate", "key")

    def __init__(self, certificate: bytes, key: bytes) -> None:
        self.certificate = certificate
        self.key = key

    def _parts(self) -> tuple[bytes, ...]:
        return self.certificate, self.key

    def _public(self) -> tuple[bytes, ...]:
        return (self.certificate,)


class Identity(_Sealed):
    """What a client needs: its own pair, and the CA that it trusts."""

    __slots__ = ("ca", "client")

    def __init__(self, ca: bytes, client: Pair) -> None:
        self.ca = ca
        self.client = client

    def _parts(self) -> tuple[bytes, ...]:
        return self.ca, *self.client._parts()  # noqa: SLF001 (of the same family)

    def _public(self) -> tuple[bytes, ...]:
        return self.ca, self.client.certificate


class Bundle(_Sealed):
    """Everything that one gateway's mutual TLS is made of; the CA's own key is not a part of it."""

    __slots__ = ("ca", "client", "server")

    def __init__(self, ca: bytes, server: Pair, client: Pair) -> None:
        self.ca = ca
        self.server = server
        self.client = client

    @property
    def identity(self) -> Identity:
        """The part that goes to a client's disk."""
        return Identity(self.ca, self.client)

    def _parts(self) -> tuple[bytes, ...]:
        return self.ca, *self.server._parts(), *self.client._parts()  # noqa: SLF001 (of the same family)

    def _public(self) -> tuple[bytes, ...]:
        return self.ca, self.server.certificate, self.client.certificate


Held = TypeVar("Held", Bundle, Identity)


class Stored(Generic[Held]):
    """What was found at a place: the thing itself if all of it is there, and what is wrong with the place."""

    __slots__ = ("bundle", "reasons")

    def __init__(self, bundle: Held | None, reasons: tuple[Reason, ...] = ()) -> None:
        self.bundle: Held | None = bundle
        self.reasons = reasons

    def __repr__(self) -> str:
        return f"Stored({self.bundle!r}, {self.reasons!r})"
