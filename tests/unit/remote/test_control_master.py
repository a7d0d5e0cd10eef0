"""The shared ssh connection: socket paths, liveness of its process, timeouts."""

import os
import socket
import subprocess

import pytest

from holdfast.errors import HostUnreachableError, PermanentError
from holdfast.remote import control_master
from holdfast.remote.container_engine import SshHost
from holdfast.remote.control_master import ControlMaster
from holdfast.remote.ssh_target import parse_target

HOST = parse_target("me@far")


def test_long_or_unusual_home_gets_short_socket_path(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for home in (tmp_path / ("x" * 120), tmp_path / "with space", tmp_path / "50%"):
        monkeypatch.setenv("HOLDFAST_HOME", str(home))
        directory = ControlMaster(HOST, "tunnel", persist="yes").directory
        assert len(str(directory.relative_to(tmp_path))) < 40
        assert directory.is_relative_to(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", "/home/me/.holdfast")
    first, second = ControlMaster(HOST, "a", persist="60"), ControlMaster(HOST, "b", persist="60")
    assert str(first.directory).startswith("/home/me/.holdfast/state/ssh/")
    assert first.directory != second.directory


def test_directory_writable_by_others_is_rejected(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / ("y" * 100)))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    master = ControlMaster(HOST, "a", persist="60")
    master.directory.mkdir(parents=True)
    master.directory.parent.chmod(0o777)
    with pytest.raises(PermanentError, match="not a private directory"):
        master.ensure_connected()


def test_command_uses_control_connection_or_fails(monkeypatch, tmp_path):
    """ssh must not open another connection with other settings if this one does not exist."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    master = SshHost(HOST).control_master
    assert "ProxyCommand=false" in master.command_prefix
    with pytest.raises(HostUnreachableError):
        master.run_script("exit 0")


def test_exited_process_is_not_a_connection(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    master = ControlMaster(HOST, "engine", persist="60")
    assert not master.is_process_alive()
    with subprocess.Popen(["sleep", "60"]) as child:
        monkeypatch.setattr(master, "pid", lambda: child.pid)
        master._remember_process()
        assert master.is_process_alive()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie
        assert not master.is_process_alive()
    assert not master.is_process_alive()


def test_reused_process_id_is_not_a_connection_and_not_killed(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    master = ControlMaster(HOST, "engine", persist="60")
    with subprocess.Popen(["sleep", "60"]) as first, subprocess.Popen(["sleep", "60"]) as second:
        monkeypatch.setattr(master, "pid", lambda: first.pid)
        master._remember_process()
        # As after the kernel has given the ID to another process.
        master._pid, master._start_ticks = second.pid, master._start_ticks - 1
        assert not master.is_process_alive()
        master._terminate()
        assert second.poll() is None
        first.kill()
        second.kill()


def test_wait_for_other_command_is_reported_after_delay(tmp_path):
    path = tmp_path / "own" / "lock"
    with (
        control_master.connection_lock(path, HOST, timeout=5.0),
        pytest.raises(HostUnreachableError, match="another holdfast command has been connecting"),
        control_master.connection_lock(path, HOST, timeout=0.3),
    ):
        pytest.fail("the lock was taken twice")
    with control_master.connection_lock(path, HOST, timeout=0.3):
        pass


def test_host_timeout_applies_to_every_ssh_step():
    usual, slow = control_master.SshTimeouts(), control_master.SshTimeouts(total=180)
    assert (usual.connect_timeout, usual.reply_timeout, usual.lock_timeout) == (10, 8.0, 120.0)
    assert usual.ssh_options == ("ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
    assert (slow.connect_timeout, slow.reply_timeout, slow.lock_timeout) == (40, 32.0, 480.0)
    # The silence is limited: the host releases the lock of a silent session.
    assert slow.ssh_options == ("ConnectTimeout=40", "ServerAliveInterval=5", "ServerAliveCountMax=6")
    least = control_master.SshTimeouts(total=1)
    assert (least.connect_timeout, least.reply_timeout) == (1, 1.0)
    assert least.ssh_options[2] == "ServerAliveCountMax=1"  # 0 would disable the check


def test_silent_host_fails_after_configured_timeout(monkeypatch, tmp_path):
    """A real ssh, and a server that accepts the connection and sends nothing."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = parse_target(f"me@127.0.0.1:{silent.getsockname()[1]}")
        master = ControlMaster(
            target, "engine", persist="60", timeouts=control_master.SshTimeouts(total=2, attempts=1)
        )
        with pytest.raises(HostUnreachableError):
            master.ensure_connected()
