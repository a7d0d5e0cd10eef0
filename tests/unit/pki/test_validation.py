"""Validation accepts a valid bundle and reports every problem of an invalid one."""

import datetime as dt

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given, settings, strategies as st

from holdfast.errors import InvalidArgumentError
from holdfast.pki import (
    BUNDLE_LIFETIME,
    CertificateBundle,
    ClientIdentity,
    KeyPair,
    StoredCredentials,
    issue_bundle,
    validate_bundle,
    validate_client_identity,
)

from .conftest import NAMES, NOW, Workshop, private_pem

DAY = dt.timedelta(days=1)
MADE = issue_bundle(NAMES, at=NOW)
SIGNED_WITH_SHA1 = b"""\
-----BEGIN CERTIFICATE-----
MIIBcTCCARigAwIBAgIUZ7In/Qy7oa5RpaxJuz/xXvqE4ZowCQYHKoZIzj0EATAO
MQwwCgYDVQQDDANvbGQwIBcNMjYxMTE1MjIzMTQxWhgPMjEyNjEwMjIyMjMxNDFa
MA4xDDAKBgNVBAMMA29sZDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABFjm2WwR
QReBTFSufOxho9OIxAiqbJYGLSb0WlVNjIHGN29v1JOv0GqS5JrBMLXfqoNgGSgK
qwZAzEJtq9DJuamjUzBRMB0GA1UdDgQWBBRUP39Hurvu2iwDjf2BnsrjntUC1zAf
BgNVHSMEGDAWgBRUP39Hurvu2iwDjf2BnsrjntUC1zAPBgNVHRMBAf8EBTADAQH/
MAkGByqGSM49BAEDSAAwRQIhAOr0X/lsfZ+GskIbChMpR5tj4sEHL2s54eOj6FAe
ip8rAiA7Ky1myMkxZaz3uMvdn97ZIXpX/Ktd2VUKlXypKIJVfg==
-----END CERTIFICATE-----
"""
"""Made once with an old tool: new libraries refuse to make one."""


def validate(bundle, *, names=NAMES, at=NOW, **more):
    return validate_bundle(StoredCredentials(bundle), names=names, at=at, **more)


def validate_client(identity, *, ca=None):
    return validate_client_identity(StoredCredentials(identity), at=NOW, ca=ca)


def test_new_bundle_is_valid(bundle):
    assert validate(bundle).is_valid
    assert str(validate(bundle)) == "valid"
    assert validate_client(bundle.client_identity, ca=bundle.ca).is_valid


def test_bundles_of_other_tools_are_valid(custom_ca):
    assert validate(custom_ca.bundle()).is_valid
    assert validate(custom_ca.bundle(key=ed25519.Ed25519PrivateKey.generate())).is_valid


def test_missing_name_is_reported(bundle):
    found = validate(bundle, names=[*NAMES, "new.example.org", "10.1.2.3"])
    assert [str(reason) for reason in found.problems] == [
        "the server certificate does not cover new.example.org",
        "the server certificate does not cover 10.1.2.3",
    ]
    assert found.codes == {"missing-name"}


@pytest.mark.parametrize("wanted", ["LOCALHOST", "localhost.", "[::1]", "0:0:0:0:0:0:0:1"])
def test_name_spelling_is_normalized(bundle, wanted):
    assert validate(bundle, names=[wanted]).is_valid


def test_wildcard_covers_one_label():
    made = issue_bundle(["*.apps.example.org"], at=NOW)
    assert validate(made, names=["x.apps.example.org", "*.apps.example.org"]).is_valid
    for wanted in ("apps.example.org", "a.b.apps.example.org", "*.example.org"):
        assert validate(made, names=[wanted]).codes == {"missing-name"}


def test_swapped_keys_are_detected(bundle):
    swapped = CertificateBundle(
        bundle.ca,
        KeyPair(bundle.server.certificate, bundle.client.key),
        KeyPair(bundle.client.certificate, bundle.server.key),
    )
    assert str(validate(swapped)) == (
        "the server key does not belong to the server certificate; "
        "the client key does not belong to the client certificate"
    )


