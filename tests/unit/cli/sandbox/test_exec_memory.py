"""A command that is killed for exceeding the memory limit is reported as such."""

import asyncio

import pytest

from holdfast.cli.sandbox.exec import _MEMORY_FILES, _exceeded_memory_limit
from holdfast.client import ExecResult
from holdfast.errors import ApiRequestRejectedError

EVENTS = "low 0\nhigh 0\nmax 12\noom 1\noom_kill {}\noom_group_kill 0\n"
OOM_CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"


class Container:
    """A container with these contents of its memory files; None if it has no `cat`."""

    def __init__(self, text):
        self.text = text

    async def exec(self, *command, container):
        assert command == ("cat", *_MEMORY_FILES)
        assert container == "c"
        if self.text is None:
            raise ApiRequestRejectedError("cat: not found")
        # `cat` fails for the files of the other version of cgroups, after it has printed the rest.
        return ExecResult(exit_code=1, stdout=self.text.encode(), stderr=b"cat: can't open")


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("134217728\n" + EVENTS.format(1), "128Mi"),
        ("134217728\n" + EVENTS.format(0), None),
        ("max\n" + EVENTS.format(1), None),
        ("67108864\n" + OOM_CONTROL.format(1), "64Mi"),
        ("67108864\n" + OOM_CONTROL.format(0), None),
        ("9223372036854771712\n" + OOM_CONTROL.format(1), None),
        ("", None),
        (None, None),
    ],
)
def test_memory_limit_is_named_if_the_kernel_has_killed_a_process(text, limit):
    assert asyncio.run(_exceeded_memory_limit(Container(text), "c")) == limit
