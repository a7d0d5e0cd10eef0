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


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"operatingMode": "Paused"}, "spec.operatingMode"),
        ({"shutdownPolicy": "Explode"}, "spec.shutdownPolicy"),
        ({"shutdownTime": "tomorrow"}, "spec.shutdownTime"),
        ({"service": "yes"}, "spec.service"),
        ({"podTemplate": {}}, "spec.podTemplate.spec"),
        ({"podTemplate": {"spec": {}}}, "spec.podTemplate.spec.containers"),
        (
            {"podTemplate": {"spec": {"containers": [{"name": "a", "image": 3}]}}},
            "spec.podTemplate.spec.containers[0].image",
        ),
        (
            {"podTemplate": {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}},
            "spec.podTemplate.spec.containers[1]",
        ),
        ({"volumeClaimTemplates": [{"metadata": {"name": "x"}}]}, "spec.volumeClaimTemplates[0].spec"),
    ],
)
def test_invalid_sandbox_field_is_rejected_by_name(objects, kube_namespace, change, field):
    with pytest.raises(ApiRequestRejectedError) as refused:
        objects.ensure(sandbox(**change), namespace=kube_namespace)
    assert field in refused.value.message


@pytest.mark.parametrize(
    ("kind", "change", "field"),
    [
        ("SandboxClaim", {"warmPoolRef": None}, "spec.warmPoolRef"),
        ("SandboxClaim", {"warmPoolRef": {}}, "spec.warmPoolRef.name"),
        ("SandboxClaim", {"warmPoolRef": {"name": 3}}, "spec.warmPoolRef.name"),
        ("SandboxClaim", {"lifecycle": {"ttlSecondsAfterFinished": -1}}, "lifecycle.ttlSecondsAfterFinished"),
        ("SandboxClaim", {"lifecycle": {"shutdownTime": "soon"}}, "spec.lifecycle.shutdownTime"),
        ("SandboxClaim", {"lifecycle": {"shutdownPolicy": "Keep"}}, "spec.lifecycle.shutdownPolicy"),
        ("SandboxClaim", {"env": [{"value": "1"}]}, "spec.env[0].name"),
        ("SandboxClaim", {"env": [{"name": "A"}]}, "spec.env[0].value"),
        ("SandboxClaim", {"env": {"A": "1"}}, "spec.env"),
        (
            "SandboxClaim",
            {"additionalPodMetadata": {"labels": {"a": 1}}},
            "spec.additionalPodMetadata.labels.a",
        ),
        (
            "SandboxClaim",
            {"volumeClaimTemplates": [{"metadata": {"name": "x"}}]},
            "spec.volumeClaimTemplates[0].spec",
        ),
        ("SandboxWarmPool", {"sandboxTemplateRef": None}, "spec.sandboxTemplateRef"),
        ("SandboxWarmPool", {"sandboxTemplateRef": {}}, "spec.sandboxTemplateRef.name"),
        ("SandboxWarmPool", {"replicas": -1}, "spec.replicas"),
        ("SandboxWarmPool", {"replicas": "two"}, "spec.replicas"),
        ("SandboxWarmPool", {"updateStrategy": "Recreate"}, "spec.updateStrategy"),
        ("SandboxWarmPool", {"updateStrategy": {"type": "RollingUpdate"}}, "spec.updateStrategy.type"),
        ("SandboxTemplate", {"podTemplate": None}, "spec.podTemplate"),
        ("SandboxTemplate", {"podTemplate": {"spec": {}}}, "spec.podTemplate.spec.containers"),
        ("SandboxTemplate", {"networkPolicyManagement": "Mine"}, "spec.networkPolicyManagement"),
        ("SandboxTemplate", {"envVarsInjectionPolicy": "Sometimes"}, "spec.envVarsInjectionPolicy"),
        ("SandboxTemplate", {"volumeClaimTemplatesPolicy": ""}, "spec.volumeClaimTemplatesPolicy"),
        ("SandboxTemplate", {"service": "yes"}, "spec.service"),
        (
            "SandboxTemplate",
            {"networkPolicy": {"egress": [{"to": [{"ipBlock": {}}]}]}},
            "spec.networkPolicy.egress[0].to[0].ipBlock.cidr",
        ),
        ("SandboxTemplate", {"networkPolicy": {"ingress": {}}}, "spec.networkPolicy.ingress"),
    ],
)
def test_invalid_extension_field_is_rejected_by_name(objects, kube_namespace, kind, change, field):
    with pytest.raises(ApiRequestRejectedError) as refused:
        objects.ensure(extension(kind, **change), namespace=kube_namespace)
    assert f"{field}:" in refused.value.message


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
    assert "volumeClaimTemplates is immutable" in refused.value.body


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
