"""A volume is pinned to another node on a real control plane, stopped between any two of its effects."""

from __future__ import annotations

import pytest

from holdfast.errors import TemporaryError
from holdfast.gateway.nodes.cluster import NodeCluster
from holdfast.gateway.nodes.intents import NAME, NAMESPACE, write_intent
from holdfast.gateway.nodes.pinning import RESTORE_POLICY, pinned_to
from holdfast.gateway.nodes.repin import Repinner
from holdfast.gateway.nodes.survey import survey
from holdfast.kube import api_client
from holdfast.retry import Policy, exponential
from holdfast.testing.faults import Fault, FaultProxy, rule

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

FOLDER = "/var/lib/holdfast/local-path"
WRITES = ("create", "patch_volume", "remove_volume", "patch_config", "remove_config")
QUICK = Policy(attempts=4, backoff=exponential(0.05, cap=1))


class Stopped(BaseException):
    """The process is gone at this moment."""


class Stopping(NodeCluster):
    """The real cluster, until its n-th write: it stops just before that, or as soon as it is done."""

    def __init__(self, client, at, *, after):
        super().__init__(client, QUICK, 30.0)
        self._left, self._after = at, after
        for name in WRITES:
            setattr(self, name, self._counted(getattr(self, name)))

    def _counted(self, write):
        def counted(*args, **options):
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Stopped
            write(*args, **options)
            if self._left == 0:
                raise Stopped

        return counted


@pytest.fixture
def stranded(cluster):
    """A bound volume whose node is not there; the directory is said to be."""
    path = f"{FOLDER}/pvc-{cluster.tag}_default_work"
    old, claim = cluster.bound_volume(f"pvc-{cluster.tag}", node=f"old-{cluster.tag}", path=path)
    return cluster, old, claim


def repin(nodes, hostname="new", *, hosts=None, present=list):
    found = survey(nodes, {hostname, *(hosts or ())}, FOLDER, present)
    return Repinner(nodes, hostname, seconds=60.0).run(found)


def assert_repinned(cluster, old, claim, node="new"):
    name = old["metadata"]["name"]
    new = cluster.get("PersistentVolume", name)
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert "deletionTimestamp" not in new["metadata"]
    assert RESTORE_POLICY not in new["metadata"]["annotations"]
    assert pinned_to(new) == {node}
    assert new["metadata"]["annotations"]["local.path.provisioner/selected-node"] == node
    changed = {"nodeAffinity", "claimRef"}
    assert {k: v for k, v in new["spec"].items() if k not in changed} == {
        k: v for k, v in old["spec"].items() if k not in changed
    }
    now = cluster.get("PersistentVolumeClaim", name)
    assert now["status"]["phase"] == "Bound"
    assert now["metadata"]["uid"] == claim["metadata"]["uid"] == new["spec"]["claimRef"]["uid"]
    assert "deletionTimestamp" not in now["metadata"]
    assert now["spec"] == claim["spec"]
    assert cluster.objects.get("ConfigMap", NAME, namespace=NAMESPACE) is None


def test_a_volume_is_pinned_anew_and_its_claim_is_bound_again(stranded, nodes):
    cluster, old, claim = stranded
    done = repin(nodes)
    assert done.volumes == (old["metadata"]["name"],)
    assert done.left == {}
    assert_repinned(cluster, old, claim)
    again = survey(nodes, {"new"}, FOLDER, list)
    assert (again.work, again.left, again.unused) == ((), {}, ())


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 9))
def test_stopped_around_any_write_the_next_run_goes_on(stranded, nodes, client, at, after):
    """Eight writes: keep, list made, written down, deleted, released, made anew, struck out, policy."""
    cluster, old, claim = stranded
    with pytest.raises(Stopped):
        repin(Stopping(client, at, after=after))
    assert cluster.get("PersistentVolumeClaim", claim["metadata"]["name"]) is not None
    repin(nodes)
    assert_repinned(cluster, old, claim)


def test_the_eight_writes_are_all_there_are(stranded, client):
    cluster, old, claim = stranded
    repin(Stopping(client, 9, after=False))
    assert_repinned(cluster, old, claim)


def test_while_the_volume_is_away_its_claim_is_lost_and_comes_back(stranded, nodes, client):
    cluster, old, claim = stranded
    with pytest.raises(Stopped):
        repin(Stopping(client, 5, after=True))
    name = old["metadata"]["name"]
    assert cluster.get("PersistentVolume", name) is None
    cluster.wait_claim(name, "Lost")
    repin(nodes)
    assert_repinned(cluster, old, claim)


def test_one_run_ends_when_all_claims_that_were_lost_are_bound(cluster, nodes):
    names = [f"{each}-{cluster.tag}" for each in ("one", "two", "three")]
    bound = [cluster.bound_volume(name, node="old", path=f"{FOLDER}/{name}") for name in names]
    for old, _claim in bound:
        nodes.patch_volume(
            old["metadata"]["name"],
            {
                "metadata": {"uid": old["metadata"]["uid"]},
                "spec": {"persistentVolumeReclaimPolicy": "Retain"},
            },
        )
        kept = cluster.get("PersistentVolume", old["metadata"]["name"])
        write_intent(nodes, kept)
        nodes.remove_volume(old["metadata"]["name"], old["metadata"]["uid"])
        nodes.patch_volume(
            old["metadata"]["name"], {"metadata": {"uid": old["metadata"]["uid"], "finalizers": []}}
        )
        cluster.wait_claim(old["metadata"]["name"], "Lost")
    assert sorted(repin(nodes).volumes) == sorted(names)
    assert {cluster.get("PersistentVolumeClaim", name)["status"]["phase"] for name in names} == {"Bound"}


