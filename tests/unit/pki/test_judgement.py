"""A bundle is good, or every reason why it is not is said in words."""

import datetime as dt

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ArgumentError
from holdfast.pki import LIFE, Bundle, Identity, Pair, issue, judge, judge_client

from .conftest import NAMES, NOW, Workshop, private_pem

DAY = dt.timedelta(days=1)
MADE = issue(NAMES, at=NOW)
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


def judged(bundle, *, names=NAMES, at=NOW, **more):
    return judge(bundle, names=names, at=at, **more)


def test_a_fresh_bundle_is_good(bundle):
    assert judged(bundle).good
    assert str(judged(bundle)) == "good"
    assert judge_client(bundle.identity, at=NOW, ca=bundle.ca).good


def test_bundles_of_another_maker_are_good_as_well(workshop):
    assert judged(workshop.bundle()).good
    assert judged(workshop.bundle(key=ed25519.Ed25519PrivateKey.generate())).good


def test_a_missing_name_is_named(bundle):
    found = judged(bundle, names=[*NAMES, "new.example.org", "10.1.2.3"])
    assert [str(reason) for reason in found.reasons] == [
        "the server certificate lacks the name new.example.org",
        "the server certificate lacks the name 10.1.2.3",
    ]
    assert found.codes == {"missing-name"}


@pytest.mark.parametrize("wanted", ["LOCALHOST", "localhost.", "[::1]", "0:0:0:0:0:0:0:1"])
def test_spelling_does_not_make_another_name(bundle, wanted):
    assert judged(bundle, names=[wanted]).good


def test_a_wildcard_stands_for_one_label_only():
    made = issue(["*.apps.example.org"], at=NOW)
    assert judged(made, names=["x.apps.example.org", "*.apps.example.org"]).good
    for wanted in ("apps.example.org", "a.b.apps.example.org", "*.example.org"):
        assert judged(made, names=[wanted]).codes == {"missing-name"}


def test_keys_that_were_swapped_are_noticed(bundle):
    swapped = Bundle(
        bundle.ca,
        Pair(bundle.server.certificate, bundle.client.key),
        Pair(bundle.client.certificate, bundle.server.key),
    )
    assert str(judged(swapped)) == (
        "the server key does not belong to the server certificate; "
        "the client key does not belong to the client certificate"
    )


def test_certificates_of_a_foreign_ca_are_noticed(bundle, other_bundle):
    mixed = Bundle(bundle.ca, bundle.server, other_bundle.client)
    assert str(judged(mixed)) == "the client certificate was signed by another CA"
    all_foreign = Bundle(other_bundle.ca, bundle.server, bundle.client)
    assert judged(all_foreign).codes == {"foreign-ca"}


def test_a_ca_with_the_same_name_and_another_key_is_foreign(workshop):
    twin = Workshop()
    assert judged(Bundle(workshop.certificate, twin.leaf("server"), workshop.leaf("client"))).codes == {
        "foreign-ca"
    }


def test_a_client_of_the_gateways_old_ca_is_noticed(bundle, other_bundle):
    found = judge_client(bundle.identity, at=NOW, ca=other_bundle.ca)
    assert str(found) == "the client's files belong to another CA than the gateway's"
    assert judge_client(bundle.identity, at=NOW, ca=b"rubbish").codes == {"foreign-ca"}


def test_a_leaf_is_no_ca(bundle):
    found = judged(Bundle(bundle.client.certificate, bundle.server, bundle.client))
    assert "no-ca" in found.codes
    assert "no-ca" in judged(Bundle(Workshop(ca=False).certificate, bundle.server, bundle.client)).codes


def test_a_ca_that_another_ca_signed_is_not_taken(workshop):
    middle = workshop.leaf("client", ca=True)
    assert "foreign-ca" in judged(Bundle(middle.certificate, workshop.leaf("server"), middle)).codes


def test_a_certificate_for_another_use_is_noticed(workshop):
    found = judged(workshop.bundle(use=ExtendedKeyUsageOID.CLIENT_AUTH))
    assert str(found) == "the server certificate is not one for a server"
    assert judged(workshop.bundle(ca=True)).codes == {"wrong-use"}


@pytest.mark.parametrize(
    ("after", "code"),
    [
        (-2 * dt.timedelta(hours=1), "from-the-future"),
        (dt.timedelta(0), None),
        (LIFE * 0.66, None),
        (LIFE * 0.67, "near-expiry"),
        (LIFE - dt.timedelta(seconds=1), "near-expiry"),
        (LIFE, "expired"),
        (LIFE * 40, "expired"),
    ],
)
def test_time_is_told(bundle, after, code):
    assert judged(bundle, at=NOW + after).codes == ({code} if code else set())


