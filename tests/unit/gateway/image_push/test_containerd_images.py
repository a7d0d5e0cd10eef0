"""Listing of the node's images, and which errors of `ctr` are transient."""

import pytest

from holdfast.containers import CommandResult
from holdfast.errors import ContainerEngineError, DiskFullError, ImageIncompatibleError, NodeStoppedError
from holdfast.gateway.image_push.containerd_images import ctr_error, is_push_retryable, parse_image_list

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
MANAGED = "io.cri-containerd.image=managed"


def error_of(output, code=1):
    return ctr_error(CommandResult(exit_code=code, output=output))


def test_only_images_known_to_kubelet_count():
    listing = (
        "REF TYPE DIGEST SIZE PLATFORMS LABELS\n"
        f"docker.io/library/app:1 application/x {A} 1.9 MiB linux/amd64 x=y,{MANAGED} \n"
        f"docker.io/library/new:1 application/x {A} 1.9 MiB linux/amd64 - \n"
        f"{B} application/x {A} 1.9 MiB linux/amd64 {MANAGED} \n"
    )
    assert parse_image_list(listing) == {"docker.io/library/app:1": A, B: A}


@pytest.mark.parametrize(
    "output",
    [
        'ctr: failed to dial "/run/containerd/containerd.sock": context deadline exceeded',
        "ctr: rpc error: code = Unavailable desc = transport is closing",
        "ctr: unexpected EOF",
        "ctr: unrecognized image format",
    ],
)
def test_starting_runtime_and_cut_stream_are_transient(output):
    error = error_of(output)
    assert isinstance(error, ContainerEngineError)
    assert is_push_retryable(error)


def test_killed_import_is_transient():
    assert is_push_retryable(error_of("", code=137))


def test_user_errors_are_permanent():
    full = error_of("ctr: failed to ingest: write /x: no space left on device")
    assert isinstance(full, DiskFullError)
    other = error_of("ctr: no match for platform in manifest: not found")
    assert isinstance(other, ImageIncompatibleError)
    refused = error_of("ctr: something else entirely")
    stopped = NodeStoppedError("it does not run")
    assert not any(is_push_retryable(error) for error in (full, other, refused, stopped))
