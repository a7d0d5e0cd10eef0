"""Where a gateway lives, and which local ports lead to it."""

import socket

import msgspec
import pytest

from holdfast.containers.ports import FIRST_PORT
from holdfast.containers.ssh import parse_target
from holdfast.errors import HostUnreachableError, UsageError
from holdfast.gateway import place
from holdfast.gateway.place import Here, There, place_of, refuse_other_engine
from holdfast.gateway.spec import Metadata, url_of, write_metadata
from holdfast.gateway.tunnel import Tunnel, TunnelState
from holdfast.gateway.work import Work

FAR = parse_target("me@far")


@pytest.fixture(autouse=True)
def own_home(monkeypatch, tmp_path):
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))


def known(remote):
    return Metadata(name="x", image="i", port=1, remote=remote)


def find(asked=None, remembered=None):
    return place_of("x", asked=asked, remembered=remembered)


def test_here_unless_something_says_otherwise():
    assert isinstance(find(), Here)
    assert isinstance(find(remembered=known("")), Here)


def test_where_it_was_asked_for_and_then_where_it_is_remembered():
    assert find(asked="ssh://me@far").remote == "me@far"
    assert find(remembered=known("me@far")).remote == "me@far"
    assert find(asked="me@far", remembered=known("me@far")).remote == "me@far"


@pytest.mark.parametrize(("asked", "lives"), [("me@other", "me@far"), ("me@far", "")])
def test_another_host_for_a_known_gateway_is_refused(asked, lives):
    with pytest.raises(UsageError, match=f"lives on {lives or 'this machine'}.*nothing was changed"):
        find(asked=asked, remembered=known(lives))


@pytest.mark.parametrize(
    ("address", "for_all"),
    [("unix:///run/docker.sock", True), ("tcp://10.0.0.7:2376", False), ("ssh://me@far", True)],
)
def test_only_an_engine_on_the_network_has_no_lock_for_all_its_users(monkeypatch, address, for_all):
    monkeypatch.setenv("DOCKER_HOST", address)
    assert find().locks_for_all is for_all


