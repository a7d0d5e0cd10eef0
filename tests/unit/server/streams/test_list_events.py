"""A watched list reports each sandbox by the name that the list shows, and the latest state only."""

from __future__ import annotations

import json

from tests.support.sandbox_objects import sandbox

from holdfast.api import EXTENSIONS_API_VERSION
from holdfast.server.streams.list_events import WatchedList


def named(name, *, uid=None, claim=None, suspended=False):
    obj = sandbox()
    obj["metadata"] = {**obj["metadata"], "name": name, "uid": uid or f"uid-{name}"}
    obj["spec"] = {**obj["spec"], "operatingMode": "Suspended" if suspended else "Running"}
    if claim:
        owner = {"kind": "SandboxClaim", "apiVersion": EXTENSIONS_API_VERSION, "name": claim, "uid": "c"}
        obj["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return obj


def sandbox_claim(name, *, bound_to=None):
    status = {"sandbox": {"name": bound_to}} if bound_to else {}
    return {
        "apiVersion": EXTENSIONS_API_VERSION, "kind": "SandboxClaim", "spec": {}, "status": status,
        "metadata": {"name": name, "uid": f"claim-{name}", "namespace": "ns"},
    }  # fmt: skip


def taken(watched):
    """Event and name of each change."""
    found = []
    for event in watched.take_changes():
        kind, _, data = event.decode().strip().partition("\n")
        found.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))["name"]))
    return found


def test_existing_sandboxes_are_sent_in_the_order_of_their_names():
    watched = WatchedList()
    watched.replace_all([named("b"), sandbox_claim("c"), named("a")])
    assert taken(watched) == [("sandbox", "a"), ("sandbox", "b"), ("sandbox", "c")]
    assert taken(watched) == []


def test_only_changed_states_are_sent_and_slow_clients_get_the_latest():
    watched = WatchedList()
    watched.replace_all([named("a"), named("b")])
    taken(watched)
    watched.update(named("a"))
    assert watched.has_changes.is_set()
    assert taken(watched) == []
    watched.update(named("b", suspended=True))
    watched.remove(named("b"))
    watched.update(named("b", uid="again"))
    watched.remove(named("a"))
    assert taken(watched) == [("sandbox", "b"), ("deleted", "a")]


def test_objects_missing_from_a_new_list_were_deleted():
    watched = WatchedList()
    watched.replace_all([named("a"), named("b"), sandbox_claim("c")])
    taken(watched)
    watched.replace_all([named("b")])
    assert sorted(taken(watched)) == [("deleted", "a"), ("deleted", "c")]


def test_sandbox_of_a_claim_replaces_the_claim_in_any_order_of_events():
    pooled = named("pool-1", claim="c")
    for events in (
        [sandbox_claim("c", bound_to="pool-1"), pooled], [pooled, sandbox_claim("c", bound_to="pool-1")],
    ):  # fmt: skip
        watched = WatchedList()
        watched.replace_all([sandbox_claim("c")])
        received = taken(watched)
        for event in events:
            watched.update(event)
            received += taken(watched)
        assert received == [("sandbox", "c"), ("sandbox", "c")]
        watched.remove(pooled)
        watched.remove(sandbox_claim("c"))
        assert taken(watched) == [("deleted", "c")]


def test_sandbox_that_a_claim_adopts_changes_its_name():
    watched = WatchedList()
    watched.replace_all([named("pool-1")])
    taken(watched)
    watched.update(named("pool-1", claim="c"))
    assert taken(watched) == [("deleted", "pool-1"), ("sandbox", "c")]
