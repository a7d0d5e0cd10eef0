"""The manifests: least privilege, one pod on the node's port, and a new template exactly when one is due."""

from __future__ import annotations

import pytest

from holdfast.gateway.workloads import deployments, manifests
from holdfast.gateway.workloads.api_server import NAME as API
from holdfast.gateway.workloads.api_server import service_names
from holdfast.gateway.workloads.blueprint import GATEWAY_IMAGE, TEMPLATE, Blueprint
from holdfast.gateway.workloads.controller import NAME as CONTROLLER
from holdfast.gateway.workloads.controller import cluster_rules, lease_rules
from holdfast.gateway.workloads.sights import HOPELESS, hopeless, progress_of, succeeded, template_ready, told
from holdfast.kube.compare import differences
from holdfast.kube.conditions import Sight


def blueprint(**changes):
    given = {
        "gateway": "dev",
        "namespace": "holdfast",
        "host_port": 8443,
        "image_digest": "sha256:1",
        "bundle_digest": "b1",
    }
    return Blueprint(**{**given, **changes})


def deployment(name=API, **changes):
    (found,) = [each for each in deployments(blueprint(**changes)) if each["metadata"]["name"] == name]
    return found


def template(name=API, **changes):
    return deployment(name, **changes)["spec"]["template"]


def stamp(**changes):
    return template(**changes)["metadata"]["annotations"][TEMPLATE]


