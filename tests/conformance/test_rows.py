"""Each row of the published sandbox API holds, is listed as missing, or is shown by another test."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.conformance.outstanding import MISSING, TESTED_ELSEWHERE, UNTESTED
from tests.conformance.rows_claims import CLAIM_ROWS
from tests.conformance.rows_pools import POOL_ROWS
from tests.conformance.rows_sandboxes import SANDBOX_ROWS
from tests.conformance.table import SECTIONS

REPOSITORY = Path(__file__).resolve().parents[2]
ROWS = [*SANDBOX_ROWS, *CLAIM_ROWS, *POOL_ROWS]

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]


@pytest.mark.parametrize("row", [row for row in ROWS if row.name not in MISSING], ids=lambda row: row.name)
def test_row_holds(world, row):
    assert row.observe(world.seen(row.scenario)) == row.expected


@pytest.mark.parametrize("row", [row for row in ROWS if row.name in MISSING], ids=lambda row: row.name)
def test_missing_row_is_still_missing(world, row):
    """Remove a row from the list as soon as it holds."""
    try:
        found = row.observe(world.seen(row.scenario))
    except Exception:  # noqa: BLE001 (a scenario that needs the missing row may fail in any way)
        return
    assert found != row.expected, f"{row.name} holds: remove it from MISSING"


def test_every_row_is_in_one_list_and_every_section_has_rows():
    rows = [*ROWS, *TESTED_ELSEWHERE, *UNTESTED]
    names = [row.name for row in rows]
    assert sorted(set(names)) == sorted(names)
    assert {row.section for row in rows} == set(SECTIONS)
    assert {int(section.split()[0]) for section in SECTIONS} == set(range(1, 16))
    assert MISSING.keys() <= {row.name for row in ROWS}


@pytest.mark.parametrize(
    "test", sorted({test for row in TESTED_ELSEWHERE for test in row.tests}), ids=lambda test: test
)
def test_test_of_row_exists(test):
    path, _, name = test.partition("::")
    module = ast.parse((REPOSITORY / path).read_text())
    assert name.startswith("test_")
    assert name in {node.name for node in module.body if isinstance(node, ast.FunctionDef)}
