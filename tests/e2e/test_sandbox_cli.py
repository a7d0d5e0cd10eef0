"""`holdfast sandbox …` as a person uses it: real pods, a real terminal, the API and the controller."""

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

import pytest
from tests.support.commands import Holdfast
from tests.support.controllers import Controller, install_kinds
from tests.support.sandbox_programs import ENDS_SERVER, HOPELESS, HOSTILE_TAR, TESTS_OF_A_USER, UPPER_SERVER
from tests.support.source_gateway import SourceGateway
from tests.support.terminals import Terminal

from holdfast.errors import ObjectConflictError
from holdfast.kube import Objects, api_client
from holdfast.sandbox.api import EXTENSIONS_API_VERSION

pytestmark = pytest.mark.engine

IMAGE = "holdfast/sandbox:0.1.0"


@pytest.fixture(scope="module")
def holdfast(tmp_path_factory):
    return Holdfast(tmp_path_factory.mktemp("node"), HOLDFAST_WORKLOADS="false")


@pytest.fixture(scope="module")
def running(new_gateway, tmp_path_factory):
    """A node with the sandbox image, the controller and the API from the source tree, and one sandbox."""
    node = new_gateway("box")
    node.up("--push-image", IMAGE)
    kubeconfig = node.holdfast.home / "config" / "gateways" / node.name / "kubeconfig"
    folder = tmp_path_factory.mktemp("sandbox")
    with api_client(kubeconfig) as api, pytest.MonkeyPatch.context() as patch:
        install_kinds(api)
        Objects(api).apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "boxes"}}, force=True
        )
        patch.setenv("HOLDFAST_HOME", str(folder))
        controller = Controller(kubeconfig, "boxes", folder / "controller.log")
        with SourceGateway("source", kubeconfig, "boxes", folder) as gateway:
            try:
                controller.start()
                gateway.holdfast("sandbox", "create", "a", "--env", "COLOUR=blue", "--no-bootstrap")
                yield gateway
            finally:
                controller.kill()


@pytest.fixture(scope="module")
def sandbox(running):
    """The words after `holdfast sandbox`."""

    def run(*words, **options):
        return subprocess.run(
            running.holdfast.argv("sandbox", *words), env=running.holdfast.environment, capture_output=True,
            timeout=120, check=False, **({"stdin": subprocess.DEVNULL} | options),
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def talker(sandbox):
    """A sandbox that prints a line each second, and that looks for programs in /tmp first."""
    made = sandbox(
        "create", "talks", "--no-bootstrap", "--no-workspace",
        "--env", "PATH=/tmp:/usr/local/bin:/usr/bin:/bin",
        "--command", "sh -c 'i=0; while :; do echo line $i; i=$((i+1)); sleep 1; done'",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return "talks"


def test_output_error_and_exit_code_are_the_commands_own(sandbox):
    ended = sandbox("exec", "a", "--", "sh", "-c", "echo $COLOUR; echo trouble >&2; exit 7")
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, b"blue\n", b"trouble\n")
    assert json.loads(sandbox("exec", "--json", "a", "pwd").stdout) == {
        "exit_code": 0, "stdout": "/sandbox\n", "stderr": "",
    }  # fmt: skip


def test_what_is_piped_in_arrives_whole_and_ended(sandbox):
    data = os.urandom(5_000_000)
    ended = sandbox("exec", "a", "sha256sum", input=data, stdin=None)
    assert ended.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_a_command_that_is_not_there_is_said_in_one_line(sandbox):
    ended = sandbox("exec", "a", "no-such-program")
    assert ended.returncode == 3
    assert b'"no-such-program": executable file not found' in ended.stderr.splitlines()[0]


def test_a_terminal_has_keys_size_and_end(running):
    terminal = Terminal(
        running, "exec", "-t", "a", "--", "sh", "-c", "echo begun; trap 'echo caught' INT; exec sh -i"
    )
    terminal.resize(31, 101)
    terminal.wait_for(rb"begun")
    assert terminal.is_raw()
    terminal.type("until stty size | grep 101; do :; done\r")  # a size takes a way of its own
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
    assert terminal.end() == 9


def test_connect_is_a_shell_and_a_signal_gives_the_terminal_back(running):
    terminal = Terminal(running, "connect", "a")
    terminal.wait_for(rb"[$#] ")
    terminal.type("echo $((6*7)) in $PWD\r")
    terminal.wait_for(rb"42 in /sandbox\r\n")
    assert terminal.is_raw()
    os.kill(terminal.child, signal.SIGTERM)
    terminal.wait_for(rb"SIGTERM")
    assert not terminal.is_raw()
    assert terminal.end() == 130


def test_ctrl_c_without_a_terminal_ends_this_side_and_says_so(running):
    started = running.holdfast.start("sandbox", "exec", "a", "--", "sh", "-c", "echo begun; sleep 600")
    assert started.stdout.readline() == "begun\n"
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=30)
    assert started.returncode == 130
    assert "may still be running" in said


