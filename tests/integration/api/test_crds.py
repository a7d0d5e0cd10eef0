"""The CRDs on a real server: accepted as they are, and mistakes refused with the field named."""

from __future__ import annotations

import copy
import json
import uuid

import pytest
from kubernetes import client

from holdfast.errors import ApiRequestRejectedError
from holdfast.kube import api_client

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

EXTENSION = "extensions.agents.x-k8s.io/v1beta1"
CRD = "CustomResourceDefinition"
SANDBOX = {
    "apiVersion": "agents.x-k8s.io/v1beta1",
    "kind": "Sandbox",
    "spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "app:1"}]}}},
}
CLAIM = {
    "metadata": {"name": "workspace"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}},
}


VALID_OBJECTS = {
    "SandboxTemplate": SANDBOX["spec"],
    "SandboxWarmPool": {"sandboxTemplateRef": {"name": "t"}},
    "SandboxClaim": {"warmPoolRef": {"name": "p"}},
}


def sandbox(**spec):
    body = copy.deepcopy(SANDBOX)
    body["metadata"] = {"name": f"s-{uuid.uuid4().hex[:8]}"}
    body["spec"].update(spec)
    return body


def extension(kind, **spec):
    """One that is good but for what is given; None takes a field away."""
    whole = copy.deepcopy(VALID_OBJECTS[kind]) | spec
    return {
        "apiVersion": EXTENSION,
        "kind": kind,
        "metadata": {"name": f"e-{uuid.uuid4().hex[:8]}"},
        "spec": {name: one for name, one in whole.items() if one is not None},
    }


def test_crds_are_accepted_without_schema_warnings(made):
    objects, definitions = made
    for definition in definitions:
        found = objects.get(CRD, definition["metadata"]["name"])
        types = {one["type"]: one["status"] for one in found["status"]["conditions"]}
        assert types["Established"] == "True"
        assert types.get("NonStructuralSchema") != "True"
        assert types["NamesAccepted"] == "True"
        assert len(json.dumps(definition)) < 300_000


def test_sandbox_keeps_every_field_and_gets_defaults(objects, kube_namespace):
    body = sandbox(volumeClaimTemplates=[CLAIM])
    body["spec"]["podTemplate"]["spec"]["containers"][0] |= {
        "ports": [{"containerPort": 80}],
        "resources": {"limits": {"cpu": "500m", "memory": 1048576}},
        "livenessProbe": {"httpGet": {"port": "http", "path": "/"}},
    }
    objects.ensure(body, namespace=kube_namespace)
    found = objects.get(
        "Sandbox", body["metadata"]["name"], namespace=kube_namespace, api_version="agents.x-k8s.io/v1beta1"
    )
    assert (found["spec"]["operatingMode"], found["spec"]["shutdownPolicy"]) == ("Running", "Retain")
    (container,) = found["spec"]["podTemplate"]["spec"]["containers"]
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert container["resources"]["limits"] == {"cpu": "500m", "memory": 1048576}
    assert container["livenessProbe"] == {"httpGet": {"port": "http", "path": "/"}}
    assert found["spec"]["volumeClaimTemplates"] == [CLAIM]
    assert set(found["spec"]["podTemplate"]["spec"]) == {"containers"}


def wrong_type(field, expected, given):
    return field, f'Invalid value: "{given}": {field} in body must be of type {expected}: "{given}"'


def missing(field):
    return field, "Required value"


def unsupported(field, given, *supported):
    values = ", ".join(f'"{value}"' for value in supported)
    return field, f'Unsupported value: "{given}": supported values: {values}'


def negative(field):
    return field, f"Invalid value: -1: {field} in body should be greater than or equal to 0"


