"""Repeated create requests: which are the same, and how others differ."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from tests.support.sandbox_objects import sandbox

from holdfast.api import NetworkPolicy, SandboxRequest, SandboxSecret, TemplateRequest, Workspace
from holdfast.errors import ObjectConflictError
from holdfast.sandbox import from_request, template_manifest
from holdfast.server.errors import ApiError
from holdfast.server.pools.presenters import present_template
from holdfast.server.sandboxes.request_comparison import (
    REQUEST_DIGESTS_ANNOTATION,
    create_once,
    describe_differences,
    differing_fields,
    network_rules,
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
    policies = (from_request.network_policy_manifest(each, namespace="ns") for each in (one, other))
    return describe_differences(
        unlike(one, other), manifest_of(one), manifest_of(other),
        policies=tuple(network_rules(policy) for policy in policies),
    )  # fmt: skip


def template_differences(one, other):
    before, after = (template_manifest(each, namespace="ns", endpoint=None) for each in (one, other))
    policies = (network_rules(before), network_rules(after))
    return describe_differences(unlike(one, other), before, after, present_template, policies=policies)


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
        (
            request(),
            request(workspace=Workspace(seed=False)),
            "differs in workspace: workspace.seed is true, requested is false",
        ),
        (
            request(workspace=Workspace(size="5Gi", storage_class="fast")),
            request(workspace=Workspace(size="5Gi", storage_class="slow")),
            "differs in workspace: workspace.storage_class is fast, requested is slow",
        ),
        (
            request(workspace=Workspace(storage_class="fast")),
            request(),
            "differs in workspace: workspace.storage_class is fast, requested is not set",
        ),
        (
            request(secrets=[SandboxSecret(name="b", path="/run/b"), SandboxSecret(name="a")]),
            request(secrets=[SandboxSecret(name="c")]),
            "differs in secrets: secrets is a, b:/run/b, requested is c",
        ),
        (
            request(network_policy=NetworkPolicy(egress=[])),
            request(),
            'differs in network_policy: network_policy is {"egress":[]}, requested is not set',
        ),
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
        (
            request(labels={"team": "blue", "tier": "web"}),
            request(labels={"team": "red", "tier": "web", "empty": ""}),
            (
                "differs in labels: label team is blue, requested is red; "
                'label empty is not set, requested is ""'
            ),
        ),
        (request(template="t"), request(template="t", env={"A": "1"}), "differs in env: env differs in A"),
    ],
)
def test_both_values_of_a_difference_are_described(one, other, described):
    assert differences(one, other) == described


@pytest.mark.parametrize(
    ("one", "other", "described"),
    [
        ({"labels": {"team": "blue"}}, {}, "labels: label team is blue, requested is not set"),
        (
            {"workspace": Workspace(seed=False)},
            {"workspace": Workspace()},
            "workspace: workspace.seed is false, requested is true",
        ),
        (
            {"network_policy": NetworkPolicy(ingress=[], egress=[])},
            {},
            'network_policy: network_policy is {"egress":[],"ingress":[]}, requested is not set',
        ),
        ({"env": {"A": "s3cr3t"}}, {}, "env: env differs in A"),
    ],
)
def test_both_values_of_a_difference_of_templates_are_described(one, other, described):
    requests = (TemplateRequest(name="t", **options) for options in (one, other))
    assert template_differences(*requests) == f"differs in {described}"


def test_values_of_environment_variables_are_not_described():
    one, other = request(env={"A": "s3cr3t", "B": "1", "C": "1"}), request(env={"B": "t0k3n", "C": "1"})
    assert differences(one, other) == "differs in env: env differs in A, B"


def test_long_values_are_shortened():
    rules = [{"ports": [{"port": port}]} for port in range(1000)]
    described = differences(request(network_policy=NetworkPolicy(egress=rules)), request(image="x" * 300))
    start = network_rules({"kind": "NetworkPolicy", "spec": {"egress": rules}})
    encoded = msgspec.json.encode(start, order="deterministic").decode()
    assert f"network_policy is {encoded[:200]}…, requested is not set" in described
    assert f"requested is {'x' * 200}…" in described
    assert len(described) < 700


def test_values_that_differ_after_the_shown_part_differ():
    one, other = (request(image="x" * 300 + end) for end in "ab")
    assert differences(one, other).startswith("differs in image: image is xxx")


def test_many_differences_are_shortened():
    labels = {f"key-{number:03}": "x" for number in range(500)}
    described = differences(request(labels=labels), request())
    assert described.endswith("label key-019 is x, requested is not set; 480 more")
    names = {f"VARIABLE_{number}": "1" for number in range(500)}
    assert len(differences(request(env=names), request())) < 300


class TakenCluster:
    """A namespace in which the name of every object is taken by one object."""

    def __init__(self, policy=None, **metadata):
        self.objects = self
        self.policy = policy
        self.sandbox = sandbox()
        self.sandbox["metadata"] |= metadata

    async def ensure(self, manifest):
        raise ObjectConflictError(f"{manifest['kind']} a: exists")

    async def get(self, kind, name):
        if kind == "NetworkPolicy":
            return self.policy
        return None if self.sandbox["metadata"]["uid"] is None else self.sandbox


@pytest.mark.parametrize(("kind", "noun"), [("Sandbox", "sandbox"), ("SandboxTemplate", "template")])
@pytest.mark.parametrize(
    ("metadata", "code", "message"),
    [
        ({"deletionTimestamp": "2030-01-01T00:00:00Z"}, "deleting", "being deleted"),
        ({}, "differs", "exists, and was created by another client"),
    ],
)
def test_taken_name_is_a_conflict(kind, noun, metadata, code, message):
    manifest = {"kind": kind, "metadata": {"name": "a"}}
    with pytest.raises(ApiError) as caught:
        asyncio.run(create_once(TakenCluster(**metadata), manifest, request_digests(request())))
    assert caught.value.problem.code == f"{noun}-{code}"
    assert caught.value.problem.message == f"{noun} a: {message}"


def test_object_of_the_same_request_is_returned():
    digests = request_digests(request())
    cluster = TakenCluster(annotations={REQUEST_DIGESTS_ANNOTATION: digests})
    assert asyncio.run(create_once(cluster, sandbox(), digests)) == (False, cluster.sandbox)


def test_object_that_is_gone_again_is_the_original_conflict():
    manifest = {"kind": "Sandbox", "metadata": {"name": "a"}}
    with pytest.raises(ObjectConflictError):
        asyncio.run(create_once(TakenCluster(uid=None), manifest, request_digests(request())))


@pytest.mark.parametrize(("uid", "shown"), [("s-1", '{"egress":[]}'), ("other", "not set")])
def test_only_the_network_policy_of_the_sandbox_is_described(uid, shown):
    metadata = {"name": "a", "ownerReferences": [{"kind": "Sandbox", "name": "a", "uid": uid}]}
    policy = {"kind": "NetworkPolicy", "metadata": metadata, "spec": {"egress": []}}
    before = request_digests(request(network_policy=NetworkPolicy(egress=[])))
    cluster = TakenCluster(policy, annotations={REQUEST_DIGESTS_ANNOTATION: before})
    requested = request(network_policy=NetworkPolicy(ingress=[]))
    asked = from_request.network_policy_manifest(requested, namespace="ns")
    with pytest.raises(ApiError) as caught:
        asyncio.run(create_once(cluster, sandbox(), request_digests(requested), policy=asked))
    expected = f'network_policy is {shown}, requested is {{"ingress":[]}}'
    assert caught.value.problem.message == f"sandbox a: exists, and differs in network_policy: {expected}"
