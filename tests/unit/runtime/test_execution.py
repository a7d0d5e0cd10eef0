"""Commands over HTTP: output, exit codes, timeouts and leftover processes."""

import os
import shlex
import socket
import time

import pytest
from tests.support.eventually import eventually
from tests.unit.runtime.conftest import is_running, running_sandbox, script_request

JSON = {"Content-Type": "application/json"}


def run(sandbox, command, **more):
    answer = sandbox.session.post(f"{sandbox.url}/execute", json={"command": command, **more}, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()


def run_script(sandbox, script, **more):
    return run(sandbox, f"sh -c {shlex.quote(script)}", **more)


def test_output_and_exit_code(sandbox):
    ended = run_script(sandbox, "echo out; echo err >&2; exit 7")
    assert ended == {"stdout": "out\n", "stderr": "err\n", "exit_code": 7, "timed_out": False}


def test_command_runs_without_shell_in_workspace(sandbox):
    assert run(sandbox, """printf '%s|' "a b" '$HOME' *.py > f && pwd""")["stdout"] == (
        "a b|$HOME|*.py|>|f|&&|pwd|"
    )
    assert run(sandbox, "pwd")["stdout"] == f"{sandbox.root}\n"
    assert list(sandbox.root.iterdir()) == []


def test_setting_runs_commands_with_shell(tmp_path):
    with running_sandbox(tmp_path / "root", shell="/bin/sh") as sandbox:
        assert run(sandbox, "echo a > f && cat f | tr a b && pwd")["stdout"] == f"b\n{sandbox.root}\n"


@pytest.mark.parametrize("command", ["", "  ", "echo 'open", "a\0b", "no-such-program-1", "/", "'' x"])
def test_command_that_cannot_start_has_exit_code_1(sandbox, command):
    ended = run(sandbox, command)
    assert ended["stderr"].startswith("Failed to execute command: ")
    assert ended == {"stdout": "", "stderr": ended["stderr"], "exit_code": 1, "timed_out": False}


def test_signal_is_reported_as_negative_exit_code(sandbox):
    assert run_script(sandbox, "kill -9 $$")["exit_code"] == -9


def test_invalid_utf8_is_replaced(sandbox):
    assert run(sandbox, "printf 'a\\377b'")["stdout"] == "a\ufffdb"


def test_unicode_output(sandbox):
    assert run_script(sandbox, "printf 'ü € 🙂 %s' \"$(printf '\\001')\"")["stdout"] == "ü € 🙂 \x01"


def test_stdin_is_empty(sandbox):
    assert run_script(sandbox, "cat; echo end")["stdout"] == "end\n"


def test_long_output_is_truncated_and_marked(sandbox):
    ended = run_script(sandbox, "head -c 5000000 /dev/zero | tr '\\0' x; head -c 300000 /dev/zero >&2")
    assert ended["exit_code"] == 0
    assert ended["stdout"] == "x" * 100_000
    assert "[4900000 more bytes of stdout were omitted]" in ended["stderr"]
    assert "[200000 more bytes of stderr were omitted]" in ended["stderr"]


def test_timeout_kills_process_group(sandbox):
    began = time.monotonic()
    ended = run_script(sandbox, "sleep 600 & echo $! > child; echo started; wait", timeout_seconds=0.5)
    assert time.monotonic() - began < 15
    assert ended["timed_out"] is True
    assert ended["exit_code"] == 124
    assert ended["stdout"] == "started\n"
    assert "terminated after 0.5 seconds" in ended["stderr"]
    child = int((sandbox.root / "child").read_text())
    eventually(lambda: not is_running(child))


def test_default_timeout_kills_command(tmp_path):
    with running_sandbox(tmp_path / "root", command_timeout=0.2) as sandbox:
        ended = run(sandbox, "sleep 600")
    assert (ended["exit_code"], ended["timed_out"]) == (124, True)
    assert "terminated after 0.2 seconds" in ended["stderr"]


def test_process_ignoring_sigterm_is_killed(sandbox):
    ended = run_script(
        sandbox, "trap '' TERM; echo $$ > own; while :; do sleep 0.05; done", timeout_seconds=0.2
    )
    assert ended["timed_out"] is True
    assert not is_running(int((sandbox.root / "own").read_text()))


def test_child_ignoring_sigterm_is_killed_with_shell(sandbox):
    script = "(trap '' TERM; while :; do sleep 0.05; done) & echo $! > child; wait"
    ended = run_script(sandbox, script, timeout_seconds=0.5)
    assert ended["timed_out"] is True
    child = int((sandbox.root / "child").read_text())
    eventually(lambda: not is_running(child))


def test_command_within_timeout_is_not_marked_timed_out(sandbox):
    assert run(sandbox, "echo quick", timeout_seconds=30)["timed_out"] is False


def test_background_process_does_not_block_response(sandbox):
    began = time.monotonic()
    ended = run_script(sandbox, "sleep 60 & echo $! > child; echo done")
    assert ended["stdout"] == "done\n"
    assert time.monotonic() - began < 20
    child = int((sandbox.root / "child").read_text())
    assert is_running(child)
    os.kill(child, 9)


def test_client_disconnect_kills_command(sandbox, capsys):
    with socket.create_connection(("127.0.0.1", sandbox.port)) as client:
        body = script_request("echo $$ > own; exec sleep 600")
        head = b"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        eventually(lambda: (sandbox.root / "own").exists() and (sandbox.root / "own").read_text())
    own = int((sandbox.root / "own").read_text())
    eventually(lambda: not is_running(own))
    assert capsys.readouterr().err == ""


def test_concurrent_commands(sandbox):
    from concurrent.futures import ThreadPoolExecutor

    gate = "touch {0}; while [ ! -e {1} ]; do sleep 0.02; done; echo {0}"
    with ThreadPoolExecutor() as pool:
        ways = [pool.submit(run_script, sandbox, gate.format(*pair)) for pair in (("a", "b"), ("b", "a"))]
        assert [way.result()["stdout"] for way in ways] == ["a\n", "b\n"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 422),
        (b"null", 422),
        (b"{}", 422),
        (b'{"command": 7}', 422),
        (b'{"command": "touch ran", "timeout_seconds": 0}', 422),
        (b'{"command": "touch ran", "timeout_seconds": -1}', 422),
        (b'{"command": "touch ran", "timeout_seconds": NaN}', 422),
        (b'{"command": "touch ran", "timeout_seconds": "1"}', 422),
        (b'{"command": "touch ran", "timeout_seconds": true}', 422),
        (b'"' + b"x" * 5_000_000 + b'"', 413),
    ],
)
def test_invalid_requests_are_rejected_with_message(sandbox, body, status):
    answer = sandbox.session.post(f"{sandbox.url}/execute", data=body, headers=JSON, timeout=30)
    assert answer.status_code == status
    assert answer.json()["message"]
    assert run(sandbox, "echo alive")["stdout"] == "alive\n"
    assert list(sandbox.root.iterdir()) == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "text/plain; also=application/json"}, 415),
        ({}, 415),
        (JSON | {"Origin": "https://example.org"}, 403),
        (JSON | {"Origin": "null"}, 403),
        ({"Content-Type": "text/plain", "Origin": "https://example.org"}, 403),
    ],
)
def test_cross_origin_request_is_rejected(sandbox, headers, status):
    body = b'{"command": "touch ran"}'
    answer = sandbox.session.post(f"{sandbox.url}/execute", data=body, headers=headers, timeout=30)
    assert answer.status_code == status, answer.text
    assert answer.json()["message"]
    assert list(sandbox.root.iterdir()) == []


def test_json_charset_is_accepted(sandbox):
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    body = b'{"command": "echo ran"}'
    answer = sandbox.session.post(f"{sandbox.url}/execute", data=body, headers=headers, timeout=30)
    assert answer.json()["stdout"] == "ran\n"
