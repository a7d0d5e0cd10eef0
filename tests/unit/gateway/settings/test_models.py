"""The formats that each setting accepts, and logins that are read by reference."""

import traceback

import pytest

from holdfast.errors import InvalidSettingError
from holdfast.gateway.registries import read_login
from holdfast.gateway.settings import RegistrySettings, resolve_settings

PLANTED = "hunter2-9d1c"
DIGEST = "sha256:" + "0" * 64


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))


def value_of(key, raw, cwd):
    value = resolve_settings({key: raw}, environ={}, cwd=cwd).settings
    for part in key.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize(
    ("key", "raw", "value"),
    [
        ("port", "16443", 16443),
        ("port", " Auto ", "auto"),
        ("timeouts.api", "90", 90.0),
        ("timeouts.api", "1.5m", 90.0),
        ("timeouts.api", "24h", 86400.0),
        ("timeouts.api", 5, 5.0),
        ("attempts.pull", "7", 7),
        ("api_names", "A.example., 10.0.0.1,a.example", ("a.example", "10.0.0.1")),
        ("push_images", ["a:1", f"reg.example:5000/b@{DIGEST}"], ("a:1", f"reg.example:5000/b@{DIGEST}")),
        ("registries.mirrors", "a.io=https://m1/,a.io=http://m2:5000", {"a.io": ("https://m1", "http://m2:5000")}),
        ("registries.mirrors", {"Docker.io": ["https://m1"]}, {"docker.io": ("https://m1",)}),
        ("registries.insecure", "reg.lan:5000,[::1]:5000", ("reg.lan:5000", "[::1]:5000")),
        ("registries.ca_files", "reg.lan=/etc/ca.pem", {"reg.lan": "/etc/ca.pem"}),
        ("registries.credentials", {"reg.lan": "env:LOGIN"}, {"reg.lan": "env:LOGIN"}),
        ("registries.credentials", "reg.lan=file:/run/login", {"reg.lan": "file:/run/login"}),
        ("workspace.size", "1.5Gi", "1.5Gi"),
        ("workspace.storage_class", "", ""),
        ("workspace.storage_class", "fast.example", "fast.example"),
        ("certificates.renew_below", "0.5", 0.5),
    ],
)  # fmt: skip
def test_accepted_formats(tmp_path, key, raw, value):
    assert value_of(key, raw, tmp_path) == value


def test_home_directory_in_path(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert value_of("registries.ca_files", "a=~/ca.pem", tmp_path) == {"a": "/home/somebody/ca.pem"}
    with pytest.raises(InvalidSettingError, match="home directory"):
        value_of("registries.ca_files", "a=~no-such-user-here/ca.pem", tmp_path)


@pytest.fixture
def login_file(tmp_path):
    path = tmp_path / "login"
    path.write_text(f"bob:{PLANTED}\n")
    path.chmod(0o600)
    return path


def test_login_is_read_from_its_source(login_file, monkeypatch):
    monkeypatch.setenv("LOGIN", f"eve:{PLANTED}:x")
    registries = RegistrySettings(credentials={"a": f"file:{login_file}", "b": "env:LOGIN"})
    assert read_login(registries, "a").text() == f"bob:{PLANTED}"
    assert read_login(registries, "b").text() == f"eve:{PLANTED}:x"
    assert read_login(registries, "c") is None
    assert PLANTED not in repr(read_login(registries, "a"))


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (f"bob:{PLANTED}", 0o644, "mode 0644"),
        (f"{PLANTED}", 0o600, "user:password"),
        (f":{PLANTED}", 0o600, "user:password"),
        (f"bob:{PLANTED}\nsecond line", 0o600, "user:password"),
        ("", 0o600, "user:password"),
        (None, 0, "No such file"),
    ],
)
def test_unreadable_login_is_not_quoted(login_file, content, mode, said):
    login_file.unlink()
    if content is not None:
        login_file.write_text(content)
        login_file.chmod(mode)
    with pytest.raises(InvalidSettingError) as caught:
        read_login(RegistrySettings(credentials={"a": f"file:{login_file}"}), "a")
    assert said in caught.value.message
    assert PLANTED not in "".join(traceback.format_exception(caught.value))


def test_login_in_unset_variable(monkeypatch):
    monkeypatch.delenv("LOGIN", raising=False)
    with pytest.raises(InvalidSettingError, match="LOGIN: the variable is not set"):
        read_login(RegistrySettings(credentials={"a": "env:LOGIN"}), "a")
