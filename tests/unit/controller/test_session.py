"""A client is made fit once: no look at the environment before each request, and a proxy is still found."""

from __future__ import annotations

import asyncio

from kubernetes.aio import client

from holdfast.controller.session import environment_proxy, hasten


def test_the_environments_proxy_is_found_unless_the_server_is_left_out(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "10.0.0.1,.svc")
    assert environment_proxy("https://server:6443") == "http://proxy:3128"
    assert environment_proxy("https://10.0.0.1:443") is None
    assert environment_proxy("https://kubernetes.default.svc") is None
    monkeypatch.delenv("https_proxy")
    assert environment_proxy("https://server:6443") is None


def test_a_hastened_client_trusts_no_environment_and_keeps_the_proxy_that_it_was_given(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://other:3128")

    async def made():
        configuration = client.Configuration(host="https://server")
        configuration.proxy = "http://given:1"
        async with client.ApiClient(configuration) as api:
            hasten(api, connections=7)
            session = api.rest_client._create_pool_manager()
            seen = (session.trust_env, session.connector.limit, api.rest_client.proxy)
            await session.close()
            return seen

    assert asyncio.run(made()) == (False, 7, "http://given:1")
