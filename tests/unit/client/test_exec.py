"""A command's input, output and end over a real WebSocket, by the plain SDK and the asynchronous one."""

import asyncio
import json
import subprocess

import pytest
from aiohttp import WSMsgType, web
from tests.unit.client.conftest import open_transport

from holdfast.api import Channel, encode_frame
from holdfast.client import AsyncSandbox, Sandbox
from holdfast.client.exec import TERMINATE_SCRIPT
from holdfast.errors import ApiRequestRejectedError, DeadlineExceededError, ResponseLostError, UsageError

EXEC = "/v1/sandboxes/a/exec"


def ended(code):
    if not code:
        return json.dumps({"status": "Success"}).encode()
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return json.dumps(
        {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    ).encode()


SILENCE = object()
"""In place of a frame: the server keeps the connection open and sends nothing more."""


def speaking(*frames, echo=False, heard=None):
    """Sends frames; with `echo` first gives back all input until that is closed."""

    async def answer(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        while echo:
            message = await socket.receive()
            if message.type is not WSMsgType.BINARY or message.data[0] == Channel.CLOSE:
                break
            if heard is not None:
                heard.append(message.data)
            if message.data[0] == Channel.STDIN:
                await socket.send_bytes(encode_frame(Channel.STDOUT, message.data[1:]))
        for each in frames:
            if each is SILENCE:
                await asyncio.Event().wait()
            await socket.send_bytes(each)
        return socket

    return answer


@pytest.fixture
def sandbox(fake_server):
    with Sandbox("a", fake_server.access) as made:
        yield made


def test_output_and_exit_code(fake_server, sandbox):
    fake_server.answers[EXEC] = speaking(
        encode_frame(Channel.STDOUT, b"out "), encode_frame(Channel.STDERR, b"err"), encode_frame(Channel.STDOUT, b"more"),  # noqa: E501
        encode_frame(Channel.STATUS, ended(7)),
    )  # fmt: skip
    found = sandbox.exec("sh", "-c", "x & y", timeout=5)
    assert (found.exit_code, found.text, found.stderr) == (7, "out more", b"err")
    assert fake_server.seen == [f"GET {EXEC}?command=sh&command=-c&command=x+%26+y&tty=false&stdin=false"]


def test_stdin_is_delivered_until_eof(fake_server, sandbox):
    data = bytes(range(256)) * 1500
    fake_server.answers[EXEC] = speaking(encode_frame(Channel.STATUS, ended(0)), echo=True)
    assert sandbox.exec("cat", stdin=data, timeout=20).stdout == data


def test_async_client_is_available_from_sync_object(fake_server):
    fake_server.answers[EXEC] = speaking(
        encode_frame(Channel.STDOUT, b"hi"), encode_frame(Channel.STATUS, ended(0))
    )

    async def work():
        async with Sandbox("a", fake_server.access) as box:
            assert isinstance(box, AsyncSandbox)
            return await box.exec("echo", "hi")

    assert asyncio.run(work()).text == "hi"


def test_session_is_interactive(fake_server, sandbox):
    heard = []
    fake_server.answers[EXEC] = speaking(encode_frame(Channel.STATUS, ended(3)), echo=True, heard=heard)
    with sandbox.session("sh", tty=True) as session:
        session.resize(80, 24)
        session.write(b"one")
        output = iter(session)
        assert next(output).data == b"one"
        session.close_stdin()
        assert list(output) == []
        assert session.exit_code == 3
    assert json.loads(heard[0][1:]) == {"Width": 80, "Height": 24}


def test_check_raises_with_exit_code_and_last_line(fake_server, sandbox):
    fake_server.answers[EXEC] = speaking(
        encode_frame(Channel.STDERR, b"first\nno such thing\n"), encode_frame(Channel.STATUS, ended(2))
    )
    with pytest.raises(ApiRequestRejectedError, match="ls in sandbox a: exited with code 2: no such thing"):
        sandbox.exec("ls", check=True)


def test_unstartable_command_reports_reason(fake_server, sandbox):
    status = json.dumps({"status": "Failure", "message": "exec: nope: not found"}).encode()
    fake_server.answers[EXEC] = speaking(encode_frame(Channel.STATUS, status))
    with pytest.raises(ApiRequestRejectedError, match="nope: not found"):
        sandbox.exec("nope")


def test_cut_session_is_not_a_success(fake_server, sandbox):
    fake_server.answers[EXEC] = speaking(encode_frame(Channel.STDOUT, b"half"))
    with pytest.raises(ResponseLostError, match="connection lost") as raised:
        sandbox.exec("make")
    assert "before you run it again" in raised.value.hint
    assert len(fake_server.seen) == 1


@pytest.mark.parametrize(
    ("code", "ending"), [(0, "the command was ended"), (1, "the command may still be running")]
)
def test_timeout_ends_the_command(fake_server, sandbox, code, ending):
    scripts = []

    async def answer(request):
        words = request.query.getall("command")
        if words == ["sleep", "60"]:
            return await speaking(SILENCE)(request)
        scripts.append(words)
        return await speaking(encode_frame(Channel.STATUS, ended(code)))(request)

    fake_server.answers[EXEC] = answer
    with pytest.raises(DeadlineExceededError, match=rf"no exit within 0\.2 s; {ending}"):
        sandbox.exec("sleep", "60", timeout=0.2)
    assert scripts == [["sh", "-c", TERMINATE_SCRIPT, "terminate", "sleep\n60"]]


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_terminate_script_is_valid_in_any_shell(shell):
    # Not executed: it would signal a process of this machine.
    subprocess.run([shell, "-n", "-c", TERMINATE_SCRIPT], check=True)


def test_empty_command_and_name_are_rejected_before_request(fake_server, sandbox):
    with pytest.raises(UsageError, match="no command"):
        sandbox.exec()
    with pytest.raises(UsageError, match="not a valid sandbox name"):
        Sandbox("No_Name", fake_server.access)
    assert fake_server.seen == []


def test_concurrent_execs_over_one_client(fake_server):
    fake_server.answers[EXEC] = speaking(encode_frame(Channel.STATUS, ended(0)), echo=True)

    async def work():
        async with open_transport(fake_server.access) as connection:
            box = AsyncSandbox("a", connection)
            return await asyncio.gather(*(box.exec("cat", stdin=str(turn)) for turn in range(20)))

    assert [each.text for each in asyncio.run(work())] == [str(turn) for turn in range(20)]
