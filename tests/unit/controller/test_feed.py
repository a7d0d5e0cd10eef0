"""How kopf is set up: it logs in as the client does, and keeps and writes nothing."""

from __future__ import annotations

import asyncio

from kubernetes.aio import client

from holdfast.controller.feed import _settings, connection
from holdfast.controller.watched import CRDS, WATCHED


def test_a_token_of_a_pod_is_passed_on_with_its_scheme_and_read_anew_each_time():
    configuration = client.Configuration(host="https://server")
    tokens = iter(["bearer one", "bearer two"])

    def refresh(config):
        config.api_key["BearerToken"] = next(tokens)

    configuration.refresh_api_key_hook = refresh
    configuration.ssl_ca_cert = "/ca.crt"
    first, second = (asyncio.run(connection(configuration)) for _ in range(2))
    assert (first.server, first.scheme, first.token, first.ca_path) == (
        "https://server",
        "Bearer",
        "one",
        "/ca.crt",
    )
    assert second.token == "two"
    assert first.insecure is False


def test_a_certificate_is_passed_on_and_no_token_where_there_is_none():
    configuration = client.Configuration(host="https://server")
    configuration.cert_file, configuration.key_file = "/c.crt", "/c.key"
    found = asyncio.run(connection(configuration))
    assert (found.certificate_path, found.private_key_path, found.token) == ("/c.crt", "/c.key", None)


def test_kopf_posts_nothing_scans_for_nothing_and_asks_for_our_labels_only():
    settings = _settings()
    assert settings.posting.enabled is False
    assert settings.scanning.disabled is True
    assert settings.persistence.diffbase_storage.build(body={"spec": {}}) == {}
    labelled = {each.plural for each in WATCHED if each.labels}
    assert len(settings.watching.label_selectors) == len(labelled)
    assert labelled == {"pods", "services", "persistentvolumeclaims", "networkpolicies"}
    assert len(CRDS) == 4
