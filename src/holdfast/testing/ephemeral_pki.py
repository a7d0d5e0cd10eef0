"""In-memory CA, certificates and kubeconfigs for one test run. For gateways see `holdfast.pki`."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


_VALIDITY = dt.timedelta(days=7)
_CLOCK_SKEW = dt.timedelta(hours=1)
_LOOPBACK_NAMES = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))


class EphemeralKeyPair(NamedTuple):
    """A certificate and its private key, in PEM."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Write both files to a directory, the key with mode 0600."""
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        certificate.write_bytes(self.certificate)
        write_private_file(key, self.key)
        return certificate, key


class EphemeralCA:
    """A certificate authority for loopback servers and their clients."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _certificate_builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(is_ca=True), critical=True)
        subject = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._certificate = builder.add_extension(subject, critical=False).sign(self._key, hashes.SHA256())
        self.certificate = _certificate_pem(self._certificate)

    def issue(
        self, common_name: str, *, groups: tuple[str, ...] = (), server: bool = False
    ) -> EphemeralKeyPair:
        """Issue a client certificate, or one for a loopback server that is also a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = _certificate_builder(subject, self._name, key.public_key())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if server:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(x509.SubjectAlternativeName(_LOOPBACK_NAMES), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(_key_usage(is_ca=False), critical=True)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        return EphemeralKeyPair(
            _certificate_pem(builder.sign(self._key, hashes.SHA256())), private_key_pem(key)
        )


def new_signing_key() -> bytes:
    """Return a new private key in PEM, such as the one that signs service account tokens."""
    return private_key_pem(ec.generate_private_key(ec.SECP256R1()))


def private_key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Encode a key in the traditional format: Kubernetes accepts no other for signing tokens."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def write_private_file(path: Path, content: bytes) -> None:
    """Create a file with mode 0600."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def _certificate_builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALIDITY)
    )


def _key_usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def write_kubeconfig(
    path: Path,
    *,
    url: str,
    ca: bytes | None,
    client: EphemeralKeyPair | None,
    user: Mapping[str, Any] | None = None,
) -> None:
    """Write a kubeconfig with one context.

    Args:
        path: The file.
        url: URL of the server.
        ca: Certificate of its CA.
        client: Client certificate.
        user: Further keys of the user entry, such as a token.
    """
    cluster: dict[str, Any] = {"server": url}
    if ca is not None:
        cluster["certificate-authority-data"] = _encode_base64(ca)
    entry = dict(user or {})
    if client is not None:
        entry["client-certificate-data"] = _encode_base64(client.certificate)
        entry["client-key-data"] = _encode_base64(client.key)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": entry}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    write_private_file(path, json.dumps(content, indent=1).encode())


def _encode_base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