def test_how_early_to_renew_can_be_chosen(bundle):
    late = NOW + LIFE * 0.95
    assert judged(bundle, at=late, renew_below=0.01).good
    assert judged(bundle, at=NOW + LIFE * 0.2, renew_below=0.9).codes == {"near-expiry"}
    assert judged(bundle, at=NOW + LIFE, renew_below=0).codes == {"expired"}
    for share in (-0.1, 1, 2, float("nan")):
        with pytest.raises(ArgumentError, match="renew_below"):
            judged(bundle, renew_below=share)


def test_the_words_about_time_hold_the_dates(workshop):
    bad = workshop.bundle(begin=NOW - 100 * DAY, life=99 * DAY)
    assert str(judged(bad)) == "the server certificate expired on 2031-05-16 12:00 UTC"
    early = str(judged(workshop.bundle(begin=NOW + DAY)))
    assert "from 2031-05-18 12:00 UTC on" in early
    assert "it is 2031-05-17 12:00 UTC" in early
    due = str(judged(workshop.bundle(begin=NOW - 90 * DAY, life=100 * DAY)))
    assert due.endswith("only 10% of its life is left")


def test_weak_keys_are_named(workshop):
    small = judged(workshop.bundle(key=rsa.generate_private_key(65537, 1024)))
    assert str(small) == "the key of the server certificate is too weak: RSA with 1024 bits"
    old = workshop.bundle(key=dsa.generate_private_key(1024))
    assert judged(old).codes == {"weak-key"}


def test_a_weak_signature_is_named(bundle):
    found = judged(Bundle(SIGNED_WITH_SHA1, bundle.server, bundle.client))
    assert "the CA certificate is signed with sha1" in str(found)


def test_everything_that_is_missing_is_said():
    found = judged(Bundle(b"", Pair(b"", b"\n"), Pair(b" ", b"")))
    assert {str(reason) for reason in found.reasons} == {
        "the CA certificate is missing",
        "the server certificate is missing",
        "the server key is missing",
        "the client certificate is missing",
        "the client key is missing",
    }
    assert found.codes == {"incomplete"}


def test_a_second_ca_beside_ours_is_not_let_in(bundle, other_bundle):
    found = judged(Bundle(bundle.ca + other_bundle.ca, bundle.server, bundle.client))
    assert "the CA certificate has 2 PEM blocks instead of one" in str(found)


def test_a_key_in_the_place_of_a_certificate_is_noticed(bundle):
    found = judge_client(Identity(bundle.ca, Pair(bundle.client.key, bundle.client.certificate)), at=NOW)
    assert found.codes == {"unreadable"}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_half_written_parts_are_noticed(bundle, share):
    def half(pem):
        return pem[: int(len(pem) * share)]

    halves = Bundle(
        half(bundle.ca),
        Pair(half(bundle.server.certificate), half(bundle.server.key)),
        Pair(half(bundle.client.certificate), half(bundle.client.key)),
    )
    assert judged(halves).codes == {"unreadable"}
    assert len(judged(halves).reasons) == 5


def test_an_impossible_wish_is_an_error_of_the_caller(bundle):
    for names in ([], ["not a name"], ["host:443"], [""]):
        with pytest.raises(ArgumentError):
            judged(bundle, names=names)
    with pytest.raises(ArgumentError, match="time zone"):
        judged(bundle, at=NOW.replace(tzinfo=None))


PARTS = ("ca", "server.certificate", "server.key", "client.certificate", "client.key")


def with_part(part, content):
    parts = {name: content if name == part else None for name in PARTS}
    return Bundle(
        parts["ca"] or MADE.ca,
        Pair(parts["server.certificate"] or MADE.server.certificate, parts["server.key"] or MADE.server.key),
        Pair(parts["client.certificate"] or MADE.client.certificate, parts["client.key"] or MADE.client.key),
    )


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(PARTS), st.binary(min_size=1, max_size=300))
def test_rubbish_is_a_reason_and_never_an_error(part, rubbish):
    assert not judged(with_part(part, rubbish)).good


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(PARTS), st.data())
def test_a_changed_letter_is_noticed_or_does_not_matter(part, data):
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509 import load_pem_x509_certificate

    role, _, kind = part.partition(".")
    pem = getattr(getattr(MADE, role), kind) if kind else MADE.ca
    where = data.draw(st.integers(0, len(pem) - 1))
    letter = data.draw(st.integers(0, 255))
    changed = pem[:where] + bytes([letter]) + pem[where + 1 :]
    found = judged(with_part(part, changed))
    if found.good and kind == "key":
        assert private_pem(load_pem_private_key(changed, None)) == pem
    elif found.good:
        assert load_pem_x509_certificate(changed) == load_pem_x509_certificate(pem)
