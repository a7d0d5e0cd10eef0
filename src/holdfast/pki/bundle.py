"""Certificates and keys as values, their problems, and their form as the data of Kubernetes Secrets.

This module does not load the cryptography library, so that `sandbox exec` starts quickly.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Generic, Literal, NoReturn, TypeAlias, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# `absent` is the normal state before the first `up`; `from-the-future` may be caused by a wrong clock.
ProblemCode: TypeAlias = Literal[
    "absent",
    "incomplete",
    "unreadable",
    "too-open",
    "key-mismatch",
    "foreign-ca",
    "no-ca",
    "wrong-use",
    "missing-name",
    "expired",
    "near-expiry",
    "from-the-future",
    "weak-key",
    "weak-signature",
]


class CertificateProblem(msgspec.Struct, frozen=True):
    """One problem; the message names files, secrets, names and dates, never contents."""

    code: ProblemCode
    message: str

    def __str__(self) -> str:
        return self.message


class ValidationResult(msgspec.Struct, frozen=True):
    """The problems of a bundle or client identity; none means that it is valid."""

    problems: tuple[CertificateProblem, ...] = ()

    @property
    def is_valid(self) -> bool:
        return not self.problems

    @property
    def codes(self) -> frozenset[ProblemCode]:
        return frozenset(problem.code for problem in self.problems)

    def __str__(self) -> str:
        return "; ".join(problem.message for problem in self.problems) or "valid"


_FINGERPRINT_PREFIX_LENGTH = 12


class _SecretValue:
    """A value with a private key: compared as a whole, shown as a digest of its certificates, never pickled.

    A plain class on purpose: encoders and `repr` find no fields, so a key cannot reach a file or log by
    mistake.
    """

    __slots__: tuple[str, ...] = ()

    def _parts(self) -> Iterator[tuple[str, bytes]]:
        """The names and contents of all certificates and keys, in the order of the slots."""
        for name in self.__slots__:
            value: bytes | _SecretValue = getattr(self, name)
            if isinstance(value, bytes):
                yield name, value
            else:
                yield from value._parts()  # noqa: SLF001

    def _public_parts(self) -> tuple[bytes, ...]:
        return tuple(content for name, content in self._parts() if name != "key")

    @property
    def fingerprint(self) -> str:
        """Digest of the certificates only; can be stored, shown and compared."""
        digest = hashlib.sha256()
        for part in self._public_parts():
            digest.update(hashlib.sha256(part.strip()).digest())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _SecretValue) or type(other) is not type(self):
            return NotImplemented
        return list(self._parts()) == list(other._parts())

    def __hash__(self) -> int:
        return hash(self._public_parts())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.fingerprint[:_FINGERPRINT_PREFIX_LENGTH]})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} contains a private key and must not be pickled")


class KeyPair(_SecretValue):
    """A certificate and its private key, both PEM."""

    __slots__ = ("certificate", "key")

    def __init__(self, certificate: bytes, key: bytes) -> None:
        self.certificate = certificate
        self.key = key


class ClientIdentity(_SecretValue):
    """What a client needs: its key pair, and the CA that it trusts."""

    __slots__ = ("ca", "client")

    def __init__(self, ca: bytes, client: KeyPair) -> None:
        self.ca = ca
        self.client = client


class CertificateBundle(_SecretValue):
    """All certificates and keys for the mutual TLS of one gateway, except the key of the CA."""

    __slots__ = ("ca", "server", "client")  # noqa: RUF023 - fingerprints depend on the order

    def __init__(self, ca: bytes, server: KeyPair, client: KeyPair) -> None:
        self.ca = ca
        self.server = server
        self.client = client

    @property
    def client_identity(self) -> ClientIdentity:
        """The part that is stored on the client's disk."""
        return ClientIdentity(self.ca, self.client)


StoredT = TypeVar("StoredT", CertificateBundle, ClientIdentity)


class StoredCredentials(msgspec.Struct, Generic[StoredT], frozen=True):
    """Credentials read from storage: the value (None if incomplete) and the problems of the storage."""

    value: StoredT | None
    problems: tuple[CertificateProblem, ...] = ()


