"""Options of `create` are checked before a request is sent."""

import msgspec
import pytest

from holdfast.api import SandboxOptions, SandboxRequest
from holdfast.errors import UsageError
from holdfast.sandbox import build_request, from_request

MEMORY_PROBLEMS = {
    "512": "512: less than the minimum of 16Mi; write 512Mi",
    "512m": "512m: less than the minimum of 16Mi; write 512Mi",
    "1k": "1k: less than the minimum of 16Mi; write 512Mi",
    "8Mi": "8Mi: less than the minimum of 16Mi; write 512Mi",
    "16M": "16M: less than the minimum of 16Mi; write 16Mi",
    "512MB": "512MB: not an amount of memory; write 512Mi",
    "512mib": "512mib: not an amount of memory; write 512Mi",
    "0.5 gb": "0.5 gb: not an amount of memory; write 0.5Gi",
    "": "'': not an amount of memory; write 512Mi",
    "-1Gi": "-1Gi: not an amount of memory; write 512Mi",
    "\x1b[2J": "'\\x1b[2J': not an amount of memory; write 512Mi",
}


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


@pytest.mark.parametrize("limit", MEMORY_PROBLEMS)
def test_memory_that_no_container_starts_with_is_rejected_with_the_value_to_write(limit):
    with pytest.raises(UsageError) as caught:
        build_request("a", memory=limit)
    assert str(caught.value) == f"memory {MEMORY_PROBLEMS[limit]}"


@pytest.mark.parametrize("limit", ["16Mi", "17M", "65536Ki", "1.5Gi", "16777216", "2Gi"])
def test_other_amounts_of_memory_are_accepted(limit):
    assert build_request("a", memory=limit).memory == limit


def test_server_rejects_too_little_memory_of_other_clients():
    with pytest.raises(UsageError, match=r"^memory 512: less than the minimum of 16Mi"):
        from_request.sandbox_manifest(SandboxRequest(name="a", memory="512"), namespace="ns", endpoint=None)
