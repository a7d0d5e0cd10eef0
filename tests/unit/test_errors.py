"""The error tree is complete: every error with a public code is in holdfast.errors, with a unique code."""

import importlib
import pkgutil
import re
from pathlib import Path

import holdfast
from holdfast import errors
from holdfast.errors import HoldfastError

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "errors.md"


def all_subclasses(base: type) -> set[type]:
    direct = set(base.__subclasses__())
    return direct.union(*(all_subclasses(each) for each in direct)) if direct else direct


def import_everything() -> None:
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)


def test_errors_with_a_code_are_defined_in_the_tree():
    import_everything()
    elsewhere = {
        error.__qualname__
        for error in all_subclasses(HoldfastError)
        if "code" in vars(error)
        and error.__module__ != errors.__name__
        and error.__module__.startswith("holdfast.")
    }
    assert elsewhere == set()


def test_codes_are_unique_and_written_with_dashes():
    tree = [
        HoldfastError,
        *(error for error in all_subclasses(HoldfastError) if error.__module__ == errors.__name__),
    ]
    codes = [vars(error)["code"] for error in tree if "code" in vars(error)]
    assert len(codes) == len(set(codes))
    assert [code for code in codes if not re.fullmatch(r"[a-z]+(-[a-z]+)*", code)] == []


def test_every_error_has_an_exit_code_of_the_contract():
    assert {error.exit_code for error in all_subclasses(HoldfastError)} <= {1, 2, 3, 4, 130}


def test_reference_lists_every_error_by_exit_code():
    tree = [HoldfastError, *all_subclasses(HoldfastError)]
    expected = {(error.exit_code, error.code, error.__name__) for error in tree if is_in_tree(error)}
    assert documented_errors() == expected


def is_in_tree(error: type) -> bool:
    return error.__module__ == errors.__name__


def documented_errors() -> set[tuple[int, str, str]]:
    """Exit code, code and class of each row; the exit code is in the row or in the heading above it."""
    rows, exit_code = set(), 0
    for line in REFERENCE.read_text().splitlines():
        if heading := re.search(r"\(exit code (\d+)\)", line):
            exit_code = int(heading[1])
        elif row := re.match(r"\| (?:(\d+) \| )?`([a-z-]+)` \| `(\w+)` \|", line):
            rows.add((int(row[1] or exit_code), row[2], row[3]))
    return rows
