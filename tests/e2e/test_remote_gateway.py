"""A gateway on a remote host with a real sshd and a real engine; laptops connect to it by ssh.

All tests share one host and run in the order of the file.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from tests.support.gateway import TestGateway
from tests.support.ssh_host import PORT, UNPRIVILEGED_USER, SshHost
from tests.support.step_interruption import STARTED, kill_at

from holdfast.containers import GATEWAY
from holdfast.retry import Policy, constant

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="a host of one's own needs root"),
]

NAME = "far-away"


@pytest.fixture(scope="module")
def host():
    assert shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin"), "install openssh-server"
    with SshHost() as made:
        yield made


@pytest.fixture(scope="module")
def laptop(host, tmp_path_factory):
    """The laptop that makes the gateway; whatever is left of it on the host goes with the host."""
    made = host.laptop(tmp_path_factory.mktemp("one"))
    yield made
    made.run("destroy", NAME, "--data", "--yes", NAME)
    end_connections(made)


@pytest.fixture(scope="module")
def other_laptop(host, tmp_path_factory):
    made = host.laptop(tmp_path_factory.mktemp("two"))
    yield made
    made.run("stop", NAME)
    end_connections(made)


def end_connections(laptop):
    """End the ssh processes of one laptop that are still there for their minute."""
    for control in laptop.home.glob("state/ssh/*/ctl"):
        subprocess.run(
            ["ssh", "-F", "none", "-o", f"ControlPath={control}", "-O", "exit", "--", "far"],
            capture_output=True, check=False,
        )  # fmt: skip


def assert_refused(ended, codes, *words):
    assert ended.returncode in codes, ended.stderr
    assert "Traceback" not in ended.stderr
    for word in words:
        assert word in ended.stderr


def holdfast_objects(host):
    return host.connect().client.containers(all=True, filters={"label": GATEWAY})


def tunnel_pid(laptop):
    return json.loads((laptop.home / "state" / "gateways" / NAME / "tunnel.json").read_text())["pid"]


def listeners(pid):
    """The TCP sockets that a process listens on."""
    said = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    return [line.split()[3] for line in said.splitlines() if f"pid={pid}," in line]


def kill_tunnel(laptop):
    """Kill the tunnel's process and wait until the kernel has closed its ports."""
    pid = tunnel_pid(laptop)
    os.kill(pid, signal.SIGKILL)
    gone = Policy(attempts=None, deadline=20.0, backoff=constant(0.05), retry_on=AssertionError)
    gone.call(assert_closed, pid)


def assert_closed(pid):
    assert listeners(pid) == []


def test_unusable_host_is_reported_in_one_line(host, tmp_path):
    stranger = tmp_path / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stranger], check=True)
    wrong_key = host.laptop(tmp_path / "a", key=stranger)
    assert_refused(
        wrong_key.run("up", NAME, "--remote", "far"), {3}, "host-unusable", "no key", "ssh-copy-id"
    )
    guest = host.laptop(tmp_path / "b", user=UNPRIVILEGED_USER)
    assert_refused(
        guest.run("up", NAME, "--remote", "far"),
        {3},
        "engine-permission",
        f"usermod -aG docker {UNPRIVILEGED_USER}",
    )
    end_connections(guest)
    fooled = host.laptop(tmp_path / "c")
    known = tmp_path / "c" / "known_hosts"
    key = (tmp_path / "stranger.pub").read_text().split()[1]
    known.write_text(f"[{host.address}]:{PORT} ssh-ed25519 {key}\n")
    changed = fooled.run("up", NAME, "--remote", "far")
    assert_refused(changed, {3}, "host-unusable", "the host key has changed", "fingerprint")
    known.write_text("")
    assert_refused(fooled.run("up", NAME, "--remote", "far"), {3}, "host-unusable", "the host key is unknown")
    assert known.read_text() == ""
    refused = fooled.run("up", NAME, "--remote", f"root@{host.address}:1")
    assert_refused(refused, {1}, "host-unreachable", "Connection refused")
    assert_refused(fooled.run("up", NAME, "--remote", "root@no-such-host.invalid"), {1, 3}, "no-such-host")
    option = fooled.run("up", NAME, "--remote", "-oProxyCommand=x")
    assert_refused(option, {2}, "--remote -oProxyCommand=x: not valid; write USER@HOST", "[usage]")
    assert not (fooled.home / "config").exists()
    assert not list(fooled.home.glob("state/gateways/*/tunnel.json"))
    assert holdfast_objects(host) == []


def test_remote_host_without_engine(host, laptop):
    path = host.run_directory / "docker.sock"
    path.rename(path.with_suffix(".away"))
    try:
        ended = laptop.run("up", NAME, "--remote", "far")
    finally:
        path.with_suffix(".away").rename(path)
    assert_refused(ended, {3}, "engine-unreachable", "far: container engine not found", "start Docker")


