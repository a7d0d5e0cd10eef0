"""Checked by mypy and pyright, never run: the error tree as a caller sees it."""

from typing import assert_type

from holdfast.errors import HoldfastError, PermanentError


def hint_of(error: HoldfastError) -> str:
    assert_type(error.cause, BaseException | None)
    return error.hint


assert_type(PermanentError.exit_code, int)
