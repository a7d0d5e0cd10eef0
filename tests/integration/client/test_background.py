"""Background commands on real processes in containers: output, end, signals, and what outlives them."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.container_sandbox import container_sandbox, cut_connections
from tests.support.userlands import USERLANDS, UserlandContainer

from holdfast.client.launch import MAX_FINISHED_RECORDS
from holdfast.errors import (
    ApiRequestRejectedError,
    CommandLostError,
    DeadlineExceededError,
    InvalidArgumentError,
    PathNotFoundError,
    ProcessNotFoundError,
    ResponseLostError,
)
from holdfast.remote import connect
from holdfast.retry import Policy, constant

pytestmark = pytest.mark.engine

NUMBERS = itertools.count(200000)
EVENTUALLY = Policy(attempts=None, deadline=20, backoff=constant(0.05), retry_on=AssertionError)


@pytest.fixture(scope="module", params=USERLANDS)
def container(request):
    with UserlandContainer(connect().client, request.param) as made:
        yield made


@pytest.fixture(params=["0", "65534"], ids=["root", "nobody"])
def sandbox(container, request):
    container.run("rm", "-rf", "/sandbox/.holdfast")
    return container_sandbox(container, request.param)


@pytest.fixture
def sleep():
    """A command that no other test runs, so that its processes can be counted."""
    return f"sleep {next(NUMBERS)}"


def start(sandbox, script, **options):
    return sandbox.exec("sh", "-c", script, background=True, **options)


def test_output_exit_code_and_options(sandbox):
    script = 'pwd; echo "$A"; echo problem >&2; exit 7'
    command = start(sandbox, script, env={"A": "a b\n'"}, cwd="/tmp")
    result = command.wait(timeout=30)
    assert (result.exit_code, result.stdout, result.stderr) == (7, b"/tmp\na b\n'\n", b"problem\n")
    assert (command.poll(), command.is_running()) == (7, False)
    assert (command.stdout(), command.stderr()) == (result.stdout, result.stderr)
    view = command.get()
    assert (view.command, view.state, view.exit_code) == (["sh", "-c", script], "finished", 7)
    assert view.started <= view.ended


def test_another_client_finds_the_running_command(container, sandbox, sleep):
    """The first client has no connection any more: each call is one `docker exec`."""
    started = start(sandbox, f"echo here; {sleep}")
    command = sandbox.command(started.id)
    EVENTUALLY.call(lambda: assert_count(container, sleep, 1))
    assert command.is_running()
    assert command.poll() is None
    assert command.stdout() == b"here\n"
    assert [(view.id, view.state) for view in sandbox.commands()] == [(started.id, "running")]
    with pytest.raises(DeadlineExceededError, match="still running"):
        command.wait(timeout=0.5)
    assert command.kill()
    assert command.poll() == 143


def assert_count(container, sleep, count):
    assert len(container.pids(sleep)) == count


@pytest.mark.parametrize(
    ("command", "processes"),
    [
        ("exec {sleep}", 1),
        ("{sleep} & wait", 1),
        ("setsid {sleep} & wait", 1),
        ("env -i {sleep} & wait", 1),
        ("trap '' TERM; {sleep} & wait; wait", 1),
        ("{sleep} & exit 0", 1),  # the command itself has ended
    ],
)
def test_kill_ends_the_command_and_its_children_only(container, sandbox, sleep, command, processes):
    other = start(sandbox, command.format(sleep=sleep))
    killed = start(sandbox, command.format(sleep=sleep))
    EVENTUALLY.call(lambda: assert_count(container, sleep, 2 * processes))
    assert killed.kill()
    assert_count(container, sleep, processes)
    assert not killed.kill()
    assert other.kill()
    assert_count(container, sleep, 0)


@pytest.mark.parametrize(("signal", "code"), [("INT", 130), ("SIGQUIT", 131), (15, 143), ("KILL", 137)])
def test_signal_ends_a_command_that_does_not_handle_it(sandbox, sleep, signal, code):
    command = sandbox.exec(*sleep.split(), background=True)
    assert command.kill(signal)
    assert (command.wait(timeout=30)).exit_code == code


def test_follow_delivers_all_output_until_the_end(sandbox):
    script = "i=0; while [ $i -lt 3 ]; do echo $i; i=$((i+1)); sleep 0.2; done; head -c 300000 /dev/zero"
    command = start(sandbox, script)
    chunks = [output.data for output in command.output(follow=True)]
    assert len(chunks) > 2
    assert b"".join(chunks) == b"0\n1\n2\n" + bytes(300000)


def test_follow_continues_after_lost_connections_without_gap_or_repetition(sandbox):
    command = start(sandbox, "seq 1 20000; sleep 0.5; seq 20001 40000; seq 1 3 >&2")
    cut_connections(sandbox, 5, 100_000, None)
    chunks = list(command.output(follow=True))
    expected = "".join(f"{number}\n" for number in range(1, 40001)).encode()
    assert b"".join(data for channel, data in chunks if channel == 1) == expected
    assert b"".join(data for channel, data in chunks if channel == 2) == b"1\n2\n3\n"
    cut_connections(sandbox, 0, 0, 0, 0)
    with pytest.raises(ResponseLostError):
        list(start(sandbox, "true").output(follow=True))
    cut_connections(sandbox)


def test_command_whose_start_was_not_answered_is_started_once_and_found(sandbox):
    cut_connections(sandbox, 0)
    command = start(sandbox, "echo x >>/tmp/starts; echo started")
    assert command.wait(timeout=30).stdout == b"started\n"
    assert sandbox.files.read("/tmp/starts") == b"x\n"
    sandbox.files.remove("/tmp/starts")
    assert len(sandbox.commands()) == 1


def test_unstartable_command_is_an_error_and_leaves_no_record(sandbox):
    with pytest.raises(ApiRequestRejectedError, match='exec: "no-such-program": executable file not found'):
        sandbox.exec("no-such-program", background=True)
    with pytest.raises(PathNotFoundError, match="/sandbox/none: not a directory"):
        sandbox.exec("true", background=True, cwd="none")
    assert sandbox.commands() == []


def test_unknown_command_is_an_error(sandbox):
    with pytest.raises(ProcessNotFoundError, match="command 0123456789ab in sandbox box: not found"):
        sandbox.command("0123456789ab")
    for wrong in ("", "../../etc", "0123456789AB", "*"):
        with pytest.raises(InvalidArgumentError, match="is not the id of a command"):
            sandbox.command(wrong)


def test_variables_are_in_no_process_list_and_no_record(container, sandbox, sleep):
    command = start(sandbox, f"{sleep} & wait", env={"TOKEN": "hunter2"})
    EVENTUALLY.call(lambda: assert_count(container, sleep, 1))
    # The pattern is not in the arguments of these commands themselves.
    for script in ("cat /proc/[0-9]*/cmdline", "cat /sandbox/.holdfast/commands/*/*"):
        assert b"hunter2" not in container.run("sh", "-c", script).stdout
    assert command.kill()


def test_command_without_its_supervisor_is_lost_and_never_a_success(container, sandbox, sleep):
    command = start(sandbox, f"echo before; {sleep}; exit 0")
    EVENTUALLY.call(lambda: assert_count(container, sleep, 1))
    pid = container.run("cat", f"/sandbox/.holdfast/commands/{command.id}/pid").stdout.split()[0].decode()
    container.run("sh", "-c", f"kill -9 {pid}")
    assert (command.get()).state == "lost"
    for call in (command.poll, command.wait):
        with pytest.raises(CommandLostError, match=command.id):
            call()
    assert command.stdout() == b"before\n"
    assert command.kill()
    assert_count(container, sleep, 0)
    assert (command.get()).exit_code is None


def test_records_of_finished_commands_are_limited(container, sandbox):
    old = f"""
    for i in $(seq 1 {MAX_FINISHED_RECORDS + 5}); do
      record=/sandbox/.holdfast/commands/$(printf %012d $i)
      mkdir -p $record; echo 1 >$record/started; echo '0 1' >$record/exit; touch -t 200001010000 $record
    done"""
    sandbox.exec("sh", "-c", old, check=True)
    command = sandbox.exec("true", background=True)
    assert len(sandbox.commands()) == MAX_FINISHED_RECORDS
    assert (command.wait()).exit_code == 0


def test_concurrent_commands_have_separate_records(sandbox):
    with ThreadPoolExecutor(8) as pool:
        commands = list(pool.map(lambda n: start(sandbox, f"echo {n}; exit {n}"), range(8)))
        results = list(pool.map(lambda command: command.wait(timeout=60), commands))
    assert [(each.exit_code, each.text) for each in results] == [(n, f"{n}\n") for n in range(8)]


def test_exit_code_survives_a_restart_and_a_running_command_is_lost(container, sandbox, sleep):
    finished = start(sandbox, "echo done; exit 3")
    finished.wait(timeout=30)
    running = start(sandbox, sleep)
    EVENTUALLY.call(lambda: assert_count(container, sleep, 1))
    container.client.restart(container.id, timeout=0)
    assert (finished.poll(), finished.stdout()) == (3, b"done\n")
    assert (running.get()).state == "lost"
    with pytest.raises(CommandLostError):
        running.wait()
    assert not running.kill()
