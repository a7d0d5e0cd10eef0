"""Much is left out of the gateway image to keep it small: nothing that its processes load may be among it."""

import fnmatch
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.images.recipe import Recipe

LOADED = """
import asyncio, importlib, pkgutil, sys
import holdfast.controller, holdfast.server, holdfast.kube, holdfast.events
for package in (holdfast.controller, holdfast.server, holdfast.kube):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
from holdfast.cli.ending import exit_code_of
from holdfast.cli import cli
for words in (["controller", "run", "--help"], ["server", "run", "--help"], ["no-such-command"]):
    exit_code_of(cli, words)
from kubernetes.aio import client, config, stream, watch

async def main():
    await client.ApiClient(client.Configuration()).close()

asyncio.run(main())
for module in list(sys.modules.values()):
    if getattr(module, "__file__", None):
        print("loaded", module.__file__)
"""


@pytest.fixture(scope="module")
def loaded():
    ended = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    files = [line.removeprefix("loaded ") for line in ended.stdout.splitlines() if line.startswith("loaded ")]
    below = Path(msgspec.__file__).parents[1]
    return [str(Path(file).relative_to(below)) for file in files if Path(file).is_relative_to(below)]


def test_the_look_sees_what_the_processes_are_made_of(loaded):
    packages = {Path(file).parts[0] for file in loaded}
    assert {"litestar", "uvicorn", "aiohttp", "kubernetes", "msgspec"} <= packages


@pytest.mark.parametrize("pattern", Recipe("gateway").source.python.left_out)
def test_nothing_that_is_loaded_is_left_out(loaded, pattern):
    assert [file for file in loaded if fnmatch.fnmatch(file, pattern) or file.startswith(f"{pattern}/")] == []
