"""Who is a member: by name and label alone, and never so that the gateway's own node could go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.gateway.identity import node_name
from holdfast.gateway.nodes.membership import (
    HOSTNAME_LABEL,
    MEMBER_LABEL,
    NodeView,
    member_value,
    membership,
)
from holdfast.gateway.nodes.removal import Removed, goes_at_once

HOSTNAME = "4f3a9c01d2b7"


def node(name, **labels):
    return NodeView(name=name, uid=f"uid-{name}", labels=labels)


def worker(name, gateway="dev"):
    return NodeView(name=name, uid=f"uid-{name}", labels={MEMBER_LABEL: member_value(gateway)})


def names(nodes):
    return [each.name for each in nodes]


def test_the_deterministic_name_is_the_server_and_all_others_are_stale():
    found = membership([node("old"), node("holdfast-dev"), node("older")], gateway="dev", hostname="old")
    assert found.server.name == "holdfast-dev"
    assert names(found.stale) == ["old", "older"]


def test_a_container_from_before_is_found_by_its_hostname():
    found = membership([node("older"), node(HOSTNAME)], gateway="dev", hostname=HOSTNAME)
    assert found.server.name == HOSTNAME
    assert names(found.stale) == ["older"]


@pytest.mark.parametrize("hostname", ["", HOSTNAME])
def test_nothing_is_stale_while_the_own_node_is_unknown(hostname):
    found = membership([node("a"), node("b")], gateway="dev", hostname=hostname)
    assert (found.server, found.stale, found.members) == (None, (), ())


def test_workers_are_told_by_the_label_of_this_gateway_alone():
    nodes = [node("holdfast-dev"), worker("w1"), worker("w2", "other"), node("w3")]
    found = membership(nodes, gateway="dev", hostname="")
    assert names(found.workers) == ["w1"]
    assert names(found.stale) == ["w2", "w3"]
    assert names(found.members) == ["holdfast-dev", "w1"]


def test_the_label_does_not_make_a_worker_of_the_server():
    found = membership([worker("holdfast-dev")], gateway="dev", hostname="")
    assert (found.server.name, found.workers, found.stale) == ("holdfast-dev", (), ())


def test_volumes_are_pinned_to_the_hostname_label():
    assert node("a").hostname == "a"
    assert NodeView(name="a", uid="1", labels={HOSTNAME_LABEL: "b"}).hostname == "b"


@pytest.mark.parametrize("gateway", ["Team_Blue", "___", "..Lab__-East-.", "x" * 200])
def test_every_gateway_has_a_legal_label(gateway):
    assert len(member_value(gateway)) <= 63
    assert member_value(gateway).replace("-", "").isalnum()


_gateways = st.sampled_from(["dev", "Team_Blue", "___"])
_labels = st.one_of(
    st.just({}), _gateways.map(lambda each: {MEMBER_LABEL: member_value(each)}), st.just({MEMBER_LABEL: ""})
)
_names = st.one_of(_gateways.map(node_name), st.sampled_from([HOSTNAME, "n1", "n2", "n3", "n4"]))
_clusters = st.lists(
    st.builds(lambda name, labels: NodeView(name=name, uid=name, labels=labels), _names, _labels),
    unique_by=lambda each: each.name,
)


@given(_clusters, _gateways, st.sampled_from(["", HOSTNAME, "n1"]))
def test_every_node_is_told_apart_once_and_the_own_one_stays(nodes, gateway, hostname):
    found = membership(nodes, gateway=gateway, hostname=hostname)
    listed = {each.name for each in nodes}
    stale = set(names(found.stale))
    assert not stale & set(names(found.members))
    assert node_name(gateway) not in stale
    if found.server is None:
        assert not stale
        assert not listed & {node_name(gateway), hostname}
    else:
        assert stale | set(names(found.members)) == listed
        assert len(stale) < len(listed)
        labelled = {each.name for each in nodes if each.labels.get(MEMBER_LABEL) == member_value(gateway)}
        assert not labelled & stale


# Pods of a removed node -----------------------------------------------------------------------------------


def pod(*, owner=None, controller=True, going=False):
    owners = [{"kind": owner, "controller": controller}] if owner else []
    return {
        "metadata": {
            "name": "p",
            "ownerReferences": owners,
            **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if going else {}),
        }
    }


@pytest.mark.parametrize("owner", [None, "Sandbox", "ReplicaSet", "Job"])
def test_a_pod_that_cannot_end_goes_whoever_made_it(owner):
    assert goes_at_once(pod(owner=owner, going=True))


@pytest.mark.parametrize(
    ("owner", "goes"),
    [
        (None, False), ("ReplicaSet", True), ("StatefulSet", True), ("Sandbox", False), ("Job", False),
        ("DaemonSet", False), ("Node", False),
    ],
)  # fmt: skip
def test_a_pod_goes_at_once_only_if_it_is_made_again_from_a_template(owner, goes):
    assert goes_at_once(pod(owner=owner)) is goes


def test_an_owner_that_is_not_the_controller_does_not_count():
    assert not goes_at_once(pod(owner="ReplicaSet", controller=False))


def test_the_note_says_what_went_and_what_did_not():
    removed = Removed(nodes=("a", "b"), pods=3, failed=("c could not be removed (forbidden)",))
    assert removed.summary() == "removed 2: a, b, with 3 of their pods; c could not be removed (forbidden)"
    assert Removed().summary() == "none was left to remove"
