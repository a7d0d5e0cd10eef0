"""A real sshd that does not forward, and a socket without an engine: errors that need a person."""

import os
import socket
import subprocess
from pathlib import Path

import pytest
from tests.support.holdfast_cli import HoldfastCli

from holdfast.errors import HostAccessError
from holdfast.remote import ControlMaster, SshHost, connect_over_ssh, parse_target
from holdfast.retry import Policy, constant

SSHD = Path("/usr/sbin/sshd")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not SSHD.exists(), reason="sshd accepts logins of other users only as root"
)


class LocalSshd:
    """An sshd on this machine, and an ssh client that knows it as `far`."""

    def __init__(self, folder, *options):
        self.folder, self.options = folder, options
        self.engine_socket = folder / "engine.sock"

    def __enter__(self):
        with socket.socket() as chosen:
            chosen.bind(("127.0.0.1", 0))
            self.port = chosen.getsockname()[1]
        for name in ("host_key", "user_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name], check=True
            )
        self._write_configurations()
        Path("/run/sshd").mkdir(exist_ok=True)
        command = [SSHD, "-D", "-e", "-f", self.folder / "sshd_config"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        waiting = Policy(attempts=None, deadline=20.0, backoff=constant(0.1), retry_on=OSError)
        waiting.call(lambda: socket.create_connection(("127.0.0.1", self.port)).close())
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)

    def _write_configurations(self):
        key = (self.folder / "host_key.pub").read_text()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {key}")
        (self.folder / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {self.folder}/host_key\n"
            f"AuthorizedKeysFile {self.folder}/user_key.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
            f"PermitRootLogin prohibit-password\nSetEnv DOCKER_HOST=unix://{self.engine_socket}\n"
            + "".join(f"{option}\n" for option in self.options)
        )
        (self.folder / "ssh_config").write_text(
            f"Host far\n  HostName 127.0.0.1\n  Port {self.port}\n  User root\n"
            f"  IdentityFile {self.folder}/user_key\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.folder}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
        )
        wrapper = self.folder / "bin" / "ssh"
        wrapper.parent.mkdir()
        wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {self.folder}/ssh_config "$@"\n')
        wrapper.chmod(0o755)


@pytest.fixture
def listener(tmp_path):
    """The socket of an engine that listens and is never reached."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "engine.sock"))
        server.listen()
        yield server


@pytest.fixture
def laptop(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))


def assert_refused():
    host = SshHost(parse_target("far"))
    with pytest.raises(HostAccessError) as raised:
        connect_over_ssh(host, timeout=10)
    assert raised.value.exit_code == 3
    assert "AllowStreamLocalForwarding" in raised.value.hint
    ended = HoldfastCli(Path(os.environ["HOLDFAST_HOME"])).run("up", "box", "--remote", "far")
    assert ended.returncode == 3, ended.stderr
    assert "[host-unusable]" in ended.stderr
    assert "AllowStreamLocalForwarding" in ended.stderr
    assert host.control_master.pid() == 0, "a rerun would use the connection with the old configuration"


@pytest.mark.usefixtures("laptop", "listener")
@pytest.mark.parametrize("option", ["AllowStreamLocalForwarding no", "AllowTcpForwarding no"])
def test_refused_engine_socket_needs_a_person(tmp_path, option):
    with LocalSshd(tmp_path, option):
        assert_refused()


@pytest.mark.usefixtures("laptop")
def test_socket_of_a_dead_engine_needs_a_person(tmp_path, listener):
    with LocalSshd(tmp_path):
        listener.close()
        assert_refused()


@pytest.mark.usefixtures("laptop")
def test_log_names_refused_port_forwarding(tmp_path):
    """`Tunnel.check_forwarding_allowed` reads this word."""
    with LocalSshd(tmp_path, "AllowTcpForwarding no") as sshd, socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
        chosen.close()
        master = ControlMaster(parse_target("far"), "tunnel", persist="60")
        master.ensure_connected()
        assert master.forward(f"127.0.0.1:{port}", f"127.0.0.1:{sshd.port}")
        with socket.create_connection(("127.0.0.1", port), timeout=10) as refused:
            assert refused.recv(1) == b""
        assert "prohibited" in master.read_log()
        master.close()
