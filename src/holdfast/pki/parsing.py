"""Parsing of PEM certificates and keys; invalid input is returned as a problem.

Nothing here raises on invalid input, and no problem contains a part of the input or of a library's message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa

from holdfast.pki.bundle import CertificateProblem

if TYPE_CHECKING:
    import datetime as dt

_PARSE_ERRORS = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension,
               x509.UnsupportedGeneralNameType)  # fmt: skip
_PEM_BEGIN = b"-----BEGIN "
_WEAK_HASHES = (hashes.MD5, hashes.SHA1)
_MIN_RSA_BITS = 2048
_MIN_CURVE_BITS = 256


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
            other.certificate.verify_directly_issued_by(self.certificate)
        except (*_PARSE_ERRORS, InvalidSignature):
            return False
        return True


class ParsedPrivateKey(NamedTuple):
    """The public half of a private key; the private key itself is not kept."""

    public_key: bytes


def parse_certificate(pem: bytes, what: str) -> ParsedCertificate | CertificateProblem:
    """Parse a PEM text with one certificate; `what` names it in the problem."""
    problem = _pem_block_problem(pem, what, b"CERTIFICATE-----")
    if problem is not None:
        return problem
    try:
        return _to_parsed_certificate(x509.load_pem_x509_certificate(pem))
    except _PARSE_ERRORS:
        return _unreadable_problem(what)


def parse_private_key(pem: bytes, what: str) -> ParsedPrivateKey | CertificateProblem:
    """Parse a PEM text with one private key; `what` names it in the problem."""
    problem = _pem_block_problem(pem, what, b"PRIVATE KEY-----")
    if problem is not None:
        return problem
    try:
        return ParsedPrivateKey(
            _public_key_der(serialization.load_pem_private_key(pem, password=None).public_key())
        )
    except _PARSE_ERRORS:
        return _unreadable_problem(what)


def _pem_block_problem(pem: bytes, what: str, label: bytes) -> CertificateProblem | None:
    if not pem.strip():
        return CertificateProblem("incomplete", f"{what} is missing")
    count = pem.count(_PEM_BEGIN)
    if count != 1:
        return CertificateProblem("unreadable", f"{what} has {count} PEM blocks instead of one")
    if label not in pem or b"ENCRYPTED" in pem:
        return CertificateProblem("unreadable", f"{what} has the wrong type or is encrypted")
    return None


def _unreadable_problem(what: str) -> CertificateProblem:
    return CertificateProblem("unreadable", f"{what} cannot be parsed: it is damaged or incomplete")


def _to_parsed_certificate(certificate: x509.Certificate) -> ParsedCertificate:
    key = certificate.public_key()
    return ParsedCertificate(
        certificate=certificate,
        names=_subject_alternative_names(certificate),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        is_ca=_is_ca(certificate),
        extended_key_usages=_extended_key_usages(certificate),
        public_key=_public_key_der(key),
        weak_key=_weak_key(key),
        weak_signature=_weak_signature(certificate),
    )


def _subject_alternative_names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    dns = [name.lower() for name in names.get_values_for_type(x509.DNSName)]
    return (*dns, *(str(address) for address in names.get_values_for_type(x509.IPAddress)))


def _is_ca(certificate: x509.Certificate) -> bool:
    extensions = certificate.extensions
    try:
        if not extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        return extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:
        return False


def _extended_key_usages(certificate: x509.Certificate) -> frozenset[x509.ObjectIdentifier]:
    try:
        return frozenset(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return frozenset()


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


def _public_key_der(key: object) -> bytes:
    if not hasattr(key, "public_bytes"):
        raise TypeError("not a public key")
    encoded: bytes = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return encoded
