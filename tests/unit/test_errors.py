"""The error tree is complete: every error with a public code is in holdfast.errors, with a unique code."""

import importlib
import pkgutil
import re

import holdfast
from holdfast import errors
from holdfast.errors import HoldfastError


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
