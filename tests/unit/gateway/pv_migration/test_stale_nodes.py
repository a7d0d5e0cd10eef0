"""Nodes are members by name and label alone, and the gateway's own node is never stale."""

import pytest
from hypothesis import given, strategies as st

from holdfast.gateway.pv_migration import NodeView, classify_nodes
from holdfast.gateway.pv_migration.find_stranded import HOSTNAME_LABEL
from holdfast.gateway.pv_migration.stale_nodes import (
    MEMBER_LABEL,
    NodeRemovalResult,
    is_safe_to_force_delete,
)
from holdfast.gateway.spec import node_name

HOSTNAME = "4f3a9c01d2b7"


def node(name, **labels):
    return NodeView(name=name, uid=f"uid-{name}", labels=labels)


def worker(name, gateway="dev"):
    return NodeView(name=name, uid=f"uid-{name}", labels={MEMBER_LABEL: node_name(gateway)})


def names(nodes):
    return [node.name for node in nodes]


def test_deterministic_name_is_the_server_and_others_are_stale():
    membership = classify_nodes(
        [node("old"), node("holdfast-dev"), node("older")], gateway="dev", hostname="old"
    )
    assert membership.control_plane.name == "holdfast-dev"
    assert names(membership.stale) == ["old", "older"]


def test_legacy_node_is_found_by_hostname():
    membership = classify_nodes([node("older"), node(HOSTNAME)], gateway="dev", hostname=HOSTNAME)
    assert membership.control_plane.name == HOSTNAME
    assert names(membership.stale) == ["older"]


@pytest.mark.parametrize("hostname", ["", HOSTNAME])
def test_nothing_is_stale_while_own_node_is_unknown(hostname):
    membership = classify_nodes([node("a"), node("b")], gateway="dev", hostname=hostname)
    assert (membership.control_plane, membership.stale, membership.members) == (None, (), ())


def test_workers_are_identified_by_gateway_label():
    nodes = [node("holdfast-dev"), worker("w1"), worker("w2", "other"), node("w3")]
    membership = classify_nodes(nodes, gateway="dev", hostname="")
    assert names(membership.workers) == ["w1"]
    assert names(membership.stale) == ["w2", "w3"]
    assert names(membership.members) == ["holdfast-dev", "w1"]


def test_label_does_not_make_server_a_worker():
    membership = classify_nodes([worker("holdfast-dev")], gateway="dev", hostname="")
    assert (membership.control_plane.name, membership.workers, membership.stale) == ("holdfast-dev", (), ())


def test_volumes_are_pinned_to_hostname_label():
    assert node("a").hostname == "a"
    assert NodeView(name="a", uid="1", labels={HOSTNAME_LABEL: "b"}).hostname == "b"


@pytest.mark.parametrize("gateway", ["Team_Blue", "___", "..Lab__-East-.", "x" * 200])
def test_every_gateway_has_valid_label(gateway):
    assert len(node_name(gateway)) <= 63
    assert node_name(gateway).replace("-", "").isalnum()


_gateways = st.sampled_from(["dev", "Team_Blue", "___"])
_labels = st.one_of(
    st.just({}),
    _gateways.map(lambda gateway: {MEMBER_LABEL: node_name(gateway)}),
    st.just({MEMBER_LABEL: ""}),
)
_names = st.one_of(_gateways.map(node_name), st.sampled_from([HOSTNAME, "n1", "n2", "n3", "n4"]))
_clusters = st.lists(
    st.builds(lambda name, labels: NodeView(name=name, uid=name, labels=labels), _names, _labels),
    unique_by=lambda node: node.name,
)


@given(_clusters, _gateways, st.sampled_from(["", HOSTNAME, "n1"]))
def test_every_node_is_classified_once_and_own_node_stays(nodes, gateway, hostname):
    membership = classify_nodes(nodes, gateway=gateway, hostname=hostname)
    listed = {node.name for node in nodes}
    stale = set(names(membership.stale))
    assert not stale & set(names(membership.members))
    assert node_name(gateway) not in stale
    if membership.control_plane is None:
        assert not stale
        assert not listed & {node_name(gateway), hostname}
    else:
        assert stale | set(names(membership.members)) == listed
        assert len(stale) < len(listed)
        labelled = {node.name for node in nodes if node.labels.get(MEMBER_LABEL) == node_name(gateway)}
        assert not labelled & stale


def pod(*, owner=None, controller=True, is_terminating=False):
    owners = [{"kind": owner, "controller": controller}] if owner else []
    return {
        "metadata": {
            "name": "p",
            "ownerReferences": owners,
            **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if is_terminating else {}),
        }
    }


@pytest.mark.parametrize("owner", [None, "Sandbox", "ReplicaSet", "Job"])
def test_stuck_pod_is_deleted_regardless_of_owner(owner):
    assert is_safe_to_force_delete(pod(owner=owner, is_terminating=True))


@pytest.mark.parametrize(
    ("owner", "is_deleted"),
    [
        (None, False), ("ReplicaSet", True), ("StatefulSet", True), ("Sandbox", False), ("Job", False),
        ("DaemonSet", False), ("Node", False),
    ],
)  # fmt: skip
def test_pod_is_deleted_immediately_only_if_controller_recreates_it(owner, is_deleted):
    assert is_safe_to_force_delete(pod(owner=owner)) is is_deleted


def test_non_controller_owner_is_ignored():
    assert not is_safe_to_force_delete(pod(owner="ReplicaSet", controller=False))


def test_note_lists_deleted_and_kept_objects():
    removed = NodeRemovalResult(nodes=("a", "b"), pods=3, failed=("c could not be removed (forbidden)",))
    assert removed.summary() == "removed 2: a, b, with 3 of their pods; c could not be removed (forbidden)"
    assert NodeRemovalResult().summary() == "no node had to be removed"
