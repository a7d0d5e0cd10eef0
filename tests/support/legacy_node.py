"""A gateway from before its node had a name made from the gateway's: with files, and nodes long gone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.support.gateway import pod_manifest, pvc_manifest

from holdfast.containers import (
    create_container,
    create_network,
    create_volume,
    free_port,
    labels,
    reserved_ports,
    run_in_container,
    start_container,
)
from holdfast.gateway.context import DEFAULT_IMAGE
from holdfast.gateway.node.container import container_config, host_config, networking_config
from holdfast.gateway.spec import HOLDFAST_NODE, GatewaySpec
from holdfast.remote import connect

if TYPE_CHECKING:
    from tests.support.gateway import TestGateway

LEGACY_NODE_NAME = "4f3a9c01d2b7"
"""The host name that the engine gives to a container by default."""

STALE_NODES = (LEGACY_NODE_NAME, "older", "oldest")
"""The nodes that are stale after the gateway's node has its new name."""

KUBECTL = ("kubectl", "--kubeconfig", HOLDFAST_NODE.kubeconfig_path)


def create_legacy_gateway(gateway: TestGateway) -> TestGateway:
    """Make that gateway under its old name; it remembers `checksums`, `volumes` and `claims` of then."""
    before = LegacyNode(gateway)
    before.start()
    before.apply(
        pvc_manifest("work"),
        stateful_set_manifest(),
        pvc_manifest("loose"),
        pod_manifest("loose", claim="loose"),
        pod_manifest("stuck"),
    )
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
    for name in STALE_NODES[1:]:
        before.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    bound = pod_manifest("waiting")
    bound["spec"]["nodeName"] = "oldest"
    before.apply(bound)
    before.kubectl("delete", "pod", "waiting", "--wait=false")
    waits = json.loads(before.kubectl("get", "pod", "waiting", "-o", "json"))
    assert "deletionTimestamp" in waits["metadata"]
    return gateway


class LegacyNode:
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
        config = container_config(self.spec, HOLDFAST_NODE)
        config |= {
            "Hostname": LEGACY_NODE_NAME,
            "Env": [f"{HOLDFAST_NODE.node_name_variable}={LEGACY_NODE_NAME}"],
        }
        config["Labels"] |= {labels.SETTINGS: "of another time"}
        create_container(
            self.engine, self.container, image=self.spec.image, config=config,
            host_config=host_config(self.spec, HOLDFAST_NODE), networking_config=networking_config(self.spec),
        )  # fmt: skip
        start_container(self.engine, self.container)
        ended = run_in_container(
            self.engine, self.container, [*HOLDFAST_NODE.wait_command, "ready", "--timeout", "180s"]
        )
        assert ended.exit_code == 0, ended.output

    def kubectl(self, *words: str) -> str:
        ended = run_in_container(self.engine, self.container, [*KUBECTL, *words])
        assert ended.exit_code == 0, f"kubectl {' '.join(words)}: {ended.output}"
        return ended.output

    def items(self, kind: str) -> list[dict]:
        return json.loads(self.kubectl("get", kind, "-o", "json"))["items"]

    def apply(self, *objects: dict) -> None:
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        script = f'echo "$1" | {" ".join(KUBECTL)} apply -f -'
        ended = run_in_container(self.engine, self.container, ["sh", "-c", script, "sh", body])
        assert ended.exit_code == 0, ended.output


def stateful_set_manifest() -> dict:
    """A StatefulSet of one pod that mounts the claim `work`."""
    template = pod_manifest("keeper", claim="work")
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
