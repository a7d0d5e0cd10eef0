"""Volumes are migrated on a real control plane, interrupted before and after every write."""

from __future__ import annotations

import pytest

from holdfast.errors import TemporaryError
from holdfast.gateway.pv_migration import VolumeMigrator, pinned_node_names, plan_migration
from holdfast.gateway.pv_migration.find_stranded import (
    INTENTS_CONFIG_MAP,
    INTENTS_NAMESPACE,
    RESTORE_POLICY_ANNOTATION,
)
from holdfast.gateway.pv_migration.migrate import write_intent
from holdfast.kube import Objects, api_client
from holdfast.retry import Policy, exponential
from holdfast.testing.faults import Fault, FaultProxy, rule

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

DIRECTORY = "/var/lib/holdfast/local-path"
WRITES = ("ensure", "patch", "delete")
QUICK = Policy(attempts=4, backoff=exponential(0.05, cap=1))


class SimulatedCrashError(BaseException):
    """The process ends at this moment."""


class CrashingClient(Objects):
    """A client that crashes before or after its n-th write."""

    def __init__(self, client, at, *, after):
        super().__init__(client, QUICK)
        self._remaining, self._after = at, after
        for name in WRITES:
            setattr(self, name, self._count(getattr(self, name)))

    def _count(self, write):
        def counted(*args, **options):
            self._remaining -= 1
            if self._remaining == 0 and not self._after:
                raise SimulatedCrashError
            result = write(*args, **options)
            if self._remaining == 0:
                raise SimulatedCrashError
            return result

        return counted


@pytest.fixture
def stranded_volume(cluster):
    """A bound volume whose node does not exist."""
    path = f"{DIRECTORY}/pvc-{cluster.tag}_default_work"
    old, claim = cluster.create_bound_volume(f"pvc-{cluster.tag}", node=f"old-{cluster.tag}", path=path)
    return cluster, old, claim


def migrate_volumes(client, hostname="new", *, hosts=(), filter_existing=list):
    plan = plan_migration(client, {hostname, *hosts}, DIRECTORY, filter_existing)
    return VolumeMigrator(client, hostname, timeout=60.0).run(plan)


def assert_migrated(cluster, old, claim, node="new"):
    name = old["metadata"]["name"]
    new = cluster.get("PersistentVolume", name)
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert "deletionTimestamp" not in new["metadata"]
    assert RESTORE_POLICY_ANNOTATION not in new["metadata"]["annotations"]
    assert pinned_node_names(new) == {node}
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
    assert cluster.objects.get("ConfigMap", INTENTS_CONFIG_MAP, namespace=INTENTS_NAMESPACE) is None


def test_volume_is_migrated_and_its_claim_bound_again(stranded_volume, node_cluster):
    cluster, old, claim = stranded_volume
    result = migrate_volumes(node_cluster)
    assert result.volumes == (old["metadata"]["name"],)
    assert result.skipped == {}
    assert_migrated(cluster, old, claim)
    again = plan_migration(node_cluster, {"new"}, DIRECTORY, list)
    assert (again.pending, again.skipped, again.unused_intents) == ((), {}, ())


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 9))
def test_migration_continues_after_crash_around_any_write(stranded_volume, node_cluster, client, at, after):
    """Eight writes: retain, create list, write intent, delete, finalizer, create, delete intent, policy."""
    cluster, old, claim = stranded_volume
    with pytest.raises(SimulatedCrashError):
        migrate_volumes(CrashingClient(client, at, after=after))
    assert cluster.get("PersistentVolumeClaim", claim["metadata"]["name"]) is not None
    migrate_volumes(node_cluster)
    assert_migrated(cluster, old, claim)


def test_crash_test_covers_all_eight_writes(stranded_volume, client):
    cluster, old, claim = stranded_volume
    migrate_volumes(CrashingClient(client, 9, after=False))
    assert_migrated(cluster, old, claim)


def test_claim_is_lost_while_volume_is_replaced_and_recovers(stranded_volume, node_cluster, client):
    cluster, old, claim = stranded_volume
    with pytest.raises(SimulatedCrashError):
        migrate_volumes(CrashingClient(client, 5, after=True))
    name = old["metadata"]["name"]
    assert cluster.get("PersistentVolume", name) is None
    cluster.wait_pvc_phase(name, "Lost")
    migrate_volumes(node_cluster)
    assert_migrated(cluster, old, claim)


def test_one_run_binds_all_lost_claims(cluster, node_cluster):
    names = [f"{each}-{cluster.tag}" for each in ("one", "two", "three")]
    bound = [cluster.create_bound_volume(name, node="old", path=f"{DIRECTORY}/{name}") for name in names]
    for old, _claim in bound:
        name, uid = old["metadata"]["name"], old["metadata"]["uid"]
        retain = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
        node_cluster.patch("PersistentVolume", name, retain, uid=uid)
        write_intent(node_cluster, cluster.get("PersistentVolume", name))
        node_cluster.delete("PersistentVolume", name, uid=uid)
        node_cluster.patch("PersistentVolume", name, {"metadata": {"finalizers": []}}, uid=uid)
        cluster.wait_pvc_phase(name, "Lost")
    assert sorted(migrate_volumes(node_cluster).volumes) == sorted(names)
    assert {cluster.get("PersistentVolumeClaim", name)["status"]["phase"] for name in names} == {"Bound"}