def test_certificates_of_foreign_ca_are_detected(bundle, other_bundle):
    mixed = CertificateBundle(bundle.ca, bundle.server, other_bundle.client)
    assert str(validate(mixed)) == "the client certificate was signed by another CA"
    all_foreign = CertificateBundle(other_bundle.ca, bundle.server, bundle.client)
    assert validate(all_foreign).codes == {"foreign-ca"}


def test_ca_with_same_name_and_other_key_is_foreign(custom_ca):
    twin = Workshop()
    assert validate(
        CertificateBundle(custom_ca.certificate, twin.leaf("server"), custom_ca.leaf("client"))
    ).codes == {"foreign-ca"}


def test_client_of_old_ca_is_detected(bundle, other_bundle):
    found = validate_client(bundle.client_identity, ca=other_bundle.ca)
    assert str(found) == "the client certificate is from another CA than the gateway's"
    assert validate_client(bundle.client_identity, ca=b"rubbish").codes == {"foreign-ca"}


def test_unreadable_ca_never_equals_another_unreadable_ca(bundle):
    found = validate_client(ClientIdentity(b"rubbish", bundle.client), ca=b"rubbish")
    assert found.codes == {"unreadable", "foreign-ca"}


def test_leaf_is_not_a_ca(bundle):
    found = validate(CertificateBundle(bundle.client.certificate, bundle.server, bundle.client))
    assert "no-ca" in found.codes
    assert (
        "no-ca"
        in validate(CertificateBundle(Workshop(ca=False).certificate, bundle.server, bundle.client)).codes
    )


def test_intermediate_ca_is_rejected(custom_ca):
    middle = custom_ca.leaf("client", ca=True)
    codes = validate(CertificateBundle(middle.certificate, custom_ca.leaf("server"), middle)).codes
    assert "foreign-ca" in codes


def test_wrong_key_usage_is_detected(custom_ca):
    found = validate(custom_ca.bundle(use=ExtendedKeyUsageOID.CLIENT_AUTH))
    assert str(found) == "the server certificate is not issued for use as server"
    assert validate(custom_ca.bundle(ca=True)).codes == {"wrong-use"}


@pytest.mark.parametrize(
    ("after", "code"),
    [
        (-2 * dt.timedelta(hours=1), "from-the-future"),
        (dt.timedelta(0), None),
        (BUNDLE_LIFETIME * 0.66, None),
        (BUNDLE_LIFETIME * 0.67, "near-expiry"),
        (BUNDLE_LIFETIME - dt.timedelta(seconds=1), "near-expiry"),
        (BUNDLE_LIFETIME, "expired"),
        (BUNDLE_LIFETIME * 40, "expired"),
    ],
)
def test_validity_period_is_checked(bundle, after, code):
    assert validate(bundle, at=NOW + after).codes == ({code} if code else set())


def test_renewal_margin_is_configurable(bundle):
    late = NOW + BUNDLE_LIFETIME * 0.95
    assert validate(bundle, at=late, renew_below=0.01).is_valid
    assert validate(bundle, at=NOW + BUNDLE_LIFETIME * 0.2, renew_below=0.9).codes == {"near-expiry"}
    assert validate(bundle, at=NOW + BUNDLE_LIFETIME, renew_below=0).codes == {"expired"}
    for share in (-0.1, 1, 2, float("nan")):
        with pytest.raises(InvalidArgumentError, match="renew_below"):
            validate(bundle, renew_below=share)


def test_validity_message_contains_dates(custom_ca):
    bad = custom_ca.bundle(begin=NOW - 100 * DAY, life=99 * DAY)
    assert str(validate(bad)) == "the server certificate expired on 2031-05-16 12:00 UTC"
    early = str(validate(custom_ca.bundle(begin=NOW + DAY)))
    assert "before 2031-05-18 12:00 UTC" in early
    assert "it is 2031-05-17 12:00 UTC" in early
    due = str(validate(custom_ca.bundle(begin=NOW - 90 * DAY, life=100 * DAY)))
    assert due.endswith("; 10% of its lifetime is left")


