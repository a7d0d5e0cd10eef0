"""Importing the validation modules from several threads does not deadlock."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADS = """
import importlib, sys
from importlib import _bootstrap

PACKAGE, PART = "cryptography.x509", "cryptography.x509.oid"

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == PACKAGE and PART in _bootstrap._module_locks:
            sys.exit(f"{PACKAGE} is loaded while {PART} is held: two threads can wait for each other")

sys.meta_path.insert(0, Watch())
importlib.import_module(sys.argv[1])
sys.exit(0 if PART in sys.modules else "it does not load it at all")
"""


@pytest.mark.parametrize("door", ["validation", "authority"])
def test_package_is_imported_before_its_submodule(door):
    """CPython holds a part's lock while it loads its package, which then loads its parts."""
    module = f"holdfast.pki.{door}"
    ended = subprocess.run([sys.executable, "-c", LOADS, module], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_import_check_detects_wrong_order():
    module = "cryptography.x509.oid"
    ended = subprocess.run([sys.executable, "-c", LOADS, module], capture_output=True, text=True, check=False)
    assert "two threads can wait for each other" in ended.stderr
