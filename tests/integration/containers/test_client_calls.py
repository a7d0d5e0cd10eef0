"""Requests to a real container engine are proxy."""

import pytest
from tests.support.flaky_container_engine import FlakyContainerEngine, cut_nothing

from holdfast.remote import connect

pytestmark = pytest.mark.engine


def test_engine_info_is_requested_once(monkeypatch):
    with FlakyContainerEngine(cut_nothing) as proxy:
        monkeypatch.setenv("DOCKER_HOST", proxy.address)
        engine = connect()
        assert engine.facts().version
        assert engine.engine_id
        assert engine.architecture
        assert engine.facts() == engine.facts()
    assert proxy.count_succeeded("GET", "/info$") == 1
    assert proxy.count_succeeded("GET", "/version$") == 2  # one negotiates the API version
