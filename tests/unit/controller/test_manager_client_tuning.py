"""The tuned client reads the proxy settings once and no environment per request."""

from __future__ import annotations

import asyncio

from kubernetes.aio import client

from holdfast.controller.manager import environment_proxy, tune_client


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
