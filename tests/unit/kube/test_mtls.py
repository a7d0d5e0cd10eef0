"""`https_get`: invalid certificates and keys are rejected before a request is sent."""

import datetime as dt
import socket
import ssl
import threading
from contextlib import contextmanager, suppress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from holdfast.errors import ApiRefusedError, ApiUnreachableError
from holdfast.kube.mtls import https_get
from holdfast.pki import CertificateAuthority

NOWHERE = "https://127.0.0.1:1"
BROKEN = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def one_tls_context():
    """Here each context is made from what it is given, as in production."""


@pytest.fixture(scope="module")
def pair():
    """A certificate and its key, as PEM; and the same key behind a password."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "holdfast test")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    plain = key.private_bytes(*form, serialization.NoEncryption())
    locked = key.private_bytes(*form, serialization.BestAvailableEncryption(b"secret"))
    return made.public_bytes(serialization.Encoding.PEM), plain, locked


def test_valid_credentials_reach_server(pair):
    certificate, key, _ = pair
    with pytest.raises(ApiUnreachableError):
        https_get(NOWHERE, "/", ca=certificate, certificate=certificate, key=key)


@pytest.mark.parametrize("ca", [b"", b"\n", b"no PEM", b"\xff\xfe\x00", "ä".encode(), BROKEN])
def test_invalid_ca(pair, ca):
    certificate, key, _ = pair
    with pytest.raises(ApiRefusedError, match="CA certificate: invalid"):
        https_get(NOWHERE, "/", ca=ca, certificate=certificate, key=key)


@pytest.mark.parametrize("bad", [b"", b"no PEM", b"\xff\xfe\x00", BROKEN])
def test_invalid_client_certificate_or_key(pair, bad):
    certificate, key, locked = pair
    for pair_of in ((bad, key), (certificate, bad), (certificate, locked)):
        with pytest.raises(ApiRefusedError, match="client certificate and key: invalid"):
            https_get(NOWHERE, "/", ca=certificate, certificate=pair_of[0], key=pair_of[1])


@contextmanager
def tls_server(pair, client_ca=None):
    """A server that shows this certificate to one client; its address."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_ca.decode())
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            accepted = listener.accept()[0]
            with accepted.dup() as connection, suppress(OSError):
                with suppress(ssl.SSLError), context.wrap_socket(accepted, server_side=True):
                    """The client ends it."""
                # Closed with unread data, it would be reset, and the client would not see the alert.
                while connection.recv(4096):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(("days", "why"), [(-30, "has expired"), (30, "is not valid yet")])
def test_server_certificate_outside_validity_is_a_clock_error(pair, days, why, tmp_path):
    certificate, key, _ = pair
    at = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    authority = CertificateAuthority(at=at, lifetime=dt.timedelta(days=1))
    shown = authority.issue_server(["127.0.0.1"])
    file = tmp_path / "pair.pem"
    file.write_bytes(shown.certificate + shown.key)
    refused = pytest.raises(ApiRefusedError, match=f"the certificate {why} according to the clock")
    with tls_server(file) as server, refused as caught:
        https_get(server, "/", ca=authority.certificate, certificate=certificate, key=key)
    assert "Correct the clock" in caught.value.hint


def test_rejected_client_certificate_is_not_an_unreachable_server(pair, tmp_path):
    certificate, key, _ = pair
    authority = CertificateAuthority(at=dt.datetime.now(dt.UTC), lifetime=dt.timedelta(days=1))
    shown = authority.issue_server(["127.0.0.1"])
    file = tmp_path / "pair.pem"
    file.write_bytes(shown.certificate + shown.key)
    refused = pytest.raises(ApiRefusedError, match="client certificate rejected")
    with tls_server(file, client_ca=authority.certificate) as server, refused:
        https_get(server, "/", ca=authority.certificate, certificate=certificate, key=key)
