"""Private keys are in no repr, no text, no pickle, no JSON, no reason and no error."""

import copy
import json
import pickle
import traceback

import msgspec
import pytest

from holdfast.pki import Authority, Bundle, Judgement, Pair, Stored, judge

from .conftest import NAMES, NOW

PLANTED = b"planted-7f3a9c"
POISONED = b"-----BEGIN PRIVATE KEY-----\n" + PLANTED + b"\n-----END PRIVATE KEY-----\n"


def things(bundle):
    return [bundle, bundle.server, bundle.client, bundle.identity, Stored(bundle), Authority(at=NOW)]


def lines_of_keys(bundle):
    return [line for key in (bundle.server.key, bundle.client.key) for line in key.decode().splitlines()]


def test_showing_a_bundle_shows_no_key(bundle):
    for thing in things(bundle):
        for shown in (repr(thing), str(thing), f"{thing}", f"{[thing]}"):
            assert not any(line in shown for line in lines_of_keys(bundle))
            assert "BEGIN" not in shown


def test_a_bundle_cannot_be_written_down_by_accident(bundle):
    for thing in things(bundle)[:4]:
        for write in (pickle.dumps, copy.copy, json.dumps, msgspec.json.encode, msgspec.to_builtins, vars):
            with pytest.raises(TypeError) as caught:
                write(thing)
            assert not any(line in str(caught.value) for line in lines_of_keys(bundle))


def test_what_is_said_of_a_damaged_key_does_not_quote_it(bundle):
    found = judge(
        Bundle(POISONED, Pair(POISONED, POISONED), Pair(bundle.client.certificate, POISONED)),
        names=NAMES,
        at=NOW,
    )
    assert PLANTED.decode() not in str(found) + repr(found)
    assert PLANTED not in msgspec.json.encode(found)
    assert isinstance(msgspec.json.decode(msgspec.json.encode(found), type=Judgement), Judgement)


def test_an_error_on_the_way_to_disk_does_not_quote_it(tmp_path, bundle):
    from holdfast.errors import PermanentError
    from holdfast.pki import ClientFiles

    (tmp_path / "file").write_text("")
    identity = Bundle(bundle.ca, bundle.server, Pair(POISONED, POISONED)).identity
    with pytest.raises(PermanentError) as caught:
        ClientFiles(tmp_path / "file" / "mtls").write(identity)
    assert PLANTED.decode() not in "".join(traceback.format_exception(caught.value))


def test_a_fingerprint_tells_bundles_apart_by_their_public_part(bundle, other_bundle):
    assert bundle.fingerprint != other_bundle.fingerprint
    same = Bundle(bundle.ca, Pair(bundle.server.certificate, b"another key"), bundle.client)
    assert same.fingerprint == bundle.fingerprint
    assert same != bundle
    assert len({bundle, other_bundle, bundle}) == 2
    assert bundle != bundle.identity
