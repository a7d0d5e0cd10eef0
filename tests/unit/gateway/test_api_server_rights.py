"""What the gateway's API server may do: to sandboxes in their namespace, and to nothing else."""

from __future__ import annotations

from holdfast.gateway.workloads.api_server_rights import api_server_rights, rules
from holdfast.gateway.workloads.blueprint import Blueprint


def blueprint(**changes):
    given = {
        "gateway": "dev",
        "namespace": "holdfast",
        "host_port": 8443,
        "image_digest": "sha256:1",
        "bundle_digest": "b1",
    }
    return Blueprint(**{**given, **changes})


def test_no_secret_no_wildcard_and_no_pod_is_made():
    granted = {
        (resource, verb) for rule in rules() for resource in rule["resources"] for verb in rule["verbs"]
    }
    assert not any("*" in pair for pair in granted)
    resources = {resource for resource, _ in granted}
    assert not resources & {"secrets", "configmaps", "nodes", "serviceaccounts", "pods/attach", "roles"}
    assert {verb for resource, verb in granted if resource == "pods"} == {"get"}
    assert {verb for resource, verb in granted if resource == "persistentvolumeclaims"} == {"get", "patch"}


def test_the_rights_are_those_of_one_namespace():
    made = api_server_rights(blueprint(sandbox_namespace="team"))
    assert [each["kind"] for each in made] == ["Namespace", "Role", "RoleBinding"]
    assert made[0]["metadata"]["name"] == "team"
    assert {each["metadata"]["namespace"] for each in made[1:]} == {"team"}
    assert made[2]["subjects"] == [
        {"kind": "ServiceAccount", "name": "holdfast-api", "namespace": "holdfast"}
    ]


def test_a_namespace_that_others_make_is_left_to_them():
    for name in ("default", "holdfast"):
        kinds = [each["kind"] for each in api_server_rights(blueprint(sandbox_namespace=name))]
        assert kinds == ["Role", "RoleBinding"]
