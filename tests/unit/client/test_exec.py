"""A command's input, output and end over a real WebSocket, by the plain SDK and the asynchronous one."""

import asyncio
import json

import pytest
from aiohttp import WSMsgType, web
from tests.unit.client.conftest import open_transport

from holdfast.api import Channel, encode_frame
from holdfast.client import AsyncSandbox, Sandbox
from holdfast.client.launch import MARKER_VARIABLE, TERMINATE_SCRIPT, Launch
from holdfast.errors import (
    ApiRequestRejectedError,
    CommandFailedError,
    DeadlineExceededError,
    PathNotFoundError,
    ResponseLostError,
    UsageError,
)

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


def closing(code, *frames):
    """Sends frames and closes the connection with a code."""

    async def answer(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for each in frames:
            await socket.send_bytes(each)
        await socket.close(code=code)
        return socket

    return answer


@pytest.fixture
def sandbox(fake_server):
    with Sandbox("a", fake_server.access) as made:
        yield made


def recording(*frames):
    """Sends frames, and records the command of each session without its marker."""
    commands = []

    async def answer(request):
        words = request.query.getall("command")
        commands.append(
            [MARKER_VARIABLE if word.startswith(f"{MARKER_VARIABLE}=") else word for word in words]
        )
        return await speaking(*frames)(request)

    return answer, commands


def not_started(program):
    reason = f'exec: "{program}": executable file not found in $PATH: unknown'
    message = f"command terminated: unable to start container process: {reason}"
    return encode_frame(Channel.STATUS, json.dumps({"status": "Failure", "message": message}).encode())


def test_output_and_exit_code(fake_server, sandbox):
    fake_server.answers[EXEC] = speaking(
        encode_frame(Channel.STDOUT, b"out "), encode_frame(Channel.STDERR, b"err"), encode_frame(Channel.STDOUT, b"more"),  # noqa: E501
        encode_frame(Channel.STATUS, ended(7)),
    )  # fmt: skip
    found = sandbox.exec("sh", "-c", "x & y", timeout=5)
    assert (found.exit_code, found.text, found.stderr) == (7, "out more", b"err")
    (request,) = fake_server.seen
    assert request.startswith(f"GET {EXEC}?command=env&command={MARKER_VARIABLE}%3D")
    assert request.endswith("&command=sh&command=-c&command=x+%26+y&tty=false&stdin=false")


def test_variables_and_working_directory_are_set_by_programs_of_the_image(fake_server, sandbox):
    fake_server.answers[EXEC], commands = recording(encode_frame(Channel.STATUS, ended(0)))
    sandbox.exec("make", "all", env={"A": "b=c", "D": ""}, cwd="src")
    sandbox.exec("./a=b", cwd="/opt")
    env = ["env", MARKER_VARIABLE]
    assert [words[5:] for words in commands] == [
        [*env, "A=b=c", "D=", "make", "all"],
        [*env, "sh", "-c", 'exec "$@"', "sh", "./a=b"],
    ]
    assert [words[4] for words in commands] == ["/sandbox/src", "/opt"]


@pytest.mark.parametrize(
    ("command", "options", "problem"),
    [
        (("a",), {"env": {"A": 1}}, "env: must map names to text"),
        (("a",), {"env": {"A=B": "1"}}, "env: 'A=B' is not a valid environment variable"),
        (("a",), {"env": {"": "1"}}, "env: '' is not a valid environment variable"),
        (("a",), {"cwd": "../x"}, "`..` is not allowed"),
        (("a",), {"cwd": 1}, "path: must be text"),
        (("a", 1), {}, "command: must consist of text"),
        (("a\0",), {}, "command: 'a\\\\x00' contains a null byte"),
    ],
)
def test_invalid_arguments_are_rejected_before_request(fake_server, sandbox, command, options, problem):
    with pytest.raises(UsageError, match=problem):
        sandbox.exec(*command, **options)
    assert fake_server.seen == []


def test_image_without_env_runs_the_plain_command_with_the_whole_input(fake_server, sandbox):
    commands, data = [], bytes(200_000)

    async def answer(request):
        words = request.query.getall("command")
        commands.append(words[0])
        if words[0] == "env":
            return await speaking(not_started("env"))(request)
        return await speaking(encode_frame(Channel.STATUS, ended(0)), echo=True)(request)

    fake_server.answers[EXEC] = answer
    assert sandbox.exec("cat", stdin=data, timeout=20).stdout == data
    assert commands == ["env", "cat"]


def test_plain_command_may_still_run_after_a_timeout(fake_server, sandbox):
    async def answer(request):
        frame = not_started("env") if request.query["command"] == "env" else SILENCE
        return await speaking(frame)(request)

    fake_server.answers[EXEC] = answer
    with pytest.raises(DeadlineExceededError, match="the command may still be running"):
        sandbox.exec("sleep", "60", timeout=0.2)
    assert len(fake_server.seen) == 2


def test_options_need_env_in_the_image(fake_server, sandbox):
    fake_server.answers[EXEC] = speaking(not_started("env"))
    with pytest.raises(ApiRequestRejectedError, match="need `env` and `sh` in the image"):
        sandbox.exec("make", env={"A": "b"})
    assert len(fake_server.seen) == 1


@pytest.mark.parametrize("cut", range(0, 40, 3))
def test_message_of_env_about_a_missing_program_is_an_error(fake_server, sandbox, cut):
    message = (
        b"env: \xe2\x80\x98no such\xe2\x80\x99: No such file or directory\nenv: use -[v]S to pass options\n"
    )
    parts = [part for part in (message[:cut], message[cut:]) if part]
    fake_server.answers[EXEC] = speaking(
        *(encode_frame(Channel.STDERR, part) for part in parts), encode_frame(Channel.STATUS, ended(127))
    )
    with pytest.raises(ApiRequestRejectedError, match='exec: "no such": executable file not found'):
        sandbox.exec("no such")


@pytest.mark.parametrize(
    ("output", "code"),
    [
        (b"env: 'other': No such file or directory\n", 127),
        (b"env: 'make': No such file or directory\n", 1),
        (b"env: 'make': No such file or directory\nmore\n", 127),
        (b"env: 'ma", 0),
        (b"", 127),
    ],
)
def test_similar_output_of_a_command_is_not_lost(fake_server, sandbox, output, code):
    frames = [encode_frame(Channel.STDERR, output)] if output else []
    fake_server.answers[EXEC] = speaking(*frames, encode_frame(Channel.STATUS, ended(code)))
    result = sandbox.exec("make")
    assert (result.stderr, result.exit_code) == (output, code)


def test_missing_working_directory_is_an_error(fake_server, sandbox):
    async def answer(request):
        marker = request.query.getall("command")[3]
        frames = (
            encode_frame(Channel.STDERR, f"{marker}\n".encode()),
            encode_frame(Channel.STATUS, ended(126)),
        )
        return await speaking(*frames)(request)

    fake_server.answers[EXEC] = answer
    with pytest.raises(PathNotFoundError, match="make in sandbox a: /sandbox/none: not a directory"):
        sandbox.exec("make", cwd="none")


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


def test_input_of_an_ended_command_is_discarded(fake_server, sandbox):
    fake_server.answers[EXEC] = speaking(
        encode_frame(Channel.STDOUT, b"x"), encode_frame(Channel.STATUS, ended(3))
    )
    with sandbox.session("sh") as session:
        output = iter(session)
        assert next(output).data == b"x"
        while session._delegate._socket.close_frame is None:
            session.resize(80, 24)
        session.write(b"not read")
        assert list(output) == []
        session.close_stdin()
        assert session.exit_code == 3


def test_input_of_a_lost_command_is_an_error(fake_server, sandbox):
    fake_server.answers[EXEC] = closing(1011, encode_frame(Channel.STDOUT, b"x"))
    with sandbox.session("sh") as session:
        with pytest.raises(ResponseLostError, match="close code 1011"):
            list(session)
        with pytest.raises(ResponseLostError, match="sh in sandbox a: connection lost") as raised:
            session.write(b"not read")
    assert "may still be running" in raised.value.hint


def test_check_raises_with_exit_code_and_output(fake_server, sandbox):
    fake_server.answers[EXEC] = speaking(
        encode_frame(Channel.STDOUT, b"half a result"),
        encode_frame(Channel.STDERR, b"first\nno such thing\n"),
        encode_frame(Channel.STATUS, ended(2)),
    )
    with pytest.raises(
        CommandFailedError, match="ls in sandbox a: exited with code 2: no such thing"
    ) as raised:
        sandbox.exec("ls", check=True)
    error = raised.value
    assert (error.exit_code, error.stdout, error.stderr) == (2, b"half a result", b"first\nno such thing\n")
    assert error.code == "command-failed"


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
    scripts, markers = [], []

    async def answer(request):
        words = request.query.getall("command")
        if words[2:] == ["sleep", "60"]:
            markers.append(words[1].removeprefix(f"{MARKER_VARIABLE}="))
            return await speaking(SILENCE)(request)
        scripts.append(words)
        return await speaking(encode_frame(Channel.STATUS, ended(code)))(request)

    fake_server.answers[EXEC] = answer
    with pytest.raises(DeadlineExceededError, match=rf"no exit within 0\.2 s; {ending}"):
        sandbox.exec("sleep", "60", timeout=0.2)
    assert scripts == [["sh", "-c", TERMINATE_SCRIPT, "holdfast", *markers]]


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


def test_only_a_command_with_a_directory_is_expected_to_print_its_marker():
    plain, changing = Launch(("echo",)), Launch(("echo",), cwd="/work")
    assert not plain.is_start_failure(plain.marker.encode())
    assert changing.is_start_failure(changing.marker.encode())
