"""Sandboxes whose pods can never start: a wait ends within seconds with the kubelet's reason."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.holdfast_cli import HoldfastCli
from tests.support.source_gateway import source_sandboxes

from holdfast.api import API_VERSION
from holdfast.errors import WaitFailedError
from holdfast.kube import Objects, api_client
from holdfast.sandbox import from_request

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

IMAGE = from_request.DEFAULT_IMAGE
NAMESPACE = "boxes"
CASES = {
    # The API accepts more than the minimum of the command line, whose requests never get there.
    "memory": (
        {"resources": {"limits": {"memory": "600Ki"}}},
        "FailedCreatePodSandBox",
        "memory limit too low",
    ),
    "secret": (
        {"volumeMounts": [{"name": "s", "mountPath": "/s"}]},
        "FailedMount",
        'secret "none" not found',
    ),
    "config": (
        {"envFrom": [{"configMapRef": {"name": "none"}}]},
        "CreateContainerConfigError",
        'configmap "none" not found',
    ),
    "name": ({"image": "holdfast/Sandbox:1"}, "InvalidImageName", "must be lowercase"),
    "never": ({"image": "example/none:1"}, "ErrImageNeverPull", "is not present with pull policy of Never"),
}
"""By sandbox: fields of its container, and the reason and a part of the message of the failure."""


@pytest.fixture(scope="module")
def holdfast(tmp_path_factory):
    return HoldfastCli(tmp_path_factory.mktemp("node"), HOLDFAST_WORKLOADS="false")


@pytest.fixture(scope="module")
def gateway(new_gateway, tmp_path_factory):
    node = new_gateway("unstartable")
    node.up("--push-image", IMAGE)
    with source_sandboxes(node, NAMESPACE, tmp_path_factory.mktemp("sandbox")) as gateway:
        yield gateway


def sandbox_manifest(name):
    container = {"name": "sandbox", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "600"]}
    pod = {"containers": [container | CASES[name][0]]}
    if name == "secret":
        pod["volumes"] = [{"name": "s", "secret": {"secretName": "none"}}]
    return {
        "apiVersion": API_VERSION,
        "kind": "Sandbox",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"podTemplate": {"spec": pod}},
    }


@pytest.fixture(scope="module")
def unstartable(gateway):
    """Create all of them; the kubelet tries to start them at the same time."""
    with api_client(gateway.kubeconfig) as api:
        for name in CASES:
            Objects(api).create(sandbox_manifest(name))
    return gateway


def test_wait_commands_fail_with_the_reason_of_the_kubelet(unstartable):
    def wait(name):
        return unstartable.holdfast.run("sandbox", "wait", name, "--timeout", "170")

    with ThreadPoolExecutor(len(CASES)) as threads:
        ended = dict(zip(CASES, threads.map(wait, CASES), strict=True))
    for name, (_, reason, message) in CASES.items():
        assert ended[name].returncode == 3, f"{name}: {ended[name].stderr}"
        assert reason in ended[name].stderr, ended[name].stderr
        assert message in ended[name].stderr, ended[name].stderr
        assert "not Ready within" not in ended[name].stderr


@pytest.mark.parametrize("name", CASES)
def test_sdk_fails_with_the_reason_of_the_kubelet(unstartable, name):
    with unstartable.gateway.sandbox(name) as sandbox, pytest.raises(WaitFailedError) as raised:
        sandbox.wait(timeout=170)
    assert CASES[name][1] in raised.value.message
    assert CASES[name][2] in raised.value.message


def test_sandbox_starts_when_the_missing_object_exists(unstartable):
    with api_client(unstartable.kubeconfig) as api:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "none", "namespace": NAMESPACE}}
        Objects(api).create({**secret, "stringData": {"key": "value"}})
    # The kubelet repeats after up to two minutes; the events of its earlier attempts do not end this wait.
    with unstartable.gateway.sandbox("secret") as sandbox:
        sandbox.suspend()
        sandbox.wait("Suspended")
        sandbox.resume()
        assert sandbox.wait().phase == "Ready"
