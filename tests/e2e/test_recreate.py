"""A gateway made anew, with and without its data, again and again, and with certificates that ran out."""

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
from tests.support.commands import Holdfast

from holdfast.containers import labels
from holdfast.containers.containers import create_container
from holdfast.containers.engine import connect
from holdfast.retry import Policy, constant

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def keeper(new_gateway, holdfast):
    """A gateway with a pod that has written a file into its volume."""
    made = new_gateway("anew", holdfast=Holdfast(holdfast.home, HOLDFAST_WORKLOADS="false"))
    made.up()
    return made.keep_a_file()


def volume(gateway):
    return connect().client.inspect_volume(gateway.container)


def network(gateway):
    return connect().client.inspect_network(gateway.container)["Id"]


def pods_of_this_start(gateway):
    """All pods, once the kubelet has told of each that it runs since the node was started the last time.

    Until then their restarts are those of before, and go up by themselves.
    """
    since = gateway.inspect()["State"]["StartedAt"][:19]

    def look():
        pods = gateway.get("pods", "--all-namespaces")["items"]
        for pod in pods:
            for one in pod["status"].get("containerStatuses", ()):
                assert one["state"].get("running", {}).get("startedAt", "")[:19] >= since, pod["metadata"]
        return pods

    return Policy(attempts=None, deadline=60, backoff=constant(0.5), retry_on=AssertionError).call(look)


def whole(gateway):
    """Everything that an `up` without anything to do must leave as it is."""
    pods = pods_of_this_start(gateway)
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
def test_up_again_and_again_touches_nothing(keeper, times):
    keeper.up()
    before = whole(keeper)
    for _ in range(times):
        assert keeper.up()["changed"] == []
    assert whole(keeper) == before
    assert len(before["nodes"]) == 1


def test_recreate_makes_container_and_network_anew_and_keeps_the_data(keeper):
    before = whole(keeper)
    planned = keeper.holdfast.run("up", keeper.name, "--recreate", "--plan")
    assert planned.returncode == 5
    assert "made anew; the data stays" in planned.stdout
    assert whole(keeper) == before
    assert "replace-old" in keeper.up("--recreate")["changed"]
    after = whole(keeper)
    assert after["container"] != before["container"]
    assert after["network"] != before["network"]
    assert after["volume"] == before["volume"]
    keeper.assert_kept()
    assert keeper.up()["changed"] == []


def test_a_container_of_another_node_name_is_made_anew_on_the_same_volume(keeper):
    client, old = connect().client, keeper.inspect()
    client.stop(keeper.container)
    client.remove_container(keeper.container)
    create_container(
        connect(),
        keeper.container,
        image=old["Image"],
        config={
            "Hostname": "4f1d2c3b5a69",
            "Env": ["HOLDFAST_NODE_NAME=4f1d2c3b5a69"],
            "Labels": {labels.GATEWAY: keeper.name},
        },
        host_config={
            "Mounts": old["HostConfig"]["Mounts"],
            "PortBindings": old["HostConfig"]["PortBindings"],
        },
        networking={"EndpointsConfig": {keeper.container: {}}},
    )
    keeper.up()
    assert keeper.inspect()["Config"]["Hostname"] == f"holdfast-{keeper.name}"
    keeper.assert_kept()


@pytest.mark.skipif(os.geteuid() != 0, reason="the volume belongs to root")
def test_start_after_a_stop_longer_than_the_certificates_live(keeper):
    keeper.holdfast("stop", keeper.name)
    folder = Path(volume(keeper)["Mountpoint"]) / "pki"
    for leaf in sorted(folder.glob("*.pem")):
        leaf.write_bytes(expired(leaf.read_bytes(), folder))
    path = keeper.holdfast.home / "config" / "gateways" / keeper.name / "kubeconfig"
    stale = yaml.safe_load(path.read_text())
    certificate = (folder / "admin.pem").read_bytes()
    stale["users"][0]["user"]["client-certificate-data"] = base64.b64encode(certificate).decode()
    path.write_text(yaml.safe_dump(stale))
    keeper.holdfast("start", keeper.name)
    keeper.assert_kept()
    path.write_text(yaml.safe_dump(stale))
    assert "ready" in keeper.holdfast("status", keeper.name)
    keeper.assert_kept()


def expired(pem, folder):
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


def test_wipe_wants_the_exact_name(keeper):
    before = whole(keeper)
    for words in ([], ["--yes", "another"]):
        ended = keeper.holdfast.run("up", keeper.name, "--wipe", *words)
        assert ended.returncode == 2
        assert "nothing was changed" in ended.stderr
    assert whole(keeper) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="the volume belongs to root")
def test_a_wipe_that_was_killed_goes_on_and_does_not_wipe_what_it_has_made(keeper):
    mark = Path(volume(keeper)["Mountpoint"]) / "mark"
    mark.touch()
    wipe = ("up", keeper.name, "--wipe", "--yes", keeper.name)
    assert "ALL data" in keeper.holdfast.run("up", keeper.name, "--wipe", "--plan").stdout
    killed_once_it_wiped(keeper, wipe)
    assert not mark.exists()
    mark.touch()
    keeper.holdfast(*wipe)
    assert mark.exists()
    assert keeper.get("pvc", "--all-namespaces")["items"] == []
    # That one is finished: another one begins anew.
    killed_once_it_wiped(keeper, wipe)
    assert not mark.exists()
    keeper.destroy()


def killed_once_it_wiped(keeper, wipe):
    """Kill a wipe when it is about to make the container for the new volume."""
    running = keeper.holdfast.start(*wipe, "--json")
    for line in running.stderr:
        event = json.loads(line)
        if (event["event"], event.get("step")) == ("step.started", "ensure-container"):
            running.send_signal(signal.SIGKILL)
            break
    running.communicate(timeout=60)
    assert running.returncode == -signal.SIGKILL
