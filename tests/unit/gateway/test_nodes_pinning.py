"""Which volumes are stranded, which may be pinned anew, and what the new one is like."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.volumes import FOLDER, by_hostname, volume

from holdfast.gateway.nodes.pinning import (
    PROTECTION,
    REPLACES,
    RESTORE_POLICY,
    claim_of,
    is_stranded,
    path_of,
    pinned_to,
    policy_of,
    repinned,
    stands_in_for,
    why_not,
)


@pytest.mark.parametrize(
    ("terms", "names"),
    [
        ([by_hostname("a")], {"a"}),
        ([by_hostname("a", "b")], {"a", "b"}),
        ([by_hostname("a"), by_hostname("b")], {"a", "b"}),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}], {"a"}),
        ([by_hostname("a", operator="NotIn")], set()),
        ([by_hostname("a"), {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}], set()),
        ([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}], set()),
        ([{}], set()),
    ],
)
def test_the_names_that_a_volume_is_pinned_to(terms, names):
    assert pinned_to(volume(*terms)) == names


@pytest.mark.parametrize("affinity", [None, {}, {"required": None}, {"required": {"nodeSelectorTerms": []}}])
def test_a_volume_without_affinity_is_pinned_to_nothing(affinity):
    assert not is_stranded(volume(spec__nodeAffinity=affinity), {"new"})


def test_stranded_means_that_none_of_its_nodes_is_there():
    assert is_stranded(volume(), {"new"})
    assert not is_stranded(volume(), {"new", "old"})
    assert not is_stranded(volume(by_hostname("old", "new")), {"new"})


def test_a_provisioned_volume_may_be_pinned_anew():
    assert why_not(volume(), FOLDER) == ""
    local = volume()
    local["spec"]["local"] = {"path": local["spec"].pop("hostPath")["path"]}
    assert why_not(local, FOLDER) == ""
    assert path_of(local) == f"{FOLDER}/pvc-1_default_work"


@pytest.mark.parametrize(
    "path",
    [
        "/data/pvc-1", FOLDER, FOLDER + "/", FOLDER + "-2/pvc-1", FOLDER + "/../etcd", FOLDER + "/a/../../b",
        "/var/lib/holdfast/etcd", "var/lib/holdfast/local-path/pvc-1", "//elsewhere",
    ],
)  # fmt: skip
def test_a_path_elsewhere_is_left(path):
    assert why_not(volume(path=path), FOLDER) == f"{path} is not on the gateway's volume"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (volume(spec__hostPath=None), "it is no directory of a node"),
        (volume(metadata__deletionTimestamp="2026-01-01T00:00:00Z"), "somebody is deleting it"),
        (volume(spec__claimRef=None), "its claim is gone"),
        (volume(spec__claimRef={"name": "work", "namespace": "default"}), "its claim is gone"),
        (volume(status__phase="Released"), "its claim is gone"),
        (volume(status__phase="Failed"), "its claim is gone"),
        (volume(metadata__finalizers=[PROTECTION, "x.io/a"]), "it is held by x.io/a"),
        (
            volume({"matchExpressions": [*by_hostname("old")["matchExpressions"], {"key": "zone"}]}),
            "it is pinned by more than a node's name",
        ),
    ],
)
def test_what_is_not_understood_is_left_with_the_reason(changed, why):
    assert why_not(changed, FOLDER) == why


def test_the_new_volume_is_the_old_one_on_another_node():
    old = volume()
    before = copy.deepcopy(old)
    new = repinned(old, "new")
    assert old == before
    assert pinned_to(new) == {"new"}
    assert claim_of(new) == ("default", "work", "uid-claim")
    assert "resourceVersion" not in new["spec"]["claimRef"]
    assert new["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert policy_of(new) == "Delete"
    assert stands_in_for(new, old)
    assert new["metadata"] == {
        "name": "pvc-1",
        "labels": {"team": "blue"},
        "finalizers": [PROTECTION],
        "annotations": {
            "local.path.provisioner/selected-node": "new",
            "pv.kubernetes.io/provisioned-by": "rancher.io/local-path",
            REPLACES: "uid-1",
            RESTORE_POLICY: "Delete",
        },
    }
    for same in ("accessModes", "capacity", "hostPath", "storageClassName", "volumeMode"):
        assert new["spec"][same] == old["spec"][same]


def test_a_second_time_keeps_the_policy_that_was_set_aside_the_first_time():
    once = repinned(volume(), "new")
    once["metadata"]["uid"] = "uid-2"
    twice = repinned(once, "newer")
    assert policy_of(twice) == "Delete"
    assert stands_in_for(twice, once)
    assert not stands_in_for(twice, volume())


_hosts = st.sets(st.sampled_from("abcd"), max_size=4)
_terms = st.lists(_hosts.filter(bool).map(lambda names: by_hostname(*sorted(names))), min_size=1, max_size=3)


@given(_terms, _hosts)
def test_only_stranded_volumes_are_ever_pinned_anew_and_then_they_are_not_stranded(terms, hosts):
    old = volume(*terms)
    could_run = any(set(term["matchExpressions"][0]["values"]) & hosts for term in terms)
    assert is_stranded(old, hosts) is not could_run
    assert not is_stranded(repinned(old, "here"), {*hosts, "here"})
