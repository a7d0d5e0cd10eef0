"""The node image with another Kubernetes: its own name, versions and requirements, the same sources."""

import pytest

from holdfast import __version__
from holdfast.errors import UsageError
from holdfast.images.golang import binaries_key
from holdfast.images.recipe import Recipe
from holdfast.images.sources import load_source


def test_a_variant_has_its_own_name_label_and_flags():
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


def test_the_requirements_name_the_version_that_the_label_names():
    for kubernetes in ("", "1.33"):
        folder, source = load_source("node", kubernetes)
        assert f"k8s.io/kubernetes v{source.go.kubernetes}\n" in (folder / source.go.modfile).read_text()
        assert (folder / source.go.modfile.replace(".mod", ".sum")).is_file()


def test_a_change_of_the_variants_requirements_does_not_rebuild_the_usual_one(tmp_path):
    folder, source = load_source("node")
    for name in ("go.mod", "go.sum", "kubernetes-1.33.mod", "kubernetes-1.33.sum"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    before = binaries_key(tmp_path, source.go, "amd64")
    (tmp_path / "kubernetes-1.33.mod").write_text("changed")
    assert binaries_key(tmp_path, source.go, "amd64") == before
    (tmp_path / "go.mod").write_text("changed")
    assert binaries_key(tmp_path, source.go, "amd64") != before


@pytest.mark.parametrize(("image", "version"), [("node", "1.20"), ("gateway", "1.33")])
def test_a_variant_that_is_not_there_is_one_clear_line(image, version):
    with pytest.raises(UsageError, match=f"the {image} image cannot be built with Kubernetes {version}"):
        Recipe(image, version)
