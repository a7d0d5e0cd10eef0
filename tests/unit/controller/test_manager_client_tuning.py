"""The tuned client reads the proxy settings once and no environment per request."""

from __future__ import annotations

import asyncio

import pytest
from kubernetes.aio import client

from holdfast.controller.manager import environment_proxy, read_label_domains, tune_client
from holdfast.sandbox import DEFAULT_LABEL_DOMAINS


def test_environment_proxy_is_used_unless_server_is_excluded(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "10.0.0.1,.svc")
    assert environment_proxy("https://server:6443") == "http://proxy:3128"
    assert environment_proxy("https://10.0.0.1:443") is None
    assert environment_proxy("https://kubernetes.default.svc") is None
    monkeypatch.delenv("https_proxy")
    assert environment_proxy("https://server:6443") is None


def test_tuned_client_ignores_environment_and_keeps_explicit_proxy(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://other:3128")

    async def made():
        configuration = client.Configuration(host="https://server")
        configuration.proxy = "http://given:1"
        async with client.ApiClient(configuration) as api:
            tune_client(api, connections=7)
            session = api.rest_client._create_pool_manager()
            seen = (session.trust_env, session.connector.limit, api.rest_client.proxy)
            await session.close()
            return seen

    assert asyncio.run(made()) == (False, 7, "http://given:1")


@pytest.mark.parametrize(
    ("text", "domains"),
    [
        (None, DEFAULT_LABEL_DOMAINS),
        ("", DEFAULT_LABEL_DOMAINS),
        ("a.io, b.io\nc.io", ("a.io", "b.io", "c.io")),
    ],
)
def test_label_domains_are_read_from_a_file(tmp_path, text, domains):
    path = tmp_path / "allowed-label-domains"
    if text is not None:
        path.write_text(text)
    assert read_label_domains(str(path)) == domains
