"""A gateway whose node once had another name: its old node goes, and its files are mounted again."""

import json

import pytest
from tests.support import legacy_node
from tests.support.gateway import pod_manifest
from tests.support.holdfast_cli import HoldfastCli
from tests.support.legacy_node import STALE_NODES

from holdfast.containers import run_in_container
from holdfast.remote import connect

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def legacy_gateway(new_gateway, tmp_path_factory):
    """A gateway from before its node had a name made from the gateway's, with files and a stuck pod."""
    home = HoldfastCli(tmp_path_factory.mktemp("home"), HOLDFAST_WORKLOADS="false")
    return legacy_node.create_legacy_gateway(new_gateway("stale", holdfast=home))


def assert_file_intact(gateway, name):
    assert gateway.exec_in_pod(name, "sha256sum", "/data/blob").split()[0] == gateway.checksums[name]


def step_finished_event(events, step):
    """How a step ended."""
    ends = ("step.finished", "step.skipped")
    (event,) = (each for each in events if each.get("step") == step and each["event"] in ends)
    return event


def test_up_removes_stale_node_and_restores_files(legacy_gateway):
    events = legacy_gateway.holdfast.events("up", legacy_gateway.name)
    removed = step_finished_event(events, "remove-stale-nodes")
    assert removed["event"] == "step.finished"
    assert removed["note"].startswith(f"removed 3: {', '.join(STALE_NODES)}, with ")
    pinned = step_finished_event(events, "repin-volumes")
    assert all(name in pinned["note"] for name in legacy_gateway.volumes)
    assert {each["status"]["phase"] for each in legacy_gateway.get("pvc")["items"]} == {"Bound"}
    (node,) = legacy_gateway.get("nodes")["items"]
    assert node["metadata"]["name"] == legacy_gateway.container

    legacy_gateway.kubectl("wait", "--for=create", "pod/keeper-0", "--timeout=60s")
    legacy_gateway.wait_ready("keeper-0")
    assert_file_intact(legacy_gateway, "keeper-0")
    assert legacy_gateway.kubectl("get", "pod", "waiting", "--ignore-not-found") == ""


def test_pvcs_are_unchanged_and_volumes_change_only_node(legacy_gateway):
    now = {each["metadata"]["name"]: each for each in legacy_gateway.get("pvc")["items"]}
    for name, before in legacy_gateway.claims.items():
        assert now[name]["metadata"]["uid"] == before["metadata"]["uid"]
        assert now[name]["spec"] == before["spec"]
        assert now[name]["status"]["phase"] == "Bound"
    for name, before in legacy_gateway.volumes.items():
        after = legacy_gateway.get("pv", name)
        assert after["spec"]["hostPath"] == before["spec"]["hostPath"]
        assert after["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        assert after["spec"]["claimRef"]["uid"] == before["spec"]["claimRef"]["uid"]
        assert legacy_gateway.container in json.dumps(after["spec"]["nodeAffinity"])


def test_bare_pod_must_be_recreated_by_owner_and_finds_its_files(legacy_gateway):
    """No controller recreates the pod; its PVC is free for a new one."""
    legacy_gateway.kubectl("delete", "pod", "loose", "--ignore-not-found", "--force", "--grace-period=0")
    legacy_gateway.apply(pod_manifest("loose", claim="loose"))
    legacy_gateway.wait_ready("loose")
    assert_file_intact(legacy_gateway, "loose")


def test_repeated_up_has_nothing_to_do(legacy_gateway):
    before = {each["metadata"]["name"]: each["metadata"]["uid"] for each in legacy_gateway.get("pv")["items"]}
    events = legacy_gateway.holdfast.events("up", legacy_gateway.name)
    assert step_finished_event(events, "remove-stale-nodes")["event"] == "step.skipped"
    assert step_finished_event(events, "repin-volumes")["reason"] == "no stranded volumes"
    after = {each["metadata"]["name"]: each["metadata"]["uid"] for each in legacy_gateway.get("pv")["items"]}
    assert {name: after.get(name) for name in legacy_gateway.volumes} == {
        name: before.get(name) for name in legacy_gateway.volumes
    }


def test_deleted_pvc_still_deletes_its_files(legacy_gateway):
    """The provisioner finds the node of a re-pinned volume and cleans up there."""
    (name,) = (n for n, each in legacy_gateway.volumes.items() if each["spec"]["claimRef"]["name"] == "loose")
    path = legacy_gateway.volumes[name]["spec"]["hostPath"]["path"]
    legacy_gateway.kubectl("delete", "pod", "loose", "--force", "--grace-period=0")
    legacy_gateway.kubectl("delete", "pvc", "loose")
    legacy_gateway.kubectl("wait", "--for=delete", f"pv/{name}", "--timeout=90s")
    assert run_in_container(connect(), legacy_gateway.container, ["test", "-d", path]).exit_code == 1
