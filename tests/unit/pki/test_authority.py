"""Issued certificates have the fields that TLS libraries require."""

import datetime as dt
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from holdfast.errors import InvalidArgumentError
from holdfast.pki import CertificateAuthority, ClientCertificateStore, issue_bundle

from .conftest import NAMES, NOW


def load(pem):
    return x509.load_pem_x509_certificate(pem)


def extension(certificate, kind):
    return certificate.extensions.get_extension_for_class(kind)


def test_server_certificate_contains_typed_names(bundle):
    held = extension(load(bundle.server.certificate), x509.SubjectAlternativeName).value
    assert held.get_values_for_type(x509.DNSName) == ["localhost", "gateway.example.org"]
    assert held.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address("127.0.0.1"),
        ipaddress.ip_address("::1"),
    ]


@pytest.mark.parametrize(
    ("role", "use"),
    [("server", ExtendedKeyUsageOID.SERVER_AUTH), ("client", ExtendedKeyUsageOID.CLIENT_AUTH)],
)
def test_certificates_have_single_key_usage(bundle, role, use):
    certificate = load(getattr(bundle, role).certificate)
    assert list(extension(certificate, x509.ExtendedKeyUsage).value) == [use]
    assert not extension(certificate, x509.BasicConstraints).value.ca
    assert extension(certificate, x509.KeyUsage).critical
    assert not extension(certificate, x509.KeyUsage).value.key_cert_sign


def test_ca_signs_certificates_but_no_sub_cas(bundle):
    certificate = load(bundle.ca)
    constraints = extension(certificate, x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)
    assert extension(certificate, x509.KeyUsage).value.key_cert_sign


def test_serials_and_ca_names_are_unique(bundle, other_bundle):
    pems = [pem for b in (bundle, other_bundle) for pem in (b.ca, b.server.certificate, b.client.certificate)]
    assert len({load(pem).serial_number for pem in pems}) == len(pems)
    assert load(bundle.ca).subject != load(other_bundle.ca).subject


def test_bundle_validity_starts_in_past_and_ends_together():
    made = issue_bundle(["localhost"], at=NOW, lifetime=dt.timedelta(days=10))
    certificates = [load(pem) for pem in (made.ca, made.server.certificate, made.client.certificate)]
    assert {one.not_valid_before_utc for one in certificates} == {NOW - dt.timedelta(hours=1)}
    assert {one.not_valid_after_utc for one in certificates} == {NOW + dt.timedelta(days=10)}


def test_time_zone_of_caller_is_ignored():
    zone = dt.timezone(dt.timedelta(hours=9))
    authority = CertificateAuthority(at=NOW.astimezone(zone))
    assert load(authority.certificate).not_valid_before_utc == NOW - dt.timedelta(hours=1)


def test_client_name_is_in_subject():
    certificate = load(CertificateAuthority(at=NOW).issue_client("team-blue").certificate)
    assert certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "team-blue"


@pytest.mark.parametrize("name", ["", "x" * 65, "two words", "a/b", "ü", "line\nbreak"])
def test_invalid_client_names_are_rejected(name):
    with pytest.raises(InvalidArgumentError):
        CertificateAuthority(at=NOW).issue_client(name)


def test_naive_time_and_zero_lifetime_are_rejected():
    with pytest.raises(InvalidArgumentError, match="time zone"):
        CertificateAuthority(at=NOW.replace(tzinfo=None))
    for life in (dt.timedelta(0), -dt.timedelta(days=3), dt.timedelta.max):
        with pytest.raises(InvalidArgumentError, match="life"):
            CertificateAuthority(at=NOW, lifetime=life)


def contexts(made, folder):
    """A server's and a client's TLS context in the strictest mode, from files as they are on a disk."""
    server_pem = folder / "server.pem"
    server_pem.write_bytes(made.server.certificate + made.server.key)
    files = ClientCertificateStore(folder / "mtls")
    files.write(made.client_identity)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=made.ca.decode())
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(server_pem)
    client = ssl.create_default_context(cafile=files.ca)
    client.load_cert_chain(files.certificate, files.key)
    for context in (server, client):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    return server, client


def shake_hands(server_context, client_context, name):
    """TLS in memory; returns what the server learned of its client."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    finished = set()
    for side in (client, server) * 5:
        try:
            side.do_handshake()
            finished.add(side)
        except ssl.SSLWantReadError:
            continue
    assert finished == {client, server}
    return server.getpeercert()


@pytest.mark.parametrize("name", NAMES)
def test_tls_accepts_both_sides_under_every_name(tmp_path, name):
    made = issue_bundle(NAMES, at=dt.datetime.now(dt.UTC))
    peer = shake_hands(*contexts(made, tmp_path), name)
    assert peer["subject"] == ((("commonName", "holdfast-client"),),)


def test_tls_rejects_other_name_and_other_ca(tmp_path):
    now = dt.datetime.now(dt.UTC)
    made, other = issue_bundle(NAMES, at=now), issue_bundle(NAMES, at=now)
    (tmp_path / "other").mkdir()
    server, client = contexts(made, tmp_path)
    _, stranger = contexts(other, tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client, "elsewhere.example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, stranger, "localhost")


def test_client_certificate_cannot_serve(tmp_path):
    made = issue_bundle(NAMES, at=dt.datetime.now(dt.UTC))
    server, client = contexts(made, tmp_path)
    pem = tmp_path / "client.pem"
    pem.write_bytes(made.client.certificate + made.client.key)
    server.load_cert_chain(pem)
    client.check_hostname = False
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client, "localhost")
