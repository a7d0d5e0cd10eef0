"""Validation of image references."""

import pytest

from holdfast.containers.images import validate_reference
from holdfast.errors import UsageError


@pytest.mark.parametrize(
    "reference",
    [
        "holdfast/node:0.1.0",
        "node",
        "localhost:5000/a/b:tag",
        "r.example/x@sha256:" + "a" * 64,
        "sha256:" + "0" * 64,
    ],
)
def test_valid_references_are_accepted(reference):
    assert validate_reference(reference) == reference


@pytest.mark.parametrize(
    "reference", ["", "UPPER/case", "a b", "a:b:c", "-x", "a//", "$(x)", "../x", "a@sha256:12"]
)
def test_invalid_references_are_rejected_before_any_effect(reference):
    with pytest.raises(UsageError) as caught:
        validate_reference(reference)
    assert caught.value.exit_code == 2
