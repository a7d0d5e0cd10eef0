"""`sandbox exec --timeout` ends the command, as `timeout` of `Sandbox.exec` does."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from holdfast.cli import cli
from holdfast.cli.output import run_command
from holdfast.cli.sandbox import exec as exec_module, terminal
from holdfast.client import AsyncExecSession
from holdfast.client.launch import Launch


class SilentSocket:
    """A connection whose command prints nothing and does not end."""

    async def __aiter__(self):
        await asyncio.Event().wait()
        yield


class Sandbox:
    """A sandbox in which every command is a session on a silent connection."""

    name = "a"

    def __init__(self, *, is_ended):
        self.is_ended = is_ended
        self.launches, self.ended = [], []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc_info):
        pass

    async def terminate(self, marker):
        self.ended.append(marker)
        return self.is_ended

    @asynccontextmanager
    async def session(self, *command, tty=False, stdin=False, env=None, cwd=None, container=None):
        launch = Launch(command, env=env, cwd=cwd)
        self.launches.append(launch.marker)
        yield AsyncExecSession(
            SilentSocket(), f"{command[0]} in sandbox a", launch=launch, terminate=self.terminate
        )

    async def exec(self, *command, stdin=None, **options):
        timeout = options.pop("timeout")
        async with self.session(*command, **options) as session:
            return await session.communicate(stdin, timeout=timeout)


@pytest.mark.parametrize("options", [[], ["--json"], ["--tty"]])
@pytest.mark.parametrize(
    ("is_ended", "ending"), [(True, "the command was ended"), (False, "the command may still be running")]
)
def test_timeout_ends_the_command(monkeypatch, capsys, options, is_ended, ending):
    sandbox = Sandbox(is_ended=is_ended)
    gateway = SimpleNamespace(sandbox=lambda name: sandbox)
    monkeypatch.setattr(exec_module, "open_gateway", lambda name, listener: gateway)
    words = ["sandbox", "exec", "--no-stdin", "--timeout", "0.01", *options, "a", "sleep", "9"]
    assert run_command(cli, words) == 1
    output = capsys.readouterr()
    assert f"sleep in sandbox a: no exit within 0.01 s; {ending}" in output.out + output.err
    assert sandbox.ended == sandbox.launches != []


def test_time_limit_of_a_reader_is_not_the_timeout_of_the_command():
    class Session(AsyncExecSession):
        async def __aiter__(self):
            raise TimeoutError("of a reader")
            yield

    with pytest.raises(TimeoutError, match="of a reader"):
        asyncio.run(terminal.attach(Session(SilentSocket(), "sleep"), tty=False, stdin=False))
