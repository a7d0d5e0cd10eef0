"""The package exports its public names, and describing a workflow loads no heavy module."""

from __future__ import annotations

import subprocess
import sys

import holdfast
from holdfast import workflow


def test_every_public_name_is_importable():
    assert sorted(workflow.__all__) == sorted(set(workflow.__all__))
    for name in workflow.__all__:
        assert getattr(workflow, name) is not None
    assert holdfast.Workflow is workflow.Workflow


def test_unknown_name_is_an_attribute_error():
    assert not hasattr(workflow, "Nothing")


def test_import_loads_neither_sqlite_nor_clients():
    code = (
        "import sys; from holdfast.workflow import Step, Workflow;"
        "Workflow('w', [Step('a', run=print, repeat='safe')]);"
        "print(sorted({'sqlite3', 'docker', 'kubernetes', 'subprocess', 'rich'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
