"""A private CA and the two certificates that it signs: the gateway server's, and its client's.

The CA's key lives in memory only, for as long as the two are made. All keys are on the curve P-256.
Not here: when new ones are due (judgement.py), and where they are kept.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from holdfast.errors import ArgumentError
from holdfast.pki.material import Bundle, Pair
from holdfast.pki.names import address, server_names

if TYPE_CHECKING:
    from collections.abc import Iterable

LIFE = dt.timedelta(days=365)
"""How long a bundle is valid; it is renewed long before (judgement.RENEW_BELOW)."""

BACKDATED = dt.timedelta(hours=1)
"""Certificates begin a little in the past: the clocks of two machines never agree."""

CLIENT_NAME = "holdfast-client"
_SERVER_NAME = "holdfast-server"
_LONGEST_COMMON_NAME = 64
_SHORTEST_LIFE = dt.timedelta(minutes=1)


def issue(
    names: Iterable[str], *, at: dt.datetime, life: dt.timedelta = LIFE, client: str = CLIENT_NAME
) -> Bundle:
    """Make a whole new bundle for a server of these names; its CA can sign nothing more afterwards."""
    authority = Authority(at=at, life=life)
    return Bundle(ca=authority.certificate, server=authority.server(names), client=authority.client(client))


class Authority:
    """A CA whose key never leaves this object; what it signs ends when it ends."""

    __slots__ = ("_begin", "_certificate", "_end", "_key", "certificate")

    def __init__(self, *, at: dt.datetime, life: dt.timedelta = LIFE) -> None:
        self._begin, self._end = _span(at, life)
        self._key = ec.generate_private_key(ec.SECP256R1())
        # Each CA has a name of its own, so that no program takes a new one for the old one.
        serial = x509.random_serial_number()
        name = _subject(f"holdfast CA {serial:040x}"[:28])
        builder = self._builder(name, name, self._key.public_key(), serial=serial)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.certificate = _pem(self._certificate)

    def server(self, names: Iterable[str]) -> Pair:
        """A pair for a server that is reached under these names and addresses."""
        return self._leaf(_SERVER_NAME, _general_names(names), ExtendedKeyUsageOID.SERVER_AUTH)

    def client(self, name: str = CLIENT_NAME) -> Pair:
        """A pair for a client; the server finds its name in the subject."""
        if not 1 <= len(name) <= _LONGEST_COMMON_NAME or not name.isascii() or not name.isprintable():
            raise ArgumentError("client", f"{name!r} is no client name: 1 to 64 printable ASCII characters")
        if not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
            raise ArgumentError("client", f"{name!r} is no client name: letters, digits and - _ . only")
        held = x509.UniformResourceIdentifier(f"holdfast://client/{name}")
        return self._leaf(name, [held], ExtendedKeyUsageOID.CLIENT_AUTH)

    def _leaf(self, name: str, names: list[x509.GeneralName], use: x509.ObjectIdentifier) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_subject(name), self._certificate.subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Pair(_pem(builder.sign(self._key, hashes.SHA256())), _private_pem(key))

    def _builder(
        self,
        subject: x509.Name,
        issuer: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        serial: int | None = None,
    ) -> x509.CertificateBuilder:
        own = x509.SubjectKeyIdentifier.from_public_key(key)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(serial or x509.random_serial_number())
            .not_valid_before(self._begin)
            .not_valid_after(self._end)
            .add_extension(own, critical=False)
            .add_extension(signer, critical=False)
        )

    def __repr__(self) -> str:
        return f"Authority(until {self._end:%Y-%m-%d})"


def _span(at: dt.datetime, life: dt.timedelta) -> tuple[dt.datetime, dt.datetime]:
    if at.tzinfo is None:
        raise ArgumentError("at", "needs a time zone: datetime.now(datetime.UTC)")
    if life < _SHORTEST_LIFE:
        raise ArgumentError("life", f"{life} is too short: at least {_SHORTEST_LIFE}")
    at = at.astimezone(dt.UTC)
    try:
        return at - BACKDATED, at + life
    except OverflowError as error:
        raise ArgumentError("life", f"{life} from {at:%Y-%m-%d} on is beyond the calendar") from error


def _general_names(names: Iterable[str]) -> list[x509.GeneralName]:
    return [
        x509.DNSName(name) if address(name) is None else x509.IPAddress(ipaddress.ip_address(name))
        for name in server_names(names)
    ]


def _subject(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
