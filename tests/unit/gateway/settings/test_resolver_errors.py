"""Unknown keys and invalid values are errors that name the key, its source and the allowed values."""

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from holdfast.errors import InvalidSettingError
from holdfast.gateway.settings import resolve_settings
from holdfast.gateway.settings.models import setting_fields

PLANTED = "hunter2-9d1c"
ROOT = Path("/")


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))


def load_error(tmp_path, text=None, *, environ=None, flags=None):
    if text is not None:
        (tmp_path / "holdfast.toml").write_text(text)
    with pytest.raises(InvalidSettingError) as caught:
        resolve_settings(flags, environ=environ or {}, cwd=tmp_path)
    return caught.value


@pytest.mark.parametrize(
    ("text", "key", "suggestion"),
    [
        ("prot = 1", "prot", "port"),
        ("[timeouts]\napii = 1", "timeouts.apii", "timeouts.api"),
        ("[timeout]\napi = 1", "timeout", "timeouts"),
        ("api-names = []", "api-names", "api_names"),
        ("[registries]\npassword = 'x'", "registries.password", None),
        ("zzz = 1", "zzz", None),
    ],
)
def test_unknown_key_in_file(tmp_path, text, key, suggestion):
    error = load_error(tmp_path, text)
    assert error.message.startswith(f"{key}: unknown setting")
    assert str(tmp_path / "holdfast.toml") in error.message
    assert error.exit_code == 2
    assert suggestion is None or error.hint == f"Did you mean {suggestion}?"


@pytest.mark.parametrize("name", ["HOLDFAST_TIMEOUT_API", "HOLDFAST_PROT", "HOLDFAST_REGISTRIES_LOGIN"])
def test_unknown_variable(tmp_path, name):
    error = load_error(tmp_path, environ={name: PLANTED})
    assert name in error.message
    assert "environment" in error.message
    assert PLANTED not in error.message + error.hint


@pytest.mark.parametrize(
    "environ",
    [
        {
            "HOLDFAST_HOME": "/x",
            "HOLDFAST_GATEWAY": "dev",
            "HOLDFAST_CACHE": "/y",
            "HOLDFAST_NODE_NAME": "n",
            "HOLDFAST_SANDBOX_ID": "1",
        },
        {"HOLDFAST_SERVER_SERVICE_HOST": "10.0.0.1", "HOLDFAST_SERVER_SERVICE_PORT_HTTPS": "443"},
        {"HOLDFAST_PORT": "tcp://10.0.0.1:443", "HOLDFAST_PORT_443_TCP_ADDR": "10.0.0.1"},
        {"OTHER": "x", "holdfast_port": "x"},
    ],
)
def test_unrelated_variables_are_ignored(tmp_path, environ):
    assert resolve_settings(environ=environ, cwd=tmp_path).origins == {}


def test_unknown_flag(tmp_path):
    assert "the command line" in load_error(tmp_path, flags={"prot": 1}).message


BAD = [
    ("port", 0), ("port", 65536), ("port", "http"), ("port", True), ("port", 1.5), ("port", -1),
    ("image", "Not An Image"), ("image", 3),
    ("listen", "localhost"), ("listen", "::1"), ("listen", "1.2.3"),
    ("api_names", "a b"), ("api_names", ["host:1"]), ("api_names", 5),
    ("push_images", "ok:1,NOT OK"), ("push_images", ["a:1", 2]), ("push_images", {"a": "b"}),
    ("timeouts.api", 0), ("timeouts.api", "soon"), ("timeouts.api", float("nan")),
    ("timeouts.api", float("inf")), ("timeouts.api", 10**400), ("timeouts.api", True), ("timeouts.api", "-5"),
    ("timeouts.api", "9999h"), ("timeouts.health", []),
    ("attempts.pull", 0), ("attempts.pull", 1.5), ("attempts.pull", "9" * 5000), ("attempts.pull", 10**30),
    ("registries.mirrors", {"docker.io": "ftp://x"}), ("registries.mirrors", "docker.io"),
    ("registries.mirrors", {"docker.io": []}), ("registries.mirrors", {"docker.io": "https://x:99999"}),
    ("registries.insecure", ["http://x"]), ("registries.insecure", "x:0"),
    ("registries.ca_files", "a=1,a=2"), ("registries.ca_files", {"a": 1}), ("registries.ca_files", ["a"]),
    ("registries.credentials", {"a": "plain"}), ("registries.credentials", {"a": "env:NOT-A-NAME"}),
    ("registries.credentials", {"a": "file:"}), ("registries.credentials", {"a": None}),
    ("workspace.size", "lots"), ("workspace.size", "0Gi"), ("workspace.size", "-1Gi"), ("workspace.size", 2),
    ("workspace.storage_class", "UPPER"),
    ("certificates.life_days", 0), ("certificates.renew_below", 1), ("certificates.renew_below", "half"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "raw"), BAD, ids=lambda part: str(part)[:30])
