"""A gateway recreated with and without its data, repeatedly, and with expired certificates."""

import base64
import json
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from tests.support.holdfast_cli import HoldfastCli

from holdfast.containers import create_container, labels
from holdfast.remote import connect
from holdfast.retry import Policy, constant

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def gateway(new_gateway, holdfast):
    """A gateway with a pod that has written a file into its volume."""
    made = new_gateway("anew", holdfast=HoldfastCli(holdfast.home, HOLDFAST_WORKLOADS="false"))
    made.up()
    return made.write_test_file()


def volume(gateway):
    return connect().client.inspect_volume(gateway.container)


def network(gateway):
    return connect().client.inspect_network(gateway.container)["Id"]


def pods_started_since_restart(gateway):
    """Return all pods after the kubelet has reported each of them since the last start of the node.

    Earlier restart counts are outdated and still increase.
    """
    since = gateway.inspect()["State"]["StartedAt"][:19]

    def look():
        pods = gateway.get("pods", "--all-namespaces")["items"]
        for pod in pods:
            for one in pod["status"].get("containerStatuses", ()):
                assert one["state"].get("running", {}).get("startedAt", "")[:19] >= since, pod["metadata"]
        return pods

    return Policy(attempts=None, deadline=60, backoff=constant(0.5), retry_on=AssertionError).call(look)


def gateway_identity(gateway):
    """Everything that an `up` without anything to do must leave as it is."""
    pods = pods_started_since_restart(gateway)
    container = gateway.inspect()
    return {
        "container": (container["Id"], container["State"]["StartedAt"], container["RestartCount"]),
        "network": network(gateway),
        "volume": volume(gateway)["CreatedAt"],
        "nodes": [item["metadata"]["uid"] for item in gateway.get("nodes")["items"]],
        "volumes": {
            item["metadata"]["name"]: item["metadata"]["resourceVersion"]
            for item in gateway.get("pv")["items"]
        },
        "restarts": {
            item["metadata"]["uid"]: [one["restartCount"] for one in item["status"]["containerStatuses"]]
            for item in pods
        },
    }


@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_repeated_up_changes_nothing(gateway, times):
    gateway.up()
    before = gateway_identity(gateway)
    for _ in range(times):
        assert gateway.up()["changed"] == []
    assert gateway_identity(gateway) == before
    assert len(before["nodes"]) == 1


def test_recreate_replaces_container_and_network_and_keeps_data(gateway):
    before = gateway_identity(gateway)
    planned = gateway.holdfast.run("up", gateway.name, "--recreate", "--plan")
    assert planned.returncode == 5
    assert "are recreated; the data stays" in planned.stdout
    assert "; the gateway restarts\n" in planned.stdout
    assert gateway_identity(gateway) == before
    assert "replace-old" in gateway.up("--recreate")["changed"]
    after = gateway_identity(gateway)
    assert after["container"] != before["container"]
    assert after["network"] != before["network"]
    assert after["volume"] == before["volume"]
    gateway.assert_test_file_intact()
    assert gateway.up()["changed"] == []


def test_container_with_other_node_name_is_recreated_on_same_volume(gateway):
    client, old = connect().client, gateway.inspect()
    client.stop(gateway.container)
    client.remove_container(gateway.container)
    create_container(
        connect(),
        gateway.container,
        image=old["Image"],
        config={
            "Hostname": "4f1d2c3b5a69",
            "Env": ["HOLDFAST_NODE_NAME=4f1d2c3b5a69"],
            "Labels": {labels.GATEWAY: gateway.name},
        },
        host_config={
            "Mounts": old["HostConfig"]["Mounts"],
            "PortBindings": old["HostConfig"]["PortBindings"],
        },
        networking_config={"EndpointsConfig": {gateway.container: {}}},
    )
    gateway.up()
    assert gateway.inspect()["Config"]["Hostname"] == f"holdfast-{gateway.name}"
    gateway.assert_test_file_intact()


@pytest.mark.skipif(os.geteuid() != 0, reason="the volume belongs to root")
def test_start_after_certificates_expired(gateway):
    gateway.holdfast("stop", gateway.name)
    folder = Path(volume(gateway)["Mountpoint"]) / "pki"
    for leaf in sorted(folder.glob("*.pem")):
        leaf.write_bytes(expired_certificate(leaf.read_bytes(), folder))
    path = gateway.holdfast.home / "config" / "gateways" / gateway.name / "kubeconfig"
    stale = yaml.safe_load(path.read_text())
    certificate = (folder / "admin.pem").read_bytes()
    stale["users"][0]["user"]["client-certificate-data"] = base64.b64encode(certificate).decode()
    path.write_text(yaml.safe_dump(stale))
    gateway.holdfast("start", gateway.name)
    gateway.assert_test_file_intact()
    path.write_text(yaml.safe_dump(stale))
    assert "ready" in gateway.holdfast("status", gateway.name)
    gateway.assert_test_file_intact()


def expired_certificate(pem, folder):
    """The same leaf, signed by the same authority, with its life over since yesterday."""
    now = datetime.now(UTC)
    old = x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    key = serialization.load_pem_private_key(pem[pem.index(b"-----BEGIN EC") :], None)
    for path in folder.glob("*.key"):
        if not path.with_suffix(".crt").exists():
            continue
        issuer = x509.load_pem_x509_certificate(path.with_suffix(".crt").read_bytes())
        if issuer.subject == old.issuer:
            signer = serialization.load_pem_private_key(path.read_bytes(), None)
    made = (
        x509.CertificateBuilder(extensions=list(old.extensions))
        .subject_name(old.subject)
        .issuer_name(old.issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=366))
        .not_valid_after(now - timedelta(days=1))
        .sign(signer, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    return made.public_bytes(serialization.Encoding.PEM) + private


def test_wipe_requires_exact_name(gateway):
    before = gateway_identity(gateway)
    for words in ([], ["--yes", "another"]):
        ended = gateway.holdfast.run("up", gateway.name, "--wipe", *words)
        assert ended.returncode == 2
        assert "nothing was changed" in ended.stderr
    assert gateway_identity(gateway) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="the volume belongs to root")
def test_killed_wipe_continues_without_wiping_new_data(gateway):
    mark = Path(volume(gateway)["Mountpoint"]) / "mark"
    mark.touch()
    wipe = ("up", gateway.name, "--wipe", "--yes", gateway.name)
    assert "ALL data" in gateway.holdfast.run("up", gateway.name, "--wipe", "--plan").stdout
    kill_after_wipe(gateway, wipe)
    assert not mark.exists()
    mark.touch()
    gateway.holdfast(*wipe)
    assert mark.exists()
    assert gateway.get("pvc", "--all-namespaces")["items"] == []
    # That recreation is finished; the next command starts another one.
    kill_after_wipe(gateway, wipe)
    assert not mark.exists()
    gateway.destroy()


def kill_after_wipe(keeper, wipe):
    """Kill a wipe when it is about to make the container for the new volume."""
    running = keeper.holdfast.start(*wipe, "--json")
    for line in running.stderr:
        event = json.loads(line)
        if (event["event"], event.get("step")) == ("step.started", "ensure-container"):
            running.send_signal(signal.SIGKILL)
            break
    running.communicate(timeout=60)
    assert running.returncode == -signal.SIGKILL
