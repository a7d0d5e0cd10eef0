"""The root package: exactly the names it promises, each loaded on first use."""

import subprocess
import sys

import holdfast


def test_every_public_name_exists():
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None


def test_no_other_name_is_public():
    assert sorted(set(dir(holdfast))) == sorted(holdfast.__all__)


def test_missing_name_is_an_attribute_error():
    assert not hasattr(holdfast, "no_such_name")


def test_importing_root_loads_no_subpackage():
    code = "import sys, holdfast; print([m for m in sys.modules if m.startswith('holdfast.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "['holdfast.lazy_exports']"
