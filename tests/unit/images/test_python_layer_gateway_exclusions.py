"""No module that the processes of the gateway image load is excluded from the image."""

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
from holdfast.cli.output import run_command
from holdfast.cli import cli
for words in (["controller", "run", "--help"], ["server", "run", "--help"], ["no-such-command"]):
    run_command(cli, words)
from kubernetes.aio import client, config, stream, watch

async def main():
    await client.ApiClient(client.Configuration()).close()

asyncio.run(main())
for module in list(sys.modules.values()):
    if getattr(module, "__file__", None):
        print("loaded", module.__file__)
"""


@pytest.fixture(scope="module")
def loaded_modules():
    ended = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    files = [line.removeprefix("loaded ") for line in ended.stdout.splitlines() if line.startswith("loaded ")]
    below = Path(msgspec.__file__).parents[1]
    return [str(Path(file).relative_to(below)) for file in files if Path(file).is_relative_to(below)]


def test_module_probe_sees_loaded_files(loaded_modules):
    packages = {Path(file).parts[0] for file in loaded_modules}
    assert {"litestar", "uvicorn", "aiohttp", "kubernetes", "msgspec"} <= packages


@pytest.mark.parametrize("pattern", Recipe("gateway").source.python.excluded_files)
def test_no_loaded_file_is_excluded(loaded_modules, pattern):
    assert [
        file for file in loaded_modules if fnmatch.fnmatch(file, pattern) or file.startswith(f"{pattern}/")
    ] == []
