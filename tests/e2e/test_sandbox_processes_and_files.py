"""Background commands and files of a sandbox on a real gateway, from the command line and from Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest
from tests.support.hints import execute_hint
from tests.support.source_gateway import source_sandboxes

from holdfast.errors import CommandLostError, ObjectConflictError, PathNotFoundError

pytestmark = pytest.mark.engine

IMAGE = "holdfast/sandbox:0.1.0"


@pytest.fixture(scope="module")
def gateway(new_gateway, tmp_path_factory):
    """A node with the sandbox image, the controller and the API from the source tree, and one sandbox."""
    node = new_gateway("files")
    node.up("--push-image", IMAGE)
    with source_sandboxes(node, "boxes", tmp_path_factory.mktemp("sandbox")) as made:
        made.holdfast("sandbox", "create", "a", "--no-bootstrap")
        yield made


@pytest.fixture
def run(gateway):
    """Run `holdfast sandbox` with these arguments."""

    def call(*words, **options):
        return subprocess.run(
            gateway.holdfast.argv("sandbox", *words), env=gateway.holdfast.environment, capture_output=True,
            timeout=120, check=False, **({"stdin": subprocess.DEVNULL} | options),
        )  # fmt: skip

    return call


@pytest.fixture
def sandbox(gateway):
    with gateway.gateway.sandbox("a") as client:
        yield client


def background(run, *words):
    started = run("exec", "--background", "a", *words)
    assert started.returncode == 0, started.stderr
    return started.stdout.decode().strip()


def test_command_continues_after_its_client_and_is_found_by_its_id(run):
    command = background(
        run, "-e", "A=1", "--cwd", "/tmp", "--", "sh", "-c", "pwd; echo $A; echo bad >&2; exit 5"
    )
    followed = run("output", "--follow", "a", command)
    assert (followed.returncode, followed.stdout, followed.stderr) == (5, b"/tmp\n1\n", b"bad\n")
    shown = json.loads(run("output", "--json", "a", command).stdout)
    assert shown == {"state": "finished", "exit_code": 5, "stdout": "/tmp\n1\n", "stderr": "bad\n"}
    heading, *rows = run("ps", "a").stdout.decode().splitlines()
    assert heading.split() == ["ID", "STATE", "EXIT", "CODE", "STARTED", "COMMAND"]
    assert [command, "finished", "5"] in [row.split()[:3] for row in rows]


def test_ctrl_c_ends_only_the_view_of_the_output(gateway, run):
    command = background(run, "--", "sh", "-c", "echo begun; sleep 611")
    following = gateway.holdfast.start("sandbox", "output", "-f", "a", command)
    assert following.stdout.readline() == "begun\n"
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=30)
    assert following.returncode == 130
    assert json.loads(run("output", "--json", "a", command).stdout)["state"] == "running"
    assert json.loads(run("kill", "--json", "a", command).stdout) == {"id": command, "signalled": True}
    assert run("kill", "a", command).stdout.decode() == f"Command {command} had ended before.\n"


def test_signal_reaches_one_command_only(run):
    first, second = (background(run, "--", "sleep", "612") for _ in range(2))
    assert run("kill", "-s", "INT", "a", first).returncode == 0
    assert run("output", "-f", "a", first).returncode == 130
    assert json.loads(run("output", "--json", "a", second).stdout)["state"] == "running"
    assert run("kill", "a", second).returncode == 0


def test_unknown_command_is_reported_with_a_hint_that_works(gateway, run):
    ended = run("output", "a", "0123456789ab")
    assert (ended.returncode, ended.stdout) == (3, b"")
    execute_hint(
        gateway.holdfast,
        ended.stderr.decode(),
        "Run `holdfast sandbox ps {}` to list all background commands.",
    )


def test_suspended_sandbox_loses_running_commands_and_keeps_finished_ones(run, sandbox):
    finished = sandbox.exec("sh", "-c", "echo kept; exit 4", background=True)
    finished.wait(timeout=60)
    running = sandbox.exec("sh", "-c", "echo before; sleep 614", background=True)
    for output in running.output(follow=True):
        assert output.data == b"before\n"
        break
    sandbox.suspend()
    sandbox.wait("Suspended")
    with pytest.raises(ObjectConflictError, match="Suspended"):
        running.get()
    sandbox.resume()
    sandbox.wait()
    assert (finished.poll(), finished.stdout()) == (4, b"kept\n")
    assert running.get().state == "lost"
    with pytest.raises(CommandLostError):
        running.wait()
    ended = run("output", "-f", "a", running.id)
    assert (ended.returncode, ended.stdout) == (3, b"before\n")
    assert b"[command-lost]" in ended.stderr


def test_files_round_trip_from_python(sandbox):
    content = os.urandom(2 << 20)
    assert sandbox.files.write("dir/large file", content).size == len(content)
    assert sandbox.files.read("dir/large file") == content
    assert [entry.name for entry in sandbox.files.list("dir")] == ["large file"]
    with pytest.raises(PathNotFoundError, match="/sandbox/dir/none in sandbox a: not found"):
        sandbox.files.read("dir/none")
    sandbox.files.remove("dir", recursive=True)


def test_pipes_and_listing_from_the_command_line(run):
    content = os.urandom(2 << 20)
    assert run("cp", "-", "a:piped/file\nwith newline", input=content, stdin=None).returncode == 0
    assert run("cp", "a:piped/file\nwith newline", "-").stdout == content
    assert run("ls", "a:piped").stdout == b"file\\nwith newline\n"
    mode, size, *_ = run("ls", "-l", "a:piped").stdout.split()
    assert (mode, size) == (b"-rw-r--r--", b"2097152")
    (entry,) = json.loads(run("ls", "--json", "a:piped").stdout)["entries"]
    assert (entry["name"], entry["type"], entry["size"]) == ("file\nwith newline", "file", 2 << 20)
    missing = run("cp", "a:piped/none", "-")
    assert (missing.returncode, missing.stdout) == (3, b"")
    assert b"/sandbox/piped/none in sandbox a: not found" in missing.stderr
