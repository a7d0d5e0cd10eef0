"""Manifests: least privilege, one pod per host port, and a new template exactly when a rollout is due."""

from __future__ import annotations

import pytest
from tests.support.workload_manifests import (
    API_SERVER as API,
    CONTROLLER,
    cluster_rules,
    lease_rules,
    manifest_context,
)

from holdfast.api import PUBLISHED_NAMESPACE
from holdfast.controller.informer import CRD_NAMES
from holdfast.controller.leader_election import LEASE_NAME
from holdfast.gateway.cluster.manifests import (
    TEMPLATE_ANNOTATION,
    build_workloads,
    deployments_of,
    service_dns_names,
)
from holdfast.gateway.spec import GATEWAY_IMAGE
from holdfast.kube import differences
from holdfast.pki import CLIENT_CA_SECRET, SERVER_SECRET


def deployment(name=API, **changes):
    (found,) = [
        each
        for each in deployments_of(build_workloads(manifest_context(**changes)))
        if each["metadata"]["name"] == name
    ]
    return found


def template(name=API, **changes):
    return deployment(name, **changes)["spec"]["template"]


def stamp(**changes):
    return template(**changes)["metadata"]["annotations"][TEMPLATE_ANNOTATION]


def test_every_object_has_namespace_and_managed_by_label():
    kinds = []
    for each in build_workloads(manifest_context(namespace="elsewhere")):
        kinds.append(each["kind"])
        if each["kind"] in ("Role", "RoleBinding") and each["metadata"]["name"] == API:
            assert each["metadata"]["namespace"] == "default"  # where the sandboxes are
        elif each["kind"] in ("Role", "RoleBinding"):
            assert each["metadata"]["namespace"] == PUBLISHED_NAMESPACE
        elif each["kind"] == "Namespace":
            assert each["metadata"]["name"] == PUBLISHED_NAMESPACE
        elif not each["kind"].startswith("ClusterRole"):
            assert each["metadata"]["namespace"] == "elsewhere"
        assert each["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "holdfast"
    assert kinds[:4] == ["ServiceAccount", "Service", "Role", "RoleBinding"]
    assert kinds[4:7] == ["ClusterRole", "ClusterRoleBinding", "Deployment"]
    assert kinds.count("Deployment") == 2


@pytest.mark.parametrize("name", [API, CONTROLLER])
def test_pod_has_minimal_privileges(name):
    pod = template(name)["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is True
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"cpu", "memory"} == set(container["resources"]["limits"])
    assert "hostNetwork" not in pod
    assert not any("hostPath" in volume for volume in pod.get("volumes", ()))


def test_controller_role_has_no_secrets_exec_or_crd_writes():
    granted = {
        (group, resource, verb)
        for rule in (*cluster_rules(), *lease_rules())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert not any("*" in (group, resource, verb) for group, resource, verb in granted)
    resources = {resource for _, resource, _ in granted}
    assert not resources & {"secrets", "pods/exec", "pods/attach", "pods/portforward", "configmaps"}
    assert {verb for _, resource, verb in granted if resource == "nodes"} == {"list"}
    crds = {verb for _, resource, verb in granted if resource == "customresourcedefinitions"}
    assert crds == {"get", "list", "watch"}


def test_controller_reads_only_the_crds_that_it_watches():
    (rule,) = [rule for rule in cluster_rules() if rule["resources"] == ["customresourcedefinitions"]]
    assert sorted(rule["resourceNames"]) == sorted(CRD_NAMES)


def test_controller_may_use_the_lease_of_the_published_controller_only():
    rule, create = lease_rules()
    assert (rule["resources"], rule["resourceNames"]) == (["leases"], [LEASE_NAME])
    assert (create["resources"], create["verbs"]) == (["leases"], ["create"])
    (container,) = template(CONTROLLER)["spec"]["containers"]
    assert not any("LEASE" in each["name"] for each in container["env"])


@pytest.mark.parametrize(
    ("namespace", "sandboxes", "created"),
    [
        ("holdfast", "default", [PUBLISHED_NAMESPACE]),
        ("holdfast", "team", ["team", PUBLISHED_NAMESPACE]),
        ("holdfast", PUBLISHED_NAMESPACE, [PUBLISHED_NAMESPACE]),
        (PUBLISHED_NAMESPACE, "default", []),
    ],
)
def test_missing_namespaces_are_created_once_and_before_their_objects(namespace, sandboxes, created):
    manifests = build_workloads(manifest_context(namespace=namespace, sandbox_namespace=sandboxes))
    assert [each["metadata"]["name"] for each in manifests if each["kind"] == "Namespace"] == created
    seen = {namespace, "default"}
    for each in manifests:
        if each["kind"] == "Namespace":
            seen.add(each["metadata"]["name"])
        assert each["metadata"].get("namespace", namespace) in seen


def test_restarted_controller_reacquires_its_own_lease():
    (container,) = template(CONTROLLER)["spec"]["containers"]
    (identity,) = [each for each in container["env"] if each["name"] == "HOLDFAST_CONTROLLER_IDENTITY"]
    assert identity["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"


def test_controller_knows_network_policies_are_not_enforced():
    (container,) = template(CONTROLLER)["spec"]["containers"]
    assert {"name": "HOLDFAST_CONTROLLER_NETWORK_POLICIES", "value": "ignored"} in container["env"]


def test_new_certificates_do_not_restart_controller():
    assert template(CONTROLLER, bundle_digest="b2") == template(CONTROLLER)
    assert template(CONTROLLER, image_digest="sha256:2") != template(CONTROLLER)


def test_only_api_is_exposed_on_node_port():
    (container,) = template(host_port=9443)["spec"]["containers"]
    ports = {port["name"]: port.get("hostPort") for port in container["ports"]}
    assert ports == {"https": 9443, "health": None}
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[kind]["httpGet"]["port"] == "health"


def test_manifests_reference_secrets_by_name_only():
    pod = template()["spec"]
    assert {volume["secret"]["secretName"] for volume in pod["volumes"]} == {
        SERVER_SECRET,
        CLIENT_CA_SECRET,
    }
    assert not any("secret" in str(variable).lower() for variable in pod["containers"][0]["env"])


def test_image_matches_the_one_loaded_by_up():
    (container,) = template()["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == (GATEWAY_IMAGE, "Never")


@pytest.mark.parametrize(
    "change", [{"image_digest": "sha256:2"}, {"bundle_digest": "b2"}, {"gateway": "x"}, {"host_port": 1}]
)
def test_pod_inputs_change_template_hash(change):
    assert stamp() == stamp()
    assert stamp(**change) != stamp()


def variables(**changes):
    (container,) = template(**changes)["spec"]["containers"]
    return {
        each["name"].removeprefix("HOLDFAST_SERVER_"): each.get("value", each.get("valueFrom"))
        for each in container["env"]
    }


def test_storage_class_is_set_only_if_configured():
    assert "STORAGE_CLASS" not in variables()
    assert variables(storage_class="fast") == {**variables(), "STORAGE_CLASS": "fast"}


@pytest.mark.parametrize("value", ["123", "true", "null", "${namespace}", "$", "a: b\n- c", '"'])
def test_values_keep_their_type_and_cannot_change_the_structure(value):
    made = variables(gateway=value, storage_class=value)
    assert (made["NAME"], made["STORAGE_CLASS"]) == (value, value)
    assert made.keys() == variables(storage_class="fast").keys()


def test_values_inside_a_text_are_replaced():
    assert variables(namespace="elsewhere")["ENDPOINT"] == "https://holdfast-api.elsewhere.svc"


def test_changed_manifests_do_not_affect_later_ones():
    build_workloads(manifest_context())[0]["metadata"]["labels"].clear()
    assert build_workloads(manifest_context())[0]["metadata"]["labels"]


def test_server_defaults_are_not_a_difference():
    wanted = deployment()
    live = {**wanted, "status": {}, "metadata": {**wanted["metadata"], "uid": "u", "generation": 3}}
    assert differences(wanted, live) == []
    other = deployment(bundle_digest="b2")
    assert any("holdfast.dev/certificates" in path for path in differences(other, live))


def test_certificate_covers_every_service_name():
    assert service_dns_names("ns") == (
        "holdfast-api",
        "holdfast-api.ns",
        "holdfast-api.ns.svc",
        "holdfast-api.ns.svc.cluster.local",
    )