def test_a_tree_goes_in_and_comes_back(sandbox, tmp_path):
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
    assert b"left out" in ended.stderr
    body = json.loads(sandbox("cp", "--json", "a:tree/inside", str(tmp_path / "back")).stdout)
    assert body["left_out"] == []
    for name in ("deep/blob", "run"):
        assert (tmp_path / "back" / name).read_bytes() == (tree / name).read_bytes()
    assert (tmp_path / "back" / "run").stat().st_mode & 0o777 == 0o755
    assert sandbox("cp", "a:/etc/hostname", str(tmp_path)).returncode == 0


def test_a_hostile_archive_writes_nothing_outside(sandbox, talker, tmp_path):
    """In this sandbox, `tar` answers with names that lead out of the copy."""
    (tmp_path / "tar").write_text(HOSTILE_TAR)
    (tmp_path / "tar").chmod(0o755)
    assert sandbox("cp", str(tmp_path / "tar"), f"{talker}:/tmp/").returncode == 0
    goal = tmp_path / "goal"
    goal.mkdir()
    ended = sandbox("cp", f"{talker}:x", str(goal / "x"))
    assert ended.returncode == 3
    assert b"leads out of the copy" in ended.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["goal", "tar"]


def test_a_port_serves_many_at_once_on_loopback_alone(running, sandbox):
    serving = running.holdfast.start("sandbox", "exec", "a", "python3", "-c", UPPER_SERVER)
    forwarding = running.holdfast.start("sandbox", "forward", "--json", "a", "0:9000")
    try:
        port = json.loads(forwarding.stdout.readline())["local_port"]
        answers = {}

        def ask(number):
            text = b"hello %d\n" % number
            until = time.monotonic() + 60
            while answers.get(number, b"") == b"" and time.monotonic() < until:
                with (
                    suppress(ConnectionError),  # so is told that nothing listens yet
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


def test_logs_come_as_they_are_printed(running, sandbox, talker):
    following = running.holdfast.start("sandbox", "logs", "-f", talker)
    assert [following.stdout.readline() for _ in range(3)] == ["line 0\n", "line 1\n", "line 2\n"]
    following.send_signal(signal.SIGINT)
    assert following.wait(30) == 130
    following.communicate()
    assert sandbox("logs", "--tail", "1", talker).stdout.startswith(b"line ")


def test_a_workspace_outlives_suspend_and_resume(sandbox):
    assert sandbox("exec", "a", "sh", "-c", "echo kept > keep").returncode == 0
    assert sandbox("suspend", "a").returncode == 0
    refused = sandbox("exec", "a", "true")
    assert (refused.returncode, b"Suspended" in refused.stderr) == (3, True)
    assert json.loads(sandbox("resume", "a", "--json").stdout)["phase"] == "Ready"
    assert sandbox("exec", "a", "cat", "keep").stdout == b"kept\n"


def test_the_fixture_gives_a_users_test_a_sandbox_that_runs_commands(running, tmp_path):
    (tmp_path / "test_theirs.py").write_text(TESTS_OF_A_USER)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", tmp_path]
    ended = subprocess.run(
        words, env=running.holdfast.environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "1 passed" in ended.stdout, ended.stdout
    with running.gateway.sandboxes() as boxes:
        for name in [view.name for view in boxes if view.name.startswith("test-mine")]:
            boxes.sandbox(name).wait_gone(timeout=60)


def test_a_start_without_hope_is_told_within_seconds_by_create_and_by_the_condition(running, sandbox):
    with api_client(running.kubeconfig) as api:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taken", "namespace": "boxes"}}
        container = {"name": "main", "image": IMAGE, "command": ["sleep", "600"]}
        pod["spec"] = {"containers": [container], "terminationGracePeriodSeconds": 0}
        Objects(api).create(pod)

    def create(name):
        began = time.monotonic()
        words = HOPELESS[name][0]
        room = [] if {"--workspace-size", "--template"} & set(words) else ["--no-workspace"]
        ended = sandbox("create", name, "--no-bootstrap", *room, *words)
        return name, ended, time.monotonic() - began

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(create, HOPELESS))
    with running.gateway.sandboxes() as boxes:
        conditions = {view.name: view.conditions for view in boxes}
        for name in set(HOPELESS) & set(conditions):
            boxes.sandbox(name).delete()
    for name, ended, seconds in told:
        said = ended.stderr.decode()
        assert ended.returncode == (2 if name == "no-pool" else 3), said
        assert all(words in said for words in HOPELESS[name][1:]), said
        assert seconds < 60, f"{name} took {seconds:.0f} s"
        if name != "no-pool":
            (ready,) = [row for row in conditions[name] if row.type == "Ready"]
            assert ready.status == "False"
            assert HOPELESS[name][1] in f"{ready.reason} {ready.message}"


def test_one_of_a_template_has_one_id_and_is_found_by_its_label_from_first_to_last(running, sandbox):
    container = {"name": "sandbox", "image": IMAGE, "command": ["sleep", "600"]}
    template = {"podTemplate": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}}
    pool = {"replicas": 0, "sandboxTemplateRef": {"name": "plain"}}
    about = {"apiVersion": EXTENSIONS_API_VERSION, "metadata": {"name": "plain", "namespace": "boxes"}}
    with api_client(running.kubeconfig) as api:
        Objects(api).create({**about, "kind": "SandboxTemplate", "spec": template})
        Objects(api).create({**about, "kind": "SandboxWarmPool", "spec": pool})
    words = ("create", "made", "--no-bootstrap", "--template", "plain", "--label", "team=blue", "--json",
             "--shutdown-after", "3600")  # fmt: skip
    first = json.loads(sandbox(*words, "--no-wait").stdout)
    ready = json.loads(sandbox(*words).stdout)
    assert (ready["phase"], ready["id"], ready["labels"]["team"]) == ("Ready", first["id"], "blue")
    assert ready["shutdown_time"] == first["shutdown_time"] is not None
    (listed,) = json.loads(sandbox("list", "--label", "team=blue", "--json").stdout)["sandboxes"]
    assert (listed["name"], listed["id"]) == ("made", first["id"])
    assert sandbox("exec", "made", "hostname").stdout == b"made\n"
    assert sandbox("delete", "made", "--yes").returncode == 0


