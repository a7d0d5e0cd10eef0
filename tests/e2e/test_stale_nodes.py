"""A gateway whose node once had another name: its old node goes, and its files are mounted again."""

import json

import pytest
from tests.support import old_nodes
from tests.support.commands import Holdfast
from tests.support.gateways import pod
from tests.support.old_nodes import STALE

from holdfast.containers.commands import run_in
from holdfast.containers.engine import connect

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def renamed(new_gateway, tmp_path_factory):
    """A gateway from before its node had a name made from the gateway's, with files and a stuck pod."""
    home = Holdfast(tmp_path_factory.mktemp("home"), HOLDFAST_WORKLOADS="false")
    return old_nodes.renamed(new_gateway("stale", holdfast=home))


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
    assert removed["note"].startswith(f"removed 3: {', '.join(STALE)}, with ")
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
