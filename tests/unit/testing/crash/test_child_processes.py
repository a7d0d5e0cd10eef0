"""The children of the crash matrix: killed at the requested time, and never left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.eventually import eventually

from holdfast.testing.crash.cases import KILLED_EXIT_CODE, CrashHarness
from holdfast.workflow import Step, Workflow, absent

# A child that is left behind keeps the pipe open that the end of the harness reads.
pytestmark = pytest.mark.timeout(60)


def waits(world):
    """Its step never ends; the alarm ends a run that is not killed."""

    def run(ctx):
        signal.alarm(20)
        signal.pause()

    return Workflow("waits", [Step("wait", probe=lambda ctx: absent(), run=run)])


def has_ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_stopped_child_ends_with_the_helper(tmp_path):
    with CrashHarness(waits, tmp_path) as harness:
        pid = harness.new_case().run_until_stopped("wait")
        assert not has_ended(pid)
    assert eventually(lambda: has_ended(pid))


def test_run_after_killed_child_is_killed_in_time(tmp_path):
    with CrashHarness(waits, tmp_path) as harness:
        stopped = harness.new_case()
        stopped.kill(stopped.run_until_stopped("wait"))
        assert harness.new_case().run(kill_after=0.1) == KILLED_EXIT_CODE


def test_file_size_limit_keeps_hard_limit():
    program = """
import json, resource
from holdfast.testing.crash import child
resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, 2**30))
child._limit_file_size(4096)
print(json.dumps(resource.getrlimit(resource.RLIMIT_FSIZE)))
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout) == [4096, 2**30]
