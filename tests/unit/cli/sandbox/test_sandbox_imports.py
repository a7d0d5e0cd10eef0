"""`sandbox exec` and `sandbox cp` load only what they use: their start-up time is mostly imports."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from holdfast.cli import cli
from holdfast.cli.output import run_command

run_command(cli, ["sandbox", sys.argv[1], "--help"])
import holdfast.cli.sandbox.terminal
from holdfast.gateway import Gateway, api_access, resolve_gateway_name

Gateway("dev").sandbox("a")
if sys.argv[1] == "exec":
    import holdfast.client.exec, holdfast.client.websocket
else:
    import holdfast.client.copy
print(*sys.modules, file=sys.stderr)
"""
FORBIDDEN = {
    "holdfast.gateway.commands", "holdfast.gateway.plan", "holdfast.gateway.base_steps", "holdfast.workflow",
    "holdfast.workflow.runner", "holdfast.gateway.hosts", "holdfast.containers", "holdfast.remote",
    "docker", "kubernetes", "cryptography", "rich", "sqlite3", "yaml", "litestar",
}  # fmt: skip


def loaded_modules(command):
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, command], capture_output=True, text=True, check=True
    )
    return set(result.stderr.split())


@pytest.mark.parametrize("command", ["exec", "cp"])
def test_neither_gateway_plans_nor_heavy_libraries_are_loaded(command):
    loaded = loaded_modules(command)
    assert "holdfast.client.sandbox" in loaded
    assert not FORBIDDEN & loaded


def test_exec_loads_no_http_client_and_no_renderer():
    assert not {"aiohttp", "holdfast.cli.output.plain", "tarfile"} & loaded_modules("exec")
