"""The commands in hints about a gateway work as printed, in the situation that prints them."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from tests.support.hints import execute_hint
from tests.support.holdfast_cli import HoldfastCli

from holdfast.client import GatewayEndpoint, Sandboxes
from holdfast.errors import GatewayUnreachableError, NodeStoppedError, WaitTimeoutError
from holdfast.gateway import GatewayContext, resolve_settings
from holdfast.gateway.cluster import WaitHealthy
from holdfast.gateway.node import disk_pressure_error
from holdfast.pki import issue_bundle
from holdfast.retry import Policy, constant
from holdfast.testing.apiserver.processes import free_ports
from holdfast.workflow import MemoryStore, Step, Workflow, done

pytestmark = pytest.mark.engine


@pytest.fixture
def gateway(bare_gateway):
    """A gateway that is up before and after the test."""
    yield bare_gateway
    bare_gateway.up()


@pytest.fixture
def home(gateway, monkeypatch):
    """The folder of the gateway's files, also for code in this process."""
    monkeypatch.setenv("HOLDFAST_HOME", str(gateway.holdfast.home))
    return gateway.holdfast.home / "config" / "gateways" / gateway.name


def failed(holdfast, *words):
    ended = holdfast.run(*words)
    assert ended.returncode, ended.stdout
    return ended.stderr


def wait_healthy(name):
    """Run the step alone; the steps before it count as done."""
    step = WaitHealthy(GatewayContext(name, resolve_settings({"workloads": False, "timeouts.health": 1})))
    before = [Step(need, run=lambda ctx: None, probe=lambda ctx: done()) for need in step.needs]
    Workflow("healthy", [*before, step]).run(store=MemoryStore())


def test_unknown_gateway(gateway):
    printed = failed(gateway.holdfast, "stop", "ghost")
    assert gateway.name in execute_hint(gateway.holdfast, printed, "Run `holdfast list` to see all gateways.")


def test_missing_kubeconfig(gateway, home):
    (home / "kubeconfig").unlink()
    printed = failed(gateway.holdfast, "kubeconfig", gateway.name)
    execute_hint(gateway.holdfast, printed, "Run `holdfast up {}`.")
    gateway.kubectl("get", "nodes")


def test_damaged_kubeconfig(gateway, home, tmp_path):
    holdfast = HoldfastCli(
        gateway.holdfast.home, HOLDFAST_WORKLOADS="false", KUBECONFIG=str(tmp_path / "config")
    )
    (home / "kubeconfig").write_text("damaged")
    printed = failed(holdfast, "kubeconfig", gateway.name, "--merge")
    execute_hint(holdfast, printed, "Run `holdfast up {}` to write it again.")
    holdfast("kubeconfig", gateway.name, "--merge")


def test_damaged_metadata_is_removed(gateway, home):
    (home / "metadata.json").write_text("{")
    printed = failed(gateway.holdfast, "status", gateway.name)
    (home / "metadata.json").unlink()
    execute_hint(gateway.holdfast, printed, "Remove it, then run `holdfast up {}` to write it again.")
    gateway.holdfast("status", gateway.name)


def test_damaged_metadata_is_repaired_by_doctor(gateway, home):
    (home / "metadata.json").write_text("{")
    execute_hint(
        gateway.holdfast,
        gateway.holdfast("list"),
        "{}: its metadata is damaged. Run `holdfast doctor {} --fix`.",
    )
    gateway.holdfast("status", gateway.name)


def test_push_into_stopped_gateway(gateway, small_images):
    image = small_images.build([{"file": b"content"}])
    gateway.holdfast("stop", gateway.name)
    printed = failed(gateway.holdfast, "image", "push", image, "--gateway", gateway.name)
    execute_hint(gateway.holdfast, printed, "Run `holdfast start {}`.")
    gateway.holdfast("image", "push", image, "--gateway", gateway.name)


def test_sandbox_command_without_api(gateway):
    words = ("sandbox", "create", "a", "--gateway", gateway.name, "--no-bootstrap")
    printed = failed(gateway.holdfast, *words)
    execute_hint(gateway.holdfast, printed, "Run `holdfast up {}`, or omit --no-bootstrap.")


def test_api_that_does_not_answer(gateway):
    bundle = issue_bundle(["localhost"], at=dt.datetime.now(dt.UTC))
    endpoint = GatewayEndpoint(
        gateway=gateway.name,
        url=f"https://127.0.0.1:{free_ports(1)[0]}",
        ca=bundle.ca,
        certificate=bundle.client.certificate,
        key=bundle.client.key,
    )
    with pytest.raises(GatewayUnreachableError) as caught, Sandboxes(lambda: endpoint) as sandboxes:
        list(sandboxes)
    execute_hint(
        gateway.holdfast,
        caught.value.hint,
        "Run `holdfast status {}` to check the gateway, or `holdfast up {}` to repair it.",
    )


def test_node_that_is_not_ready_in_time(gateway):
    gateway.holdfast("stop", gateway.name)
    printed = failed(gateway.holdfast, "up", gateway.name, "--timeout", "1")
    assert execute_hint(gateway.holdfast, printed, "See `holdfast logs {}`")


def test_cluster_that_is_not_healthy_in_time(gateway, home):
    kubeconfig = (home / "kubeconfig").read_text()
    port = json.loads((home / "metadata.json").read_text())["port"]
    (home / "kubeconfig").write_text(kubeconfig.replace(f":{port}", f":{free_ports(1)[0]}"))
    with pytest.raises(WaitTimeoutError) as caught:
        wait_healthy(gateway.name)
    execute_hint(
        gateway.holdfast,
        caught.value.hint,
        "Run the same command again to continue waiting. See `holdfast logs {}` and `holdfast status {}`.",
    )


def test_container_that_stopped_before_it_was_healthy(gateway, home):
    gateway.holdfast("stop", gateway.name)
    with pytest.raises(NodeStoppedError) as caught:
        wait_healthy(gateway.name)
    execute_hint(
        gateway.holdfast, caught.value.hint, "See `holdfast logs {}`, then run the same command again."
    )


def test_disk_pressure(gateway, home):
    pressure = {"type": "DiskPressure", "status": "True", "message": "set by a test"}
    patch = json.dumps({"status": {"conditions": [pressure]}})

    def observed():
        # The kubelet overwrites the condition with its own within seconds.
        gateway.kubectl("patch", "node", gateway.container, "--subresource=status", "--patch", patch)
        error = disk_pressure_error(GatewayContext(gateway.name))
        assert error is not None
        return error

    eventually = Policy(attempts=10, backoff=constant(0.1), retry_on=AssertionError)
    execute_hint(
        gateway.holdfast,
        eventually.call(observed).hint,
        "Free space where the container engine stores its volumes. Kubernetes clears the condition after "
        "five minutes, or immediately after `holdfast restart {}`. Then run the same command again.",
    )
    assert disk_pressure_error(GatewayContext(gateway.name)) is None


def test_destroyed_gateway_with_its_data(gateway):
    printed = gateway.holdfast("destroy", gateway.name, "--yes", gateway.name)
    refused = failed(gateway.holdfast, "upgrade", gateway.name)
    execute_hint(gateway.holdfast, printed, " Its data is kept. Run `holdfast up {}{}` to use it again.")
    gateway.holdfast("destroy", gateway.name, "--yes", gateway.name)
    execute_hint(gateway.holdfast, refused, "Run `holdfast up {}` first.")