def test_up_succeeds_after_connection_was_cut_during_image_transfer(host, laptop):
    """The remote engine has no image: the first `up` streams it from this machine."""
    running = laptop.start("up", NAME, "--remote", "far", "--json")
    for line in running.stderr:
        event = json.loads(line)
        if event["event"] == "step.progress" and event["message"].startswith("sending"):
            assert host.kill_ssh_sessions() >= 1
            break
    else:
        pytest.fail("the image was not sent")
    _, rest = running.communicate(timeout=300)
    assert "Traceback" not in rest
    assert running.returncode == 0, rest
    assert rest.count("lost the connection to far; reconnecting") == 1, rest
    gateway = TestGateway(NAME, laptop)
    assert gateway.get("nodes")["items"][0]["metadata"]["name"] == f"holdfast-{NAME}"
    assert [one["Names"] for one in holdfast_objects(host)] == [[f"/holdfast-{NAME}"]]


def test_tunnel_listens_on_loopback_only_and_shows_no_secret(laptop):
    pid = tunnel_pid(laptop)
    assert len(listeners(pid)) == 2
    assert all(address.startswith("127.0.0.1:") for address in listeners(pid))
    config = (laptop.home / "config" / "gateways" / NAME / "kubeconfig").read_text()
    key = next(line.split()[1] for line in config.splitlines() if "client-key-data" in line)
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert key not in command.read_bytes().decode(errors="replace")
        except OSError:
            continue


def test_status_reopens_dead_tunnel_on_same_port(laptop):
    before = laptop.json("status", NAME)
    assert (before["state"], before["remote"]) == ("ready", "far")
    assert before["tunnel"].startswith("up since")
    kill_tunnel(laptop)
    after = laptop.json("status", NAME)
    assert (after["state"], after["server"]) == ("ready", before["server"])
    kill_tunnel(laptop)
    laptop("kubeconfig", NAME)
    TestGateway(NAME, laptop).kubectl("get", "namespaces")


def test_tunnel_port_taken_by_another_program_is_left_alone(laptop):
    before = laptop.json("status", NAME)["server"]
    port = int(before.rpartition(":")[2])
    kill_tunnel(laptop)
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", port))
        thief.listen()
        after = laptop.json("status", NAME)
        assert after["state"] == "ready"
        assert after["server"] != before
        TestGateway(NAME, laptop).kubectl("get", "namespaces")


def doctor_report(laptop, *options):
    ended = laptop.run("doctor", NAME, *options, "--json")
    assert "Traceback" not in ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def problems(report):
    return [(each["code"], each["subject"]) for each in report["findings"] if each["severity"] == "problem"]


def test_doctor_reports_and_reopens_dead_tunnel(laptop, tmp_path):
    dead = tunnel_pid(laptop)
    kill_tunnel(laptop)
    code, found = doctor_report(laptop)
    assert (code, problems(found["report"])) == (1, [("tunnel-down", "far")]), found
    assert "check-failed" not in {each["code"] for each in found["report"]["findings"]}, found
    assert found["report"]["skipped"]["API"] == "the tunnel to the gateway is down"
    assert tunnel_pid(laptop) == dead, "it was opened by looking"
    code, mended = doctor_report(laptop, "--fix", "--bundle", str(tmp_path / "far.tar.gz"))
    assert (code, problems(mended["report"])) == (0, []), mended
    (repair,) = [each for each in mended["repairs"] if each["code"] == "tunnel-down"]
    assert (repair["repaired"], repair["how"]) == (True, "reopened")
    TestGateway(NAME, laptop).kubectl("get", "namespaces")
    assert_bundle_has_remote_files(tmp_path / "far.tar.gz", laptop)


def assert_bundle_has_remote_files(bundle, laptop):
    """The parts that come through ssh and those that come through the tunnel, and no key among them."""
    with tarfile.open(bundle) as archive:
        inside = {each.name.partition("/")[2]: archive.extractfile(each).read() for each in archive}
    assert json.loads(inside["contents.json"])["missing"] == {}
    assert json.loads(inside["metadata.json"])["remote"] == "far"
    assert json.loads(inside["engine/container.json"])["Name"] == f"/holdfast-{NAME}"
    assert f'"holdfast-{NAME}"'.encode() in inside["cluster/nodes.json"]
    assert inside["logs/kubelet.log"].strip()
    config = (laptop.home / "config" / "gateways" / NAME / "kubeconfig").read_text()
    key = config.partition("client-key-data: ")[2].split()[0]
    assert not any(key.encode() in content for content in inside.values())


