"""Output of containers and commands in lines, however the engine divides it."""

from types import SimpleNamespace

import pytest

from holdfast.containers import RunningCommand, follow_logs
from holdfast.containers.exec import split_lines


class FakeStream(list):
    """Chunks of output, as the SDK returns them."""

    def close(self):
        self.clear()


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([], []),
        ([b"a\nb\n"], ["a", "b"]),
        ([b"a", b"b\n", b"c"], ["ab", "c"]),
        ([b"a\n\nb"], ["a", "", "b"]),
        ([b"\xc3", b"\xa4\n"], ["ä"]),
        ([b"\xff"], ["\ufffd"]),
    ],
)
def test_lines_of_chunks(chunks, lines):
    assert list(split_lines(chunks)) == lines


def test_last_line_of_followed_log_and_command_is_kept():
    client = SimpleNamespace(
        logs=lambda name, **options: FakeStream([b"one\nt", b"wo"]) if name and options["follow"] else None,
        exec_create=lambda container, argv, stdin: {"Id": f"{container} {argv} {stdin}"},
        exec_start=lambda exec_id, stream: FakeStream([b"one\nt", b"wo"]) if exec_id and stream else None,
    )
    engine = SimpleNamespace(client=client, address="")
    assert list(follow_logs(engine, "c", tail=2)) == ["one", "two"]
    assert list(RunningCommand(engine, "c", ["tail"]).lines()) == ["one", "two"]
