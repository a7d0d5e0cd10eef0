"""Templates and warm pools on a real gateway whose node has no sandbox image at the start."""

from __future__ import annotations

import pytest
from tests.support.holdfast_cli import HoldfastCli

from holdfast import Gateway
from holdfast.sandbox import from_request

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def holdfast(tmp_path_factory):
    return HoldfastCli(tmp_path_factory.mktemp("user"))


@pytest.fixture(scope="module")
def gateway(new_gateway):
    """A gateway with holdfast's workloads."""
    made = new_gateway("pools")
    made.up("--use")
    return made


def run(gateway, *words):
    return gateway.holdfast(*words[:2], "-g", gateway.name, *words[2:])


def sandbox_images(gateway):
    pod_images = gateway.get("nodes")["items"][0]["status"]["images"]
    return [name for image in pod_images for name in image["names"] if from_request.DEFAULT_IMAGE in name]


def test_empty_pool_on_a_fresh_gateway_starts_a_sandbox_on_demand(gateway):
    assert sandbox_images(gateway) == []
    run(gateway, "template", "create", "cold", "--no-workspace")
    run(gateway, "pool", "create", "cold", "--template", "cold", "--size", "0")
    run(gateway, "sandbox", "create", "first", "--template", "cold")
    assert run(gateway, "sandbox", "exec", "first", "echo", "hello") == "hello\n"


def test_sandbox_of_a_warm_pool_keeps_its_workspace_after_the_pool_is_deleted(gateway):
    run(gateway, "template", "create", "py", "--memory", "512Mi", "-e", "A=1")
    run(gateway, "pool", "create", "py-pool", "--template", "py", "--size", "1")
    run(gateway, "sandbox", "create", "work", "--template", "py", "-l", "team=blue")
    assert gateway.get("sandboxclaim", "work")["status"]["sandbox"]["name"].startswith("py-pool-")
    run(gateway, "sandbox", "exec", "work", "--", "sh", "-c", 'echo "$A" > kept')
    assert "Sandboxes that came from it stay: work." in run(gateway, "pool", "delete", "py-pool", "--yes")
    run(gateway, "template", "delete", "py", "--yes")
    run(gateway, "sandbox", "suspend", "work")
    run(gateway, "sandbox", "resume", "work")
    assert run(gateway, "sandbox", "exec", "work", "cat", "kept") == "1\n"


def test_pool_of_a_missing_image_reports_it_at_once(gateway):
    run(gateway, "template", "create", "bad", "--image", "holdfast.invalid/none:1", "--no-workspace")
    words = ("pool", "create", "bad", "--template", "bad", "-g", gateway.name)
    ended = gateway.holdfast.run(*words)
    assert ended.returncode == 3, ended.stderr
    assert "none:1" in ended.stderr
    run(gateway, "pool", "delete", "bad", "--yes")


def test_own_image_is_pushed_before_the_sandboxes_of_the_first_pool_start(new_gateway, monkeypatch):
    gateway = new_gateway("first-pool")
    gateway.up("--use")
    assert sandbox_images(gateway) == []
    monkeypatch.setenv("HOLDFAST_HOME", str(gateway.holdfast.home))
    with Gateway(gateway.name).templates() as templates, Gateway(gateway.name).pools() as pools:
        templates.create("py", workspace=False)
        pools.create("py", template="py", size=2)
        reasons = set()
        view = pools.wait("py", timeout=120, on_change=lambda view: reasons.add(view.reason))
    assert view.ready == 2
    assert not reasons & {"ErrImagePull", "ImagePullBackOff"}
