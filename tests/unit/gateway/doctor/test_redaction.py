"""Secrets of many shapes in many places are redacted, and everything else is kept."""

import base64
import json
import string
import time
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings, strategies as st

from holdfast.gateway.doctor.redaction import HIDDEN, Redactor, is_secret_name

WORD = string.ascii_letters + string.digits + "!#$%&()*+,-./;<=>?@[]^_`{|}~:"
NAMES = [
    "password", "PASSWORD", "DB_PASSWORD", "DB_PASS", "PGPASSWORD", "passwd", "sshPassphrase", "secret",
    "CLIENT_SECRET", "clientSecret", "token", "access_token", "refreshToken", "id-token", "apiKey", "API_KEY",
    "api-key", "AWS_SECRET_ACCESS_KEY", "privateKey", "client-key-data", "TLS_KEY", "auth", "credentials",
    "GITHUB_PAT", "MYSQL_PWD", ".dockerconfigjson", "tls.key", "bearer_token", "identitytoken", "JWT",
]  # fmt: skip

OWN_SOURCE = Path(__file__).read_text()


def is_unique(word):
    """Whether a word cannot occur in the text around it, and does not look like a flag."""
    return word.strip("-") == word and word not in OWN_SOURCE


words = st.text(WORD, min_size=10, max_size=60).filter(is_unique)
phrases = st.lists(words, min_size=1, max_size=4).map(" ".join)
names = st.sampled_from(NAMES)
around = st.sampled_from(["", "2026-11-16T00:00:00Z I went well\n", 'level=info msg="so far" ', "x: y\n\n"])
base64s = st.binary(min_size=48, max_size=200).map(lambda data: base64.b64encode(data).decode())


def pem(kind, body):
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----"])


PLACES = {
    "assignment": lambda name, secret: f"{name}={secret}",
    "spaced assignment": lambda name, secret: f"export {name} = {secret}",
    "yaml": lambda name, secret: f"{name}: {secret}",
    "quoted": lambda name, secret: f'{name}="{json.dumps(secret)[1:-1]}" and=more',
    "json": lambda name, secret: json.dumps({"a": 1, name: secret, "z": [2]}),
    "json in json": lambda name, secret: json.dumps({"log": json.dumps({name: secret})}),
    "json thrice": lambda name, secret: json.dumps(json.dumps({"log": json.dumps({name: secret})})),
    "compact": lambda name, secret: json.dumps({name: secret}, separators=(",", ":")),
    "block": lambda name, secret: f"{name}: |\n  {secret}\nnext: one\n",
    "flag": lambda name, secret: f"app --{name.strip('.')} {secret}",
    "flag with =": lambda name, secret: f"app --{name.strip('.')}={secret}",
    "variable": lambda name, secret: json.dumps([{"name": name.strip("."), "value": secret}]),
    "variable in yaml": lambda name, secret: f"- name: {name.strip('.')}\n  value: {secret}\n",
    "variable in go": lambda name, secret: f"[{{Name:{name.strip('.')} Value:{secret}}}]",
}


@pytest.mark.parametrize("place", PLACES)
@given(name=names, secret=phrases, before=around, after=around)
def test_value_of_sensitive_key_is_redacted(place, name, secret, before, after):
    written = before + PLACES[place](name, secret) + "\n" + after
    clean = Redactor().redact_text(written)
    assert secret not in clean
    assert json.dumps(secret)[1:-1] not in clean
    assert HIDDEN in clean


@given(name=names, secret=phrases, depth=st.integers(0, 3), extra=st.booleans())
def test_nested_value_of_sensitive_key_is_redacted(name, secret, depth, extra):
    value = {name: [secret, {"x": secret}] if extra else secret}
    for _ in range(depth):
        value = {"spec": [value, {"other": 1}]}
    assert secret not in str(Redactor().redact_value(value))
    assert secret not in str(Redactor().redact_value({"annotation": json.dumps(value)}))
    assert secret not in str(Redactor().redact_value([f"--{name.strip('.')}", secret]))
    assert secret not in str(Redactor().redact_value({"Env": [f"{name}={secret}"]}))
    assert secret not in str(Redactor().redact_value({"env": [{"name": name, "value": secret}]}))


@given(
    kind=st.sampled_from(
        ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY", "ENCRYPTED PRIVATE KEY"]
    ),
    body=base64s,
    cut=st.integers(0, 3),
    escaped=st.booleans(),
    before=around,
)
def test_key_lines_are_redacted_complete_or_truncated(kind, body, cut, escaped, before):
    lines = pem(kind, body).split("\n")
    kept = {0: lines, 1: lines[:-1], 2: lines[1:], 3: lines[:2]}[cut]
    if cut == 2:
        assume(all(any(map(test, kept[0])) for test in (str.isupper, str.islower, str.isdigit)))
    written = "\n".join(kept)
    if escaped:
        assume(cut != 2)
        written = json.dumps(written)
    clean = Redactor().redact_text(f"{before}{written}\nafter")
    for line in kept:
        if not line.startswith("-----") and len(line) > 6:
            assert line not in clean
    assert "after" in clean or cut in (1, 3)


@given(
    scheme=st.sampled_from(["https", "postgres", "ssh", "amqp+ssl", "http"]),
    user=st.text(string.ascii_letters, max_size=8),
    secret=st.text(string.ascii_letters + string.digits + "!$%&()*+,-.;=_~:/@#?", min_size=8, max_size=40),
    before=around,
)
def test_credentials_in_url_are_redacted(scheme, user, secret, before):
    clean = Redactor().redact_text(f"{before}see {scheme}://{user}:{secret}@example.org:5432/db?x=1 for more")
    assert secret not in clean
    assert "example.org:5432/db" in clean


