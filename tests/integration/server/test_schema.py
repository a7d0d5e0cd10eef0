"""The API against its own OpenAPI document: cases made by schemathesis, all of its checks, a fixed seed.

What a client may ask for and the cluster may still refuse is answered with 422; that counts as an answer to
good input; everything else is judged as schemathesis does. Left out is the stream of events, which has no end
and is shown in test_streams.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.apiserver]

SEED = "20260101"
CONFIG = """\
[checks]
positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422", "429"]
"""
ENDLESS = "watchSandbox"


def run(server, folder, *options):
    """How many cases were made, once all of them passed all checks."""
    client = folder / "client.pem"
    client.write_bytes(server.bundle.client.certificate + b"\n" + server.bundle.client.key)
    (folder / "schemathesis.toml").write_text(CONFIG)
    words = [
        str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(folder / "schemathesis.toml"),
        "run", f"{server.url}/schema/openapi.json", "--checks", "all", "--seed", SEED, "--request-cert",
        str(client), "--tls-verify", str(server.folder / "ca"), "--request-timeout", "60", "--no-color",
        "--generation-database", "none", "--exclude-operation-id", ENDLESS, *options,
    ]  # fmt: skip
    ended = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
    assert ended.returncode == 0, ended.stdout[-20000:] + ended.stderr[-2000:]
    made = re.search(r"(\d+) generated, (\d+) passed", ended.stdout)
    assert made is not None, ended.stdout
    assert made[1] == made[2]
    return int(made[1])


@pytest.mark.timeout(600)
def test_a_hundred_examples_find_nothing(server, tmp_path):
    assert run(server, tmp_path, "--phases", "fuzzing,stateful", "--max-examples", "10") >= 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_examples_find_nothing(server, tmp_path):
    assert run(server, tmp_path, "--max-examples", "250") >= 2000


def test_the_document_says_what_is_checked(server):
    status, document = server.call("GET", "/schema/openapi.json")
    assert status == 200
    asked = document["components"]["schemas"]["SandboxRequest"]
    assert asked["required"] == ["name"]
    assert "pattern" in asked["properties"]["name"]
    assert asked["properties"]["env"]["propertyNames"]["pattern"]
    assert "Traceback" not in json.dumps(document)
