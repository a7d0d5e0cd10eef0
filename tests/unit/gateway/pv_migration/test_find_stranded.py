"""Which volumes are stranded, which can be migrated, and the manifest of the replacement."""

import copy
import json
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st
from tests.support.persistent_volumes import LOCAL_PATH_DIRECTORY, hostname_term, persistent_volume

from holdfast.gateway.pv_migration import is_stranded, migration_blocker, pinned_node_names
from holdfast.gateway.pv_migration.find_stranded import (
    INTENTS_CONFIG_MAP,
    INTENTS_NAMESPACE,
    PV_PROTECTION_FINALIZER,
    REPLACES_ANNOTATION,
    RESTORE_POLICY_ANNOTATION,
    is_replacement_of,
    original_reclaim_policy,
    plan_migration,
    pvc_reference,
    replacement_volume,
    volume_path,
)

PVC_GONE = "its PVC does not exist"


@pytest.mark.parametrize(
    ("terms", "names"),
    [
        ([hostname_term("a")], {"a"}),
        ([hostname_term("a", "b")], {"a", "b"}),
        ([hostname_term("a"), hostname_term("b")], {"a", "b"}),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}], {"a"}),
        ([hostname_term("a", operator="NotIn")], set()),
        ([hostname_term("a"), {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}], set()),
        ([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}], set()),
        ([{}], set()),
    ],
)
def test_node_names_of_volume(terms, names):
    assert pinned_node_names(persistent_volume(*terms)) == names


@pytest.mark.parametrize("affinity", [None, {}, {"required": None}, {"required": {"nodeSelectorTerms": []}}])
def test_volume_without_affinity_has_no_node_names(affinity):
    assert not is_stranded(persistent_volume(spec__nodeAffinity=affinity), {"new"})


def test_stranded_volume_has_no_existing_node():
    assert is_stranded(persistent_volume(), {"new"})
    assert not is_stranded(persistent_volume(), {"new", "old"})
    assert not is_stranded(persistent_volume(hostname_term("old", "new")), {"new"})


def test_provisioned_volume_can_be_migrated():
    assert migration_blocker(persistent_volume(), LOCAL_PATH_DIRECTORY) == ""
    local = persistent_volume()
    local["spec"]["local"] = {"path": local["spec"].pop("hostPath")["path"]}
    assert migration_blocker(local, LOCAL_PATH_DIRECTORY) == ""
    assert volume_path(local) == f"{LOCAL_PATH_DIRECTORY}/pvc-1_default_work"


@pytest.mark.parametrize(
    "path",
    [
        "/data/pvc-1",
        LOCAL_PATH_DIRECTORY,
        f"{LOCAL_PATH_DIRECTORY}/",
        f"{LOCAL_PATH_DIRECTORY}-2/pvc-1",
        f"{LOCAL_PATH_DIRECTORY}/../etcd",
        f"{LOCAL_PATH_DIRECTORY}/a/../../b",
        "/var/lib/holdfast/etcd",
        "var/lib/holdfast/local-path/pvc-1",
        "//elsewhere",
    ],
)
def test_foreign_path_is_skipped(path):
    assert (
        migration_blocker(persistent_volume(path=path), LOCAL_PATH_DIRECTORY)
        == f"{path} is not on the gateway's volume"
    )


@pytest.mark.parametrize(
    ("volume", "reason"),
    [
        (persistent_volume(spec__hostPath=None), "it is not a directory of a node"),
        (persistent_volume(metadata__deletionTimestamp="2026-01-01T00:00:00Z"), "it is being deleted"),
        (persistent_volume(spec__claimRef=None), PVC_GONE),
        (
            persistent_volume(spec__claimRef={"name": "work", "namespace": "default"}),
            PVC_GONE,
        ),
        (persistent_volume(status__phase="Released"), PVC_GONE),
        (persistent_volume(status__phase="Failed"), PVC_GONE),
        (
            persistent_volume(metadata__finalizers=[PV_PROTECTION_FINALIZER, "x.io/a"]),
            "it has the finalizers x.io/a",
        ),
        (
            persistent_volume(
                {"matchExpressions": [*hostname_term("old")["matchExpressions"], {"key": "zone"}]}
            ),
            "its node affinity has more requirements than the node name",
        ),
    ],
)
def test_unsupported_volume_is_skipped_with_reason(volume, reason):
    assert migration_blocker(volume, LOCAL_PATH_DIRECTORY) == reason