def test_a_docker_host_by_ssh_is_such_a_place_too(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@far:2222")
    assert find().remote == "me@far:2222"
    assert find(remembered=known("me@elsewhere")).remote == "me@elsewhere"
    with pytest.raises(UsageError, match="DOCKER_HOST"):
        find(remembered=known(""))


def test_a_gateway_that_was_begun_is_found_again_before_it_has_metadata():
    Tunnel("x", FAR).remember()
    assert find().remote == "me@far"
    with pytest.raises(UsageError, match="lives on me@far"):
        find(asked="me@other")
    Tunnel("x", FAR).forget()
    assert isinstance(find(), Here)


def test_what_is_no_host():
    with pytest.raises(UsageError, match="no host"):
        find(asked="")


def test_users_of_a_host_choose_one_folder_by_its_mode(monkeypatch, tmp_path):
    monkeypatch.setattr(place, "_LOCK_FOLDER", str(tmp_path / "lock"))
    assert str(place.lock_folder()) == "/tmp"
    (tmp_path / "lock").mkdir(mode=0o755)
    assert str(place.lock_folder()) == "/tmp"
    (tmp_path / "lock").chmod(0o1777)
    assert place.lock_folder() == tmp_path / "lock"


def free():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_the_same_local_port_every_time():
    port = free()
    tunnel = Tunnel("x", FAR)
    assert tunnel.local_port(port) == port
    tunnel.remember()
    assert Tunnel("x", FAR).local_port(port) == port


def test_a_local_port_that_is_taken_or_counted_on_is_not_chosen():
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        chosen = Tunnel("x", FAR).local_port(port)
    assert chosen != port
    assert chosen >= FIRST_PORT
    stopped, tunnelled = free(), free()
    write_metadata(Metadata(name="stopped", image="i", port=stopped))
    other = Tunnel("other", FAR)
    other.local_port(tunnelled)
    other.remember()
    mine = Tunnel("x", FAR)
    assert mine.local_port(stopped) != stopped
    assert mine.local_port(tunnelled) != tunnelled
    assert mine.local_port(stopped) != mine.local_port(tunnelled)


def test_another_host_brings_other_ports_and_a_damaged_file_none():
    port = free()
    tunnel = Tunnel("x", FAR)
    tunnel.local_port(port)
    tunnel.remember()
    assert Tunnel("x", parse_target("me@other")).state == TunnelState(remote="me@other")
    tunnel.file.write_text("{")
    assert Tunnel("x", FAR).state.ports == {}


def test_a_tunnel_without_a_process_is_down():
    tunnel = Tunnel("x", FAR)
    assert tunnel.words() == "down"
    assert not tunnel.is_open((1, 2), "127.0.0.1")
    tunnel.state = msgspec.structs.replace(
        tunnel.state, pid=1, ends={1: "127.0.0.1:1"}, since="2026-01-01T00:00:00Z"
    )
    assert not tunnel.is_open((1,), "127.0.0.1")
    assert not tunnel.close()


def test_the_server_in_a_list_is_the_tunnels_end():
    there = Metadata(name="x", image="i", port=26443, remote="me@far", tunnel_port=26500)
    assert there.server == "https://127.0.0.1:26500"
    assert There("x", FAR).address(26443, "192.168.1.5")[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("listen", "server"),
    [
        ("127.0.0.1", "https://127.0.0.1:26443"),
        ("0.0.0.0", "https://127.0.0.1:26443"),
        ("192.168.1.5", "https://192.168.1.5:26443"),
        ("fd00::5", "https://[fd00::5]:26443"),
    ],
)
def test_a_gateway_here_is_met_where_its_ports_are_opened(listen, server):
    remembered = Metadata(name="x", image="i", port=26443, listen=listen)
    assert remembered.server == server
    assert url_of(*Here().address(26443, listen)) == server


class LostMaster:
    """An ssh connection that ended: nothing can be forwarded, and no process is there."""

    def forward(self, local, remote):
        del local, remote
        return False

    def pid(self):
        return 0


def test_a_connection_that_ended_is_not_taken_for_a_taken_port():
    tunnel = Tunnel("x", FAR)
    tunnel.master = LostMaster()
    with pytest.raises(HostUnreachableError, match="me@far ended"):
        tunnel._lead(26443, "127.0.0.1:26443")


class FoundEngine:
    """An engine as far as its address and its own name for itself go."""

    def __init__(self, address, identity="A"):
        self.address = address
        self._identity = identity
        self.asked = 0

    @property
    def identity(self):
        self.asked += 1
        return self._identity


def lived_on(engine, engine_id=""):
    return Metadata(name="x", image="i", port=1, engine=engine, engine_id=engine_id)


def test_the_same_engine_by_any_way_is_no_other(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "var").symlink_to(tmp_path / "run")
    same = FoundEngine(f"unix://{tmp_path}/var/docker.sock")
    refuse_other_engine(same, lived_on(f"unix://{tmp_path}/run/docker.sock", "B"), tmp_path)
    refuse_other_engine(same, lived_on(""), tmp_path)
    assert same.asked == 0
    refuse_other_engine(FoundEngine("ssh://me@far"), lived_on("ssh://me@far"), tmp_path)
    refuse_other_engine(FoundEngine("unix:///tmp/proxy.sock"), lived_on("tcp://far:2376", "A"), tmp_path)


@pytest.mark.parametrize("engine_id", ["", "B"])
def test_another_engine_than_the_gateway_lives_on_is_refused(tmp_path, engine_id):
    found = FoundEngine("tcp://other:2375")
    with pytest.raises(UsageError, match=r"unix:///run/docker.sock.*another, at tcp://other:2375") as told:
        refuse_other_engine(found, lived_on("unix:///run/docker.sock", engine_id), tmp_path / "metadata.json")
    assert "DOCKER_HOST" in told.value.hint
    assert str(tmp_path / "metadata.json") in told.value.hint


def test_a_command_stops_before_it_touches_another_engine(monkeypatch):
    write_metadata(lived_on("tcp://far:2376", "B"))
    monkeypatch.setattr(Here, "engine", lambda self: FoundEngine("unix:///run/docker.sock"))
    with pytest.raises(UsageError, match="lives on the engine at tcp://far:2376"):
        _ = Work("x").engine
    write_metadata(lived_on("tcp://far:2376", "A"))
    assert Work("x").engine.address == "unix:///run/docker.sock"
