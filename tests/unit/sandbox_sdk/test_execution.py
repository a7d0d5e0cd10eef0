"""A command's input, output and end over a real WebSocket, by the plain SDK and the asynchronous one."""

import asyncio
import json

import pytest
from aiohttp import WSMsgType, web

from holdfast.errors import ClusterRefusedError, DeadlineError, UsageError
from holdfast.sandbox.sdk.connection import Connection
from holdfast.sandbox.sdk.handle import AsyncSandbox
from holdfast.sandbox.sdk.problems import AnswerLostError
from holdfast.sandbox.sdk.sync import Sandbox
from holdfast.sandbox.wire import Channel, frame

EXEC = "/v1/sandboxes/a/exec"


def ended(code):
    if not code:
        return json.dumps({"status": "Success"}).encode()
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return json.dumps(
        {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    ).encode()


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
                await socket.send_bytes(frame(Channel.STDOUT, message.data[1:]))
        for each in frames:
            if isinstance(each, float):
                await asyncio.sleep(each)
            else:
                await socket.send_bytes(each)
        return socket

    return answer


@pytest.fixture
def box(peer):
    with Sandbox("a", peer.access) as made:
        yield made


def test_output_and_exit_code(peer, box):
    peer.answers[EXEC] = speaking(
        frame(Channel.STDOUT, b"out "), frame(Channel.STDERR, b"err"), frame(Channel.STDOUT, b"more"),
        frame(Channel.STATUS, ended(7)),
    )  # fmt: skip
    found = box.exec("sh", "-c", "x & y", timeout=5)
    assert (found.exit_code, found.text, found.stderr) == (7, "out more", b"err")
    assert peer.seen == [f"GET {EXEC}?command=sh&command=-c&command=x+%26+y&tty=false&stdin=false"]


def test_input_arrives_whole_and_is_ended(peer, box):
    data = bytes(range(256)) * 1500
    peer.answers[EXEC] = speaking(frame(Channel.STATUS, ended(0)), echo=True)
    assert box.exec("cat", stdin=data, timeout=20).stdout == data


def test_the_asynchronous_twin_is_had_from_the_same_object(peer):
    peer.answers[EXEC] = speaking(frame(Channel.STDOUT, b"hi"), frame(Channel.STATUS, ended(0)))

    async def work():
        async with Sandbox("a", peer.access) as box:
            assert isinstance(box, AsyncSandbox)
            return await box.exec("echo", "hi")

    assert asyncio.run(work()).text == "hi"


def test_a_session_is_talked_to_while_it_runs(peer, box):
    heard = []
    peer.answers[EXEC] = speaking(frame(Channel.STATUS, ended(3)), echo=True, heard=heard)
    with box.session("sh", tty=True) as session:
        session.resize(80, 24)
        session.write(b"one")
        output = iter(session)
        assert next(output).data == b"one"
        session.end_input()
        assert list(output) == []
        assert session.exit_code == 3
    assert json.loads(heard[0][1:]) == {"Width": 80, "Height": 24}


def test_check_makes_an_exit_code_an_error_with_the_last_line(peer, box):
    peer.answers[EXEC] = speaking(
        frame(Channel.STDERR, b"first\nno such thing\n"), frame(Channel.STATUS, ended(2))
    )
    with pytest.raises(ClusterRefusedError, match="exit code 2 in sandbox a: no such thing"):
        box.exec("ls", check=True)


def test_a_command_that_could_not_run_says_why(peer, box):
    status = json.dumps({"status": "Failure", "message": "exec: nope: not found"}).encode()
    peer.answers[EXEC] = speaking(frame(Channel.STATUS, status))
    with pytest.raises(ClusterRefusedError, match="nope: not found"):
        box.exec("nope")


def test_a_session_that_is_cut_is_no_success(peer, box):
    peer.answers[EXEC] = speaking(frame(Channel.STDOUT, b"half"))
    with pytest.raises(AnswerLostError, match="was cut") as raised:
        box.exec("make")
    assert "before you run it again" in raised.value.hint
    assert len(peer.seen) == 1


def test_time_that_is_over_is_an_error(peer, box):
    peer.answers[EXEC] = speaking(30.0)
    with pytest.raises(DeadlineError, match=r"within 0\.2 s"):
        box.exec("sleep", "60", timeout=0.2)


def test_no_command_and_no_name_are_refused_before_anybody_is_asked(peer, box):
    with pytest.raises(UsageError, match="no command"):
        box.exec()
    with pytest.raises(UsageError, match="no name for a sandbox"):
        Sandbox("No_Name", peer.access)
    assert peer.seen == []


def test_many_at_once_over_one_connection(peer):
    peer.answers[EXEC] = speaking(frame(Channel.STATUS, ended(0)), echo=True)

    async def work():
        async with Connection(peer.access) as connection:
            box = AsyncSandbox("a", connection)
            return await asyncio.gather(*(box.exec("cat", stdin=str(turn)) for turn in range(20)))

    assert [each.text for each in asyncio.run(work())] == [str(turn) for turn in range(20)]
