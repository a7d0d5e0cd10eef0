"""Cases that schemathesis makes from the API's own document: all of its checks, a fixed seed.

What a client may ask for and the cluster may still refuse is answered with 422; that counts as an answer to
good input; everything else is judged as schemathesis does.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

SEED = "20260101"
CONFIG = """\
[checks]
positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422", "429"]
"""


def run_schemathesis(server, folder, *options, config=""):
    """How many cases were made, once all of them passed all checks."""
    client = folder / "client.pem"
    client.write_bytes(server.bundle.client.certificate + b"\n" + server.bundle.client.key)
    (folder / "schemathesis.toml").write_text(CONFIG + config)
    words = [
        str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(folder / "schemathesis.toml"),
        "run", f"{server.url}/schema/openapi.json", "--checks", "all", "--seed", SEED, "--request-cert",
        str(client), "--tls-verify", str(server.folder / "ca"), "--request-timeout", "60", "--no-color",
        "--generation-database", "none", *options,
    ]  # fmt: skip
    ended = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
    assert ended.returncode == 0, ended.stdout[-20000:] + ended.stderr[-2000:]
    made = re.search(r"(\d+) generated, (\d+) passed", ended.stdout)
    assert made is not None, ended.stdout
    assert made[1] == made[2]
    return int(made[1])


def statuses_by_operation(path):
    """What each method and last part of a path was answered with, from a report in the form of a HAR."""
    found = defaultdict(set)
    for entry in json.loads(path.read_text())["log"]["entries"]:
        asked = entry["request"]
        last = asked["url"].partition("?")[0].rpartition("/")[2]
        found[f"{asked['method']} {last}"].add(entry["response"]["status"])
    return found
