"""Image references: what an engine could mean by them."""

import pytest

from holdfast.containers.images import check_reference
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
def test_references_are_taken(reference):
    assert check_reference(reference) == reference


@pytest.mark.parametrize(
    "reference", ["", "UPPER/case", "a b", "a:b:c", "-x", "a//", "$(x)", "../x", "a@sha256:12"]
)
def test_rubbish_is_refused_before_any_effect(reference):
    with pytest.raises(UsageError) as caught:
        check_reference(reference)
    assert caught.value.exit_code == 2