@given(
    scheme=st.sampled_from(["Bearer", "bearer", "Basic", "Token"]),
    token=st.text(string.ascii_letters + string.digits + "._~+/=-", min_size=8, max_size=80),
    header=st.sampled_from(
        ["Authorization: ", "authorization: ", '"Proxy-Authorization": "', "", "curl -H "]
    ),
)
def test_http_tokens_are_redacted(scheme, token, header):
    assert token not in Redactor().redact_text(f"> {header}{scheme} {token}")


@settings(deadline=None)  # the first example also loads modules
@given(
    login=st.tuples(st.text(WORD, min_size=1), st.text(WORD, min_size=8)),
    form=st.sampled_from(["secret", "bare", "url"]),
)
def test_base64_registry_logins_are_redacted(login, form):
    auth = base64.b64encode(":".join(login).encode()).decode()
    config = json.dumps({"auths": {"registry.example.org": {"auth": auth}}})
    encoded = base64.b64encode(config.encode()).decode()
    written = {
        "secret": json.dumps({"data": {".dockerconfigjson": encoded}}),
        "bare": f"got {encoded} from it",
        "url": f"?config={base64.urlsafe_b64encode(config.encode()).decode()}",
    }[form]
    clean = Redactor().redact_text(written)
    assert encoded not in clean
    assert encoded[20:] not in clean
    assert auth not in Redactor().redact_text(config)


@given(data=st.binary(min_size=36, max_size=300), before=around)
def test_long_key_like_strings_are_redacted(data, before):
    run = base64.b64encode(data).decode().rstrip("=")
    assume(all(any(map(test, run)) for test in (str.isupper, str.islower, str.isdigit)))
    assert run not in Redactor().redact_text(f"{before}value {run} was refused")


@pytest.mark.parametrize(
    "token",
    [
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "ghp_0123456789abcdefABCDEF0123456789abcd",
        "github_pat_11ABCDEFG0123456789_abcdef",
        "glpat-abcdefghij0123456789",
        "xoxb-123456789012-abcdefghijkl",
        "AKIAIOSFODNN7EXAMPLE",
        "abcdef.0123456789abcdef",
        "sk-abcdefghijklmnopqrstuvwx",
    ],
)
def test_known_token_formats_are_redacted(token):
    assert token not in Redactor().redact_text(f"it said {token}, then ended")


@given(secret=st.text(WORD, min_size=6, max_size=40), name=st.sampled_from(["line", "reason", "msg"]))
@example(secret="hidden", name="line")
def test_known_secret_is_redacted_without_key_name(secret, name):
    redactor = Redactor([secret])
    for form in (secret, json.dumps({name: secret}), base64.b64encode(secret.encode()).decode()):
        clean = redactor.redact_text(f"so {form} it is").replace(HIDDEN, "")
        assert form not in clean
    assert secret not in str(redactor.redact_value({name: [f"a {secret} b"]})).replace(HIDDEN, "")


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
def test_secrets_and_config_maps_keep_only_name(kind):
    obj = {
        "kind": kind,
        "metadata": {"name": "n", "annotations": {"a": "planted"}},
        "data": {"x": "planted"},
    }
    assert Redactor().redact_value(obj) == {"kind": kind, "metadata": {"name": "n"}}
    assert "planted" not in str(Redactor().redact_value({"items": [obj]}))


@pytest.mark.parametrize(
    "line",
    [
        "I1116 00:41:11.117 1 server.go:52] starting kubelet version v1.34.4 on holdfast-dev",
        "sha256:dec31b3572171a4a2b0d0c0e5d8ad7f2fb9f2f5f7a1f5c8c9d1c5a5b1e4f6a7b",
        "pod 6f1d2c9e-8a44-4a0e-9a4f-0c8d1f2e3a4b in /var/lib/holdfast/kubelet/pods is gone",
        "HOLDFAST_NODE_NAME=holdfast-dev",
        "https://127.0.0.1:26443/readyz?verbose answers HTTP 200",
        "key: node.kubernetes.io/not-ready",
        'name="etcd" state=ready after=1.2s',
    ],
)
def test_harmless_text_is_kept(line):
    assert Redactor().redact_text(line) == line


def test_booleans_and_null_are_kept():
    value = {"automountServiceAccountToken": False, "password": None, "pin_token": 1234}
    clean = {"automountServiceAccountToken": False, "password": None, "pin_token": HIDDEN}
    assert Redactor().redact_value(value) == clean


@pytest.mark.parametrize(
    "name", ["key", "path", "HOLDFAST_HOME", "bypass", "topologyKey", "author", "public_key"]
)
def test_harmless_key_names_are_kept(name):
    assert not is_secret_name(name)


@given(st.text())
def test_any_text_is_accepted(text):
    Redactor().redact_text(text)


@pytest.mark.parametrize(
    "piece", ["a", "a.", "a-", "a:", "://", "A1b", "-----BEGIN ", '\\"', "a\n", "token "]
)
def test_pathological_line_is_processed_quickly(piece):
    started = time.monotonic()
    Redactor().redact_text(piece * (100_000 // len(piece)))
    assert time.monotonic() - started < 20
