"""Records of background commands, which programs in the sandbox can change."""

import pytest

from holdfast.client.command_records import parse_records


def fields(*values):
    return b"".join(value.encode() + b"\0" for value in values)


def test_records_contain_any_argument():
    output = fields("0123456789ab", "marker", "finished", "3", "1", "2", "3", "sh", "", "a\nb")
    output += fields("not-an-id", "", "lost", "", "1", "", "0")
    output += fields("ba9876543210", "", "running", "", "5", "", "0")
    (first, marker), (second, _) = parse_records(output)
    assert (first.command, first.exit_code, marker) == (["sh", "", "a\nb"], 3, "marker")
    assert (second.id, second.state, second.exit_code, second.ended) == (
        "ba9876543210",
        "running",
        None,
        None,
    )


@pytest.mark.parametrize(
    "output",
    [
        fields("0123456789ab", "m"),
        fields("0123456789ab", "m", "finished", "3", "1", "2", "9", "sh"),
        fields("0123456789ab", "m", "finished", "3", "1", "2", "-1", "sh"),
        fields("0123456789ab", "m", "finished", "x", "1", "2", "0"),
        fields("0123456789ab", "m", "succeeded", "0", "1", "2", "0"),
        fields("0123456789ab", "m", "lost", "", "9" * 30, "", "0"),
    ],
)
def test_damaged_records_are_an_error(output):
    with pytest.raises(ValueError):
        parse_records(output)
