"""`holdfast version`: the versions of holdfast, Python, the node image contract and the JSON output."""

from __future__ import annotations

import platform

import click

from holdfast import __version__
from holdfast.cli.click_extensions import json_option
from holdfast.cli.output import JSON_SCHEMA_VERSION, print_result
from holdfast.gateway import CONTRACT_VERSION


@click.command()
@json_option
def version() -> None:
    """Show the versions of holdfast, Python, the node image contract and the JSON output."""
    versions = {
        "holdfast": __version__,
        "python": platform.python_version(),
        "node_contract": CONTRACT_VERSION,
        "json_schema": JSON_SCHEMA_VERSION,
    }
    print_result(versions, [f"{name.replace('_', ' '):<13} {value}" for name, value in versions.items()])