SERVER_SECRET = "holdfast-server-tls"  # noqa: S105
CLIENT_CA_SECRET = "holdfast-server-client-ca"  # noqa: S105
CLIENT_SECRET = "holdfast-client-tls"  # noqa: S105

# The type of a Secret is immutable: a Secret of another type must be deleted first.
SECRET_TYPES: Mapping[str, str] = {
    SERVER_SECRET: "kubernetes.io/tls",
    CLIENT_CA_SECRET: "Opaque",
    CLIENT_SECRET: "kubernetes.io/tls",
}

_CERTIFICATE, _KEY, _CA = "tls.crt", "tls.key", "ca.crt"
_DATA_KEYS: Mapping[str, tuple[str, ...]] = {
    SERVER_SECRET: (_CERTIFICATE, _KEY),
    CLIENT_CA_SECRET: (_CA,),
    CLIENT_SECRET: (_CERTIFICATE, _KEY, _CA),
}


def to_secret_data(bundle: CertificateBundle) -> dict[str, dict[str, str]]:
    """Return the `data` of the three Secrets by name.

    | Secret | keys | used by |
    | --- | --- | --- |
    | `holdfast-server-tls` | `tls.crt`, `tls.key` | the gateway's server |
    | `holdfast-server-client-ca` | `ca.crt` | the gateway's server, to verify clients |
    | `holdfast-client-tls` | `tls.crt`, `tls.key`, `ca.crt` | `up`, to write the files of a client |
    """
    return {
        SERVER_SECRET: _encode_values({_CERTIFICATE: bundle.server.certificate, _KEY: bundle.server.key}),
        CLIENT_CA_SECRET: _encode_values({_CA: bundle.ca}),
        CLIENT_SECRET: _encode_values(
            {_CERTIFICATE: bundle.client.certificate, _KEY: bundle.client.key, _CA: bundle.ca}
        ),
    }


def from_secret_data(secrets: Mapping[str, Mapping[str, str] | None]) -> StoredCredentials[CertificateBundle]:
    """Return the bundle in the `data` of the three Secrets; a missing Secret is None or left out."""
    if all(secrets.get(name) is None for name in _DATA_KEYS):
        return StoredCredentials(None, (CertificateProblem("absent", "there are no certificates yet"),))
    problems: list[CertificateProblem] = []
    parts: dict[tuple[str, str], bytes] = {}
    for name, keys in _DATA_KEYS.items():
        data = secrets.get(name)
        if data is None:
            problems.append(CertificateProblem("incomplete", f"the secret {name} is missing"))
            continue
        for key in keys:
            part = _decode_value(data.get(key), f"{key} of the secret {name}")
            if isinstance(part, CertificateProblem):
                problems.append(part)
            else:
                parts[name, key] = part
    if problems:
        return StoredCredentials(None, tuple(problems))
    ca = parts[CLIENT_CA_SECRET, _CA]
    if ca.split() != parts[CLIENT_SECRET, _CA].split():
        text = f"the secrets {CLIENT_CA_SECRET} and {CLIENT_SECRET} contain different CAs"
        problems.append(CertificateProblem("foreign-ca", text))
    server, client = (
        KeyPair(parts[name, _CERTIFICATE], parts[name, _KEY]) for name in (SERVER_SECRET, CLIENT_SECRET)
    )
    return StoredCredentials(CertificateBundle(ca, server, client), tuple(problems))


def _encode_values(parts: Mapping[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode("ascii") for key, value in parts.items()}


def _decode_value(value: object, what: str) -> bytes | CertificateProblem:
    if value is None or value == "":
        return CertificateProblem("incomplete", f"{what} is missing")
    try:
        decoded = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except ValueError:
        decoded = None
    if decoded is None:
        return CertificateProblem("unreadable", f"{what} is not base64")
    return decoded if decoded.strip() else CertificateProblem("incomplete", f"{what} is empty")
