"""Validation of certificates, bundles and client identities: functions that return every problem.

The time is a parameter. Invalid PEM text is a problem, not an error, and no problem contains a part of the
input or of a library's message. Problems of the storage (files, Secrets) are found where it is read.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple, TypeVar

# The package is imported before its submodules: in the other order, two threads can deadlock.
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from holdfast.errors import InvalidArgumentError
from holdfast.pki.bundle import (
    CertificateBundle,
    CertificateProblem,
    ClientIdentity,
    KeyPair,
    StoredCredentials,
    ValidationResult,
)
from holdfast.pki.server_names import has_matching_name, normalize_server_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

ParsedT = TypeVar("ParsedT")
ExtensionT = TypeVar("ExtensionT", bound=x509.ExtensionType)

# A certificate is renewed when less than this fraction of its lifetime is left.
RENEW_BELOW = 1 / 3

_CA_LABEL = "the CA certificate"
_PARSE_ERRORS = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension,
               x509.UnsupportedGeneralNameType)  # fmt: skip
_PEM_BEGIN = b"-----BEGIN "
_WEAK_HASHES = (hashes.MD5, hashes.SHA1)
_MIN_RSA_BITS = 2048
_MIN_CURVE_BITS = 256


def validate_bundle(
    stored: StoredCredentials[CertificateBundle],
    *,
    names: Iterable[str],
    at: dt.datetime,
    renew_below: float = RENEW_BELOW,
) -> ValidationResult:
    """Check that a bundle is valid, covers these server names, and is not due for renewal at a time."""
    names = normalize_server_names(names)
    validity = _ValidityCheck(at, renew_below)
    bundle = stored.value
    if bundle is None:
        return ValidationResult(stored.problems)
    ca = parse_certificate(bundle.ca, _CA_LABEL)
    server_use, client_use = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
    return ValidationResult(
        (
            *stored.problems,
            *_ca_problems(ca, validity),
            *_key_pair_problems("server", bundle.server, ca, server_use, validity, names),
            *_key_pair_problems("client", bundle.client, ca, client_use, validity),
        )
    )


def validate_client_identity(
    stored: StoredCredentials[ClientIdentity],
    *,
    at: dt.datetime,
    ca: bytes | None = None,
    renew_below: float = RENEW_BELOW,
) -> ValidationResult:
    """Check a client identity; `ca` is the current CA of its gateway, if known."""
    validity = _ValidityCheck(at, renew_below)
    identity, problems = stored.value, list(stored.problems)
    if identity is None:
        return ValidationResult(stored.problems)
    own = parse_certificate(identity.ca, _CA_LABEL)
    problems.extend(_ca_problems(own, validity))
    client_use = ExtendedKeyUsageOID.CLIENT_AUTH
    problems.extend(_key_pair_problems("client", identity.client, own, client_use, validity))
    # Two CAs that cannot be parsed count as different: equal problems prove nothing.
    is_parsed = not isinstance(own, CertificateProblem)
    if ca is not None and not (is_parsed and own == parse_certificate(ca, _CA_LABEL)):
        problems.append(
            CertificateProblem("foreign-ca", "the client certificate is from another CA than the gateway's")
        )
    return ValidationResult(tuple(problems))


def validate_period(pem: bytes, what: str, *, at: dt.datetime, renew_below: float) -> ValidationResult:
    """Check that a certificate can be parsed and is not due for renewal at a time.

    Args:
        pem: The certificate.
        what: Names the certificate in the problem.
        at: The time.
        renew_below: The fraction of the lifetime that has to be left.
    """
    certificate = parse_certificate(pem, what)
    if isinstance(certificate, CertificateProblem):
        return ValidationResult((certificate,))
    return ValidationResult(tuple(_ValidityCheck(at, renew_below).check(what, certificate)))


class _ValidityCheck:
    """Checks validity periods at one time."""

    def __init__(self, at: dt.datetime, renew_below: float) -> None:
        if at.tzinfo is None:
            raise InvalidArgumentError("at", "has no time zone; use datetime.now(datetime.UTC)")
        if not 0 <= renew_below < 1:
            raise InvalidArgumentError("renew_below", f"{renew_below!r} is not between 0 and 1")
        self._at = at.astimezone(dt.UTC)
        self._renew_below = renew_below

    def check(self, what: str, certificate: ParsedCertificate) -> Iterator[CertificateProblem]:
        begin, end = certificate.not_before, certificate.not_after
        if begin > self._at:
            text = f"{what} is not valid before {begin:%Y-%m-%d %H:%M} UTC"
            text += f", and it is {self._at:%Y-%m-%d %H:%M} UTC"
            yield CertificateProblem("from-the-future", text)
        elif end <= self._at:
            yield CertificateProblem("expired", f"{what} expired on {end:%Y-%m-%d %H:%M} UTC")
        elif end - self._at < (end - begin) * self._renew_below:
            left = (end - self._at) / (end - begin)
            text = f"{what} expires on {end:%Y-%m-%d %H:%M} UTC; {left:.0%} of its lifetime is left"
            yield CertificateProblem("near-expiry", text)


def _ca_problems(
    certificate: ParsedCertificate | CertificateProblem, validity: _ValidityCheck
) -> Iterator[CertificateProblem]:
    if isinstance(certificate, CertificateProblem):
        yield certificate
        return
    if not certificate.is_ca:
        yield CertificateProblem("no-ca", f"{_CA_LABEL} is not allowed to sign certificates")
    elif not certificate.has_signed(certificate):
        yield CertificateProblem("foreign-ca", f"{_CA_LABEL} is not correctly self-signed")
    yield from _strength_problems(_CA_LABEL, certificate)
    yield from validity.check(_CA_LABEL, certificate)


def _key_pair_problems(
    role: str,
    pair: KeyPair,
    ca: ParsedCertificate | CertificateProblem,
    use: x509.ObjectIdentifier,
    validity: _ValidityCheck,
    names: Iterable[str] = (),
) -> Iterator[CertificateProblem]:
    what = f"the {role} certificate"
    certificate = parse_certificate(pair.certificate, what)
    key = _parse_pem(pair.key, f"the {role} key", b"PRIVATE KEY-----", _load_public_half)
    if isinstance(key, CertificateProblem):
        yield key
    if isinstance(certificate, CertificateProblem):
        yield certificate
        return
    if not isinstance(key, CertificateProblem) and key != certificate.public_key:
        yield CertificateProblem("key-mismatch", f"the {role} key does not belong to {what}")
    if not isinstance(ca, CertificateProblem) and not ca.has_signed(certificate):
        yield CertificateProblem("foreign-ca", f"{what} was signed by another CA")
    if use not in certificate.extended_key_usages or certificate.is_ca:
        yield CertificateProblem("wrong-use", f"{what} is not issued for use as {role}")
    yield from _strength_problems(what, certificate)
    yield from validity.check(what, certificate)
    for name in names:
        if not has_matching_name(certificate.names, name):
            yield CertificateProblem("missing-name", f"{what} does not cover {name}")


def _strength_problems(what: str, certificate: ParsedCertificate) -> Iterator[CertificateProblem]:
    if certificate.weak_key:
        yield CertificateProblem("weak-key", f"the key of {what} is too weak: {certificate.weak_key}")
    if certificate.weak_signature:
        yield CertificateProblem("weak-signature", f"{what} is signed with {certificate.weak_signature}")


# Parsing ---------------------------------------------------------------------------------------------------


class ParsedCertificate(NamedTuple):
    """The fields of a certificate that validation needs."""

    certificate: x509.Certificate
    names: tuple[str, ...]
    not_before: dt.datetime
    not_after: dt.datetime
    is_ca: bool
    extended_key_usages: frozenset[x509.ObjectIdentifier]
    public_key: bytes
    weak_key: str
    weak_signature: str

    def has_signed(self, other: ParsedCertificate) -> bool:
        """Report whether the key of this certificate signed the other one."""
        try:
            # Verifies the issuer's name and the signature only, neither dates nor constraints.
            other.certificate.verify_directly_issued_by(self.certificate)
        except (*_PARSE_ERRORS, InvalidSignature):
            return False
        return True


def parse_certificate(pem: bytes, what: str) -> ParsedCertificate | CertificateProblem:
    """Parse a PEM text with one certificate; `what` names it in the problem."""
    return _parse_pem(pem, what, b"CERTIFICATE-----", _load_certificate)


def _parse_pem(
    pem: bytes, what: str, label: bytes, load: Callable[[bytes], ParsedT]
) -> ParsedT | CertificateProblem:
    if not pem.strip():
        return CertificateProblem("incomplete", f"{what} is missing")
    # The parser reads the first block only, but TLS libraries trust every CA in a file.
    count = pem.count(_PEM_BEGIN)
    if count != 1:
        return CertificateProblem("unreadable", f"{what} has {count} PEM blocks instead of one")
    if label not in pem or b"ENCRYPTED" in pem:
        return CertificateProblem("unreadable", f"{what} has the wrong type or is encrypted")
    try:
        return load(pem)
    except _PARSE_ERRORS:
        # The library's message is left out: it may quote a part of the key.
        return CertificateProblem("unreadable", f"{what} cannot be parsed: it is damaged or incomplete")


def _load_public_half(pem: bytes) -> bytes:
    """The public half of a PEM private key, as DER; the private key itself is not kept."""
    return _public_key_der(serialization.load_pem_private_key(pem, password=None).public_key())


def _load_certificate(pem: bytes) -> ParsedCertificate:
    certificate = x509.load_pem_x509_certificate(pem)
    key = certificate.public_key()
    return ParsedCertificate(
        certificate=certificate,
        names=_subject_alternative_names(certificate),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        is_ca=_is_ca(certificate),
        extended_key_usages=frozenset(_extension(certificate, x509.ExtendedKeyUsage) or ()),
        public_key=_public_key_der(key),
        weak_key=_weak_key(key),
        weak_signature=_weak_signature(certificate),
    )


def _extension(certificate: x509.Certificate, kind: type[ExtensionT]) -> ExtensionT | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _subject_alternative_names(certificate: x509.Certificate) -> tuple[str, ...]:
    names = _extension(certificate, x509.SubjectAlternativeName)
    if names is None:
        return ()
    dns = [name.lower() for name in names.get_values_for_type(x509.DNSName)]
    return (*dns, *(str(address) for address in names.get_values_for_type(x509.IPAddress)))


def _is_ca(certificate: x509.Certificate) -> bool:
    constraints = _extension(certificate, x509.BasicConstraints)
    usage = _extension(certificate, x509.KeyUsage)
    return constraints is not None and constraints.ca and usage is not None and usage.key_cert_sign


def _weak_key(key: object) -> str:
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA with {key.key_size} bits" if key.key_size < _MIN_RSA_BITS else ""
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"curve {key.curve.name}" if key.key_size < _MIN_CURVE_BITS else ""
    if isinstance(key, dsa.DSAPublicKey):
        return "DSA"
    return "" if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey) else "unsupported key type"


def _weak_signature(certificate: x509.Certificate) -> str:
    algorithm = certificate.signature_hash_algorithm
    return algorithm.name if isinstance(algorithm, _WEAK_HASHES) else ""


def _public_key_der(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