# The API server adds this for a kind with a CEL rule that it cannot evaluate.
NOT_CHECKED = "some validation rules were not checked because the object was invalid"
POD = SANDBOX["spec"]["podTemplate"]["spec"]
TWICE = {"podTemplate": {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}}
NUMBER_IMAGE = {"podTemplate": {"spec": {"containers": [{"name": "a", "image": 3}]}}}
NO_CIDR = {"networkPolicy": {"egress": [{"to": [{"ipBlock": {}}]}]}}
SHARED = (
    ({"podTemplate": None}, [missing("spec.podTemplate")]),
    ({"podTemplate": {}}, [missing("spec.podTemplate.spec")]),
    ({"podTemplate": {"spec": {}}}, [missing("spec.podTemplate.spec.containers")]),
    (NUMBER_IMAGE, [wrong_type("spec.podTemplate.spec.containers[0].image", "string", "integer")]),
    (
        {"podTemplate": {"spec": POD, "metadata": {"labels": {"a": 1}}}},
        [wrong_type("spec.podTemplate.metadata.labels.a", "string", "integer")],
    ),
    (
        {"podTemplate": {"spec": POD, "metadata": {"annotations": {"a": True}}}},
        [wrong_type("spec.podTemplate.metadata.annotations.a", "string", "boolean")],
    ),
    ({"volumeClaimTemplates": {}}, [wrong_type("spec.volumeClaimTemplates", "array", "object")]),
    ({"volumeClaimTemplates": [{"metadata": {"name": "x"}}]}, [missing("spec.volumeClaimTemplates[0].spec")]),
    ({"service": "yes"}, [wrong_type("spec.service", "boolean", "string")]),
)
VALIDATIONS = [
    *(("Sandbox", change, causes) for change, causes in SHARED),
    *(("SandboxTemplate", change, causes) for change, causes in SHARED),
    ("Sandbox", TWICE, [("spec.podTemplate.spec.containers[1]", 'Duplicate value: {"name":"a"}')]),
    (
        "Sandbox",
        {"operatingMode": "Paused"},
        [unsupported("spec.operatingMode", "Paused", "Running", "Suspended")],
    ),
    (
        "Sandbox",
        {"shutdownPolicy": "Explode"},
        [unsupported("spec.shutdownPolicy", "Explode", "Delete", "Retain")],
    ),
    ("Sandbox", {"shutdownTime": "tomorrow"}, [wrong_type("spec.shutdownTime", "date-time", "tomorrow")]),
    (
        "SandboxTemplate",
        {"networkPolicyManagement": "Mine"},
        [unsupported("spec.networkPolicyManagement", "Mine", "Managed", "Unmanaged")],
    ),
    (
        "SandboxTemplate",
        {"envVarsInjectionPolicy": "Sometimes"},
        [unsupported("spec.envVarsInjectionPolicy", "Sometimes", "Allowed", "Overrides", "Disallowed")],
    ),
    (
        "SandboxTemplate",
        {"volumeClaimTemplatesPolicy": ""},
        [unsupported("spec.volumeClaimTemplatesPolicy", "", "Disallowed", "Allowed", "Overrides")],
    ),
    ("SandboxTemplate", NO_CIDR, [missing("spec.networkPolicy.egress[0].to[0].ipBlock.cidr")]),
    (
        "SandboxTemplate",
        {"networkPolicy": {"ingress": {}}},
        [wrong_type("spec.networkPolicy.ingress", "array", "object")],
    ),
    ("SandboxWarmPool", {"sandboxTemplateRef": None}, [missing("spec.sandboxTemplateRef")]),
    ("SandboxWarmPool", {"sandboxTemplateRef": {}}, [missing("spec.sandboxTemplateRef.name")]),
    (
        "SandboxWarmPool",
        {"replicas": -1},
        # The second one is about the scale subresource.
        [
            negative("spec.replicas"),
            (".spec.replicas", "Invalid value: -1: should be a non-negative integer"),
        ],
    ),
    (
        "SandboxWarmPool",
        {"replicas": 2**31},
        [(".spec.replicas", "Invalid value: 2147483648: should be less than or equal to 2147483647")],
    ),
    (
        "SandboxWarmPool",
        {"replicas": "two"},
        [
            wrong_type("spec.replicas", "integer", "string"),
            (
                ".spec.replicas",
                "Invalid value: 0: .spec.replicas accessor error: two is of the type string, expected int64",
            ),
        ],
    ),
    (
        "SandboxWarmPool",
        {"updateStrategy": "Recreate"},
        [wrong_type("spec.updateStrategy", "object", "string")],
    ),
    (
        "SandboxWarmPool",
        {"updateStrategy": {"type": "RollingUpdate"}},
        [unsupported("spec.updateStrategy.type", "RollingUpdate", "Recreate", "OnReplenish")],
    ),
    ("SandboxClaim", {"warmPoolRef": None}, [missing("spec.warmPoolRef")]),
    ("SandboxClaim", {"warmPoolRef": {}}, [missing("spec.warmPoolRef.name")]),
    (
        "SandboxClaim",
        {"warmPoolRef": {"name": 3}},
        [wrong_type("spec.warmPoolRef.name", "string", "integer")],
    ),
    (
        "SandboxClaim",
        {"lifecycle": {"ttlSecondsAfterFinished": -1}},
        [negative("spec.lifecycle.ttlSecondsAfterFinished")],
    ),
    (
        "SandboxClaim",
        {"lifecycle": {"shutdownTime": "soon"}},
        [wrong_type("spec.lifecycle.shutdownTime", "date-time", "soon")],
    ),
    (
        "SandboxClaim",
        {"lifecycle": {"shutdownPolicy": "Keep"}},
        [unsupported("spec.lifecycle.shutdownPolicy", "Keep", "Delete", "DeleteForeground", "Retain")],
    ),
    ("SandboxClaim", {"env": [{"value": "1"}]}, [missing("spec.env[0].name")]),
    ("SandboxClaim", {"env": [{"name": "A"}]}, [missing("spec.env[0].value")]),
    ("SandboxClaim", {"env": {"A": "1"}}, [wrong_type("spec.env", "array", "object")]),
    (
        "SandboxClaim",
        {"additionalPodMetadata": {"labels": {"a": 1}}},
        [wrong_type("spec.additionalPodMetadata.labels.a", "string", "integer")],
    ),
    (
        "SandboxClaim",
        {"additionalPodMetadata": {"annotations": {"a": 1}}},
        [wrong_type("spec.additionalPodMetadata.annotations.a", "string", "integer")],
    ),
    (
        "SandboxClaim",
        {"volumeClaimTemplates": [{"metadata": {"name": "x"}}]},
        [missing("spec.volumeClaimTemplates[0].spec")],
    ),
]


