"""A bundle goes into three Secrets and comes out the same; whatever is missing there is named."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.pki import (
    CLIENT_CA_SECRET,
    CLIENT_SECRET,
    SECRET_TYPES,
    SERVER_SECRET,
    from_secret_data,
    judge,
    to_secret_data,
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


def test_the_way_there_and_back(bundle):
    secrets = to_secret_data(bundle)
    found = from_secret_data(secrets)
    assert found.bundle == bundle
    assert judge(found, names=NAMES, at=NOW).good
    assert set(secrets) == set(SECRET_TYPES)
    assert [(name, key) for name, data in secrets.items() for key in data] == ALL_KEYS


def test_only_the_servers_secrets_hold_what_the_server_needs(bundle):
    secrets = to_secret_data(bundle)
    assert base64.b64decode(secrets[CLIENT_CA_SECRET]["ca.crt"]) == bundle.ca
    everything = b"".join(base64.b64decode(value) for value in secrets[SERVER_SECRET].values())
    assert bundle.client.key not in everything


@pytest.mark.parametrize("nothing", [{}, dict.fromkeys(SECRET_TYPES), {"something-else": {"a": "b"}}])
def test_a_first_start_is_told_from_a_fault(nothing):
    judgement = judge(from_secret_data(nothing), names=NAMES, at=NOW)
    assert str(judgement) == "there are no certificates yet"
    assert judgement.codes == {"absent"}


@pytest.mark.parametrize("name", SECRET_TYPES)
def test_a_missing_secret_is_named(bundle, name):
    secrets = {**to_secret_data(bundle), name: None}
    assert str(judge(from_secret_data(secrets), names=NAMES, at=NOW)) == f"the secret {name} is missing"


@pytest.mark.parametrize(("name", "key"), ALL_KEYS)
@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "is missing"), ("", "is missing"), ("%%%", "is not base64"), ("YQ", "is not base64"),
     ("ü", "is not base64"), (b"YQ==", "is not base64"), ("Cgo=", "is empty")],
)  # fmt: skip
def test_each_broken_value_is_named(bundle, name, key, value, said):
    secrets = to_secret_data(bundle)
    secrets[name][key] = value
    found = from_secret_data(secrets)
    assert found.bundle is None
    assert [str(reason) for reason in found.reasons] == [f"{key} of the secret {name} {said}"]


def test_secrets_of_two_generations_are_noticed(bundle, other_bundle):
    old, new = to_secret_data(bundle), to_secret_data(other_bundle)
    mixed = {**new, CLIENT_CA_SECRET: old[CLIENT_CA_SECRET]}
    judgement = judge(from_secret_data(mixed), names=NAMES, at=NOW)
    assert f"the secrets {CLIENT_CA_SECRET} and {CLIENT_SECRET} hold different CAs" in str(judgement)
    for name in (SERVER_SECRET, CLIENT_SECRET):
        judgement = judge(from_secret_data({**new, name: old[name]}), names=NAMES, at=NOW)
        assert "foreign-ca" in judgement.codes


def test_a_ca_that_differs_in_white_space_only_is_the_same(bundle):
    secrets = to_secret_data(bundle)
    secrets[CLIENT_SECRET]["ca.crt"] = base64.b64encode(bundle.ca.replace(b"\n", b"\r\n") + b"\n").decode()
    assert judge(from_secret_data(secrets), names=NAMES, at=NOW).good


VALUES = st.none() | st.text(max_size=20) | st.integers() | st.binary(max_size=20).map(
    lambda raw: base64.b64encode(raw).decode()
)  # fmt: skip


@given(
    st.dictionaries(
        st.sampled_from([*SECRET_TYPES, "other"]),
        st.none() | st.dictionaries(st.sampled_from(["tls.crt", "tls.key", "ca.crt", "x"]), VALUES),
    )
)
def test_no_secret_data_is_an_error(secrets):
    assert not judge(from_secret_data(secrets), names=NAMES, at=NOW).good