def test_one_that_nobody_uses_falls_asleep_and_wakes_up_with_its_files(running):
    idle = 5
    with running.gateway.sandbox("sleepy") as box:
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


def test_a_connection_that_was_cut_in_the_sandbox_does_not_look_ended(running):
    with running.gateway.sandbox("a") as box, box.session("python3", "-c", ENDS_SERVER) as session:
        assert next(iter(session)).data == b"listening\n"
        with box.forward(9001) as way:
            assert _answer(way.local_port, b"end\n") == (300_000, "ended")
            assert _answer(way.local_port, b"cut\n")[1] == "cut"


def _answer(port, word):
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
def test_input_that_waits_for_its_reader_longer_than_any_heartbeat_arrives_whole(sandbox):
    """No side can hear the other one's pings then: that must not pass for its absence."""
    data = os.urandom(6_000_000)
    ended = sandbox("exec", "a", "--", "sh", "-c", "sleep 50; sha256sum", input=data, stdin=None)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_create_and_delete_say_what_is_there_and_what_becomes_of_the_data(sandbox):
    assert sandbox("exec", "a", "sh", "-c", "echo kept > keep").returncode == 0
    assert (
        b"was there, and is the same"
        in sandbox("create", "a", "--env", "COLOUR=blue", "--no-bootstrap").stderr
    )
    differs = sandbox("create", "a", "--env", "COLOUR=red", "--no-bootstrap")
    assert (differs.returncode, b"differs in env" in differs.stderr) == (3, True)
    asked = sandbox("delete", "a")
    assert (asked.returncode, b"workspace-a" in asked.stderr) == (2, True)
    kept = sandbox("delete", "a", "--yes", "--keep-workspace")
    assert b"kept in the claim workspace-a" in kept.stdout
    assert sandbox("get", "a").returncode == 3
    assert sandbox("delete", "a", "--yes", "--ignore-missing").returncode == 0
    assert sandbox("create", "a", "--no-bootstrap").returncode == 0
    assert sandbox("exec", "a", "cat", "keep").stdout == b"kept\n"
    assert b"deleted with it" in sandbox("delete", "a", "--yes").stdout


@pytest.mark.slow
def test_a_gibibyte_goes_both_ways_whole_with_flat_memory(running, sandbox, tmp_path):
    assert sandbox("create", "big", "--no-bootstrap").returncode == 0
    source = tmp_path / "gib"
    with source.open("wb") as file:
        for _ in range(1024):
            file.write(os.urandom(1 << 20))
    for words in ((str(source), "big:"), ("big:gib", str(tmp_path / "back"))):
        copying = subprocess.Popen(
            running.holdfast.argv("sandbox", "cp", *words), env=running.holdfast.environment
        )
        _, status, used = os.wait4(copying.pid, 0)
        copying.returncode = os.waitstatus_to_exitcode(status)
        assert copying.returncode == 0
        assert used.ru_maxrss < 200 * 1024
    with source.open("rb") as one, (tmp_path / "back").open("rb") as other:
        assert hashlib.file_digest(one, "sha256").digest() == hashlib.file_digest(other, "sha256").digest()
    assert sandbox("delete", "big", "--yes").returncode == 0


@pytest.mark.slow
def test_create_brings_up_a_gateway_first_with_our_image_in_it(new_gateway, tmp_path_factory):
    node = new_gateway("first", holdfast=Holdfast(tmp_path_factory.mktemp("first")))
    node.holdfast("sandbox", "create", "one", "-g", node.name, timeout=600)
    assert node.holdfast("sandbox", "exec", "-g", node.name, "one", "pwd") == "/sandbox\n"
    node.holdfast("stop", node.name)
    refused = node.holdfast.run("sandbox", "create", "two", "-g", node.name, "--no-bootstrap")
    assert (refused.returncode, "is not up" in refused.stderr) == (2, True)
    node.holdfast("sandbox", "create", "two", "-g", node.name, timeout=600)
    assert node.holdfast("sandbox", "exec", "-g", node.name, "two", "pwd") == "/sandbox\n"