def causes(error):
    """Field and message of each cause that the API server names."""
    found = json.loads(error.body)["details"]["causes"]
    pairs = [(cause["field"], cause["message"]) for cause in found]
    return [pair for pair in pairs if NOT_CHECKED not in pair[1]]


@pytest.mark.parametrize(("kind", "change", "expected"), VALIDATIONS)
def test_published_validation_has_its_exact_message(objects, kube_namespace, kind, change, expected):
    body = sandbox() if kind == "Sandbox" else extension(kind)
    body["spec"] = {key: value for key, value in (body["spec"] | change).items() if value is not None}
    with pytest.raises(ApiRequestRejectedError) as refused:
        objects.ensure(body, namespace=kube_namespace)
    assert causes(refused.value.cause) == expected
    assert all(field in refused.value.message for field, _ in expected)


@pytest.mark.parametrize("kind", ["Sandbox", *VALID_OBJECTS])
def test_spec_is_required(objects, kube_namespace, kind):
    body = sandbox() if kind == "Sandbox" else extension(kind)
    del body["spec"]
    with pytest.raises(ApiRequestRejectedError) as refused:
        objects.ensure(body, namespace=kube_namespace)
    assert causes(refused.value.cause) == [missing("spec")]


NOW = "2026-01-01T00:00:00Z"
BODY = "conditions[0].{} in body"
PATTERN = "'^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$'"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("message", "x" * 32769, "Too long: may not be more than 32768 bytes"),
        ("reason", "a b", f'Invalid value: "a b": {BODY.format("reason")} should match {PATTERN}'),
        ("reason", "", f'Invalid value: "": {BODY.format("reason")} should be at least 1 chars long'),
        ("reason", "a" * 1025, "Too long: may not be more than 1024 bytes"),
        ("status", "Maybe", unsupported("", "Maybe", "True", "False", "Unknown")[1]),
        (
            "lastTransitionTime",
            "now",
            f'Invalid value: "now": {BODY.format("lastTransitionTime")} must be of type date-time: "now"',
        ),
        (
            "observedGeneration",
            -1,
            f"Invalid value: -1: {BODY.format('observedGeneration')} should be greater than or equal to 0",
        ),
    ],
    ids=["message", "pattern", "empty", "long", "status", "time", "generation"],
)
@pytest.mark.parametrize("kind", ["Sandbox", "SandboxClaim"])
def test_condition_is_validated(objects, kube_namespace, kind, field, value, message):
    body = sandbox() if kind == "Sandbox" else extension(kind)
    objects.ensure(body, namespace=kube_namespace)
    condition = {"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": NOW}
    with pytest.raises(ApiRequestRejectedError) as refused:
        objects.patch(
            kind, body["metadata"]["name"], {"status": {"conditions": [condition | {field: value}]}},
            namespace=kube_namespace, api_version=body["apiVersion"], subresource="status",
        )  # fmt: skip
    assert causes(refused.value.cause) == [(f"status.conditions[0].{field}", message)]


