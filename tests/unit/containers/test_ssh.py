"""Hosts by ssh: what may be written, and what ssh's own words are taken for."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.containers import ssh_master
from holdfast.containers.ssh import complaint, parse_target
from holdfast.containers.ssh_engine import SshHost, listening_in
from holdfast.containers.ssh_master import SshMaster
from holdfast.errors import HostUnreachableError, HostUnusableError, PermanentError, UsageError

FAR = parse_target("me@far")


@pytest.mark.parametrize(
    ("text", "destination", "options", "written"),
    [
        ("far", "far", [], "far"),
        ("me@far", "me@far", [], "me@far"),
        ("me@far:2222", "me@far", ["-p", "2222"], "me@far:2222"),
        ("ssh://me@far:2222/", "me@far", ["-p", "2222"], "me@far:2222"),
        ("me@[fe80::1]:22", "me@fe80::1", ["-p", "22"], "me@[fe80::1]:22"),
        (" me@10.0.0.1 ", "me@10.0.0.1", [], "me@10.0.0.1"),
        ("me@corp.example@far", "me@corp.example@far", [], "me@corp.example@far"),
    ],
)
def test_a_target(text, destination, options, written):
    target = parse_target(text)
    assert (target.destination, target.options, str(target)) == (destination, options, written)
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "-oProxyCommand=x", "me@-far", "-me@far", "me@far:0", "me@far:70000", "me@far:x", "far;ls",
        "a b", "far`x`", "$(x)", "me@far/path", "tcp://far", "far\nx", "me@",
    ],
)  # fmt: skip
def test_what_is_no_target(text):
    with pytest.raises(UsageError, match="no host to reach by ssh"):
        parse_target(text)


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ("ssh: connect to host far port 22: Connection refused", HostUnreachableError, "Connection refused"),
        ("ssh: connect to host far port 22: Connection timed out", HostUnreachableError, "timed out"),
        ("ssh: connect to host far port 22: No route to host", HostUnreachableError, "No route"),
        ("kex_exchange_identification: read: Connection reset by peer", HostUnreachableError, "reset"),
        ("Connection closed by 10.0.0.1 port 22", HostUnreachableError, "closed"),
        ("Timeout, server far not responding.", HostUnreachableError, "not responding"),
        (
            "ssh: Could not resolve hostname far: Temporary failure in name resolution",
            HostUnreachableError,
            "Temporary failure",
        ),
        ("ssh: Could not resolve hostname far: Name or service not known", HostUnusableError, "no host far"),
        ("me@far: Permission denied (publickey).", HostUnusableError, "accepts no key"),
        ("Received disconnect from far: Too many authentication failures", HostUnusableError, "no key"),
        ("Host key verification failed.", HostUnusableError, "not known here"),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            HostUnusableError,
            "not the one",
        ),
        ("/home/me/.ssh/config: line 3: Bad configuration option: x", HostUnusableError, "Bad configuration"),
        ("", HostUnusableError, "did not say why"),
    ],
)
def test_what_ssh_says(said, kind, words):
    error = complaint(FAR, said)
    assert type(error) is kind
    assert words in error.message
    assert error.hint


def test_a_rejected_key_over_a_connection_that_then_closes_never_passes():
    said = "me@far: Permission denied (publickey).\nConnection closed by 10.0.0.1 port 22"
    assert isinstance(complaint(FAR, said), HostUnusableError)


def test_listening_ports_are_read_from_the_kernels_table():
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue\n"
        "   0: 0100007F:674B 00000000:0000 0A 00000000:00000000\n"
        "   1: 0100007F:674C 0100007F:9999 01 00000000:00000000\n"
        "   2: 00000000000000000000000001000000:1F90 00000000:0000 0A 00000000:00000000\n"
    )
    assert listening_in(table) == {26443, 8080}


def test_a_long_or_odd_home_gets_short_plain_sockets(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for home in (tmp_path / ("x" * 120), tmp_path / "with space", tmp_path / "50%"):
        monkeypatch.setenv("HOLDFAST_HOME", str(home))
        folder = SshMaster(FAR, "tunnel", persist="yes").folder
        assert len(str(folder.relative_to(tmp_path))) < 40
        assert folder.is_relative_to(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", "/home/me/.holdfast")
    first, second = SshMaster(FAR, "a", persist="60"), SshMaster(FAR, "b", persist="60")
    assert str(first.folder).startswith("/home/me/.holdfast/state/ssh/")
    assert first.folder != second.folder


def test_a_folder_that_others_may_write_to_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / ("y" * 100)))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    master = SshMaster(FAR, "a", persist="60")
    master.folder.mkdir(parents=True)
    master.folder.parent.chmod(0o777)
    with pytest.raises(PermanentError, match="not a private folder"):
        master.ensure()


def test_a_command_goes_through_the_connection_or_not_at_all(monkeypatch, tmp_path):
    """Without the connection ssh must not make another one of its own, with other settings."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    master = SshHost(FAR).master
    assert "ProxyCommand=false" in master.prefix
    with pytest.raises(HostUnreachableError):
        master.run("exit 0")


