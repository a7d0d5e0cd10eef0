"""A push ends as soon as its outcome is known: by the node's image list, an error of `ctr`, or a stop."""

import threading
from types import SimpleNamespace

import pytest
from tests.support.stubs import stub

from holdfast.containers import CommandResult
from holdfast.errors import ContainerEngineError, OperationCancelledError, WaitTimeoutError
from holdfast.gateway.context import GatewayContext
from holdfast.gateway.image_push import containerd_images, push
from holdfast.gateway.settings import resolve_settings
from holdfast.retry import testing_mode

IMAGE = push.PushedImage(reference="app:1", name="docker.io/library/app:1", id="sha256:" + "a" * 64, size=1)
LISTED = CommandResult(
    exit_code=0,
    output="".join(
        f"{name} application/x {IMAGE.id} 1 MiB linux/amd64 io.cri-containerd.image=managed\n"
        for name in (IMAGE.name, IMAGE.id)
    ),
)
NOT_LISTED = CommandResult(exit_code=0, output="REF TYPE DIGEST SIZE PLATFORMS LABELS\n")
NOT_READY = CommandResult(exit_code=1, output="ctr: failed to dial /run/containerd/containerd.sock")
BROKEN = CommandResult(exit_code=1, output="ctr: metadata.db: checksum error")


@pytest.fixture
def gateway(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    gateway = GatewayContext("dev", resolve_settings({}, environ={}, cwd=tmp_path))
    gateway.engine = None
    monkeypatch.setattr(gateway, "container", lambda: SimpleNamespace(state="running"))
    return gateway


def answer(monkeypatch, *results):
    """Let `ctr` give these results, the last one repeatedly; return the commands."""
    commands = []

    def run(_engine, _name, argv):
        commands.append(argv)
        return results[min(len(commands), len(results)) - 1]

    stub(monkeypatch, containerd_images, "run_in_container", run)
    return commands


def test_verification_waits_until_the_node_lists_the_image(gateway, monkeypatch):
    commands = answer(monkeypatch, NOT_LISTED, NOT_READY, LISTED)
    with testing_mode():
        push._verify_images(gateway, [IMAGE], None)
    assert len(commands) == 3


def test_image_that_is_never_listed_is_a_timeout(gateway, monkeypatch):
    answer(monkeypatch, NOT_LISTED)
    with testing_mode(), pytest.raises(WaitTimeoutError, match="app:1: sent, but the node does not list"):
        push._verify_images(gateway, [IMAGE], None)


def test_permanent_error_ends_verification(gateway, monkeypatch):
    commands = answer(monkeypatch, BROKEN)
    with pytest.raises(ContainerEngineError, match="checksum error"):
        push._verify_images(gateway, [IMAGE], None)
    assert len(commands) == 1


def test_stop_ends_verification(gateway, monkeypatch):
    answer(monkeypatch, NOT_LISTED)
    stop = threading.Event()
    with testing_mode() as clock:
        clock.sleep = lambda _seconds: stop.set()
        with pytest.raises(OperationCancelledError):
            push._verify_images(gateway, [IMAGE], stop)


def test_failed_list_is_not_an_empty_list(gateway, monkeypatch):
    answer(monkeypatch, NOT_READY)
    with pytest.raises(ContainerEngineError) as caught:
        containerd_images.tag_config_digest(gateway, IMAGE.name, IMAGE.id)
    assert containerd_images.is_push_retryable(caught.value)


def test_unreadable_manifest_is_an_error(gateway, monkeypatch):
    other = LISTED.output.replace(
        f"{IMAGE.name} application/x {IMAGE.id}", f"{IMAGE.name} x sha256:{'b' * 64}"
    )
    answer(monkeypatch, CommandResult(exit_code=0, output=other), NOT_READY)
    with pytest.raises(ContainerEngineError, match="containerd is not ready yet"):
        containerd_images.config_digests(gateway, {IMAGE.name: IMAGE.id})