@pytest.mark.parametrize("kind", VALID_OBJECTS)
def test_valid_extension_objects_are_accepted_and_invalid_updates_rejected(objects, kube_namespace, kind):
    body = extension(kind)
    objects.ensure(body, namespace=kube_namespace)
    wrong = {
        "SandboxTemplate": ({"podTemplate": None}, "spec.podTemplate"),
        "SandboxWarmPool": ({"replicas": -1}, "spec.replicas"),
        "SandboxClaim": ({"warmPoolRef": {"name": None}}, "spec.warmPoolRef.name"),
    }
    change, field = wrong[kind]
    with pytest.raises(ApiRequestRejectedError) as refused:
        patch_error(objects, kube_namespace, body, change)
    assert f"{field}:" in refused.value.message


@pytest.mark.parametrize("kind", ["SandboxTemplate", "SandboxClaim"])
@pytest.mark.parametrize(("before", "after"), [([CLAIM], None), (None, [CLAIM])])
def test_only_sandbox_volume_claim_templates_are_immutable(objects, kube_namespace, kind, before, after):
    body = extension(kind, volumeClaimTemplates=before)
    objects.ensure(body, namespace=kube_namespace)
    found = patch_error(objects, kube_namespace, body, {"volumeClaimTemplates": after})
    assert found["spec"].get("volumeClaimTemplates") == after


def patch_error(objects, namespace, body, change):
    return objects.patch(
        body["kind"], body["metadata"]["name"], {"spec": change}, namespace=namespace,
        api_version=body["apiVersion"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"),
    [([CLAIM], []), ([CLAIM], None), (None, [CLAIM]), ([CLAIM], [{**CLAIM, "metadata": {"name": "other"}}])],
)
def test_volume_claim_templates_are_immutable(kube_server, objects, kube_namespace, before, after):
    body = sandbox(**({"volumeClaimTemplates": before} if before else {}))
    objects.ensure(body, namespace=kube_namespace)
    with api_client(kube_server.kubeconfig) as api:
        custom = client.CustomObjectsApi(api)
        with pytest.raises(client.ApiException) as refused:
            custom.patch_namespaced_custom_object(
                "agents.x-k8s.io", "v1beta1", kube_namespace, "sandboxes", body["metadata"]["name"],
                {"spec": {"volumeClaimTemplates": after}},
            )  # fmt: skip
    assert refused.value.status == 422
    assert causes(refused.value) == [("spec", 'Invalid value: "object": volumeClaimTemplates is immutable')]


def test_extension_kinds_have_published_defaults(objects, kube_namespace):
    template = {
        "apiVersion": EXTENSION,
        "kind": "SandboxTemplate",
        "metadata": {"name": "t"},
        "spec": SANDBOX["spec"],
    }
    pool = {
        "apiVersion": EXTENSION, "kind": "SandboxWarmPool", "metadata": {"name": "p"},
        "spec": {"sandboxTemplateRef": {"name": "t"}, "updateStrategy": {}},
    }  # fmt: skip
    claim = {
        "apiVersion": EXTENSION, "kind": "SandboxClaim", "metadata": {"name": "c"},
        "spec": {"warmPoolRef": {"name": "p"}, "lifecycle": {}},
    }  # fmt: skip
    found = {}
    for body in (template, pool, claim):
        objects.ensure(body, namespace=kube_namespace)
        found[body["kind"]] = objects.get(
            body["kind"], body["metadata"]["name"], namespace=kube_namespace, api_version=EXTENSION
        )["spec"]
    assert found["SandboxTemplate"]["networkPolicyManagement"] == "Managed"
    assert found["SandboxTemplate"]["envVarsInjectionPolicy"] == "Disallowed"
    assert found["SandboxTemplate"]["volumeClaimTemplatesPolicy"] == "Disallowed"
    assert found["SandboxWarmPool"]["replicas"] == 1
    assert found["SandboxWarmPool"]["updateStrategy"] == {"type": "OnReplenish"}
    assert found["SandboxClaim"]["lifecycle"] == {"shutdownPolicy": "Retain"}