def test_renamed_again_in_the_middle_it_ends_on_the_newest_node(stranded, nodes, client):
    cluster, old, claim = stranded
    with pytest.raises(Stopped):
        repin(Stopping(client, 6, after=True))
    repin(nodes, "newer")
    assert_repinned(cluster, old, claim, node="newer")


def test_a_policy_that_was_retain_stays_retain(cluster, nodes):
    path = f"{FOLDER}/pvc-{cluster.tag}_default_work"
    old, claim = cluster.bound_volume(f"pvc-{cluster.tag}", node="old", path=path, policy="Retain")
    repin(nodes)
    assert_repinned(cluster, old, claim)


def test_what_cannot_be_pinned_anew_is_named_and_not_touched(cluster, nodes):
    away, _ = cluster.bound_volume(f"away-{cluster.tag}", node="old", path="/elsewhere/x")
    missing, _ = cluster.bound_volume(f"missing-{cluster.tag}", node="old", path=f"{FOLDER}/missing")
    here, _ = cluster.bound_volume(f"here-{cluster.tag}", node="new", path=f"{FOLDER}/here")
    done = repin(nodes, present=lambda paths: [path for path in paths if "missing" not in path])
    assert done.volumes == ()
    assert done.left == {
        f"away-{cluster.tag}": "/elsewhere/x is not on the gateway's volume",
        f"missing-{cluster.tag}": f"{FOLDER}/missing is not there",
    }
    for before in (away, missing, here):
        assert cluster.get("PersistentVolume", before["metadata"]["name"]) == before


def test_a_volume_whose_claim_is_gone_is_left(stranded, nodes):
    cluster, old, _claim = stranded
    name = old["metadata"]["name"]
    nodes.patch_volume(
        name,
        {"metadata": {"uid": old["metadata"]["uid"]}, "spec": {"persistentVolumeReclaimPolicy": "Retain"}},
    )
    cluster.objects.delete("PersistentVolumeClaim", name, namespace=cluster.namespace, wait=30)
    done = repin(nodes)
    assert done.left == {name: "its claim is gone"}
    assert cluster.get("PersistentVolume", name)["metadata"]["uid"] == old["metadata"]["uid"]


def test_a_claim_that_goes_in_the_middle_costs_no_file(stranded, nodes, client):
    cluster, old, _claim = stranded
    name = old["metadata"]["name"]
    with pytest.raises(Stopped):
        repin(Stopping(client, 5, after=True))
    cluster.objects.delete("PersistentVolumeClaim", name, namespace=cluster.namespace, wait=30)
    done = repin(nodes)
    assert done.left == {name: "its claim is gone; its files are kept"}
    new = cluster.get("PersistentVolume", name)
    assert new["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert new["spec"]["hostPath"] == old["spec"]["hostPath"]


def test_a_foreign_volume_of_that_name_is_not_touched(stranded, nodes, client):
    cluster, old, _claim = stranded
    name = old["metadata"]["name"]
    with pytest.raises(Stopped):
        repin(Stopping(client, 5, after=True))
    foreign = {k: v for k, v in old["spec"].items() if k not in ("claimRef", "nodeAffinity")}
    cluster.make("PersistentVolume", name, namespaced=False, spec=foreign)
    before = cluster.get("PersistentVolume", name)["metadata"]["uid"]
    done = repin(nodes)
    assert "another volume has its name" in done.left[name]
    assert cluster.get("PersistentVolume", name)["metadata"]["uid"] == before
    assert name in cluster.objects.get("ConfigMap", NAME, namespace=NAMESPACE)["data"]
    cluster.objects.delete("ConfigMap", NAME, namespace=NAMESPACE)


def test_what_was_written_down_in_vain_is_struck_out(stranded, nodes):
    """The old node came back before anything was done: the volume stays as it is, the list goes."""
    cluster, old, _claim = stranded
    write_intent(nodes, old)
    done = repin(nodes, hosts=[f"old-{cluster.tag}"])
    assert (done.volumes, done.left) == ((), {})
    assert cluster.get("PersistentVolume", old["metadata"]["name"]) == old
    assert cluster.objects.get("ConfigMap", NAME, namespace=NAMESPACE) is None


def test_through_faults_at_every_write_it_ends_the_same(stranded, control_plane):
    """A quarter of all writes is answered with a reset, half of these after they were carried out."""
    cluster, old, claim = stranded
    lost = [Fault(kind="gateway-timeout", commit=True), "reset-after", "reset-before", "unavailable"]
    with FaultProxy(control_plane.kubeconfig) as proxy, api_client(proxy.kubeconfig) as client:
        often = Policy(attempts=None, deadline=60, backoff=exponential(0.02, cap=0.2))
        faulty = NodeCluster(client, often, 30.0)
        with proxy.faults(rule(*lost, name="quarter", probability=0.25)):
            for _ in range(5):
                try:
                    repin(faulty)
                except TemporaryError:
                    continue
                break
    assert_repinned(cluster, old, claim)
