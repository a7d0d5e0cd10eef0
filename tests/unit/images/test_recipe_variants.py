"""The node image with another Kubernetes version: name, versions and module files."""

import pytest

from holdfast import __version__
from holdfast.errors import UsageError
from holdfast.images.go_build import binaries_key
from holdfast.images.image_toml import load_image_source
from holdfast.images.recipe import Recipe


def test_variant_has_own_name_label_and_flags():
    usual, older = Recipe("node"), Recipe("node", "1.33")
    assert older.reference == f"holdfast/node:{__version__}-k1.33"
    assert usual.reference == f"holdfast/node:{__version__}"
    for recipe, version in ((usual, usual.source.go.kubernetes), (older, older.source.go.kubernetes)):
        assert recipe.source.config.labels["dev.holdfast.kubernetes"] == f"v{version}"
        assert f"-X k8s.io/component-base/version.gitVersion=v{version}" in recipe.source.go.ldflags
        minor = version.split(".")[1]
        assert f"-X k8s.io/component-base/version.gitMinor={minor}" in recipe.source.go.ldflags
    assert older.source.go.kubernetes.startswith("1.33.")
    assert older.binaries_key != usual.binaries_key
    assert older.rootfs_key == usual.rootfs_key


def test_requirements_match_labelled_version():
    for kubernetes in ("", "1.33"):
        folder, source = load_image_source("node", kubernetes)
        assert f"k8s.io/kubernetes v{source.go.kubernetes}\n" in (folder / source.go.modfile).read_text()
        assert (folder / source.go.modfile.replace(".mod", ".sum")).is_file()


def test_variant_requirements_do_not_rebuild_default(tmp_path):
    folder, source = load_image_source("node")
    for name in ("go.mod", "go.sum", "kubernetes-1.33.mod", "kubernetes-1.33.sum"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    before = binaries_key(tmp_path, source.go, "amd64")
    (tmp_path / "kubernetes-1.33.mod").write_text("changed")
    assert binaries_key(tmp_path, source.go, "amd64") == before
    (tmp_path / "go.mod").write_text("changed")
    assert binaries_key(tmp_path, source.go, "amd64") != before


@pytest.mark.parametrize(("image", "version"), [("node", "1.20"), ("gateway", "1.33")])
def test_unknown_variant_is_reported_in_one_line(image, version):
    with pytest.raises(UsageError, match=f"the {image} image cannot be built with Kubernetes {version}"):
        Recipe(image, version)
