"""The layer of the sandbox image contains only the runtime, which imports no file of the workspace."""

import ast
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from holdfast.images.build import LAYER_FILE, image_steps, write_layer
from holdfast.images.recipe import Recipe

RUNTIME = Path(__file__).resolve().parents[3] / "src" / "holdfast" / "runtime"


@pytest.fixture
def layer(tmp_path):
    write_layer(Recipe("sandbox"), tmp_path, rootfs=tmp_path, binaries=None)
    with tarfile.open(tmp_path / LAYER_FILE) as tar:
        yield tar


def test_contains_only_runtime_package(layer):
    below = "usr/lib/holdfast/runtime/holdfast/"
    found = {name for name in layer.getnames() if name.startswith(below) and name.endswith(".py")}
    assert found == {f"{below}runtime/{path.name}" for path in RUNTIME.glob("*.py")}


def test_workspace_belongs_to_image_user(layer):
    entry = layer.getmember("sandbox")
    assert entry.isdir()
    assert (entry.uid, entry.gid) == (1000, 1000)
    assert {entry.uid for entry in layer if entry.name != "sandbox"} == {0}


def test_installs_uv_but_no_dependencies(tmp_path):
    names = [step.name for step in image_steps(Recipe("sandbox"), None)]
    assert names == ["build-rootfs-sandbox", "build-uv-sandbox", "build-layer-sandbox", "load-sandbox"]


def test_workspace_is_empty(layer):
    assert [name for name in layer.getnames() if name.startswith("sandbox/")] == []


def test_only_runtime_changes_change_image(tmp_path, monkeypatch):
    copy = tmp_path / "holdfast"
    shutil.copytree(RUNTIME.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("holdfast.images.python_layer.package_directory", lambda: copy)
    before = Recipe("sandbox").layer_key
    (copy / "errors.py").write_text("# changed")
    assert Recipe("sandbox").layer_key == before
    (copy / "runtime" / "server.py").write_text("# changed")
    assert Recipe("sandbox").layer_key != before


def test_starts_independently_of_working_directory(layer, tmp_path):
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
    assert ended.stderr == "unknown command 'other'; use serve or router\n"


def test_runtime_imports_only_standard_library():
    for path in RUNTIME.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                known = name.split(".")[0] in sys.stdlib_module_names or name.startswith("holdfast.runtime")
                assert known, f"{path.name} imports {name}"