def test_weak_keys_are_reported(custom_ca):
    small = validate(custom_ca.bundle(key=rsa.generate_private_key(65537, 1024)))
    assert str(small) == "the key of the server certificate is too weak: RSA with 1024 bits"
    old = custom_ca.bundle(key=dsa.generate_private_key(1024))
    assert validate(old).codes == {"weak-key"}


def test_weak_signature_is_reported(bundle):
    found = validate(CertificateBundle(SIGNED_WITH_SHA1, bundle.server, bundle.client))
    assert "the CA certificate is signed with sha1" in str(found)


def test_every_missing_part_is_reported():
    found = validate(CertificateBundle(b"", KeyPair(b"", b"\n"), KeyPair(b" ", b"")))
    assert {str(reason) for reason in found.problems} == {
        "the CA certificate is missing",
        "the server certificate is missing",
        "the server key is missing",
        "the client certificate is missing",
        "the client key is missing",
    }
    assert found.codes == {"incomplete"}


def test_additional_ca_is_rejected(bundle, other_bundle):
    found = validate(CertificateBundle(bundle.ca + other_bundle.ca, bundle.server, bundle.client))
    assert "the CA certificate has 2 PEM blocks instead of one" in str(found)


def test_key_in_place_of_certificate_is_detected(bundle):
    found = validate_client(ClientIdentity(bundle.ca, KeyPair(bundle.client.key, bundle.client.certificate)))
    assert found.codes == {"unreadable"}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_partial_files_are_detected(bundle, share):
    def half(pem):
        return pem[: int(len(pem) * share)]

    halves = CertificateBundle(
        half(bundle.ca),
        KeyPair(half(bundle.server.certificate), half(bundle.server.key)),
        KeyPair(half(bundle.client.certificate), half(bundle.client.key)),
    )
    assert validate(halves).codes == {"unreadable"}
    assert len(validate(halves).problems) == 5


def test_invalid_arguments_raise(bundle):
    for names in ([], ["not a name"], ["host:443"], [""]):
        with pytest.raises(InvalidArgumentError):
            validate(bundle, names=names)
    with pytest.raises(InvalidArgumentError, match="time zone"):
        validate(bundle, at=NOW.replace(tzinfo=None))


PARTS = ("ca", "server.certificate", "server.key", "client.certificate", "client.key")


def with_part(part, content):
    parts = {name: content if name == part else None for name in PARTS}
    return CertificateBundle(
        parts["ca"] or MADE.ca,
        KeyPair(
            parts["server.certificate"] or MADE.server.certificate, parts["server.key"] or MADE.server.key
        ),
        KeyPair(
            parts["client.certificate"] or MADE.client.certificate, parts["client.key"] or MADE.client.key
        ),
    )


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(PARTS), st.binary(min_size=1, max_size=300))
def test_malformed_data_is_a_reason_not_an_exception(part, rubbish):
    assert not validate(with_part(part, rubbish)).is_valid


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(PARTS), st.data())
def test_modified_byte_is_detected_or_harmless(part, data):
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509 import load_pem_x509_certificate

    role, _, kind = part.partition(".")
    pem = getattr(getattr(MADE, role), kind) if kind else MADE.ca
    where = data.draw(st.integers(0, len(pem) - 1))
    letter = data.draw(st.integers(0, 255))
    changed = pem[:where] + bytes([letter]) + pem[where + 1 :]
    found = validate(with_part(part, changed))
    if found.is_valid and kind == "key":
        assert private_pem(load_pem_private_key(changed, None)) == pem
    elif found.is_valid:
        assert load_pem_x509_certificate(changed) == load_pem_x509_certificate(pem)
