"""Arguments of the client for all sandboxes, without a gateway."""

import pytest

from holdfast.client import Sandboxes
from holdfast.errors import ArgumentTypeError


def test_label_selector_of_another_type_is_rejected_with_its_form():
    with Sandboxes(pytest.fail) as sandboxes, pytest.raises(ArgumentTypeError) as caught:
        list(sandboxes.list(label={"team": "blue"}))
    assert str(caught.value) == "label: must be text of the form 'key=value', not {'team': 'blue'}"
