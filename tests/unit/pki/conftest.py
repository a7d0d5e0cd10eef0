"""A bundle for all tests of the session, and a CA that issues invalid certificates."""

import datetime as dt
import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from holdfast.pki import CertificateBundle, KeyPair, issue_bundle

NOW = dt.datetime(2031, 5, 17, 12, 0, tzinfo=dt.UTC)
NAMES = ("localhost", "gateway.example.org", "127.0.0.1", "::1")
USES = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


@pytest.fixture(scope="session")
def bundle():
    return issue_bundle(NAMES, at=NOW)


@pytest.fixture(scope="session")
def other_bundle():
    return issue_bundle(NAMES, at=NOW)


def private_pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)


class Workshop:
    """A CA that issues any certificate, valid or not."""

    def __init__(self, *, ca=True, key=None, begin=NOW - dt.timedelta(days=1), life=dt.timedelta(days=90)):
        self.key = key or ec.generate_private_key(ec.SECP256R1())
        self.begin, self.life = begin, life
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test's CA")])
        builder = self._builder(self.name, self.key.public_key(), begin, life)
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        self.certificate = public_pem(
            builder.add_extension(usage(ca), critical=True).sign(self.key, hashes.SHA256())
        )

    def leaf(self, role, *, key=None, use=None, names=NAMES, ca=False, begin=None, life=None):
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, role)])
        builder = self._builder(subject, key.public_key(), begin or self.begin, life or self.life)
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        builder = builder.add_extension(usage(ca), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([use or USES[role]]), critical=False)
        if role == "server":
            held = x509.SubjectAlternativeName([general(name) for name in names])
            builder = builder.add_extension(held, critical=False)
        return KeyPair(public_pem(builder.sign(self.key, hashes.SHA256())), private_pem(key))

    def bundle(self, **faults):
        """A good bundle, but for the faults of the server certificate that are given."""
        return CertificateBundle(self.certificate, self.leaf("server", **faults), self.leaf("client"))

    def _builder(self, subject, key, begin, life):
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(begin).not_valid_after(begin + life)


def usage(ca):
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    return x509.KeyUsage(
        digital_signature=not ca, key_cert_sign=ca, crl_sign=ca, encipher_only=False, decipher_only=False,
        **dict.fromkeys(others, False),
    )  # fmt: skip


def general(name):
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@pytest.fixture(scope="session")
def custom_ca():
    return Workshop()
