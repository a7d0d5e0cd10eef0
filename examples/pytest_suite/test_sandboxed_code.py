"""Tests of code that should not run on this machine, with the fixtures of holdfast's pytest plugin.

The gateway has to run: `holdfast up`, then `pytest examples/pytest_suite`.
"""

import pytest

from holdfast import Sandbox
from holdfast.client import Sandboxes
from holdfast.errors import CommandFailedError


def test_program_changes_only_its_own_files(sandbox: Sandbox) -> None:
    sandbox.exec("sh", "-c", "rm -rf /sandbox/* && echo cleaned >/sandbox/result", check=True)
    assert sandbox.files.read_text("result") == "cleaned\n"


def test_failure_has_exit_code_and_output(sandbox: Sandbox) -> None:
    with pytest.raises(CommandFailedError) as failure:
        sandbox.exec("sh", "-c", "echo reason >&2; exit 7", check=True)
    assert (failure.value.exit_code, failure.value.stderr) == (7, b"reason\n")


@pytest.mark.sandbox(env={"MODE": "test"}, memory="256Mi")
def test_options_of_the_sandbox(sandbox: Sandbox) -> None:
    assert sandbox.exec("printenv", "MODE").text == "test\n"


def test_files_survive_a_restart_of_the_pod(sandbox: Sandbox) -> None:
    sandbox.files.write("note", "kept")
    sandbox.suspend()
    sandbox.wait("Suspended")
    sandbox.resume()
    sandbox.wait()
    assert sandbox.files.read_text("note") == "kept"


def test_sandboxes_do_not_share_files(sandboxes: Sandboxes) -> None:
    with sandboxes.temporary() as one, sandboxes.temporary() as other:
        one.files.write("secret", "x")
        assert not other.files.exists("secret")