def test_every_object_is_in_the_namespace_and_says_whose_it_is():
    kinds = []
    for each in manifests(blueprint(namespace="elsewhere")):
        kinds.append(each["kind"])
        if each["kind"] in ("Role", "RoleBinding") and each["metadata"]["name"] == API:
            assert each["metadata"]["namespace"] == "default"  # where the sandboxes are
        elif not each["kind"].startswith("ClusterRole"):
            assert each["metadata"]["namespace"] == "elsewhere"
        assert each["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "holdfast"
    assert kinds[:5] == ["ServiceAccount", "Service", "Role", "RoleBinding", "Deployment"]
    assert kinds.count("Deployment") == 2


@pytest.mark.parametrize("name", [API, CONTROLLER])
def test_the_pod_has_no_more_rights_than_it_needs(name):
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


def test_the_controller_may_read_no_secret_run_nothing_and_change_no_kind():
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


def test_a_controller_that_starts_again_in_its_pod_need_not_wait_for_its_own_lease():
    (container,) = template(CONTROLLER)["spec"]["containers"]
    (identity,) = [each for each in container["env"] if each["name"] == "HOLDFAST_CONTROLLER_IDENTITY"]
    assert identity["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"


def test_the_controller_knows_that_this_network_keeps_to_no_policy():
    (container,) = template(CONTROLLER)["spec"]["containers"]
    assert {"name": "HOLDFAST_CONTROLLER_NETWORK_POLICIES", "value": "ignored"} in container["env"]


def test_new_certificates_do_not_restart_the_controller():
    assert template(CONTROLLER, bundle_digest="b2") == template(CONTROLLER)
    assert template(CONTROLLER, image_digest="sha256:2") != template(CONTROLLER)


def test_only_the_api_is_on_the_nodes_port_and_health_stays_inside():
    (container,) = template(host_port=9443)["spec"]["containers"]
    ports = {port["name"]: port.get("hostPort") for port in container["ports"]}
    assert ports == {"https": 9443, "health": None}
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[kind]["httpGet"]["port"] == "health"


def test_no_secret_is_in_a_manifest_only_its_name():
    pod = template()["spec"]
    assert {volume["secret"]["secretName"] for volume in pod["volumes"]} == {
        "holdfast-server-tls",
        "holdfast-server-client-ca",
    }
    assert all(set(variable) == {"name", "value"} for variable in pod["containers"][0]["env"])


def test_the_image_is_the_one_that_up_puts_into_the_node():
    (container,) = template()["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == (GATEWAY_IMAGE, "Never")


@pytest.mark.parametrize(
    "change", [{"image_digest": "sha256:2"}, {"bundle_digest": "b2"}, {"gateway": "x"}, {"host_port": 1}]
)
def test_what_the_pod_is_made_of_changes_its_template(change):
    assert stamp() == stamp()
    assert stamp(**change) != stamp()


def test_a_manifest_is_no_different_from_itself_with_what_a_server_adds():
    wanted = deployment()
    live = {**wanted, "status": {}, "metadata": {**wanted["metadata"], "uid": "u", "generation": 3}}
    assert differences(wanted, live) == []
    other = deployment(bundle_digest="b2")
    assert any("holdfast.dev/certificates" in path for path in differences(other, live))


def test_the_service_is_reached_by_every_name_that_a_cluster_gives_it():
    assert service_names("ns") == (
        "holdfast-api",
        "holdfast-api.ns",
        "holdfast-api.ns.svc",
        "holdfast-api.ns.svc.cluster.local",
    )


CONTAINERS = [{"name": "api", "image": "ours"}]
NOW = {"metadata": {"annotations": {TEMPLATE: "now"}}, "spec": {"containers": CONTAINERS}}


def pod(mark="now", *, waiting=None, ready=False, phase="Pending", going=False, **status):
    rows = (
        [{"name": "api", "state": {"waiting": {"reason": waiting, "message": "why\nmore"}}}]
        if waiting
        else []
    )
    metadata = {"name": "p", "annotations": {TEMPLATE: mark}}
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": metadata,
        "spec": {"containers": CONTAINERS},
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": rows, **status},
    }


@pytest.mark.parametrize(
    ("pods", "done", "seen"),
    [
        ([], False, "no pod yet"),
        ([pod("before", ready=True)], False, "the old pod is going"),
        ([pod("before", waiting="CrashLoopBackOff")], False, "the old pod is going"),
        ([pod()], False, "pending"),
        ([pod(waiting="ContainerCreating")], False, "its container is being made"),
        ([pod(ready=True, phase="Running")], True, "ready"),
        ([pod(ready=True, going=True)], False, "no pod yet"),
        (
            [{**pod(ready=True), "spec": {"containers": [{"name": "api", "image": "other"}]}}],
            False,
            "the old pod is going",
        ),
        ([pod(phase="Failed"), pod(ready=True, phase="Running")], True, "ready"),
    ],
)
def test_a_rollout_counts_pods_of_its_own_template_only(pods, done, seen):
    sight = template_ready(NOW)(pods)
    assert (sight.done, sight.failed, sight.seen) == (done, "", seen)


@pytest.mark.parametrize("reason", sorted(HOPELESS))
def test_what_time_does_not_cure_fails_at_once_and_says_why(reason):
    assert template_ready(NOW)([pod(waiting=reason)]).failed == f"{reason}: why"
    assert succeeded(pod(waiting=reason)).failed == f"{reason}: why"


def test_a_pod_that_creates_its_container_is_not_hopeless():
    assert hopeless(pod(waiting="ContainerCreating")) == ""
    assert hopeless({"metadata": {"name": "p"}}) == ""


def test_a_pod_that_finds_no_place_says_so():
    conditions = [{"type": "PodScheduled", "status": "False", "message": "no free ports"}]
    assert progress_of(pod(conditions=conditions)) == "not placed yet: no free ports"


def test_a_pod_that_failed_is_told_with_its_exit_code():
    rows = [{"name": "main", "state": {"terminated": {"exitCode": 3}}}]
    assert succeeded(pod(phase="Failed", containerStatuses=rows)).failed == "it failed with exit code 3"
    assert succeeded(pod(phase="Succeeded")).done
    assert not succeeded(None).done


def test_each_change_of_what_is_seen_is_told_once():
    lines = []
    watched = told(lambda seen: Sight(seen=seen), lines.append)
    for words in ("a", "a", "b", "b", "a"):
        watched(words)
    assert lines == ["a", "b", "a"]
