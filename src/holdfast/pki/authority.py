"""A private CA and the certificates that it issues: one for the gateway's server, one for its client.

The key of the CA exists in memory only, while the two are issued. All keys use the curve P-256.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from holdfast.errors import InvalidArgumentError
from holdfast.pki.bundle import CertificateBundle, KeyPair
from holdfast.pki.server_names import normalize_server_names, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterable

# Validity of a bundle; it is renewed earlier (see `validation.RENEW_BELOW`).
BUNDLE_LIFETIME = dt.timedelta(days=365)

# Certificates are valid from a time in the past, because clocks of machines differ.
CLOCK_SKEW_ALLOWANCE = dt.timedelta(hours=1)

DEFAULT_CLIENT_NAME = "holdfast-client"
_SERVER_COMMON_NAME = "holdfast-server"
_CLIENT_NAME = re.compile(r"(?=.*[A-Za-z0-9])[A-Za-z0-9._-]{1,64}")
_MIN_LIFETIME = dt.timedelta(minutes=1)


def issue_bundle(
    names: Iterable[str],
    *,
    at: dt.datetime,
    lifetime: dt.timedelta = BUNDLE_LIFETIME,
    client_name: str = DEFAULT_CLIENT_NAME,
) -> CertificateBundle:
    """Issue a new bundle for a server with these names; the key of its CA is discarded."""
    authority = CertificateAuthority(at=at, lifetime=lifetime)
    return CertificateBundle(
        ca=authority.certificate,
        server=authority.issue_server(names),
        client=authority.issue_client(client_name),
    )


class CertificateAuthority:
    """A CA whose key never leaves this object; what it signs expires together with it."""

    __slots__ = ("_certificate", "_key", "_not_after", "_not_before", "certificate")

    def __init__(self, *, at: dt.datetime, lifetime: dt.timedelta = BUNDLE_LIFETIME) -> None:
        self._not_before, self._not_after = _validity_period(at, lifetime)
        self._key = ec.generate_private_key(ec.SECP256R1())
        # A unique subject: TLS libraries would confuse two CAs with the same subject.
        serial = x509.random_serial_number()
        name = _subject_name(f"holdfast CA {serial:040x}"[:28])
        builder = self._builder(name, name, self._key.public_key(), serial=serial)
        # path_length=0: no other CA may be below this one.
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.certificate = _certificate_pem(self._certificate)

    def issue_server(self, names: Iterable[str]) -> KeyPair:
        """Issue a key pair for a server with these DNS names and IP addresses."""
        subject = _subject_name(_SERVER_COMMON_NAME)
        return self._issue_leaf(subject, _general_names(names), ExtendedKeyUsageOID.SERVER_AUTH)

    def issue_client(self, name: str = DEFAULT_CLIENT_NAME) -> KeyPair:
        """Issue a key pair for a client; its name is the subject's common name."""
        if not _CLIENT_NAME.fullmatch(name):
            raise InvalidArgumentError(
                "client", f"{name!r} is not a client name: 1 to 64 ASCII letters, digits and - _ . only"
            )
        uri = x509.UniformResourceIdentifier(f"holdfast://client/{name}")
        return self._issue_leaf(_subject_name(name), [uri], ExtendedKeyUsageOID.CLIENT_AUTH)

    def issue_user(self, name: str, groups: Iterable[str], server_names: Iterable[str]) -> KeyPair:
        """Issue a key pair for a Kubernetes user; with `server_names`, the user is also a server."""
        names = [*_general_names(server_names)] if server_names else []
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if names else [])]
        return self._issue_leaf(_subject_name(name, groups), names, *uses)

    def _issue_leaf(
        self, subject: x509.Name, names: list[x509.GeneralName], *uses: x509.ObjectIdentifier
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(subject, self._certificate.subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return KeyPair(_certificate_pem(builder.sign(self._key, hashes.SHA256())), _private_key_pem(key))

    def _builder(
        self,
        subject: x509.Name,
        issuer: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        serial: int | None = None,
    ) -> x509.CertificateBuilder:
        subject_key = x509.SubjectKeyIdentifier.from_public_key(key)
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(serial or x509.random_serial_number())
            .not_valid_before(self._not_before)
            .not_valid_after(self._not_after)
            .add_extension(subject_key, critical=False)
            .add_extension(authority_key, critical=False)
        )

    def __repr__(self) -> str:
        return f"CertificateAuthority(until {self._not_after:%Y-%m-%d})"


def _validity_period(at: dt.datetime, lifetime: dt.timedelta) -> tuple[dt.datetime, dt.datetime]:
    if at.tzinfo is None:
        raise InvalidArgumentError("at", "has no time zone; use datetime.now(datetime.UTC)")
    if lifetime < _MIN_LIFETIME:
        raise InvalidArgumentError("lifetime", f"{lifetime} is shorter than {_MIN_LIFETIME}")
    at = at.astimezone(dt.UTC)
    try:
        return at - CLOCK_SKEW_ALLOWANCE, at + lifetime
    except OverflowError as error:
        raise InvalidArgumentError(
            "lifetime", f"{lifetime} from {at:%Y-%m-%d} exceeds the largest date"
        ) from error


def _general_names(names: Iterable[str]) -> list[x509.GeneralName]:
    return [
        x509.DNSName(name) if parse_address(name) is None else x509.IPAddress(ipaddress.ip_address(name))
        for name in normalize_server_names(names)
    ]


def _subject_name(common_name: str, groups: Iterable[str] = ()) -> x509.Name:
    """Return a subject; Kubernetes reads the user from its common name and groups from organizations."""
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    # EC keys only sign: key encipherment is for RSA, key agreement for static ECDH.
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


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
