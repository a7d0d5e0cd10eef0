"""`holdfast version`: the versions for bug reports and scripts."""

import json
import platform

import pytest

from holdfast import __version__
from holdfast.cli import cli
from holdfast.cli.output import JSON_SCHEMA_VERSION, run_command


def test_version_names_holdfast_python_contract_and_schema(capsys):
    assert run_command(cli, ["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "holdfast": __version__,
        "python": platform.python_version(),
        "node_contract": "1",
        "json_schema": JSON_SCHEMA_VERSION,
    }


@pytest.mark.parametrize("args", [["version"], ["--version"]], ids=" ".join)
def test_version_as_text(capsys, args):
    assert run_command(cli, args) == 0
    assert __version__ in capsys.readouterr().out
