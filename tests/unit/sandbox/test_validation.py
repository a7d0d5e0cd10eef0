"""Options of `create` are checked before a request is sent."""

import msgspec
import pytest

from holdfast.api import SandboxOptions, SandboxRequest
from holdfast.errors import UsageError
from holdfast.sandbox import build_request


def test_typed_options_are_the_fields_of_a_request():
    fields = {field.name for field in msgspec.structs.fields(SandboxRequest)}
    assert SandboxOptions.__annotations__.keys() == fields - {"name", "image"}


@pytest.mark.parametrize("value", ["1Gi", None])
def test_misspelt_option_is_rejected_with_the_correct_name(value):
    with pytest.raises(UsageError) as caught:
        build_request("a", memroy=value)
    assert str(caught.value) == "memroy: unknown option; did you mean memory?"
    assert "cpu, env, failed_pods" in caught.value.hint


def test_option_that_resembles_no_other_is_rejected_with_a_list():
    with pytest.raises(UsageError, match=r"^gpus: unknown option$") as caught:
        build_request("a", gpus=1)
    assert "labels, memory" in caught.value.hint
