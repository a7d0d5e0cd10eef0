"""The API against its own OpenAPI document, in front of a cluster where no pod runs.

Left out are the streams of events, which have no end: test_event_streams.py. Logs and files of a
sandbox that does run: tests/e2e/shared/test_sandbox_streams.py.
"""

from __future__ import annotations

import json

import pytest
from tests.support.schemathesis import run_schemathesis

pytestmark = [pytest.mark.apiserver]

EXCLUDE_WATCH_OPTIONS = (
    "--exclude-operation-id", "watchSandbox", "--exclude-operation-id", "watchSandboxes",
    "--exclude-operation-id", "watchPool",
)  # fmt: skip


@pytest.mark.timeout(600)
def test_hundred_examples_pass(server, tmp_path):
    assert (
        run_schemathesis(
            server, tmp_path, *EXCLUDE_WATCH_OPTIONS, "--phases", "fuzzing,stateful", "--max-examples", "10"
        )
        >= 100
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_examples_pass(server, tmp_path):
    assert run_schemathesis(server, tmp_path, *EXCLUDE_WATCH_OPTIONS, "--max-examples", "250") >= 2000


def test_openapi_document_describes_validation(server):
    status, document = server.request_json("GET", "/schema/openapi.json")
    assert status == 200
    asked = document["components"]["schemas"]["SandboxRequest"]
    assert asked["required"] == ["name"]
    assert "pattern" in asked["properties"]["name"]
    assert asked["properties"]["env"]["propertyNames"]["pattern"]
    schemas = document["components"]["schemas"]
    assert schemas["PoolRequest"]["properties"]["size"] | {"default": 1} == {
        "type": "integer", "minimum": 0, "maximum": 1000, "default": 1,
    }  # fmt: skip
    assert schemas["TemplateRequest"]["required"] == ["name"]
    body = document["paths"]["/v1/pools/{name}"]["patch"]["requestBody"]["content"]["application/json"]
    assert body["schema"] == {"$ref": "#/components/schemas/PoolChange"}
    assert "Traceback" not in json.dumps(document)