def test_logs_show_remote_node(host, laptop):
    there = host.connect().client.logs(f"holdfast-{NAME}", tail=200).decode(errors="replace").splitlines()
    said = laptop("logs", NAME).splitlines()
    assert there
    assert set(there[:5]) & set(said), said[:5]
    kubelet = laptop("logs", NAME, "--component", "kubelet", "--tail", "3").splitlines()
    assert len(kubelet) == 3


@pytest.fixture(scope="module")
def gateway(laptop):
    """The remote gateway with a pod that has written a file into its workspace."""
    laptop("up", NAME, "--remote", "far")  # changes nothing, unless a test runs alone
    return TestGateway(NAME, laptop).write_test_file()


def test_killed_command_releases_remote_lock_and_rerun_continues(host, laptop, gateway):
    """SIGKILL ends only the holdfast process: its ssh session on the host has to detect that."""
    before = host.inspect(f"holdfast-{NAME}")["Id"]
    words = ("up", NAME, "--recreate", "--remote", "far")
    kill_at(gateway, "ensure-container", STARTED, *words)
    laptop(*words)
    assert host.inspect(f"holdfast-{NAME}")["Id"] != before
    gateway.assert_test_file_intact()


def read_until(running, event, step=None):
    """Read what a command tells until it tells this."""
    for line in running.stderr:
        told = json.loads(line)
        if told["event"] == event and step in {None, told["step"]}:
            return
    pytest.fail(f"there was no {event} of {step}")


def test_two_laptops_share_one_lock_and_cut_tunnel_is_reopened(laptop, other_laptop):
    # One that has nothing to do is over before the other one has found the host.
    running = laptop.start("up", NAME, "--recreate", "--json")
    read_until(running, "step.started")
    ended = other_laptop.run("up", NAME, "--remote", "far")
    read_until(running, "step.started", "run-probe")
    before, cut_at = tunnel_pid(laptop), time.monotonic()
    kill_tunnel(laptop)
    _, rest = running.communicate(timeout=300)
    assert running.returncode == 0, rest
    assert time.monotonic() - cut_at < 60, "it waited for its time to be over"
    assert "reconnecting" not in rest, "the lock was not lost: nothing has to begin again"
    assert tunnel_pid(laptop) != before
    assert_refused(
        ended,
        {4},
        "locked",
        f"process {running.pid} on {socket.gethostname()}",
        f"holdfast-{NAME}.lock on far",
    )
    TestGateway(NAME, other_laptop).up("--remote", "far")
    for one in (laptop, other_laptop):
        TestGateway(NAME, one).kubectl("get", "nodes")


def test_known_gateway_keeps_its_host(laptop):
    ended = laptop.run("up", NAME, "--remote", "root@elsewhere")
    assert_refused(ended, {2}, f"gateway {NAME}: is on far", "elsewhere", "nothing was changed")


@pytest.mark.slow
def test_wipe_removes_remote_data_and_gateway_works(host, laptop, gateway):
    refused = laptop.run("up", NAME, "--wipe", "--yes", "another")
    assert_refused(refused, {2}, NAME)
    gateway.assert_test_file_intact()
    before = host.connect().client.inspect_volume(f"holdfast-{NAME}")["CreatedAt"]
    laptop("up", NAME, "--wipe", "--yes", NAME)
    assert host.connect().client.inspect_volume(f"holdfast-{NAME}")["CreatedAt"] != before
    assert gateway.get("persistentvolumeclaims")["items"] == []
    assert gateway.get("pods")["items"] == []
    gateway.write_test_file().assert_test_file_intact()


def test_stop_start_and_destroy_use_remembered_host(host, laptop):
    """A command killed in a step of remote gateways continues when it is rerun."""
    gateway, pid = TestGateway(NAME, laptop), tunnel_pid(laptop)
    kill_at(gateway, "close-tunnel", STARTED, "stop", NAME)
    assert listeners(pid), "it was closed before its step"
    laptop("stop", NAME)
    assert [one["State"] for one in holdfast_objects(host)] == ["exited"]
    assert listeners(pid) == []
    stopped = laptop.run("status", NAME)
    assert "down" in stopped.stdout
    laptop("start", NAME)
    gateway.kubectl("get", "nodes")
    pid = tunnel_pid(laptop)
    words = ("destroy", NAME, "--data", "--yes", NAME)
    kill_at(gateway, "close-tunnel", STARTED, *words)
    kill_at(gateway, "forget-tunnel", STARTED, *words)
    laptop(*words)
    assert holdfast_objects(host) == []
    assert listeners(pid) == []
    assert host.connect().client.volumes(filters={"label": GATEWAY})["Volumes"] in ([], None)
    assert not list((laptop.home / "config" / "gateways").glob("*"))
