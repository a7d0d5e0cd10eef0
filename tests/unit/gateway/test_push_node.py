"""What the node's runtime says: which images it has, and which failures may pass."""

import pytest

from holdfast.containers.commands import Outcome
from holdfast.errors import DiskFullError, EngineCallError, ImageUnfitError, NodeStoppedError
from holdfast.gateway.push_node import failure, may_pass, targets_of

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
MANAGED = "io.cri-containerd.image=managed"


def ended(output, code=1):
    return failure(Outcome(exit_code=code, output=output))


def test_only_what_the_kubelet_knows_counts():
    listing = (
        "REF TYPE DIGEST SIZE PLATFORMS LABELS\n"
        f"docker.io/library/app:1 application/x {A} 1.9 MiB linux/amd64 x=y,{MANAGED} \n"
        f"docker.io/library/new:1 application/x {A} 1.9 MiB linux/amd64 - \n"
        f"{B} application/x {A} 1.9 MiB linux/amd64 {MANAGED} \n"
    )
    assert targets_of(listing) == {"docker.io/library/app:1": A, B: A}


@pytest.mark.parametrize(
    "words",
    [
        'ctr: failed to dial "/run/containerd/containerd.sock": context deadline exceeded',
        "ctr: rpc error: code = Unavailable desc = transport is closing",
        "ctr: unexpected EOF",
        "ctr: unrecognized image format",
    ],
)
def test_a_runtime_that_is_not_up_yet_and_a_cut_stream_may_pass(words):
    error = ended(words)
    assert isinstance(error, EngineCallError)
    assert may_pass(error)


def test_a_killed_import_may_pass():
    assert may_pass(ended("", code=137))


def test_what_a_person_has_to_change_does_not_pass():
    full = ended("ctr: failed to ingest: write /x: no space left on device")
    assert isinstance(full, DiskFullError)
    other = ended("ctr: no match for platform in manifest: not found")
    assert isinstance(other, ImageUnfitError)
    refused = ended("ctr: something else entirely")
    stopped = NodeStoppedError("it does not run")
    assert not any(may_pass(error) for error in (full, other, refused, stopped))