def test_invalid_value(tmp_path, key, raw):
    error = load_error(tmp_path, flags={key: raw})
    assert error.message.startswith(f"{key}: invalid value")
    assert "the command line" in error.message
    assert error.hint == f"Set {key} to {setting_fields()[key].value_type.allowed}."
    assert len(error.message) < 300


def test_error_names_variable_or_file(tmp_path):
    assert (
        "'soon' from HOLDFAST_TIMEOUTS_API"
        in load_error(tmp_path, environ={"HOLDFAST_TIMEOUTS_API": "soon"}).message
    )
    assert f"0 from {tmp_path / 'holdfast.toml'}" in load_error(tmp_path, "port = 0").message


def test_overridden_invalid_value_is_still_reported(tmp_path):
    assert "holdfast.toml" in load_error(tmp_path, "port = 0", environ={"HOLDFAST_PORT": "1"}).message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = 1\nlisten = !", "not valid TOML (at line 2, column 10)"),
        ("port = 1\nport = 2", "not valid TOML"),
        ("timeouts = 5", "timeouts: not a table"),
        ("[port]\nx = 1", "port: invalid value"),
        ("[[timeouts]]\napi = 1", "timeouts: not a table"),
        ("x = " + "[" * 5000 + "]" * 5000, "not valid TOML"),
    ],
)
def test_malformed_file(tmp_path, text, message):
    error = load_error(tmp_path, text)
    assert message in error.message
    assert "holdfast.toml" in error.message


def test_binary_file(tmp_path):
    (tmp_path / "holdfast.toml").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in load_error(tmp_path).message


@pytest.mark.parametrize(
    "raw",
    [
        f"bob:{PLANTED}", f"reg.example={PLANTED}", f"bob:{PLANTED}==", f"reg.example=bob:{PLANTED}",
        {"reg.example": PLANTED}, {PLANTED + "!": "env:X"}, {"reg.example": {"password": PLANTED}},
        f"env={PLANTED},reg.example", [PLANTED],
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("key", ["registries.credentials", "registries.mirrors"])
def test_misplaced_password_is_not_quoted(tmp_path, key, raw):
    error = load_error(tmp_path, flags={key: raw})
    assert PLANTED not in error.message + error.hint + repr(error.__cause__) + repr(error.__context__)


def test_login_in_mirror_url_is_rejected_and_not_quoted(tmp_path):
    error = load_error(
        tmp_path, flags={"registries.mirrors": {"a.example": f"https://bob:{PLANTED}@m.example"}}
    )
    assert "registries.credentials" in error.message
    assert PLANTED not in error.message + error.hint


def test_login_may_reference_any_variable(tmp_path):
    environ = {"HOLDFAST_REGISTRIES_CREDENTIALS": "a.example=env:HOLDFAST_LOGIN", "HOLDFAST_LOGIN": "u:p"}
    assert resolve_settings(environ=environ, cwd=tmp_path).settings.registries.credentials == {
        "a.example": "env:HOLDFAST_LOGIN"
    }


RAW = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates()
    | st.sampled_from(["auto", "1m", "a=b", "a=env:X", "::", "h=https://m", "2Gi", "[::1]:5"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(setting_fields())), RAW)
def test_invalid_values_never_crash(key, raw):
    try:
        first = resolve_settings({key: raw}, environ={}, cwd=ROOT).settings
    except InvalidSettingError:
        return
    value = first
    for part in key.split("."):
        value = getattr(value, part)
    assert resolve_settings({key: value}, environ={}, cwd=ROOT).settings == first
