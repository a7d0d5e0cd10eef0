"""The optional image `sandbox-full` is the sandbox image with more packages."""

from holdfast.images import image_toml
from holdfast.images.build import image_steps
from holdfast.images.image_toml import IMAGE_NAMES, OPTIONAL_IMAGE_NAMES, load_image_source
from holdfast.images.recipe import Recipe, image_reference


def test_full_image_contains_everything_of_the_sandbox_image():
    base_folder, base = load_image_source("sandbox")
    folder, full = load_image_source("sandbox-full")
    assert folder == base_folder
    assert full.name == "holdfast/sandbox-full"
    assert full.debian.packages[: len(base.debian.packages)] == base.debian.packages
    assert {"gcc", "nodejs", "npm"} <= set(full.debian.packages) - set(base.debian.packages)
    assert full.debian.removed_paths == base.debian.removed_paths
    assert base.config.environment.items() <= full.config.environment.items()
    assert (full.files, full.python, full.config.user) == (base.files, base.python, base.config.user)


def test_packages_are_listed_once():
    packages = load_image_source("sandbox-full")[1].debian.packages
    assert len(set(packages)) == len(packages)


def test_full_image_has_own_name_and_keys():
    base, full = Recipe("sandbox"), Recipe("sandbox-full")
    assert full.reference == image_reference("sandbox-full") != base.reference
    assert full.rootfs_key != base.rootfs_key
    assert full.uv_key == base.uv_key
    assert full.key != base.key


def test_full_image_is_built_by_name_only():
    assert "sandbox-full" not in IMAGE_NAMES
    assert OPTIONAL_IMAGE_NAMES == ("sandbox-full",)
    names = [step.name for step in image_steps(Recipe("sandbox-full"), None)]
    assert names == [
        "build-rootfs-sandbox-full",
        "build-uv-sandbox-full",
        "build-layer-sandbox-full",
        "load-sandbox-full",
    ]


def test_uv_is_installed_from_the_locked_requirements(monkeypatch, tmp_path):
    lock = image_toml.requirements_file("uv").read_text()
    assert "uv==" in lock
    assert "--hash=sha256:" in lock
    before = Recipe("sandbox")
    other = tmp_path / "uv.txt"
    other.write_text(lock.replace("uv==", "uv==0.0"))
    key = before.key
    monkeypatch.setattr("holdfast.images.python_layer.requirements_file", lambda name: other)
    assert Recipe("sandbox").key != key
