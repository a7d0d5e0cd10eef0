"""The moves of a re-pinning: whatever stops them, and wherever, nothing is lost, and the end is the same."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.volumes import volume

from holdfast.gateway.nodes.intents import Intent
from holdfast.gateway.nodes.pinning import PROTECTION, RESTORE_POLICY, pinned_to, repinned
from holdfast.gateway.nodes.repin import Repinned, next_move, volume_bound
from holdfast.gateway.nodes.survey import Survey, is_as_before

GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def kept(old=None):
    made = copy.deepcopy(old or volume())
    made["spec"]["persistentVolumeReclaimPolicy"] = "Retain"
    made["metadata"]["annotations"][RESTORE_POLICY] = "Delete"
    return made


def going(old):
    return {**old, "metadata": {**old["metadata"], **GOING}}


def foreign():
    return volume(metadata__uid="uid-of-another")


def made_anew(old):
    made = repinned(old, "new")
    made["metadata"]["uid"] = "uid-2"
    return made


@pytest.mark.parametrize(
    ("written", "live", "move"),
    [
        (None, volume(), "keep"),
        (None, kept(), "write"),
        (None, None, "none"),
        (None, going(kept()), "none"),
        (kept(), volume(), "keep"),
        (kept(), kept(), "delete"),
        (kept(), going(kept()), "release"),
        (kept(), None, "make"),
        (kept(), made_anew(kept()), "strike"),
        (kept(), foreign(), "give-up"),
        (kept(), going(foreign()), "give-up"),
    ],
)
def test_what_comes_next(written, live, move):
    assert next_move(written, live) == move


class World:
    """One volume and what is written down about it, moved as a cluster would move it."""

    def __init__(self, policy, *, protected):
        self.live = volume(
            spec__persistentVolumeReclaimPolicy=policy, metadata__finalizers=[PROTECTION] if protected else []
        )
        self.path = self.live["spec"]["hostPath"]
        self.written = None
        self.made = 0

    def move(self, move, node):
        if move == "keep":
            policy = self.live["spec"]["persistentVolumeReclaimPolicy"]
            self.live["metadata"]["annotations"][RESTORE_POLICY] = policy
            self.live["spec"]["persistentVolumeReclaimPolicy"] = "Retain"
        elif move == "write":
            self.written = copy.deepcopy(self.live)
        elif move == "delete":
            assert self.written is not None
            assert self.live["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
            self.live = going(self.live) if self.live["metadata"]["finalizers"] else None
        elif move == "release":
            self.live = None
        elif move == "make":
            self.made += 1
            self.live = repinned(self.written, node)
            self.live["metadata"]["uid"] = f"uid-made-{self.made}"
        elif move == "strike":
            self.written = None
        self.check()

    def check(self):
        """The volume is somewhere, with its path, its claim and the policy that its owner wants."""
        kept_somewhere = [each for each in (self.live, self.written) if each is not None]
        assert kept_somewhere
        for each in kept_somewhere:
            assert each["spec"]["hostPath"] == self.path
            assert each["spec"]["claimRef"]["uid"] == "uid-claim"

    def run(self, node, moves):
        """What a run does, up to a number of moves; True when it is through."""
        written = self.written
        if written is not None and is_as_before(Intent(written), self.live):
            written = None
        while written is not None or pinned_to(self.live) != {node}:
            if moves == 0:
                return False
            move = next_move(written, self.live)
            assert move not in ("none", "give-up")
            self.move(move, node)
            written, moves = self.written, moves - 1
        return True


@given(
    st.sampled_from(["Delete", "Retain"]),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(["new", "newer"]), st.integers(0, 8)), max_size=8),
)
def test_stopped_anywhere_it_reaches_the_same_end(policy, protected, stops):
    world = World(policy, protected=protected)
    for node, moves in stops:
        world.run(node, moves)
    assert world.run("last", 30)
    assert pinned_to(world.live) == {"last"}
    assert world.live["metadata"]["annotations"][RESTORE_POLICY] == policy
    assert world.live["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert world.written is None


@pytest.mark.parametrize(
    ("phase", "done", "failed"),
    [
        ("Bound", True, ""), ("Available", False, ""), ("Pending", False, ""), (None, False, ""),
        ("Released", False, "its claim is gone"), ("Failed", False, "its claim is gone"),
    ],
)  # fmt: skip
def test_when_a_volume_counts_as_bound(phase, done, failed):
    seen = volume_bound({"status": {"phase": phase}} if phase else {})
    assert (seen.done, seen.failed) == (done, failed)


def test_a_volume_that_was_removed_is_not_waited_for():
    assert volume_bound(None).failed


def test_the_note_names_what_was_pinned_and_what_was_left():
    said = Repinned(volumes=("a", "b"), left={"c": "its claim is gone"}).summary()
    assert said == "pinned anew: a, b; c left as it is: its claim is gone"
    assert Survey(left={"c": "x"}).left_words() == "c cannot be pinned anew: x"


def test_what_was_begun_is_finished_before_anything_else():
    found = Survey(intents={"b": Intent(volume())}, stranded=("a",), to_restore=("c", "b"))
    assert found.work == ("b", "a", "c")
