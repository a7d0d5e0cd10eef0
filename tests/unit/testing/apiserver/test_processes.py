"""Child processes end with the test: on success, on failure, and when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from tests.support.eventually import eventually

from holdfast.errors import HoldfastError, TemporaryError, ToolNotFoundError, UsageError
from holdfast.testing.apiserver import KubeServer
from holdfast.testing.apiserver.processes import NODE_BINARY_VARIABLE, ChildProcess, free_ports, node_binary


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pid):
    return eventually(lambda: not alive(pid))


def test_child_runs_writes_log_and_is_killed(tmp_path):
    child = ChildProcess("talker", ["/bin/sh", "-c", "echo hello; exec sleep 600"], log=tmp_path / "log")
    assert not child.wait_for_exit(0.3)
    assert child.tail() == "hello"
    child.kill()
    child.kill()
    assert not alive(child.pid)


def test_descendants_are_killed_with_child(tmp_path):
    child = ChildProcess("parent", ["/bin/sh", "-c", "sleep 600 & echo $!; wait"], log=tmp_path / "log")
    while not child.tail():
        child.wait_for_exit(0.02)
    grandchild = int(child.tail())
    child.kill()
    assert gone(grandchild)


def test_child_outlives_starting_thread(tmp_path):
    made = []
    thread = threading.Thread(
        target=lambda: made.append(ChildProcess("sleeper", ["/bin/sleep", "600"], log=tmp_path / "log"))
    )
    thread.start()
    thread.join()
    assert not made[0].wait_for_exit(0.3)
    made[0].kill()


def test_killed_test_kills_its_children(tmp_path):
    program = f"""
        import sys, threading
        from pathlib import Path
        from holdfast.testing.apiserver.processes import ChildProcess
        child = ChildProcess("sleeper", ["/bin/sleep", "600"], log=Path({str(tmp_path / "log")!r}))
        child.wait_for_exit(0.2)
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


def test_failure_includes_last_log_lines(tmp_path):
    child = ChildProcess("breaker", ["/bin/sh", "-c", "echo no such luck; exit 7"], log=tmp_path / "log")
    assert child.wait_for_exit(10)
    error = child.failure("stopped while starting")
    assert str(error).startswith("breaker stopped while starting (ended with code 7)")
    assert "no such luck" in str(error)


def test_free_ports_differ():
    assert len(set(free_ports(20))) == 20


def test_binary_from_environment_takes_precedence(monkeypatch, tmp_path):
    monkeypatch.setenv(NODE_BINARY_VARIABLE, sys.executable)
    assert node_binary() == Path(sys.executable).resolve()
    monkeypatch.setenv(NODE_BINARY_VARIABLE, str(tmp_path / "missing"))
    with pytest.raises(UsageError, match="not an executable file") as caught:
        node_binary()
    assert "holdfast image build" in caught.value.hint


def test_missing_binary_error_has_hint(monkeypatch):
    monkeypatch.delenv(NODE_BINARY_VARIABLE, raising=False)

    def unbuilt():
        raise ToolNotFoundError("the node's programs are not built yet", hint="Run `holdfast image build`.")

    monkeypatch.setattr("holdfast.images.node_binary_path", unbuilt)
    with pytest.raises(HoldfastError, match="not built yet") as caught:
        KubeServer().start()
    assert "holdfast image build" in caught.value.hint


def test_server_exit_reports_its_output_and_leaves_nothing(tmp_path, monkeypatch):
    fake = tmp_path / "node"
    fake.write_text("#!/bin/sh\necho $1 cannot start\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server = KubeServer(binary=fake, timeout=20)
    with pytest.raises(TemporaryError, match="cannot start") as caught:
        server.start()
    assert str(tmp_path) not in caught.value.hint
    assert not list(tmp_path.glob("holdfast-kube-*"))
    with pytest.raises(UsageError, match="not running"):
        _ = server.kubeconfig


def test_server_that_never_becomes_ready_times_out(tmp_path):
    fake = tmp_path / "node"
    fake.write_text("#!/bin/sh\nexec sleep 600\n")
    fake.chmod(0o755)
    with pytest.raises(TemporaryError, match=r"did not serve /readyz within 0\.3 s"):
        KubeServer(binary=fake, timeout=0.3).start()


def test_invalid_timeout_is_named():
    with pytest.raises(UsageError, match="timeout"):
        KubeServer(timeout=float("nan"))
