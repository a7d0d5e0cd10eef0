"""Child processes: they end with the test, whether it ends well, stops them, or is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError, TemporaryError, ToolMissingError, UsageError
from holdfast.testing.kube_components import free_ports
from holdfast.testing.kube_server import KubeServer
from holdfast.testing.node_binary import VARIABLE, node_binary
from holdfast.testing.processes import Child


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pid, within=10.0):
    deadline = time.monotonic() + within
    while alive(pid) and time.monotonic() < deadline:
        threading.Event().wait(0.02)
    return not alive(pid)


def test_a_child_runs_writes_its_log_and_is_killed(tmp_path):
    child = Child("talker", ["/bin/sh", "-c", "echo hello; exec sleep 600"], log=tmp_path / "log")
    assert not child.ended_within(0.3)
    assert child.tail() == "hello"
    child.kill()
    child.kill()
    assert not alive(child.pid)


def test_everything_a_child_started_goes_with_it(tmp_path):
    child = Child("parent", ["/bin/sh", "-c", "sleep 600 & echo $!; wait"], log=tmp_path / "log")
    while not child.tail():
        child.ended_within(0.02)
    grandchild = int(child.tail())
    child.kill()
    assert gone(grandchild)


def test_a_child_outlives_the_thread_that_asked_for_it(tmp_path):
    made = []
    thread = threading.Thread(
        target=lambda: made.append(Child("sleeper", ["/bin/sleep", "600"], log=tmp_path / "log"))
    )
    thread.start()
    thread.join()
    assert not made[0].ended_within(0.3)
    made[0].kill()


def test_a_killed_test_takes_its_children_along(tmp_path):
    program = f"""
        import sys, threading
        from pathlib import Path
        from holdfast.testing.processes import Child
        child = Child("sleeper", ["/bin/sleep", "600"], log=Path({str(tmp_path / "log")!r}))
        child.ended_within(0.2)
        print(child.pid, flush=True)
        threading.Event().wait()
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    pid = int(parent.stdout.readline())
    assert alive(pid)
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    assert gone(pid)


def test_a_failure_carries_the_last_lines(tmp_path):
    child = Child("breaker", ["/bin/sh", "-c", "echo no such luck; exit 7"], log=tmp_path / "log")
    assert child.ended_within(10)
    error = child.failed("stopped while starting")
    assert str(error).startswith("breaker stopped while starting (ended with code 7)")
    assert "no such luck" in str(error)


def test_free_ports_differ():
    assert len(set(free_ports(20))) == 20


def test_the_binary_comes_from_the_environment_first(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, sys.executable)
    assert node_binary() == Path(sys.executable).resolve()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "missing"))
    with pytest.raises(UsageError, match="no executable file") as caught:
        node_binary()
    assert "holdfast image build" in caught.value.hint


def test_without_a_binary_the_error_says_how_to_get_one(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)

    def unbuilt():
        raise ToolMissingError("the node's programs are not built yet", hint="Run: holdfast image build")

    monkeypatch.setattr("holdfast.images.artifacts.node_binary", unbuilt)
    with pytest.raises(HoldfastError, match="not built yet") as caught:
        KubeServer().start()
    assert "holdfast image build" in caught.value.hint


def test_a_server_that_dies_says_what_it_said_and_leaves_nothing(tmp_path, monkeypatch):
    fake = tmp_path / "node"
    fake.write_text("#!/bin/sh\necho $1 cannot start\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server = KubeServer(binary=fake, timeout=20)
    with pytest.raises(TemporaryError, match="cannot start"):
        server.start()
    assert not list(tmp_path.glob("holdfast-kube-*"))
    with pytest.raises(UsageError, match="not running"):
        _ = server.kubeconfig


def test_a_server_that_never_serves_is_given_up(tmp_path):
    fake = tmp_path / "node"
    fake.write_text("#!/bin/sh\nexec sleep 600\n")
    fake.chmod(0o755)
    with pytest.raises(TemporaryError, match=r"did not serve /readyz within 0\.3 s"):
        KubeServer(binary=fake, timeout=0.3).start()


def test_a_bad_timeout_is_named():
    with pytest.raises(UsageError, match="timeout"):
        KubeServer(timeout=float("nan"))