def test_rename_during_migration_ends_on_newest_node(stranded_volume, node_cluster, client):
    cluster, old, claim = stranded_volume
    with pytest.raises(SimulatedCrashError):
        migrate_volumes(CrashingClient(client, 6, after=True))
    migrate_volumes(node_cluster, "newer")
    assert_migrated(cluster, old, claim, node="newer")


def test_retain_policy_is_preserved(cluster, node_cluster):
    path = f"{DIRECTORY}/pvc-{cluster.tag}_default_work"
    old, claim = cluster.create_bound_volume(f"pvc-{cluster.tag}", node="old", path=path, policy="Retain")
    migrate_volumes(node_cluster)
    assert_migrated(cluster, old, claim)


def test_unmigratable_volumes_are_reported_and_not_modified(cluster, node_cluster):
    away, _ = cluster.create_bound_volume(f"away-{cluster.tag}", node="old", path="/elsewhere/x")
    missing, _ = cluster.create_bound_volume(
        f"missing-{cluster.tag}", node="old", path=f"{DIRECTORY}/missing"
    )
    here, _ = cluster.create_bound_volume(f"here-{cluster.tag}", node="new", path=f"{DIRECTORY}/here")
    result = migrate_volumes(
        node_cluster, filter_existing=lambda paths: [path for path in paths if "missing" not in path]
    )
    assert result.volumes == ()
    assert result.skipped == {
        f"away-{cluster.tag}": "/elsewhere/x is not on the gateway's volume",
        f"missing-{cluster.tag}": f"{DIRECTORY}/missing does not exist",
    }
    for before in (away, missing, here):
        assert cluster.get("PersistentVolume", before["metadata"]["name"]) == before


def test_volume_without_claim_is_left_alone(stranded_volume, node_cluster):
    cluster, old, _claim = stranded_volume
    name = old["metadata"]["name"]
    retain = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
    node_cluster.patch("PersistentVolume", name, retain, uid=old["metadata"]["uid"])
    cluster.objects.delete("PersistentVolumeClaim", name, namespace=cluster.namespace, wait=30)
    result = migrate_volumes(node_cluster)
    assert result.skipped == {name: "its PVC does not exist"}
    assert cluster.get("PersistentVolume", name)["metadata"]["uid"] == old["metadata"]["uid"]


def test_claim_deleted_during_migration_loses_no_files(stranded_volume, node_cluster, client):
    cluster, old, _claim = stranded_volume
    name = old["metadata"]["name"]
    with pytest.raises(SimulatedCrashError):
        migrate_volumes(CrashingClient(client, 5, after=True))
    cluster.objects.delete("PersistentVolumeClaim", name, namespace=cluster.namespace, wait=30)
    result = migrate_volumes(node_cluster)
    assert result.skipped == {name: "its PVC does not exist; its files are kept"}
    new = cluster.get("PersistentVolume", name)
    assert new["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert new["spec"]["hostPath"] == old["spec"]["hostPath"]


def test_foreign_volume_with_same_name_is_not_modified(stranded_volume, node_cluster, client):
    cluster, old, _claim = stranded_volume
    name = old["metadata"]["name"]
    with pytest.raises(SimulatedCrashError):
        migrate_volumes(CrashingClient(client, 5, after=True))
    foreign = {k: v for k, v in old["spec"].items() if k not in ("claimRef", "nodeAffinity")}
    cluster.create("PersistentVolume", name, namespaced=False, spec=foreign)
    before = cluster.get("PersistentVolume", name)["metadata"]["uid"]
    result = migrate_volumes(node_cluster)
    assert "another volume has its name" in result.skipped[name]
    assert cluster.get("PersistentVolume", name)["metadata"]["uid"] == before
    assert name in cluster.objects.get("ConfigMap", INTENTS_CONFIG_MAP, namespace=INTENTS_NAMESPACE)["data"]
    cluster.objects.delete("ConfigMap", INTENTS_CONFIG_MAP, namespace=INTENTS_NAMESPACE)


def test_unused_write_ahead_manifest_is_removed(stranded_volume, node_cluster):
    """The old node came back before the migration began: the volume is not changed, the list is deleted."""
    cluster, old, _claim = stranded_volume
    write_intent(node_cluster, old)
    result = migrate_volumes(node_cluster, hosts=[f"old-{cluster.tag}"])
    assert (result.volumes, result.skipped) == ((), {})
    assert cluster.get("PersistentVolume", old["metadata"]["name"]) == old
    assert cluster.objects.get("ConfigMap", INTENTS_CONFIG_MAP, namespace=INTENTS_NAMESPACE) is None


def test_migration_converges_through_faults_at_every_write(stranded_volume, control_plane):
    """A quarter of all requests fail, half of these after the server has executed them."""
    cluster, old, claim = stranded_volume
    lost = [Fault(kind="gateway-timeout", commit=True), "reset-after", "reset-before", "unavailable"]
    with FaultProxy(control_plane.kubeconfig) as proxy, api_client(proxy.kubeconfig) as client:
        often = Policy(attempts=None, deadline=60, backoff=exponential(0.02, cap=0.2))
        faulty = Objects(client, often)
        with proxy.faults(rule(*lost, name="quarter", probability=0.25)):
            for _ in range(5):
                try:
                    migrate_volumes(faulty)
                except TemporaryError:
                    continue
                break
    assert_migrated(cluster, old, claim)
