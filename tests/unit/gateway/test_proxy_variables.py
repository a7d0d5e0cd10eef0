"""Proxy variables from the setting `proxy`, with the login of its reference."""

import pytest

from holdfast.errors import InvalidSettingError
from holdfast.gateway.proxy_variables import CLUSTER_DESTINATIONS, read_proxy
from holdfast.gateway.settings import ProxySettings, resolve_settings

URL = "http://proxy.example.org:3128"
LOGIN = "user:p@ss:w/rd"
ENCODED = "user:p%40ss%3Aw%2Frd"


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))


def test_no_proxy_is_the_default():
    assert read_proxy(ProxySettings()) is None
    assert read_proxy(ProxySettings(no_proxy=("a",), credentials="env:MISSING")) is None


def test_only_set_proxies_have_variables():
    proxy = read_proxy(ProxySettings(https=URL, no_proxy=(".lan",)), no_proxy=CLUSTER_DESTINATIONS)
    assert proxy.variables["https_proxy"] == URL
    assert "http_proxy" not in proxy.variables
    excluded = proxy.variables["no_proxy"].split(",")
    assert {"localhost", "127.0.0.1", ".svc", ".cluster.local", "10.96.0.0/16", ".lan"} <= set(excluded)
    assert proxy.secrets == ()


def test_login_is_added_to_both_urls(monkeypatch):
    monkeypatch.setenv("PROXY_LOGIN", LOGIN)
    proxy = read_proxy(ProxySettings(http=URL, https="https://[::1]:8080", credentials="env:PROXY_LOGIN"))
    assert proxy.variables["http_proxy"] == f"http://{ENCODED}@proxy.example.org:3128"
    assert proxy.variables["https_proxy"] == f"https://{ENCODED}@[::1]:8080"
    texts = {secret.text() for secret in proxy.secrets}
    assert texts == {LOGIN, ENCODED, LOGIN.partition(":")[2], ENCODED.partition(":")[2]}


def test_repr_shows_no_login(monkeypatch):
    monkeypatch.setenv("PROXY_LOGIN", LOGIN)
    proxy = read_proxy(ProxySettings(http=URL, credentials="env:PROXY_LOGIN"))
    assert "p@ss" not in repr(proxy)
    assert "p%40ss" not in repr(proxy)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("proxy.http", "http://user:hunter2@proxy:3128"),
        ("proxy.https", "hunter2@proxy"),
        ("proxy.https", "socks5://hunter2:1080"),
        ("proxy.http", "http://proxy:3128/hunter2"),
        ("proxy.credentials", "user:hunter2"),
    ],
)
def test_rejected_values_are_not_quoted(key, value, tmp_path):
    with pytest.raises(InvalidSettingError) as caught:
        resolve_settings({key: value}, environ={}, cwd=tmp_path)
    assert key in caught.value.message
    assert "hunter2" not in str(caught.value) + str(caught.value.hint)


def test_unreadable_login_names_the_setting(tmp_path):
    settings = ProxySettings(http=URL, credentials=f"file:{tmp_path}/missing")
    with pytest.raises(InvalidSettingError, match=r"proxy\.credentials: cannot read the login"):
        read_proxy(settings)


def test_accepted_values(tmp_path):
    environ = {
        "HOLDFAST_PROXY_HTTP": "http://proxy:3128/",
        "HOLDFAST_PROXY_NO_PROXY": ".lan, 10.0.0.0/8,*.example.org",
        "HOLDFAST_PROXY_CREDENTIALS": "env:HOLDFAST_MY_LOGIN",
        "HOLDFAST_MY_LOGIN": "u:p",
        "HOLDFAST_SANDBOX_CA_BUNDLE": "ca.pem",
    }
    settings = resolve_settings(environ=environ, cwd=tmp_path).settings
    assert settings.proxy.http == "http://proxy:3128"
    assert settings.proxy.no_proxy == (".lan", "10.0.0.0/8", "*.example.org")
    assert settings.sandbox.ca_bundle == str(tmp_path / "ca.pem")
