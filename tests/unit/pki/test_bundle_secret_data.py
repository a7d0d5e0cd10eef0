"""A bundle is stored in three Secrets and read back; missing and invalid values are named."""

import base64

import pytest
from hypothesis import given, strategies as st

from holdfast.pki import (
    CLIENT_CA_SECRET,
    CLIENT_SECRET,
    SECRET_TYPES,
    SERVER_SECRET,
    from_secret_data,
    to_secret_data,
    validate_bundle,
)

from .conftest import NAMES, NOW

ALL_KEYS = [
    (SERVER_SECRET, "tls.crt"),
    (SERVER_SECRET, "tls.key"),
    (CLIENT_CA_SECRET, "ca.crt"),
    (CLIENT_SECRET, "tls.crt"),
    (CLIENT_SECRET, "tls.key"),
    (CLIENT_SECRET, "ca.crt"),
]


def test_round_trip(bundle):
    secrets = to_secret_data(bundle)
    found = from_secret_data(secrets)
    assert found.value == bundle
    assert validate_bundle(found, names=NAMES, at=NOW).is_valid
    assert set(secrets) == set(SECRET_TYPES)
    assert [(name, key) for name, data in secrets.items() for key in data] == ALL_KEYS


def test_only_server_secrets_hold_server_material(bundle):
    secrets = to_secret_data(bundle)
    assert base64.b64decode(secrets[CLIENT_CA_SECRET]["ca.crt"]) == bundle.ca
    everything = b"".join(base64.b64decode(value) for value in secrets[SERVER_SECRET].values())
    assert bundle.client.key not in everything


@pytest.mark.parametrize("nothing", [{}, dict.fromkeys(SECRET_TYPES), {"something-else": {"a": "b"}}])
def test_missing_bundle_differs_from_invalid_bundle(nothing):
    judgement = validate_bundle(from_secret_data(nothing), names=NAMES, at=NOW)
    assert str(judgement) == "there are no certificates yet"
    assert judgement.codes == {"absent"}


@pytest.mark.parametrize("name", SECRET_TYPES)
def test_missing_secret_is_named(bundle, name):
    secrets = {**to_secret_data(bundle), name: None}
    assert (
        str(validate_bundle(from_secret_data(secrets), names=NAMES, at=NOW))
        == f"the secret {name} is missing"
    )


@pytest.mark.parametrize(("name", "key"), ALL_KEYS)
@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "is missing"), ("", "is missing"), ("%%%", "is not base64"), ("YQ", "is not base64"),
     ("ü", "is not base64"), (b"YQ==", "is not base64"), ("Cgo=", "is empty")],
)  # fmt: skip
def test_each_invalid_value_is_named(bundle, name, key, value, said):
    secrets = to_secret_data(bundle)
    secrets[name][key] = value
    found = from_secret_data(secrets)
    assert found.value is None
    assert [str(reason) for reason in found.problems] == [f"{key} of the secret {name} {said}"]


def test_mixed_generations_are_detected(bundle, other_bundle):
    old, new = to_secret_data(bundle), to_secret_data(other_bundle)
    mixed = {**new, CLIENT_CA_SECRET: old[CLIENT_CA_SECRET]}
    judgement = validate_bundle(from_secret_data(mixed), names=NAMES, at=NOW)
    assert f"the secrets {CLIENT_CA_SECRET} and {CLIENT_SECRET} contain different CAs" in str(judgement)
    for name in (SERVER_SECRET, CLIENT_SECRET):
        judgement = validate_bundle(from_secret_data({**new, name: old[name]}), names=NAMES, at=NOW)
        assert "foreign-ca" in judgement.codes


def test_ca_whitespace_is_ignored(bundle):
    secrets = to_secret_data(bundle)
    secrets[CLIENT_SECRET]["ca.crt"] = base64.b64encode(bundle.ca.replace(b"\n", b"\r\n") + b"\n").decode()
    assert validate_bundle(from_secret_data(secrets), names=NAMES, at=NOW).is_valid


VALUES = st.none() | st.text(max_size=20) | st.integers() | st.binary(max_size=20).map(
    lambda raw: base64.b64encode(raw).decode()
)  # fmt: skip


@given(
    st.dictionaries(
        st.sampled_from([*SECRET_TYPES, "other"]),
        st.none() | st.dictionaries(st.sampled_from(["tls.crt", "tls.key", "ca.crt", "x"]), VALUES),
    )
)
def test_invalid_secret_data_never_raises(secrets):
    assert not validate_bundle(from_secret_data(secrets), names=NAMES, at=NOW).is_valid
