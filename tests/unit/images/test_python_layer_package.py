"""The layer with the holdfast package contains its data files, and they are part of the cache key."""

import tarfile

import pytest

from holdfast.images import python_layer
from holdfast.images.image_archive import LayerWriter
from holdfast.images.image_toml import PythonPackages

PYTHON = PythonPackages(version="0.0", prefix="/opt")


def test_layer_contains_every_yaml_file(tmp_path):
    with LayerWriter(tmp_path / "layer.tar") as layer:
        python_layer.add_package(layer, PYTHON)
    with tarfile.open(tmp_path / "layer.tar") as tar:
        found = {name for name in tar.getnames() if name.endswith(".yaml")}
    kinds = ("sandbox", "sandboxtemplate", "sandboxwarmpool", "sandboxclaim")
    assert found == {
        *(f"opt/holdfast/api/crds/{kind}.yaml" for kind in kinds),
        "opt/holdfast/gateway/cluster/api-server.yaml",
        "opt/holdfast/gateway/cluster/controller.yaml",
    }


@pytest.mark.parametrize("name", ["module.py", "__init__.pyi", "crds/sandbox.yaml"])
def test_changed_file_changes_cache_key(monkeypatch, tmp_path, name):
    monkeypatch.setattr(python_layer, "package_directory", lambda: tmp_path)
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("a")
    before = python_layer.package_key(PYTHON)
    file.write_text("b")
    assert python_layer.package_key(PYTHON) != before