def test_a_way_that_ends_early_is_told_as_such():
    said = subprocess.run(
        ["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "ProxyCommand=false", "nowhere.example", "true"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    ).stderr
    error = complaint(FAR, said)
    assert isinstance(error, HostUnusableError)
    assert "jump host or proxy command" in error.message
    assert "ssh me@far" in error.hint


def test_a_process_that_ended_is_no_connection(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    master = SshMaster(FAR, "engine", persist="60")
    assert not master.is_alive()
    with subprocess.Popen(["sleep", "60"]) as child:
        master._pid = child.pid
        assert master.is_alive()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet buried
        assert not master.is_alive()
    assert not master.is_alive()


def test_a_process_of_another_user_is_no_connection(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))

    def refused(pid, number):
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    master = SshMaster(FAR, "engine", persist="60")
    master._pid = 1
    assert not master.is_alive()


def test_without_ps_no_process_is_ended(monkeypatch, tmp_path):
    own = Path(sys.executable).name
    assert ssh_master._is_about(os.getpid(), own)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not ssh_master._is_about(os.getpid(), own)


def test_who_waits_for_another_command_is_told_after_a_while(tmp_path):
    path = tmp_path / "own" / "lock"
    with (
        ssh_master.alone(path, FAR, within=5.0),
        pytest.raises(HostUnreachableError, match="another holdfast command is connecting"),
        ssh_master.alone(path, FAR, within=0.3),
    ):
        pytest.fail("two at a time")
    with ssh_master.alone(path, FAR, within=0.3):
        pass


def test_one_time_for_a_host_slows_every_part_of_reaching_it():
    usual, slow = ssh_master.Patience(), ssh_master.Patience(seconds=180)
    assert (usual.connect, usual.answer, usual.meeting) == (10, 8.0, 120.0)
    assert usual.options == ("ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
    assert (slow.connect, slow.answer, slow.meeting) == (40, 32.0, 480.0)
    assert slow.options == ("ConnectTimeout=40", "ServerAliveInterval=5", "ServerAliveCountMax=6"), (
        "never silent for longer than its lock is kept"
    )
    least = ssh_master.Patience(seconds=1)
    assert (least.connect, least.answer) == (1, 1.0)
    assert least.options[2] == "ServerAliveCountMax=1", "0 would never notice a cut"


def test_a_host_that_says_nothing_is_given_up_in_the_time_that_is_set(monkeypatch, tmp_path):
    """A real ssh, and a listener that takes the connection and never says a word."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = parse_target(f"me@127.0.0.1:{silent.getsockname()[1]}")
        master = SshMaster(
            target, "engine", persist="60", patience=ssh_master.Patience(seconds=2, attempts=1)
        )
        began = time.monotonic()
        with pytest.raises(HostUnreachableError):
            master.ensure()
    assert time.monotonic() - began < 8, "it had 2 s, and a busy machine's moment"
