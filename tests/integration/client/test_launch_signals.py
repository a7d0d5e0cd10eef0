"""The scripts that find and signal the processes of a command, on real processes in containers."""

from __future__ import annotations

import itertools

import pytest
from tests.support.userlands import USERLANDS, UserlandContainer

from holdfast.client.launch import SIGNAL_SCRIPT, TERMINATE_SCRIPT, Launch
from holdfast.remote import connect
from holdfast.retry import Policy, constant

pytestmark = pytest.mark.engine

NUMBERS = itertools.count(100000)
EVENTUALLY = Policy(attempts=None, deadline=20, backoff=constant(0.05), retry_on=AssertionError)


@pytest.fixture(scope="module", params=USERLANDS)
def container(request):
    with UserlandContainer(connect().client, request.param) as made:
        yield made


@pytest.fixture
def sleep():
    """A command that no other test runs, so that its processes can be counted."""
    return f"sleep {next(NUMBERS)}"


def start(container, launch, sleep, processes):
    """Start a command and wait until that many processes run the `sleep`."""
    exec_id = container.start(*launch.argv)

    def runs():
        assert len(container.pids(sleep)) == processes

    EVENTUALLY.call(runs)
    return exec_id


def terminate(container, marker):
    return container.run("sh", "-c", TERMINATE_SCRIPT, "holdfast", marker).exit_code


@pytest.mark.parametrize(
    "command",
    [
        "exec {sleep}",  # the shell replaces itself
        "{sleep} & wait",
        "{sleep} & exit",  # the session's leader is gone
        "setsid {sleep} & wait",  # another session
        "env -i {sleep} & wait",  # a child without the marker
        "(env -i {sleep} &) ; {sleep}",
        "trap '' TERM; {sleep} & wait; wait",
        "trap '' TERM; env -i {sleep} & wait; wait",
        "cp /bin/sh '/tmp/x) S 1 1 1'; '/tmp/x) S 1 1 1' -c '{sleep} & wait'",  # looks like other numbers
    ],
)
def test_all_processes_of_a_command_end(container, sleep, command):
    launch = Launch(("sh", "-c", command.format(sleep=sleep)))
    exec_id = start(container, launch, sleep, command.count("{sleep}"))
    assert terminate(container, launch.marker) == 0
    assert len(container.pids(sleep)) == 0
    assert not container.is_running(exec_id)


def test_second_session_with_identical_arguments_survives(container, sleep):
    command = ("sh", "-c", f"trap '' TERM; {sleep} & wait; wait")
    first, second = Launch(command), Launch(command)
    start(container, first, sleep, 1)
    exec_id = start(container, second, sleep, 2)
    assert terminate(container, first.marker) == 0
    assert container.is_running(exec_id)
    assert len(container.pids(sleep)) == 1
    assert terminate(container, second.marker) == 0
    assert len(container.pids(sleep)) == 0


def test_command_without_the_marker_is_reported_as_not_found(container, sleep):
    launch = Launch(("env", "-i", *sleep.split()))
    exec_id = start(container, launch, sleep, 1)
    assert terminate(container, launch.marker) == 1
    assert container.is_running(exec_id)
    container.run("kill", *container.pids(sleep))


def test_signal_reaches_all_processes_once(container, sleep):
    script = f"trap 'echo got >>/tmp/{sleep.split()[1]}' USR1; {sleep} & wait; {sleep}"
    launch = Launch(("sh", "-c", script))
    start(container, launch, sleep, 1)
    signal = ("sh", "-c", SIGNAL_SCRIPT, "holdfast", launch.marker)
    assert container.run(*signal, "USR1").exit_code == 0

    def is_received():
        assert container.run("cat", f"/tmp/{sleep.split()[1]}").stdout == b"got\n"

    EVENTUALLY.call(is_received)
    assert container.run(*signal, "KILL").exit_code == 0
    EVENTUALLY.call(lambda: _assert_none(container, sleep))
    assert container.run(*signal, "KILL").exit_code == 1


def _assert_none(container, sleep):
    assert len(container.pids(sleep)) == 0


@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [
        (("no-such-program", "x"), 127, "executable file not found"),
        (("./no such program",), 127, "executable file not found"),
        (("/etc/passwd",), 126, "Permission denied"),
    ],
)
def test_failed_start_is_recognized(container, command, code, reason):
    launch = Launch(command)
    output = container.run(*launch.argv)
    assert (output.exit_code, output.stdout) == (code, b"")
    error = launch.start_error(output.stderr, output.exit_code, "it")
    assert error.message == f'it: the command could not be started: exec: "{command[0]}": {reason}'


def test_missing_working_directory_is_recognized(container):
    launch = Launch(("true",), cwd="none")
    output = container.run(*launch.argv)
    error = launch.start_error(output.stderr, output.exit_code, "it")
    assert error.code == "path-missing"
    assert "/sandbox/none" in error.message


def test_variables_and_working_directory_reach_the_command(container):
    launch = Launch(("sh", "-c", 'pwd; printf "%s" "$A$B"'), env={"A": "a b\n'", "B": "=$x"}, cwd="/tmp")
    assert container.run(*launch.argv) == (0, b"/tmp\na b\n'=$x", b"")
    container.run("sh", "-c", "printf '#!/bin/sh\necho \"$0 $*\"' >/tmp/a=b; chmod +x /tmp/a=b")
    assert container.run(*Launch(("./a=b", "c=d"), cwd="/tmp").argv).stdout == b"./a=b c=d\n"
