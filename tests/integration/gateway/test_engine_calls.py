"""What is asked of a real engine, and how often."""

import pytest
from tests.support.flaky_engine import FlakyEngine, never

from holdfast.containers.engine import connect

pytestmark = pytest.mark.engine


def test_an_engine_is_asked_about_itself_once(monkeypatch):
    with FlakyEngine(never) as counted:
        monkeypatch.setenv("DOCKER_HOST", counted.address)
        engine = connect()
        assert engine.facts().version
        assert engine.identity
        assert engine.architecture
        assert engine.facts() == engine.facts()
    assert counted.done("GET", "/info$") == 1
    assert counted.done("GET", "/version$") == 2  # the first is for the version of the API itself
