"""`holdfast sandbox …` with real pods, a real terminal, the API and the controller."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.hints import execute_hint
from tests.support.holdfast_cli import HoldfastCli
from tests.support.pseudo_terminal import PseudoTerminal
from tests.support.sandbox_programs import (
    CLOSING_SERVER,
    MALICIOUS_TAR_PROGRAM,
    UNSTARTABLE_SANDBOXES,
    UPPERCASE_SERVER,
    USER_TEST_MODULE,
)
from tests.support.skewed_clock import skewed_clock_environment
from tests.support.source_gateway import source_sandboxes

from holdfast.api import EXTENSIONS_API_VERSION
from holdfast.errors import ObjectConflictError
from holdfast.kube import Objects, api_client

pytestmark = pytest.mark.engine

IMAGE = "holdfast/sandbox:0.1.0"


@pytest.fixture(scope="module")
def holdfast(tmp_path_factory):
    return HoldfastCli(tmp_path_factory.mktemp("node"), HOLDFAST_WORKLOADS="false")


@pytest.fixture(scope="module")
def sandbox_gateway(new_gateway, tmp_path_factory):
    """A node with the sandbox image, the controller and the API from the source tree, and one sandbox."""
    node = new_gateway("box")
    node.up("--push-image", IMAGE)
    with source_sandboxes(node, "boxes", tmp_path_factory.mktemp("sandbox")) as gateway:
        gateway.holdfast("sandbox", "create", "a", "--env", "COLOUR=blue", "--no-bootstrap")
        yield gateway


@pytest.fixture(scope="module")
def sandbox(sandbox_gateway):
    """Run `holdfast sandbox` with these arguments."""

    def run(*words, **options):
        return subprocess.run(
            sandbox_gateway.holdfast.argv("sandbox", *words), env=sandbox_gateway.holdfast.environment, capture_output=True,  # noqa: E501
            timeout=120, check=False, **({"stdin": subprocess.DEVNULL} | options),
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def uppercase_server(sandbox):
    """A sandbox that prints a line each second; /tmp is first in its PATH."""
    made = sandbox(
        "create", "talks", "--no-bootstrap", "--no-workspace",
        "--env", "PATH=/tmp:/usr/local/bin:/usr/bin:/bin",
        "--command", "sh -c 'i=0; while :; do echo line $i; i=$((i+1)); sleep 1; done'",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return "talks"


def test_exec_forwards_stdout_stderr_and_exit_code(sandbox):
    ended = sandbox("exec", "a", "--", "sh", "-c", "echo $COLOUR; echo trouble >&2; exit 7")
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, b"blue\n", b"trouble\n")
    assert json.loads(sandbox("exec", "--json", "a", "pwd").stdout) == {
        "exit_code": 0, "stdout": "/sandbox\n", "stderr": "",
    }  # fmt: skip


def test_piped_stdin_is_delivered_until_eof(sandbox):
    data = os.urandom(5_000_000)
    ended = sandbox("exec", "a", "sha256sum", input=data, stdin=None)
    assert ended.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_missing_program_is_reported_in_one_line(sandbox):
    ended = sandbox("exec", "a", "no-such-program")
    assert ended.returncode == 3
    assert b'"no-such-program": executable file not found' in ended.stderr.splitlines()[0]


def test_terminal_forwards_keys_size_and_exit(sandbox_gateway):
    terminal = PseudoTerminal(
        sandbox_gateway, "exec", "-t", "a", "--", "sh", "-c", "echo begun; trap 'echo caught' INT; exec sh -i"
    )
    terminal.resize(31, 101)
    terminal.wait_for(rb"begun")
    assert terminal.is_raw()
    terminal.type("until stty size | grep 101; do :; done\r")  # the size arrives on another channel
    terminal.wait_for(rb"31 101\r\n")
    terminal.resize(42, 142)
    terminal.wait_for(rb"\$ ")
    terminal.type("until stty size | grep 142; do :; done\r")
    terminal.wait_for(rb"42 142\r\n")
    terminal.type("sleep 600\r")
    terminal.wait_for(rb"sleep 600\r\n")
    terminal.type("\x03")
    terminal.wait_for(rb"\$ ")
    terminal.type("exit 9\r")
    assert terminal.wait_exit_code() == 9


def test_connect_opens_shell_and_signal_restores_terminal(sandbox_gateway):
    terminal = PseudoTerminal(sandbox_gateway, "connect", "a")
    terminal.wait_for(rb"[$#] ")
    terminal.type("echo $((6*7)) in $PWD\r")
    terminal.wait_for(rb"42 in /sandbox\r\n")
    assert terminal.is_raw()
    os.kill(terminal.child, signal.SIGTERM)
    terminal.wait_for(rb"SIGTERM")
    assert not terminal.is_raw()
    assert terminal.wait_exit_code() == 130


def test_ctrl_c_without_terminal_ends_the_command(sandbox_gateway, sandbox):
    started = sandbox_gateway.holdfast.start(
        # The shell remains the parent of `sleep`: its last command is another one.
        "sandbox",
        "exec",
        "a",
        "--",
        "sh",
        "-c",
        "echo begun; sleep 613; true",
    )
    assert started.stdout.readline() == "begun\n"
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=30)
    assert started.returncode == 130
    assert "The command in the sandbox was ended." in said
    running = sandbox("exec", "a", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    assert b"sleep 613" not in running


def test_timeout_ends_the_command_and_its_children(sandbox):
    ended = sandbox("exec", "-n", "--timeout", "2", "a", "--", "sh", "-c", "sleep 615; true")
    assert ended.returncode == 1
    assert b"no exit within 2 s; the command was ended" in ended.stderr
    running = sandbox("exec", "a", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    assert b"sleep 615" not in running


@pytest.mark.parametrize("years", [-3, 3])
def test_exec_with_a_wrong_clock_names_the_clock(sandbox_gateway, tmp_path, years):
    environment = skewed_clock_environment(years * 365 * 24 * 3600, tmp_path)
    ended = sandbox_gateway.holdfast.with_environment(**environment).run("sandbox", "exec", "a", "true")
    assert ended.returncode == 3, ended.stderr
    assert "is not valid by this machine's clock" in ended.stderr
    assert "Correct the clock of this machine" in ended.stderr


def test_command_without_stdin_leaves_the_input_of_a_loop(sandbox_gateway):
    holdfast = " ".join(sandbox_gateway.holdfast.argv("sandbox", "exec"))
    script = f"while read -r line; do {holdfast} -n a -- sh -c 'cat; echo \"$0\"' $line; done"
    ended = subprocess.run(
        ["sh", "-c", script], input="one\ntwo\n", env=sandbox_gateway.holdfast.environment,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "one\ntwo\n"), ended.stderr


def test_copy_of_an_unreadable_file_names_the_permission(sandbox, tmp_path):
    ended = sandbox("cp", "a:/etc/shadow", str(tmp_path / "copy"))
    assert ended.returncode == 3, ended.stderr
    assert b"/etc/shadow: permission denied in the sandbox [path-denied]" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stdin", [None, b"a line\n"], ids=["no input", "piped input"])
def test_terminal_without_a_terminal_loses_no_output(sandbox, stdin):
    expected = "".join(f"{number}\r\n" for number in range(60_000)).encode()
    source = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin, "stdin": None}
    for _ in range(4):
        ended = sandbox("exec", "-t", "a", "--", "sh", "-c", "stty -echo; seq 0 59999", **source)
        # The terminal may echo the input before `stty` has an effect.
        assert (ended.returncode, ended.stdout.removeprefix(b"a line\r\n")) == (0, expected)


def test_command_killed_for_its_memory_names_the_limit(sandbox):
    words = ("--no-bootstrap", "--no-workspace", "--memory", "64Mi", "--command", "sleep 600")
    assert sandbox("create", "narrow", *words).returncode == 0
    for options in ((), ("--json",)):
        ended = sandbox("exec", *options, "narrow", "python3", "-c", "bytearray(300 << 20)")
        assert ended.returncode == 137
        assert b"64Mi" in ended.stderr
    assert sandbox("delete", "narrow", "--yes").returncode == 0


def test_directory_copy_round_trip(sandbox, tmp_path):
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "blob").write_bytes(os.urandom(3_000_000))
    (tree / "run").write_text("#!/bin/sh\n")
    (tree / "run").chmod(0o755)
    (tree / "deep" / "up").symlink_to("../run")
    assert sandbox("cp", str(tree), "a:").returncode == 0
    assert sandbox("cp", str(tree), "a:tree/inside").returncode == 0
    assert sandbox("exec", "a", "readlink", "tree/inside/deep/up").stdout == b"../run\n"
    (tree / "out").symlink_to("/etc/passwd")
    ended = sandbox("cp", str(tree), "a:second")
    assert ended.returncode == 1
    assert b"skipped" in ended.stderr
    body = json.loads(sandbox("cp", "--json", "a:tree/inside", str(tmp_path / "back")).stdout)
    assert body["skipped"] == []
    for name in ("deep/blob", "run"):
        assert (tmp_path / "back" / name).read_bytes() == (tree / name).read_bytes()
    assert (tmp_path / "back" / "run").stat().st_mode & 0o777 == 0o755
    assert sandbox("cp", "a:/etc/hostname", str(tmp_path)).returncode == 0


def test_malicious_archive_writes_nothing_outside(sandbox, uppercase_server, tmp_path):
    """In this sandbox, `tar` answers with names that lead out of the copy."""
    (tmp_path / "tar").write_text(MALICIOUS_TAR_PROGRAM)
    (tmp_path / "tar").chmod(0o755)
    assert sandbox("cp", str(tmp_path / "tar"), f"{uppercase_server}:/tmp/").returncode == 0
    goal = tmp_path / "goal"
    goal.mkdir()
    ended = sandbox("cp", f"{uppercase_server}:x", str(goal / "x"))
    assert ended.returncode == 3
    assert b"leads out of the copy" in ended.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["goal", "tar"]


def test_port_forward_serves_concurrent_connections_on_loopback_only(sandbox_gateway, sandbox):
    serving = sandbox_gateway.holdfast.start("sandbox", "exec", "a", "python3", "-c", UPPERCASE_SERVER)
    forwarding = sandbox_gateway.holdfast.start("sandbox", "forward", "--json", "a", "0:9000")
    try:
        port = json.loads(forwarding.stdout.readline())["local_port"]
        answers = {}

        def ask(number):
            text = b"hello %d\n" % number
            until = time.monotonic() + 60
            while answers.get(number, b"") == b"" and time.monotonic() < until:
                with (
                    suppress(ConnectionError),  # no program listens yet
                    socket.create_connection(("127.0.0.1", port), timeout=30) as one,
                ):
                    one.sendall(text)
                    answers[number] = one.makefile("rb").readline()

        ask(0)  # until the program in the sandbox listens
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(1, 9)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        assert answers == {number: b"HELLO %d\n" % number for number in range(9)}
        listening = subprocess.run(
            ["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=True
        )
        assert [line.split()[3] for line in listening.stdout.splitlines()] == [f"127.0.0.1:{port}"]
        forwarding.send_signal(signal.SIGINT)
        assert forwarding.wait(30) == 130
    finally:
        for each in (serving, forwarding):
            each.kill()
            each.communicate()


def test_logs_are_streamed(sandbox_gateway, sandbox, uppercase_server):
    following = sandbox_gateway.holdfast.start("sandbox", "logs", "-f", uppercase_server)
    assert [following.stdout.readline() for _ in range(3)] == ["line 0\n", "line 1\n", "line 2\n"]
    following.send_signal(signal.SIGINT)
    assert following.wait(30) == 130
    following.communicate()
    assert sandbox("logs", "--tail", "1", uppercase_server).stdout.startswith(b"line ")


def test_workspace_survives_suspend_and_resume(sandbox):
    assert sandbox("exec", "a", "sh", "-c", "echo kept > keep").returncode == 0
    assert sandbox("suspend", "a").returncode == 0
    refused = sandbox("exec", "a", "true")
    assert (refused.returncode, b"Suspended" in refused.stderr) == (3, True)
    assert json.loads(sandbox("resume", "a", "--json").stdout)["phase"] == "Ready"
    assert sandbox("exec", "a", "cat", "keep").stdout == b"kept\n"


def test_pytest_fixture_provides_running_sandbox(sandbox_gateway, tmp_path):
    (tmp_path / "test_theirs.py").write_text(USER_TEST_MODULE)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", tmp_path]
    ended = subprocess.run(
        words,
        env=sandbox_gateway.holdfast.environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in ended.stdout, ended.stdout
    with sandbox_gateway.gateway.sandboxes() as boxes:
        for name in [view.name for view in boxes if view.name.startswith("test-mine")]:
            boxes.sandbox(name).wait_gone(timeout=60)


def test_unstartable_sandbox_is_reported_within_seconds(sandbox_gateway, sandbox):
    with api_client(sandbox_gateway.kubeconfig) as api:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taken", "namespace": "boxes"}}
        container = {"name": "main", "image": IMAGE, "command": ["sleep", "600"]}
        pod["spec"] = {"containers": [container], "terminationGracePeriodSeconds": 0}
        Objects(api).create(pod)

    def create(name):
        began = time.monotonic()
        words = UNSTARTABLE_SANDBOXES[name][0]
        room = [] if {"--workspace-size", "--template"} & set(words) else ["--no-workspace"]
        ended = sandbox("create", name, "--no-bootstrap", *room, *words)
        return name, ended, time.monotonic() - began

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(create, UNSTARTABLE_SANDBOXES))
    with sandbox_gateway.gateway.sandboxes() as boxes:
        conditions = {view.name: view.conditions for view in boxes}
        for name in set(UNSTARTABLE_SANDBOXES) & set(conditions):
            boxes.sandbox(name).delete()
    for name, ended, seconds in told:
        said = ended.stderr.decode()
        assert ended.returncode == (2 if name == "no-pool" else 3), said
        assert all(words in said for words in UNSTARTABLE_SANDBOXES[name][1:]), said
        assert seconds < 60, f"{name} took {seconds:.0f} s"
        if name != "no-pool":
            (ready,) = [row for row in conditions[name] if row.type == "Ready"]
            assert ready.status == "False"
            # The published texts of Ready have no details: another condition tells them.
            types = ("Ready", "holdfast.dev/Explanation")
            said = " ".join(f"{row.reason} {row.message}" for row in conditions[name] if row.type in types)
            assert UNSTARTABLE_SANDBOXES[name][1] in said


def test_hint_for_crashing_sandbox_shows_its_output(sandbox_gateway, sandbox):
    words = ("--no-bootstrap", "--no-workspace", "--command", "sh -c 'echo sad news; exit 3'")
    printed = sandbox("create", "crashes", *words).stderr.decode()
    shown = execute_hint(
        sandbox_gateway.holdfast,
        printed,
        "Run `holdfast sandbox get {}` and `holdfast sandbox logs {}`.",
    )
    assert "sad news" in shown
    assert sandbox("delete", "crashes", "--yes").returncode == 0


def test_failed_download_names_unreadable_files(sandbox_gateway, sandbox, tmp_path):
    make = "mkdir -p hidden && echo x > hidden/secret && chmod 000 hidden/secret"
    assert sandbox("exec", "a", "--", "sh", "-c", make).returncode == 0
    printed = sandbox("cp", "a:hidden", str(tmp_path)).stderr.decode()
    assert "hidden/secret: Cannot open: Permission denied" in printed
    assert "connection" not in printed
    assert sandbox("exec", "a", "rm", "-rf", "hidden").returncode == 0


def test_template_sandbox_keeps_id_and_label(sandbox_gateway, sandbox):
    container = {"name": "sandbox", "image": IMAGE, "command": ["sleep", "600"]}
    template = {"podTemplate": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}}
    pool = {"replicas": 0, "sandboxTemplateRef": {"name": "plain"}}
    about = {"apiVersion": EXTENSIONS_API_VERSION, "metadata": {"name": "plain", "namespace": "boxes"}}
    with api_client(sandbox_gateway.kubeconfig) as api:
        Objects(api).create({**about, "kind": "SandboxTemplate", "spec": template})
        Objects(api).create({**about, "kind": "SandboxWarmPool", "spec": pool})
    words = ("create", "made", "--no-bootstrap", "--template", "plain", "--label", "team=blue", "--json",
             "--shutdown-after", "3600")  # fmt: skip
    first = json.loads(sandbox(*words, "--no-wait").stdout)
    ready = json.loads(sandbox(*words).stdout)
    assert (ready["phase"], ready["id"], ready["labels"]["team"]) == ("Ready", first["id"], "blue")
    assert ready["shutdown_time"] == first["shutdown_time"] is not None
    (listed,) = json.loads(sandbox("list", "--selector", "team=blue", "--json").stdout)["sandboxes"]
    assert (listed["name"], listed["id"]) == ("made", first["id"])
    assert sandbox("exec", "made", "hostname").stdout == b"made\n"
    assert sandbox("delete", "made", "--yes").returncode == 0


def test_idle_sandbox_is_suspended_and_resumes_with_files(sandbox_gateway):
    idle = 5
    with sandbox_gateway.gateway.sandbox("sleepy") as box:
        box.create(idle_suspend_after=idle)
        box.wait()
        # In use all the time, and longer than it may be idle.
        used = box.exec("sh", "-c", f"echo kept > keep; sleep {idle * 2}; echo awake")
        assert (used.exit_code, used.text) == (0, "awake\n")
        left = time.monotonic()
        assert box.get().phase == "Ready"
        box.wait("Suspended", timeout=60)
        assert time.monotonic() - left > idle / 2
        with pytest.raises(ObjectConflictError, match="Suspended") as refused:
            box.exec("true")
        assert "holdfast sandbox resume" in refused.value.hint
        box.resume()
        box.wait()
        assert box.exec("cat", "keep").text == "kept\n"
        box.delete()


def test_connection_reset_in_sandbox_is_not_reported_as_eof(sandbox_gateway):
    with sandbox_gateway.gateway.sandbox("a") as box, box.session("python3", "-c", CLOSING_SERVER) as session:
        assert next(iter(session)).data == b"listening\n"
        with box.forward(9001) as way:
            assert _uppercase_reply(way.local_port, b"end\n") == (300_000, "ended")
            assert _uppercase_reply(way.local_port, b"cut\n")[1] == "cut"


def _uppercase_reply(port, word):
    """How many bytes came, and how the connection ended."""
    got = 0
    with socket.create_connection(("127.0.0.1", port), timeout=60) as one:
        one.sendall(word)
        try:
            while piece := one.recv(65536):
                got += len(piece)
        except ConnectionResetError:
            return got, "cut"
    return got, "ended"


@pytest.mark.slow
def test_stdin_blocked_longer_than_heartbeat_is_delivered(sandbox):
    """No side can hear the other one's pings then: that must not pass for its absence."""
    data = os.urandom(6_000_000)
    ended = sandbox("exec", "a", "--", "sh", "-c", "sleep 50; sha256sum", input=data, stdin=None)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_create_and_delete_report_state_and_data_retention(sandbox):
    assert sandbox("exec", "a", "sh", "-c", "echo kept > keep").returncode == 0
    assert (
        b"exists with the same options"
        in sandbox("create", "a", "--env", "COLOUR=blue", "--no-bootstrap").stderr
    )
    differs = sandbox("create", "a", "--env", "COLOUR=red", "--no-bootstrap")
    assert (differs.returncode, b"differs in env" in differs.stderr) == (3, True)
    asked = sandbox("delete", "a")
    assert (asked.returncode, b"workspace-a" in asked.stderr) == (2, True)
    kept = sandbox("delete", "a", "--yes", "--keep-workspace")
    assert b"kept in PVC workspace-a" in kept.stdout
    assert sandbox("get", "a").returncode == 3
    assert sandbox("delete", "a", "--yes", "--ignore-missing").returncode == 0
    assert sandbox("create", "a", "--no-bootstrap").returncode == 0
    assert sandbox("exec", "a", "cat", "keep").stdout == b"kept\n"
    assert b"Its workspace is deleted" in sandbox("delete", "a", "--yes").stdout


