"""The layer of the sandbox image: the runtime alone, started so that nothing else can be imported into it."""

import ast
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from holdfast.images.assembly import LAYER, write_layer
from holdfast.images.build import image_steps
from holdfast.images.cache import Cache
from holdfast.images.recipe import Recipe

RUNTIME = Path(__file__).resolve().parents[3] / "src" / "holdfast" / "runtime"


@pytest.fixture
def layer(tmp_path):
    write_layer(Recipe("sandbox"), tmp_path, rootfs=tmp_path, binaries=None)
    with tarfile.open(tmp_path / LAYER) as tar:
        yield tar


def test_of_holdfast_only_the_runtime_is_in_it(layer):
    below = "usr/lib/holdfast/runtime/holdfast/"
    found = {name for name in layer.getnames() if name.startswith(below) and name.endswith(".py")}
    assert found == {f"{below}runtime/{path.name}" for path in RUNTIME.glob("*.py")}


def test_the_workspace_belongs_to_whom_the_image_runs_as(layer):
    entry = layer.getmember("sandbox")
    assert entry.isdir()
    assert (entry.uid, entry.gid) == (1000, 1000)
    assert {entry.uid for entry in layer if entry.name != "sandbox"} == {0}


def test_no_dependencies_are_installed_for_it(tmp_path):
    names = [step.name for step in image_steps(Recipe("sandbox"), None, Cache())]
    assert names == ["build-rootfs-sandbox", "build-layer-sandbox", "load-sandbox"]


def test_only_a_change_of_the_runtime_makes_another_image(tmp_path, monkeypatch):
    copy = tmp_path / "holdfast"
    shutil.copytree(RUNTIME.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("holdfast.images.python_layer.package_folder", lambda: copy)
    before = Recipe("sandbox").layer_key
    (copy / "errors.py").write_text("# changed")
    assert Recipe("sandbox").layer_key == before
    (copy / "runtime" / "server.py").write_text("# changed")
    assert Recipe("sandbox").layer_key != before


def test_it_starts_from_its_folder_whatever_lies_where_it_runs(layer, tmp_path):
    layer.extractall(tmp_path / "root", filter="tar")
    work = tmp_path / "work"
    work.mkdir()
    for name in ("json", "socket", "holdfast", "sitecustomize"):
        (work / f"{name}.py").write_text("raise SystemExit(9)")
    ended = subprocess.run(
        [sys.executable, "-I", tmp_path / "root" / "usr/lib/holdfast/runtime", "other"],
        cwd=work, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr == "there is no 'other': serve or router\n"


def test_the_runtime_imports_the_standard_library_and_itself_alone():
    for path in RUNTIME.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                known = name.split(".")[0] in sys.stdlib_module_names or name.startswith("holdfast.runtime")
                assert known, f"{path.name} imports {name}"
