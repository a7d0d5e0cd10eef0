"""`up` killed while old nodes go and their volumes follow: run again, each went once, and no file is lost."""

import json

import pytest
from tests.support import legacy_node
from tests.support.gateway import TestGateway, pod_manifest
from tests.support.holdfast_cli import HoldfastCli
from tests.support.legacy_node import STALE_NODES

from holdfast.gateway.pv_migration.find_stranded import INTENTS_CONFIG_MAP, INTENTS_NAMESPACE
from holdfast.testing.crash.cases import KILLED_EXIT_CODE, CrashHarness

pytestmark = [pytest.mark.engine, pytest.mark.slow]

NODES, VOLUMES = "remove-stale-nodes", "repin-volumes"
LINES = range(1, 200, 3)
"""Moments inside of a step. What it does between two of its effects is three lines: none is passed over."""


class UpKiller:
    """One `up`, killed again and again."""

    def __init__(self, lab):
        self.case = lab.new_case()

    def at(self, step, **moment):
        code = self.case.run(kill={"step": step, **moment})
        assert code == KILLED_EXIT_CODE, (
            f"not killed {moment} in {step}, it ended with {code}:\n{self.case.log()}"
        )

    def inside(self, step, look):
        """Later and later, until the first of its effects is there."""
        before = look()
        for line in LINES:
            self.at(step, at="inside", line=line)
            if look() != before:
                return


def test_up_converges_when_killed_around_stale_node_steps(existing_data_plan, tmp_path):
    gateway = legacy_node.create_legacy_gateway(TestGateway(existing_data_plan.NAME, HoldfastCli(tmp_path)))

    def stale():
        return {each["metadata"]["name"] for each in gateway.get("nodes")["items"]} - {gateway.container}

    def pinned():
        """The volumes of then that are pinned to the node that there is now."""
        found = {each["metadata"]["name"]: each["spec"] for each in gateway.get("pv")["items"]}
        return {name for name in gateway.volumes if gateway.container in json.dumps(found.get(name, {}))}

    with CrashHarness(existing_data_plan.build_unchanged, tmp_path / "runs") as lab:
        killed = UpKiller(lab)
        killed.at(NODES, at="before")
        assert stale() == set(STALE_NODES)
        killed.inside(NODES, stale)
        assert stale() == set(STALE_NODES[1:]), "one at a time, in their order"
        killed.at(NODES, at="after")
        assert stale() == set()
        killed.at(VOLUMES, at="before")
        assert pinned() == set()
        killed.inside(VOLUMES, pinned)
        assert len(pinned()) == 1
        killed.at(VOLUMES, at="after")
        assert pinned() == set(gateway.volumes)
        assert killed.case.run_to_completion(), killed.case.log()
        effects = killed.case.effect_counts()
    assert (effects[NODES], effects[VOLUMES]) == (1, 1), "what was done was done a second time"
    assert_data_intact(gateway)


def assert_data_intact(gateway):
    """One node, the claims and volumes of then, every file; and nothing is left to do."""
    (node,) = gateway.get("nodes")["items"]
    assert node["metadata"]["name"] == gateway.container
    claims = {each["metadata"]["name"]: each for each in gateway.get("pvc")["items"]}
    assert {name: each["metadata"]["uid"] for name, each in claims.items()} == {
        name: each["metadata"]["uid"] for name, each in gateway.claims.items()
    }
    assert {each["status"]["phase"] for each in claims.values()} == {"Bound"}
    for name, before in gateway.volumes.items():
        after = gateway.get("pv", name)["spec"]
        assert after["hostPath"] == before["spec"]["hostPath"]
        assert after["persistentVolumeReclaimPolicy"] == "Delete"
    assert (
        gateway.kubectl("get", "configmap", INTENTS_CONFIG_MAP, "-n", INTENTS_NAMESPACE, "--ignore-not-found")
        == ""
    )
    # A bare pod is its owner's to make again.
    gateway.kubectl("delete", "pod", "loose", "--ignore-not-found", "--force", "--grace-period=0")
    gateway.apply(pod_manifest("loose", claim="loose"))
    for name, checksum in gateway.checksums.items():
        gateway.kubectl("wait", "--for=create", f"pod/{name}", "--timeout=60s")
        gateway.wait_ready(name)
        assert gateway.exec_in_pod(name, "sha256sum", "/data/blob").split()[0] == checksum
    assert not {NODES, VOLUMES} & set(gateway.up()["changed"])
