"""The API against its own OpenAPI document, in front of a cluster where no pod runs.

Left out is the stream of events, which has no end and is shown in test_streams.py. Logs and files of a
sandbox that does run: tests/e2e/shared/test_api.py.
"""

from __future__ import annotations

import json

import pytest
from tests.support.schema_cases import run

pytestmark = [pytest.mark.apiserver]

ENDLESS = ("--exclude-operation-id", "watchSandbox")


@pytest.mark.timeout(600)
def test_a_hundred_examples_find_nothing(server, tmp_path):
    assert run(server, tmp_path, *ENDLESS, "--phases", "fuzzing,stateful", "--max-examples", "10") >= 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_examples_find_nothing(server, tmp_path):
    assert run(server, tmp_path, *ENDLESS, "--max-examples", "250") >= 2000


def test_the_document_says_what_is_checked(server):
    status, document = server.call("GET", "/schema/openapi.json")
    assert status == 200
    asked = document["components"]["schemas"]["SandboxRequest"]
    assert asked["required"] == ["name"]
    assert "pattern" in asked["properties"]["name"]
    assert asked["properties"]["env"]["propertyNames"]["pattern"]
    assert "Traceback" not in json.dumps(document)