def peak_mebibytes(process):
    """The most memory a process uses until it ends; its rusage would include the process that started it."""
    peak = 0
    while process.poll() is None:
        with suppress(OSError, StopIteration):  # it ended meanwhile
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
        time.sleep(0.05)
    return peak / 1024


@pytest.mark.slow
def test_one_gibibyte_copy_round_trip_uses_constant_memory(sandbox_gateway, sandbox, tmp_path):
    assert sandbox("create", "big", "--no-bootstrap").returncode == 0
    source = tmp_path / "gib"
    with source.open("wb") as file:
        for _ in range(1024):
            file.write(os.urandom(1 << 20))
    for words in ((str(source), "big:"), ("big:gib", str(tmp_path / "back"))):
        copying = subprocess.Popen(
            sandbox_gateway.holdfast.argv("sandbox", "cp", *words), env=sandbox_gateway.holdfast.environment
        )
        assert 0 < peak_mebibytes(copying) < 200
        assert copying.returncode == 0
    with source.open("rb") as one, (tmp_path / "back").open("rb") as other:
        assert hashlib.file_digest(one, "sha256").digest() == hashlib.file_digest(other, "sha256").digest()
    assert sandbox("delete", "big", "--yes").returncode == 0


@pytest.mark.slow
def test_create_bootstraps_gateway_with_default_image(new_gateway, tmp_path_factory):
    node = new_gateway("first", holdfast=HoldfastCli(tmp_path_factory.mktemp("first")))
    node.holdfast("sandbox", "create", "one", "-g", node.name, timeout=600)
    assert node.holdfast("sandbox", "exec", "-g", node.name, "one", "pwd") == "/sandbox\n"
    node.holdfast("stop", node.name)
    refused = node.holdfast.run("sandbox", "create", "two", "-g", node.name, "--no-bootstrap")
    assert (refused.returncode, ": not up" in refused.stderr) == (2, True)
    node.holdfast("sandbox", "create", "two", "-g", node.name, timeout=600)
    assert node.holdfast("sandbox", "exec", "-g", node.name, "two", "pwd") == "/sandbox\n"
