"""Image builds with the real tools: stages are cached, and an interruption leaves no partial stage."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.holdfast_cli import HoldfastCli

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def empty_cache(tmp_path):
    """The command line with an empty build cache."""
    return HoldfastCli(tmp_path / "home", HOLDFAST_CACHE=str(tmp_path / "cache"))


def started_tools(cache):
    """Processes of a build that still work below a cache."""
    found = subprocess.run(["pgrep", "-af", str(cache)], capture_output=True, text=True, check=False)
    return found.stdout


def test_up_to_date_image_is_not_rebuilt(tmp_path):
    holdfast = HoldfastCli(tmp_path)
    built = holdfast.json("image", "build")
    assert [one["changed"] for one in built] == [False, False, False]
    states = holdfast.json("image", "list")
    assert {one["state"] for one in states if not one["optional"]} == {"up to date"}
    assert {one["state"] for one in states if one["optional"]} <= {"up to date", "outdated", "not built"}


def test_unknown_image_is_rejected(empty_cache):
    ended = empty_cache.run("image", "build", "nod")
    assert ended.returncode == 2
    assert "node, gateway, sandbox" in ended.stderr


def test_ctrl_c_stops_tools_and_leaves_no_partial_output(empty_cache, tmp_path):
    running = empty_cache.start("image", "build", "sandbox", "--json")
    for line in running.stderr:
        if "downloading" in line:
            running.send_signal(signal.SIGINT)
            break
    _, told = running.communicate(timeout=60)
    assert running.returncode == 130, told
    assert "Traceback" not in told
    assert started_tools(tmp_path / "cache") == ""
    shelf = tmp_path / "cache" / "images" / "build-rootfs-sandbox"
    assert [path.name for path in shelf.iterdir()] == []


@contextmanager
def small_disk(folder, megabytes):
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_full_disk_is_reported_and_finished_stages_are_kept(empty_cache, tmp_path):
    with small_disk(tmp_path / "cache", 150):
        ended = empty_cache.run("image", "build", "gateway")
        assert ended.returncode == 3, ended.stderr
        assert "disk-full" in ended.stderr
        assert "Traceback" not in ended.stderr
        kept = {path.name for path in (tmp_path / "cache" / "images").iterdir()}
        assert list((tmp_path / "cache" / "images" / "build-rootfs-gateway").glob("*")) == []
    assert "build-dependencies-gateway" in kept


KEYS = """
from holdfast.images.recipe import Recipe
print(*[Recipe(name).key for name in ("node", "gateway", "sandbox")])
"""


def keys_of(package_parent, cwd):
    ended = subprocess.run(
        [sys.executable, "-c", KEYS], env={**os.environ, "PYTHONPATH": str(package_parent)},
        capture_output=True, text=True, check=True, cwd=cwd,
    )  # fmt: skip
    return ended.stdout.split()


def test_wheel_and_clone_build_identical_images(tmp_path):
    """The image sources travel with the package: the same inputs, so the same keys."""
    uv = str(Path(sys.executable).parent / "uv")
    subprocess.run(
        [
            uv,
            "build",
            "--quiet",
            "--wheel",
            "--no-build-isolation",
            "--python",
            sys.executable,
            "--out-dir",
            tmp_path,
            ROOT,
        ],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    shutil.unpack_archive(wheel, tmp_path / "installed", "zip")
    from_wheel, from_clone = keys_of(tmp_path / "installed", tmp_path), keys_of(ROOT / "src", tmp_path)
    assert from_wheel == from_clone
    assert len(set(from_wheel)) == 3
