"""A gateway whose node once had another name: its old node goes, and its files are mounted again."""

import json

import pytest
from tests.support.commands import Holdfast
from tests.support.gateways import TestGateway, claim, pod

from holdfast.containers import labels
from holdfast.containers.commands import run_in
from holdfast.containers.containers import create_container, start_container
from holdfast.containers.engine import connect
from holdfast.containers.networks import create_network, create_volume
from holdfast.containers.ports import free_port, reserved_ports
from holdfast.gateway.node_container import container_config, host_config, networking_config
from holdfast.gateway.profile import HOLDFAST
from holdfast.gateway.spec import GatewaySpec
from holdfast.gateway.work import DEFAULT_IMAGE

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

OLD_NAME = "4f3a9c01d2b7"
"""What a container without a name of its own is called by the engine."""


@pytest.fixture(scope="module")
def renamed(new_gateway, tmp_path_factory):
    """A gateway from before its node had a name made from the gateway's, with files and a stuck pod."""
    home = Holdfast(tmp_path_factory.mktemp("home"), HOLDFAST_WORKLOADS="false")
    gateway = new_gateway("stale", holdfast=home)
    before = OldNode(gateway)
    before.start()
    before.apply(claim("work"), keeper(), claim("loose"), pod("loose", claim="loose"), pod("stuck"))
    for name in ("keeper-0", "loose", "stuck"):
        before.kubectl("wait", "--for=create", f"pod/{name}", "--timeout=60s")
        before.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=90s")
    write = "head -c 300000 /dev/urandom > /data/blob && sync"
    before.kubectl("exec", "keeper-0", "--", "sh", "-c", write)
    before.kubectl("exec", "loose", "--", "sh", "-c", write)
    gateway.checksums = {
        name: before.kubectl("exec", name, "--", "sha256sum", "/data/blob").split()[0]
        for name in ("keeper-0", "loose")
    }
    assert len(set(gateway.checksums.values())) == 2
    gateway.volumes = {each["metadata"]["name"]: each for each in before.items("pv")}
    gateway.claims = {each["metadata"]["name"]: each for each in before.items("pvc")}
    # Two more that were here once, and a pod on one of them that waits for its kubelet.
    for name in ("older", "oldest"):
        before.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    bound = pod("waiting")
    bound["spec"]["nodeName"] = "oldest"
    before.apply(bound)
    before.kubectl("delete", "pod", "waiting", "--wait=false")
    waits = json.loads(before.kubectl("get", "pod", "waiting", "-o", "json"))
    assert "deletionTimestamp" in waits["metadata"]
    return gateway


class OldNode:
    """The gateway's container as it was made before: on the same volume and network, under another name."""

    def __init__(self, gateway: TestGateway) -> None:
        self.engine = connect()
        self.container = gateway.container
        taken = reserved_ports(self.engine)
        port = free_port(reserved=taken)
        self.spec = GatewaySpec(
            name=gateway.name,
            image=DEFAULT_IMAGE,
            port=port,
            gateway_port=free_port(reserved=taken | {port}),
        )

    def start(self) -> None:
        create_network(self.engine, self.container, gateway=self.spec.name)
        create_volume(self.engine, self.container, gateway=self.spec.name)
        config = container_config(self.spec, HOLDFAST)
        config |= {"Hostname": OLD_NAME, "Env": [f"{HOLDFAST.node_name_variable}={OLD_NAME}"]}
        config["Labels"] |= {labels.SETTINGS: "of another time"}
        create_container(
            self.engine, self.container, image=self.spec.image, config=config,
            host_config=host_config(self.spec, HOLDFAST), networking=networking_config(self.spec),
        )  # fmt: skip
        start_container(self.engine, self.container)
        ended = run_in(self.engine, self.container, [*HOLDFAST.wait_command, "--timeout", "180s"])
        assert ended.exit_code == 0, ended.output

    def kubectl(self, *words: str) -> str:
        ended = run_in(self.engine, self.container, [*HOLDFAST.kubectl, *words])
        assert ended.exit_code == 0, f"kubectl {' '.join(words)}: {ended.output}"
        return ended.output

    def items(self, kind: str) -> list[dict]:
        return json.loads(self.kubectl("get", kind, "-o", "json"))["items"]

    def apply(self, *objects: dict) -> None:
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        script = f'echo "$1" | {" ".join(HOLDFAST.kubectl)} apply -f -'
        ended = run_in(self.engine, self.container, ["sh", "-c", script, "sh", body])
        assert ended.exit_code == 0, ended.output


