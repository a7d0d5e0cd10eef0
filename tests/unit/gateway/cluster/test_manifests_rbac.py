"""What the gateway's API server may do: to sandboxes in their namespace, and to nothing else."""

from __future__ import annotations

from tests.support.workload_manifests import API_SERVER, api_server_rules, manifest_context

from holdfast.api import PUBLISHED_NAMESPACE
from holdfast.gateway.cluster.manifests import build_workloads


def api_server_rbac(**changes):
    """The namespace of the sandboxes, and what the API server may do there."""
    return [
        each
        for each in build_workloads(manifest_context(**changes))
        if (each["kind"] == "Namespace" and each["metadata"]["name"] != PUBLISHED_NAMESPACE)
        or (each["kind"] in ("Role", "RoleBinding") and each["metadata"]["name"] == API_SERVER)
    ]


def test_role_has_no_wildcards_or_pod_creation():
    granted = {
        (resource, verb)
        for rule in api_server_rules()
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert not any("*" in pair for pair in granted)
    resources = {resource for resource, _ in granted}
    assert not resources & {"configmaps", "nodes", "serviceaccounts", "pods/attach", "roles"}
    assert {verb for resource, verb in granted if resource == "pods"} == {"get", "list", "watch"}
    assert {verb for resource, verb in granted if resource == "pods/resize"} == {"patch"}
    written = {verb for resource, verb in granted if resource == "secrets"}
    assert written == {"get", "list", "create", "patch", "delete"}
    assert {verb for resource, verb in granted if resource == "events"} == {"list"}
    assert {verb for resource, verb in granted if resource == "persistentvolumeclaims"} == {"get", "patch"}


def test_role_is_limited_to_one_namespace():
    made = api_server_rbac(sandbox_namespace="team")
    assert [each["kind"] for each in made] == ["Namespace", "Role", "RoleBinding"]
    assert made[0]["metadata"]["name"] == "team"
    assert {each["metadata"]["namespace"] for each in made[1:]} == {"team"}
    assert made[2]["subjects"] == [
        {"kind": "ServiceAccount", "name": "holdfast-api", "namespace": "holdfast"}
    ]


def test_statistics_of_one_node_are_the_only_permission_outside_the_namespace():
    """`nodes/proxy` would also allow commands in every pod of the node."""
    made = build_workloads(manifest_context(node="holdfast-x"))
    own = [each for each in made if each["metadata"]["name"] == API_SERVER]
    (role,) = [each for each in own if each["kind"] == "ClusterRole"]
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["nodes", "nodes/stats"],
            "resourceNames": ["holdfast-x"],
            "verbs": ["get"],
        }
    ]
    (binding,) = [each for each in own if each["kind"] == "ClusterRoleBinding"]
    assert binding["roleRef"]["name"] == API_SERVER
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "holdfast-api", "namespace": "holdfast"}
    ]


def test_existing_namespace_is_not_created():
    for name in ("default", "holdfast"):
        kinds = [each["kind"] for each in api_server_rbac(sandbox_namespace=name)]
        assert kinds == ["Role", "RoleBinding"]