def test_new_volume_differs_only_in_node():
    old = persistent_volume()
    before = copy.deepcopy(old)
    new = replacement_volume(old, "new")
    assert old == before
    assert pinned_node_names(new) == {"new"}
    assert pvc_reference(new) == ("default", "work", "uid-claim")
    assert "resourceVersion" not in new["spec"]["claimRef"]
    assert new["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert original_reclaim_policy(new) == "Delete"
    assert is_replacement_of(new, old)
    assert new["metadata"] == {
        "name": "pvc-1",
        "labels": {"team": "blue"},
        "finalizers": [PV_PROTECTION_FINALIZER],
        "annotations": {
            "local.path.provisioner/selected-node": "new",
            "pv.kubernetes.io/provisioned-by": "rancher.io/local-path",
            REPLACES_ANNOTATION: "uid-1",
            RESTORE_POLICY_ANNOTATION: "Delete",
        },
    }
    for same in ("accessModes", "capacity", "hostPath", "storageClassName", "volumeMode"):
        assert new["spec"][same] == old["spec"][same]


def test_second_migration_keeps_original_reclaim_policy():
    once = replacement_volume(persistent_volume(), "new")
    once["metadata"]["uid"] = "uid-2"
    twice = replacement_volume(once, "newer")
    assert original_reclaim_policy(twice) == "Delete"
    assert is_replacement_of(twice, once)
    assert not is_replacement_of(twice, persistent_volume())


class FakeCluster:
    """One volume, its PVC, and the write-ahead list."""

    def __init__(self, volume, *intents):
        self.volume = volume
        self.intents = {intent["metadata"]["name"]: json.dumps(intent) for intent in intents}

    def list(self, kind):
        assert kind == "PersistentVolume"
        return SimpleNamespace(items=[self.volume])

    def get(self, kind, name, namespace):
        if (kind, name, namespace) == ("ConfigMap", INTENTS_CONFIG_MAP, INTENTS_NAMESPACE):
            return {"data": self.intents}
        assert (kind, name, namespace) == ("PersistentVolumeClaim", "work", "default")
        return {"metadata": {"uid": "uid-claim"}, "spec": {"volumeName": "pvc-1"}}


@pytest.mark.parametrize(
    ("node_names", "existing", "unused"),
    [({"new"}, True, ()), ({"new"}, False, ("pvc-1",)), ({"old"}, True, ("pvc-1",))],
    ids=["migrated", "skipped", "not stranded"],
)
def test_intent_of_volume_that_is_not_migrated_is_unused(node_names, existing, unused):
    """If an administrator deletes such a volume later, `up` must not recreate it."""
    cluster = FakeCluster(persistent_volume(), persistent_volume())
    filter_existing = list if existing else lambda _paths: []
    plan = plan_migration(cluster, node_names, LOCAL_PATH_DIRECTORY, filter_existing)
    assert plan.unused_intents == unused
    assert plan.stranded == (("pvc-1",) if not unused else ())


_hosts = st.sets(st.sampled_from("abcd"), max_size=4)
_terms = st.lists(
    _hosts.filter(bool).map(lambda names: hostname_term(*sorted(names))), min_size=1, max_size=3
)


@given(_terms, _hosts)
def test_only_stranded_volumes_are_migrated(terms, hosts):
    old = persistent_volume(*terms)
    could_run = any(set(term["matchExpressions"][0]["values"]) & hosts for term in terms)
    assert is_stranded(old, hosts) is not could_run
    assert not is_stranded(replacement_volume(old, "here"), {*hosts, "here"})