def keeper() -> dict:
    """A StatefulSet of one pod that mounts the claim `work`."""
    template = pod("keeper", claim="work")
    template = {"metadata": {"labels": {"app": "keeper"}}, "spec": template["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "keeper"},
        "spec": {
            "serviceName": "keeper",
            "selector": {"matchLabels": {"app": "keeper"}},
            "template": template,
        },
    }


def assert_kept(gateway, name):
    assert gateway.execute(name, "sha256sum", "/data/blob").split()[0] == gateway.checksums[name]


def finished(events, step):
    """How a step ended."""
    ends = ("step.finished", "step.skipped")
    (event,) = (each for each in events if each.get("step") == step and each["event"] in ends)
    return event


def test_up_removes_the_old_node_and_brings_its_files_back(renamed):
    events = renamed.holdfast.events("up", renamed.name)
    removed = finished(events, "remove-stale-nodes")
    assert removed["event"] == "step.finished"
    assert removed["note"].startswith(f"removed 3: {OLD_NAME}, older, oldest, with ")
    pinned = finished(events, "repin-volumes")
    assert all(name in pinned["note"] for name in renamed.volumes)
    assert {each["status"]["phase"] for each in renamed.get("pvc")["items"]} == {"Bound"}
    (node,) = renamed.get("nodes")["items"]
    assert node["metadata"]["name"] == renamed.container

    renamed.kubectl("wait", "--for=create", "pod/keeper-0", "--timeout=60s")
    renamed.wait_ready("keeper-0")
    assert_kept(renamed, "keeper-0")
    assert renamed.kubectl("get", "pod", "waiting", "--ignore-not-found") == ""


def test_no_claim_was_touched_and_every_volume_is_itself_but_for_its_node(renamed):
    now = {each["metadata"]["name"]: each for each in renamed.get("pvc")["items"]}
    for name, before in renamed.claims.items():
        assert now[name]["metadata"]["uid"] == before["metadata"]["uid"]
        assert now[name]["spec"] == before["spec"]
        assert now[name]["status"]["phase"] == "Bound"
    for name, before in renamed.volumes.items():
        after = renamed.get("pv", name)
        assert after["spec"]["hostPath"] == before["spec"]["hostPath"]
        assert after["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        assert after["spec"]["claimRef"]["uid"] == before["spec"]["claimRef"]["uid"]
        assert renamed.container in json.dumps(after["spec"]["nodeAffinity"])


def test_a_bare_pod_is_its_owners_to_make_again_and_finds_its_files(renamed):
    """Nobody makes it again by itself: the claim is free for the one that does."""
    renamed.kubectl("delete", "pod", "loose", "--ignore-not-found", "--force", "--grace-period=0")
    renamed.apply(pod("loose", claim="loose"))
    renamed.wait_ready("loose")
    assert_kept(renamed, "loose")


def test_up_again_has_nothing_to_do(renamed):
    before = {each["metadata"]["name"]: each["metadata"]["uid"] for each in renamed.get("pv")["items"]}
    events = renamed.holdfast.events("up", renamed.name)
    assert finished(events, "remove-stale-nodes")["event"] == "step.skipped"
    assert finished(events, "repin-volumes")["reason"] == "all where they belong"
    after = {each["metadata"]["name"]: each["metadata"]["uid"] for each in renamed.get("pv")["items"]}
    assert {name: after.get(name) for name in renamed.volumes} == {
        name: before.get(name) for name in renamed.volumes
    }


def test_a_deleted_claim_still_takes_its_files_along(renamed):
    """The provisioner finds the node of a volume that was pinned anew, and cleans up there."""
    (name,) = (n for n, each in renamed.volumes.items() if each["spec"]["claimRef"]["name"] == "loose")
    path = renamed.volumes[name]["spec"]["hostPath"]["path"]
    renamed.kubectl("delete", "pod", "loose", "--force", "--grace-period=0")
    renamed.kubectl("delete", "pvc", "loose")
    renamed.kubectl("wait", "--for=delete", f"pv/{name}", "--timeout=90s")
    assert run_in(connect(), renamed.container, ["test", "-d", path]).exit_code == 1
