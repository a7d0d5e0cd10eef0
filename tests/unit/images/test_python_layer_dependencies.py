"""The dependencies layer: its files, and that Python can import them."""

import subprocess
import sys
import tarfile

import pytest

from holdfast.errors import ImageBuildError
from holdfast.images.image_toml import PythonPackages
from holdfast.images.python_layer import pack_dependencies

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def installed_packages(tmp_path):
    for name, text in {
        "used/__init__.py": "from used.part import WORD\n",
        "used/part.py": "WORD = open(__file__.rpartition('/')[0] + '/word.txt').read()\n",
        "used/part.pyi": "WORD: str\n",
        "used/word.txt": "hello",
        "used/models/__init__.py": "",
        "used/models/v1_pod.py": "raise RuntimeError\n",
        "unused/__init__.py": "",
    }.items():
        path = tmp_path / "installed" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "installed"


def packed(installed, **wanted):
    target = installed.parent / "layer.tar"
    pack_dependencies(PythonPackages(prefix="/opt", **{"version": HERE, **wanted}), installed, target)
    with tarfile.open(target) as tar:
        tar.extractall(installed.parent / "image", filter="data")
        return {entry.name for entry in tar if entry.isfile()}


def test_packages_are_importable_bytecode(installed_packages):
    assert packed(installed_packages, excluded_files=("unused",)) == {
        "opt/used/__init__.pyc",
        "opt/used/part.pyc",
        "opt/used/word.txt",
        "opt/used/models/__init__.pyc",
        "opt/used/models/v1_pod.pyc",
    }
    words = "import sys; sys.path.insert(0, sys.argv[1]); import used; print(used.WORD)"
    argv = [sys.executable, "-I", "-c", words, str(installed_packages.parent / "image" / "opt")]
    assert subprocess.run(argv, capture_output=True, check=True, text=True).stdout == "hello\n"


def test_other_python_version_gets_sources(installed_packages):
    assert {"opt/used/__init__.py", "opt/used/part.py"} <= packed(installed_packages, version="3.99")


def test_files_are_excluded_by_pattern(installed_packages):
    names = packed(installed_packages, excluded_files=("used/models/[a-z]*", "unused"))
    assert "opt/used/models/__init__.pyc" in names
    assert not any("v1_pod" in name or "unused" in name for name in names)


def test_unmatched_pattern_is_reported(installed_packages):
    with pytest.raises(ImageBuildError, match=r"pattern gone/\*: no installed file matches"):
        packed(installed_packages, excluded_files=("gone/*",))
