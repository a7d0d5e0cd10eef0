"""Where a gateway lives, and which local ports lead to it."""

import socket

import msgspec
import pytest

from holdfast.containers.networks import AUTO_PORTS
from holdfast.errors import HostUnreachableError, UsageError
from holdfast.gateway import hosts
from holdfast.gateway.context import GatewayContext
from holdfast.gateway.hosts import LocalHost, RemoteHost, check_same_engine, resolve_host
from holdfast.gateway.registry import GatewayMetadata, write_metadata
from holdfast.gateway.spec import https_url
from holdfast.gateway.tunnel import Tunnel, TunnelState
from holdfast.remote import parse_target

FAR = parse_target("me@far")


@pytest.fixture(autouse=True)
def own_home(monkeypatch, tmp_path):
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))


def known(remote):
    return GatewayMetadata(name="x", image="i", port=1, remote=remote)


def find(asked=None, remembered=None):
    return resolve_host("x", requested=asked, metadata=remembered)


def test_default_is_local_host():
    assert isinstance(find(), LocalHost)
    assert isinstance(find(remembered=known("")), LocalHost)


def test_requested_host_then_remembered_host():
    assert find(asked="ssh://me@far").remote == "me@far"
    assert find(remembered=known("me@far")).remote == "me@far"
    assert find(asked="me@far", remembered=known("me@far")).remote == "me@far"


@pytest.mark.parametrize(("asked", "lives"), [("me@other", "me@far"), ("me@far", "")])
def test_other_host_for_known_gateway_is_rejected(asked, lives):
    with pytest.raises(UsageError, match=f"is on {lives or 'this machine'}.*nothing was changed"):
        find(asked=asked, remembered=known(lives))


@pytest.mark.parametrize(
    ("address", "for_all"),
    [("unix:///run/docker.sock", True), ("tcp://10.0.0.7:2376", False), ("ssh://me@far", True)],
)
def test_only_tcp_engine_lacks_shared_lock(monkeypatch, address, for_all):
    monkeypatch.setenv("DOCKER_HOST", address)
    assert find().has_shared_lock is for_all


