"""The public names are all there, and describing a workflow loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import holdfast
from holdfast import engine


def test_every_public_name_can_be_had():
    assert sorted(engine.__all__) == sorted(set(engine.__all__))
    for name in engine.__all__:
        assert getattr(engine, name) is not None
    assert holdfast.Workflow is engine.Workflow


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(engine, "Nothing")


def test_importing_it_loads_neither_sqlite_nor_clients():
    code = (
        "import sys; from holdfast.engine import Step, Workflow;"
        "Workflow('w', [Step('a', run=print, repeat='safe')]);"
        "print(sorted({'sqlite3', 'docker', 'kubernetes', 'subprocess', 'rich'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
