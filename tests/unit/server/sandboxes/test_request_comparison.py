"""Repeated create requests: which are the same, and how others differ."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.api import SandboxRequest, Workspace
from holdfast.sandbox import from_request
from holdfast.server.sandboxes.request_comparison import (
    describe_differences,
    differing_fields,
    request_digests,
)


def request(**parts):
    return SandboxRequest(name="a", **parts)


def unlike(one, other):
    return differing_fields(request_digests(one), request_digests(other))


def test_equivalent_requests_are_equal():
    early = datetime(2030, 1, 1, 10, tzinfo=UTC)
    assert not unlike(request(), request(workspace=True))
    assert not unlike(request(env={"A": "1", "B": "2"}), request(env={"B": "2", "A": "1"}))
    moved = early.astimezone(timezone(timedelta(hours=2)))
    assert not unlike(request(shutdown_time=early), request(shutdown_time=moved))


def test_differences_are_named_including_defaults():
    assert unlike(request(image="a:1"), request(image="a:2")) == ["image"]
    assert unlike(request(env={"A": "1"}), request()) == ["env"]
    assert unlike(request(), request(command=["a"], workspace=False)) == ["command", "workspace"]
    # The default of the gateway may have another size.
    assert unlike(request(), request(workspace=Workspace())) == ["workspace"]


def test_digests_reveal_nothing_and_invalid_digest_never_matches():
    assert "s3cr3t" not in request_digests(request(env={"TOKEN": "s3cr3t"}))
    assert differing_fields("no json", request_digests(request(image="x"))) is None
    assert differing_fields('{"a": 1}', request_digests(request(image="x"))) is None


def manifest_of(sent):
    build = from_request.sandbox_manifest
    if sent.template is not None:
        return from_request.sandbox_claim_manifest(sent, namespace="ns", pool="p")
    return build(sent, namespace="ns", endpoint=None)


def differences(one, other):
    """How a sandbox of one request differs from another request."""
    return describe_differences(unlike(one, other), manifest_of(one), manifest_of(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (request(), request(image=from_request.DEFAULT_IMAGE)),
        (request(image=from_request.DEFAULT_IMAGE), request()),
        (request(), request(cpu="2", memory="2Gi")),
    ],
)
def test_default_that_is_named_is_the_same_request(one, other):
    assert unlike(one, other)
    assert differences(one, other) == ""


@pytest.mark.parametrize(
    ("one", "other", "described"),
    [
        (request(image="a:1"), request(image="a:2"), "differs in image: image is a:1, requested is a:2"),
        (
            request(cpu="500m"),
            request(memory="1Gi"),
            "differs in cpu, memory: cpu is 500m, requested is 2; memory is 2Gi, requested is 1Gi",
        ),
        (
            request(image=from_request.DEFAULT_IMAGE, cpu="1"),
            request(),
            "differs in cpu: cpu is 1, requested is 2",
        ),
        (
            request(command=["echo", "a b", "$(X)"]),
            request(),
            "differs in command: command is echo 'a b' '$(X)', requested is not set",
        ),
        (
            request(workspace=Workspace(size="5Gi")),
            request(workspace=False),
            "differs in workspace: workspace is 5Gi, requested is not set",
        ),
        (request(), request(workspace=Workspace(seed=False)), "differs in workspace"),
        (
            request(idle_suspend_after=60),
            request(),
            "differs in idle_suspend_after: idle_suspend_after is 60, requested is not set",
        ),
        (
            request(failed_pods="Keep"),
            request(),
            "differs in failed_pods: failed_pods is Keep, requested is Recreate",
        ),
        (request(labels={"team": "blue"}), request(), "differs in labels: labels differ in team"),
        (request(template="t"), request(template="t", env={"A": "1"}), "differs in env: env differs in A"),
    ],
)
def test_both_values_of_a_difference_are_described(one, other, described):
    assert differences(one, other) == described


def test_values_of_environment_variables_are_not_described():
    one, other = request(env={"A": "s3cr3t", "B": "1", "C": "1"}), request(env={"B": "t0k3n", "C": "1"})
    assert differences(one, other) == "differs in env: env differs in A, B"
