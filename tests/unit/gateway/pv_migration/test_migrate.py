"""A migration that is interrupted at any point loses nothing and converges to the same result."""

import copy
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st
from tests.support.persistent_volumes import persistent_volume
from tests.support.stubs import stub

from holdfast.containers import CommandResult
from holdfast.gateway.pv_migration import MigrationPlan, migrate, pinned_node_names
from holdfast.gateway.pv_migration.find_stranded import (
    PV_PROTECTION_FINALIZER,
    RESTORE_POLICY_ANNOTATION,
    is_untouched,
    replacement_volume,
)
from holdfast.gateway.pv_migration.migrate import MigrationResult, next_action, pv_bound
from holdfast.gateway.settings import resolve_settings
from holdfast.retry import testing_mode
from holdfast.workflow import MemoryStore, Step, Workflow

TERMINATING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def retained(old=None):
    volume = copy.deepcopy(old or persistent_volume())
    volume["spec"]["persistentVolumeReclaimPolicy"] = "Retain"
    volume["metadata"]["annotations"][RESTORE_POLICY_ANNOTATION] = "Delete"
    return volume


def terminating(old):
    return {**old, "metadata": {**old["metadata"], **TERMINATING}}


def foreign():
    return persistent_volume(metadata__uid="uid-of-another")


def recreated(old):
    volume = replacement_volume(old, "new")
    volume["metadata"]["uid"] = "uid-2"
    return volume


@pytest.mark.parametrize(
    ("intent", "live", "action"),
    [
        (None, persistent_volume(), "retain"),
        (None, retained(), "write-intent"),
        (None, None, "gone"),
        (None, terminating(retained()), "gone"),
        (retained(), persistent_volume(), "retain"),
        (retained(), retained(), "delete"),
        (retained(), terminating(retained()), "remove-finalizer"),
        (retained(), None, "create"),
        (retained(), recreated(retained()), "delete-intent"),
        (retained(), foreign(), "give-up"),
        (retained(), terminating(foreign()), "give-up"),
    ],
)
def test_next_migration_step(intent, live, action):
    assert next_action(intent, live) == action


class SimulatedCluster:
    """One volume and its write-ahead entry, changed as a cluster would change them."""

    def __init__(self, policy, *, protected):
        self.live = persistent_volume(
            spec__persistentVolumeReclaimPolicy=policy,
            metadata__finalizers=[PV_PROTECTION_FINALIZER] if protected else [],
        )
        self.path = self.live["spec"]["hostPath"]
        self.intent = None
        self.created = 0

    def apply(self, action, node):
        if action == "retain":
            policy = self.live["spec"]["persistentVolumeReclaimPolicy"]
            self.live["metadata"]["annotations"][RESTORE_POLICY_ANNOTATION] = policy
            self.live["spec"]["persistentVolumeReclaimPolicy"] = "Retain"
        elif action == "write-intent":
            self.intent = copy.deepcopy(self.live)
        elif action == "delete":
            assert self.intent is not None
            assert self.live["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
            self.live = terminating(self.live) if self.live["metadata"]["finalizers"] else None
        elif action == "remove-finalizer":
            self.live = None
        elif action == "create":
            self.created += 1
            self.live = replacement_volume(self.intent, node)
            self.live["metadata"]["uid"] = f"uid-created-{self.created}"
        elif action == "delete-intent":
            self.intent = None
        self.check()

    def check(self):
        """The volume exists in the cluster or in the write-ahead list, with its path and PVC."""
        copies = [volume for volume in (self.live, self.intent) if volume is not None]
        assert copies
        for volume in copies:
            assert volume["spec"]["hostPath"] == self.path
            assert volume["spec"]["claimRef"]["uid"] == "uid-claim"

    def run(self, node, actions):
        """Run up to a number of actions; True when the migration is complete."""
        intent = self.intent
        if intent is not None and is_untouched(intent, self.live):
            intent = None
        while intent is not None or pinned_node_names(self.live) != {node}:
            if actions == 0:
                return False
            action = next_action(intent, self.live)
            assert action not in ("gone", "give-up")
            self.apply(action, node)
            intent, actions = self.intent, actions - 1
        return True


@given(
    st.sampled_from(["Delete", "Retain"]),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(["new", "newer"]), st.integers(0, 8)), max_size=8),
)
def test_migration_converges_after_crash_at_any_step(policy, protected, interruptions):
    cluster = SimulatedCluster(policy, protected=protected)
    for node, actions in interruptions:
        cluster.run(node, actions)
    assert cluster.run("last", 30)
    assert pinned_node_names(cluster.live) == {"last"}
    assert cluster.live["metadata"]["annotations"][RESTORE_POLICY_ANNOTATION] == policy
    assert cluster.live["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert cluster.intent is None


@pytest.mark.parametrize(
    ("phase", "done", "failed"),
    [
        ("Bound", True, ""), ("Available", False, ""), ("Pending", False, ""), (None, False, ""),
        ("Released", False, "its PVC does not exist"), ("Failed", False, "its PVC does not exist"),
    ],
)  # fmt: skip
def test_volume_bound_condition(phase, done, failed):
    result = pv_bound({"status": {"phase": phase}} if phase else {})
    assert (result.done, result.failed) == (done, failed)


def test_deleted_volume_is_not_awaited():
    assert pv_bound(None).failed


def test_note_lists_migrated_and_skipped_volumes():
    summary = MigrationResult(volumes=("a", "b"), skipped={"c": "its PVC does not exist"}).summary()
    assert summary == "migrated: a, b; c not migrated: its PVC does not exist"
    assert MigrationPlan(skipped={"c": "x"}).describe_skipped() == "c cannot be migrated: x"


def test_started_migrations_are_finished_first():
    plan = MigrationPlan(intents={"b": persistent_volume()}, stranded=("a",), to_restore=("c", "b"))
    assert plan.pending == ("b", "a", "c")


def test_incomplete_answer_of_the_node_is_asked_for_again(monkeypatch, tmp_path):
    """An engine under load can lose the output of a command that ends immediately."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    answers = [CommandResult(exit_code=0, output=""), CommandResult(exit_code=0, output="yes\nno\n")]
    stub(monkeypatch, migrate, "run_in_container", lambda *_: answers.pop(0))
    step = migrate.MigrateVolumes(SimpleNamespace(
        engine=None, object_name="holdfast-dev", settings=resolve_settings().settings
    ))  # fmt: skip
    found = []
    query = Step(
        "query", run=lambda ctx: found.extend(step._existing_paths(ctx, ["/a", "/b"])), repeat="safe"
    )
    with testing_mode():
        Workflow("query", [query]).run(store=MemoryStore())
    assert (found, answers) == (["/a"], [])
