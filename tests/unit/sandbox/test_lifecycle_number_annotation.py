"""Numbers in annotations, which users can write."""

import pytest

from holdfast.sandbox.lifecycle import number_annotation


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("0", 0), ("", 0), ("-1", 0), ("x", 0), ("²", 0), ("999999999", 999999999), ("9" * 5000, 0)],
)
def test_only_short_decimal_numbers_count(text, number):
    assert number_annotation({"metadata": {"annotations": {"n": text}}}, "n") == number


def test_missing_annotation_is_zero():
    assert number_annotation({"metadata": {}}, "n") == 0
