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


def replace_all(watched, objects):
    """Take over a complete list, as the stream does after its watch has ended."""
    for obj in objects:
        watched.update(obj)
    watched.retain({obj["metadata"]["uid"] for obj in objects})


def test_existing_sandboxes_are_sent_once():
    watched = WatchedList()
    replace_all(watched, [named("a"), named("b"), sandbox_claim("c")])
    assert taken(watched) == [("sandbox", "a"), ("sandbox", "b"), ("sandbox", "c")]
    assert taken(watched) == []


def test_only_changed_states_are_sent_and_slow_clients_get_the_latest():
    watched = WatchedList()
    replace_all(watched, [named("a"), named("b")])
    taken(watched)
    watched.update(named("a"))
    assert watched.has_changes.is_set()
    assert taken(watched) == []
    watched.update(named("b", suspended=True))
    watched.remove(named("b")["metadata"]["uid"])
    watched.update(named("b", uid="again"))
    watched.remove(named("a")["metadata"]["uid"])
    assert taken(watched) == [("sandbox", "b"), ("deleted", "a")]


def test_objects_missing_from_a_new_list_were_deleted():
    watched = WatchedList()
    replace_all(watched, [named("a"), named("b"), sandbox_claim("c")])
    taken(watched)
    replace_all(watched, [named("b")])
    assert sorted(taken(watched)) == [("deleted", "a"), ("deleted", "c")]


def test_sandbox_of_a_claim_replaces_the_claim_in_any_order_of_events():
    pooled = named("pool-1", claim="c")
    for events in (
        [sandbox_claim("c", bound_to="pool-1"), pooled], [pooled, sandbox_claim("c", bound_to="pool-1")],
    ):  # fmt: skip
        watched = WatchedList()
        replace_all(watched, [sandbox_claim("c")])
        received = taken(watched)
        for event in events:
            watched.update(event)
            received += taken(watched)
        assert received == [("sandbox", "c"), ("sandbox", "c")]
        watched.remove(pooled["metadata"]["uid"])
        watched.remove(sandbox_claim("c")["metadata"]["uid"])
        assert taken(watched) == [("deleted", "c")]


def test_sandbox_that_a_claim_adopts_changes_its_name():
    watched = WatchedList()
    replace_all(watched, [named("pool-1")])
    taken(watched)
    watched.update(named("pool-1", claim="c"))
    assert taken(watched) == [("deleted", "pool-1"), ("sandbox", "c")]


def test_bound_claim_without_its_sandbox_is_shown_as_the_claim():
    watched, pooled = WatchedList(), named("pool-1", claim="c")
    replace_all(watched, [pooled, sandbox_claim("c", bound_to="pool-1")])
    taken(watched)
    watched.remove("uid-pool-1")
    assert taken(watched) == [("sandbox", "c")]
    watched.update(named("pool-2", claim="c"))
    assert taken(watched) == [("sandbox", "c")]


def test_names_that_were_never_sent_are_forgotten():
    watched = WatchedList()
    for number in range(3):
        watched.update(named(f"short-{number}"))
        watched.remove(f"uid-short-{number}")
    assert taken(watched) == []
    assert not watched._uids_by_name
    assert not watched._lost_sandboxes