def test_ssh_docker_host_is_a_remote_host(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@far:2222")
    assert find().remote == "me@far:2222"
    assert find(remembered=known("me@elsewhere")).remote == "me@elsewhere"
    with pytest.raises(UsageError, match="DOCKER_HOST"):
        find(remembered=known(""))


def test_started_gateway_is_found_without_metadata():
    Tunnel("x", FAR).save_if_new()
    assert find().remote == "me@far"
    with pytest.raises(UsageError, match="is on me@far"):
        find(asked="me@other")
    Tunnel("x", FAR).delete()
    assert isinstance(find(), LocalHost)


def test_invalid_host_is_rejected():
    with pytest.raises(UsageError, match="not an ssh destination"):
        find(asked="")


def test_lock_directory_is_chosen_by_mode(monkeypatch, tmp_path):
    monkeypatch.setattr(hosts, "_LOCK_DIRECTORY", str(tmp_path / "lock"))
    assert str(hosts.lock_directory()) == "/tmp"
    (tmp_path / "lock").mkdir(mode=0o755)
    assert str(hosts.lock_directory()) == "/tmp"
    (tmp_path / "lock").chmod(0o1777)
    assert hosts.lock_directory() == tmp_path / "lock"


def free():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_local_port_is_stable():
    port = free()
    tunnel = Tunnel("x", FAR)
    assert tunnel.local_port(port) == port
    tunnel.save_if_new()
    assert Tunnel("x", FAR).local_port(port) == port


def test_taken_or_reserved_local_port_is_not_chosen():
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        chosen = Tunnel("x", FAR).local_port(port)
    assert chosen != port
    assert chosen in AUTO_PORTS
    stopped, tunnelled = free(), free()
    write_metadata(GatewayMetadata(name="stopped", image="i", port=stopped))
    other = Tunnel("other", FAR)
    other.local_port(tunnelled)
    other.save_if_new()
    mine = Tunnel("x", FAR)
    assert mine.local_port(stopped) != stopped
    assert mine.local_port(tunnelled) != tunnelled
    assert mine.local_port(stopped) != mine.local_port(tunnelled)


def test_other_host_gets_other_ports_and_corrupted_file_none():
    port = free()
    tunnel = Tunnel("x", FAR)
    tunnel.local_port(port)
    tunnel.save_if_new()
    assert Tunnel("x", parse_target("me@other")).state == TunnelState(remote="me@other")
    tunnel.state_file.write_text("{")
    assert Tunnel("x", FAR).state.ports == {}


def test_tunnel_without_process_is_down():
    tunnel = Tunnel("x", FAR)
    assert tunnel.describe() == "down"
    assert not tunnel.is_open((1, 2), "127.0.0.1")
    tunnel.state = msgspec.structs.replace(
        tunnel.state, pid=1, endpoints={1: "127.0.0.1:1"}, since="2026-01-01T00:00:00Z"
    )
    assert not tunnel.is_open((1,), "127.0.0.1")
    assert not tunnel.close()


def test_list_shows_tunnel_address():
    there = GatewayMetadata(name="x", image="i", port=26443, remote="me@far", tunnel_port=26500)
    assert there.server == "https://127.0.0.1:26500"
    assert RemoteHost("x", FAR).address(26443, "192.168.1.5")[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("listen", "server"),
    [
        ("127.0.0.1", "https://127.0.0.1:26443"),
        ("0.0.0.0", "https://127.0.0.1:26443"),
        ("192.168.1.5", "https://192.168.1.5:26443"),
        ("fd00::5", "https://[fd00::5]:26443"),
    ],
)
def test_local_gateway_address_is_its_published_port(listen, server):
    remembered = GatewayMetadata(name="x", image="i", port=26443, listen=listen)
    assert remembered.server == server
    assert https_url(*LocalHost().address(26443, listen)) == server


class LostMaster:
    """An ssh connection that ended: nothing can be forwarded, and no process is there."""

    def forward(self, local, remote):
        del local, remote
        return False

    def pid(self):
        return 0


def test_closed_connection_is_not_a_taken_port():
    tunnel = Tunnel("x", FAR)
    tunnel.control_master = LostMaster()
    with pytest.raises(HostUnreachableError, match="me@far: the ssh connection ended"):
        tunnel._forward_port(26443, "127.0.0.1:26443")


class FoundEngine:
    """An engine as far as its address and its own name for itself go."""

    def __init__(self, address, identity="A"):
        self.address = address
        self._engine_id = identity
        self.asked = 0

    @property
    def engine_id(self):
        self.asked += 1
        return self._engine_id


def lived_on(engine, engine_id=""):
    return GatewayMetadata(name="x", image="i", port=1, engine=engine, engine_id=engine_id)


def test_same_engine_by_other_address_is_accepted(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "var").symlink_to(tmp_path / "run")
    same = FoundEngine(f"unix://{tmp_path}/var/docker.sock")
    check_same_engine(same, lived_on(f"unix://{tmp_path}/run/docker.sock", "B"), tmp_path)
    check_same_engine(same, lived_on(""), tmp_path)
    assert same.asked == 0
    check_same_engine(FoundEngine("ssh://me@far"), lived_on("ssh://me@far"), tmp_path)
    check_same_engine(FoundEngine("unix:///tmp/proxy.sock"), lived_on("tcp://far:2376", "A"), tmp_path)


@pytest.mark.parametrize("engine_id", ["", "B"])
def test_other_engine_than_gateways_is_rejected(tmp_path, engine_id):
    found = FoundEngine("tcp://other:2375")
    with pytest.raises(
        UsageError, match=r"unix:///run/docker.sock.*current engine is tcp://other:2375"
    ) as told:
        check_same_engine(found, lived_on("unix:///run/docker.sock", engine_id), tmp_path / "metadata.json")
    assert "DOCKER_HOST" in told.value.hint
    assert str(tmp_path / "metadata.json") in told.value.hint


def test_command_stops_before_changing_other_engine(monkeypatch):
    write_metadata(lived_on("tcp://far:2376", "B"))
    monkeypatch.setattr(LocalHost, "engine", lambda self: FoundEngine("unix:///run/docker.sock"))
    with pytest.raises(UsageError, match="is on the engine at tcp://far:2376"):
        _ = GatewayContext("x").engine
    write_metadata(lived_on("tcp://far:2376", "A"))
    assert GatewayContext("x").engine.address == "unix:///run/docker.sock"
