"""Private keys never appear in repr, str, pickle, JSON, problems or errors."""

import copy
import json
import pickle
import traceback

import msgspec
import pytest

from holdfast.pki import (
    CertificateAuthority,
    CertificateBundle,
    KeyPair,
    StoredCredentials,
    ValidationResult,
    validate_bundle,
)

from .conftest import NAMES, NOW

PLANTED = b"planted-7f3a9c"
POISONED = b"-----BEGIN PRIVATE KEY-----\n" + PLANTED + b"\n-----END PRIVATE KEY-----\n"


def things(bundle):
    return [
        bundle,
        bundle.server,
        bundle.client,
        bundle.client_identity,
        StoredCredentials(bundle),
        CertificateAuthority(at=NOW),
    ]


def lines_of_keys(bundle):
    return [line for key in (bundle.server.key, bundle.client.key) for line in key.decode().splitlines()]


def test_repr_shows_no_key(bundle):
    for thing in things(bundle):
        for shown in (repr(thing), str(thing), f"{thing}", f"{[thing]}"):
            assert not any(line in shown for line in lines_of_keys(bundle))
            assert "BEGIN" not in shown


def test_bundle_cannot_be_serialized(bundle):
    for thing in things(bundle)[:4]:
        for write in (pickle.dumps, copy.copy, json.dumps, msgspec.json.encode, msgspec.to_builtins, vars):
            with pytest.raises(TypeError) as caught:
                write(thing)
            assert not any(line in str(caught.value) for line in lines_of_keys(bundle))


def test_stored_bundle_cannot_be_serialized(bundle):
    """It is a struct with fields, so an encoder reaches the bundle and must be stopped there."""
    for write in (pickle.dumps, json.dumps, msgspec.json.encode, msgspec.to_builtins):
        with pytest.raises(TypeError) as caught:
            write(StoredCredentials(bundle))
        assert not any(line in str(caught.value) for line in lines_of_keys(bundle))


def test_damaged_key_is_not_quoted(bundle):
    poisoned = CertificateBundle(
        POISONED, KeyPair(POISONED, POISONED), KeyPair(bundle.client.certificate, POISONED)
    )
    found = validate_bundle(StoredCredentials(poisoned), names=NAMES, at=NOW)
    assert PLANTED.decode() not in str(found) + repr(found)
    assert PLANTED not in msgspec.json.encode(found)
    assert isinstance(
        msgspec.json.decode(msgspec.json.encode(found), type=ValidationResult), ValidationResult
    )


def test_write_error_does_not_quote_key(tmp_path, bundle):
    from holdfast.errors import PermanentError
    from holdfast.pki import ClientCertificateStore

    (tmp_path / "file").write_text("")
    identity = CertificateBundle(bundle.ca, bundle.server, KeyPair(POISONED, POISONED)).client_identity
    with pytest.raises(PermanentError) as caught:
        ClientCertificateStore(tmp_path / "file" / "mtls").write(identity)
    assert PLANTED.decode() not in "".join(traceback.format_exception(caught.value))


def test_fingerprint_uses_public_parts(bundle, other_bundle):
    assert bundle.fingerprint != other_bundle.fingerprint
    same = CertificateBundle(bundle.ca, KeyPair(bundle.server.certificate, b"another key"), bundle.client)
    assert same.fingerprint == bundle.fingerprint
    assert same != bundle
    assert len({bundle, other_bundle, bundle}) == 2
    assert bundle != bundle.client_identity
