"""PEM in, plain facts out: whatever stands in a certificate or key is read once, and rubbish is a reason.

Nothing here raises on bad input, and no word of a library's message or of the input gets into a reason.
Not here: which facts are good ones (judgement.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa

from holdfast.pki.reasons import Reason

if TYPE_CHECKING:
    import datetime as dt

_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension,
               x509.UnsupportedGeneralNameType)  # fmt: skip
_BEGIN = b"-----BEGIN "
_BROKEN_HASHES = (hashes.MD5, hashes.SHA1)
_RSA_BITS = 2048
_CURVE_BITS = 256


class CertificateFacts(NamedTuple):
    """What a certificate says of itself."""

    certificate: x509.Certificate
    names: tuple[str, ...]
    begin: dt.datetime
    end: dt.datetime
    is_ca: bool
    uses: frozenset[x509.ObjectIdentifier]
    public_key: bytes
    weak_key: str
    weak_signature: str

    def signed(self, other: CertificateFacts) -> bool:
        """Whether this one's key signed the other one."""
        try:
            other.certificate.verify_directly_issued_by(self.certificate)
        except (*_UNREADABLE, InvalidSignature):
            return False
        return True


class KeyFacts(NamedTuple):
    """What a private key says of itself; the key is not kept."""

    public_key: bytes


def read_certificate(pem: bytes, what: str) -> CertificateFacts | Reason:
    """The facts of the one certificate in a PEM text."""
    trouble = _not_one(pem, what, b"CERTIFICATE-----")
    if trouble is not None:
        return trouble
    try:
        return _facts(x509.load_pem_x509_certificate(pem))
    except _UNREADABLE:
        return _damaged(what)


def read_key(pem: bytes, what: str) -> KeyFacts | Reason:
    """The facts of the one private key in a PEM text."""
    trouble = _not_one(pem, what, b"PRIVATE KEY-----")
    if trouble is not None:
        return trouble
    try:
        return KeyFacts(_spki(serialization.load_pem_private_key(pem, password=None).public_key()))
    except _UNREADABLE:
        return _damaged(what)


def _not_one(pem: bytes, what: str, label: bytes) -> Reason | None:
    if not pem.strip():
        return Reason("incomplete", f"{what} is missing")
    count = pem.count(_BEGIN)
    if count != 1:
        return Reason("unreadable", f"{what} has {count} PEM blocks instead of one")
    if label not in pem or b"ENCRYPTED" in pem:
        return Reason("unreadable", f"{what} is something else, or encrypted")
    return None


def _damaged(what: str) -> Reason:
    return Reason("unreadable", f"{what} cannot be read: it is damaged or only half there")


def _facts(certificate: x509.Certificate) -> CertificateFacts:
    key = certificate.public_key()
    return CertificateFacts(
        certificate=certificate,
        names=_names(certificate),
        begin=certificate.not_valid_before_utc,
        end=certificate.not_valid_after_utc,
        is_ca=_is_ca(certificate),
        uses=_uses(certificate),
        public_key=_spki(key),
        weak_key=_weak_key(key),
        weak_signature=_weak_signature(certificate),
    )


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    dns = [name.lower() for name in held.get_values_for_type(x509.DNSName)]
    return (*dns, *(str(address) for address in held.get_values_for_type(x509.IPAddress)))


def _is_ca(certificate: x509.Certificate) -> bool:
    extensions = certificate.extensions
    try:
        if not extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        return extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:
        return False


def _uses(certificate: x509.Certificate) -> frozenset[x509.ObjectIdentifier]:
    try:
        return frozenset(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return frozenset()


def _weak_key(key: object) -> str:
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA with {key.key_size} bits" if key.key_size < _RSA_BITS else ""
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"the curve {key.curve.name}" if key.key_size < _CURVE_BITS else ""
    if isinstance(key, dsa.DSAPublicKey):
        return "DSA"
    return "" if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey) else "of an unusual kind"


def _weak_signature(certificate: x509.Certificate) -> str:
    algorithm = certificate.signature_hash_algorithm
    return algorithm.name if isinstance(algorithm, _BROKEN_HASHES) else ""


def _spki(key: object) -> bytes:
    if not hasattr(key, "public_bytes"):
        raise TypeError("no public key")
    encoded: bytes = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return encoded
