"""The CRDs on a real server: accepted as they are, and mistakes refused with the field named."""

from __future__ import annotations

import copy
import json
import uuid

import pytest
from kubernetes import client

from holdfast.errors import ClusterRefusedError
from holdfast.kube import Objects, api_client, condition
from holdfast.sandbox.crds import crds

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

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


def openapi(api, path):
    asked = api.param_serialize("GET", path, auth_settings=["BearerToken"])
    return json.loads(api.call_api(*asked).read())


@pytest.fixture(scope="module")
def made(kube_server):
    with api_client(kube_server.kubeconfig) as api:
        definitions = crds(
            openapi(api, "/openapi/v3/api/v1"), openapi(api, "/openapi/v3/apis/networking.k8s.io/v1")
        )
        objects = Objects(api)
        for definition in definitions:
            objects.apply(definition)
        for definition in definitions:
            objects.wait(CRD, definition["metadata"]["name"], condition("Established"), deadline=60)
        yield objects, definitions


@pytest.fixture
def objects(made):
    return made[0]


def sandbox(**spec):
    body = copy.deepcopy(SANDBOX)
    body["metadata"] = {"name": f"s-{uuid.uuid4().hex[:8]}"}
    body["spec"].update(spec)
    return body


def test_all_four_are_accepted_without_a_complaint_about_their_schema(made):
    objects, definitions = made
    for definition in definitions:
        found = objects.get(CRD, definition["metadata"]["name"])
        types = {one["type"]: one["status"] for one in found["status"]["conditions"]}
        assert types["Established"] == "True"
        assert types.get("NonStructuralSchema") != "True"
        assert types["NamesAccepted"] == "True"
        assert len(json.dumps(definition)) < 300_000


def test_a_sandbox_keeps_every_field_and_gets_the_published_defaults(objects, kube_namespace):
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
def test_a_mistake_is_refused_with_its_field(objects, kube_namespace, change, field):
    with pytest.raises(ClusterRefusedError) as refused:
        objects.ensure(sandbox(**change), namespace=kube_namespace)
    assert field in refused.value.message


@pytest.mark.parametrize(
    ("before", "after"),
    [([CLAIM], []), ([CLAIM], None), (None, [CLAIM]), ([CLAIM], [{**CLAIM, "metadata": {"name": "other"}}])],
)
def test_claim_templates_never_change(kube_server, objects, kube_namespace, before, after):
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
    assert "spec.volumeClaimTemplates" in refused.value.body


def test_pools_claims_and_templates_have_the_published_defaults(objects, kube_namespace):
    extension = "extensions.agents.x-k8s.io/v1beta1"
    template = {
        "apiVersion": extension,
        "kind": "SandboxTemplate",
        "metadata": {"name": "t"},
        "spec": SANDBOX["spec"],
    }
    pool = {
        "apiVersion": extension, "kind": "SandboxWarmPool", "metadata": {"name": "p"},
        "spec": {"sandboxTemplateRef": {"name": "t"}, "updateStrategy": {}},
    }  # fmt: skip
    claim = {
        "apiVersion": extension, "kind": "SandboxClaim", "metadata": {"name": "c"},
        "spec": {"warmPoolRef": {"name": "p"}, "lifecycle": {}},
    }  # fmt: skip
    found = {}
    for body in (template, pool, claim):
        objects.ensure(body, namespace=kube_namespace)
        found[body["kind"]] = objects.get(
            body["kind"], body["metadata"]["name"], namespace=kube_namespace, api_version=extension
        )["spec"]
    assert found["SandboxTemplate"]["networkPolicyManagement"] == "Managed"
    assert found["SandboxTemplate"]["envVarsInjectionPolicy"] == "Disallowed"
    assert found["SandboxTemplate"]["volumeClaimTemplatesPolicy"] == "Disallowed"
    assert found["SandboxWarmPool"]["replicas"] == 1
    assert found["SandboxWarmPool"]["updateStrategy"] == {"type": "OnReplenish"}
    assert found["SandboxClaim"]["lifecycle"] == {"shutdownPolicy": "Retain"}
