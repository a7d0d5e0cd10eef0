"""The controller in a real gateway: `up` puts it there; with a real kubelet sandboxes keep their files."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support import sandbox_scenarios
from tests.support.condition_coverage import CLAIM_CONDITIONS, SANDBOX_CONDITIONS, observed_conditions_of_file
from tests.support.controller_process import SandboxNamespace
from tests.support.gateway import HELPER_IMAGE
from tests.support.holdfast_cli import HoldfastCli

from holdfast.api import PUBLISHED_NAMESPACE
from holdfast.containers import run_in_container
from holdfast.controller.leader_election import LEASE_NAME
from holdfast.kube import Objects, api_client
from holdfast.remote import connect

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

NAMESPACE = "holdfast"
CLAIM = {
    "metadata": {"name": "workspace"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}},
}
WRITE_FILE_COMMAND = (
    "date > /sandbox/born-$HOSTNAME 2>/dev/null; [ -e /sandbox/kept ] || echo first > /sandbox/kept; "
)


def sandbox_spec(command="exec tail -f /dev/null"):
    container = {
        "name": "main",
        "image": HELPER_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", WRITE_FILE_COMMAND + command],
        "volumeMounts": [{"name": "workspace", "mountPath": "/sandbox"}],
    }
    return {"terminationGracePeriodSeconds": 1, "containers": [container]}


@pytest.fixture(scope="module")
def gateway(new_gateway, holdfast):
    made = new_gateway("controller", holdfast=HoldfastCli(holdfast.home))
    made.up()
    return made


@pytest.fixture(scope="module")
def ns(gateway):
    path = gateway.holdfast.home / "config" / "gateways" / gateway.name / "kubeconfig"
    with api_client(path) as api:
        yield SandboxNamespace(Objects(api), "default")


@pytest.fixture(scope="module")
def ready_sandbox(ns):
    ns.create_sandbox("a", pod_spec=sandbox_spec(), volumeClaimTemplates=[CLAIM], service=True)
    return ns.wait_conditions("Sandbox", "a", Ready="True DependenciesReady")


def read_kept_file(gateway):
    return gateway.exec_in_pod("a", "cat", "/sandbox/kept").strip()


def controller_pod(gateway):
    found = gateway.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=holdfast-controller")
    (pod,) = found["items"]
    return pod


def test_up_installs_controller_that_becomes_leader(gateway):
    pod = controller_pod(gateway)
    assert pod["spec"]["serviceAccountName"] == "holdfast-controller"
    lease = gateway.get("lease", "-n", PUBLISHED_NAMESPACE, LEASE_NAME)
    assert lease["spec"]["holderIdentity"] == pod["metadata"]["uid"]
    again = json.loads(gateway.holdfast("up", gateway.name, "--json"))
    assert "apply-workloads" not in again["changed"]


def test_sandbox_becomes_ready_with_address_and_node(gateway, ns, ready_sandbox):
    assert ready_sandbox["status"]["nodeName"] == f"holdfast-{gateway.name}"
    assert ready_sandbox["status"]["podIPs"]
    assert read_kept_file(gateway) == "first"


def test_workspace_survives_pod_deletion_failure_and_suspension(gateway, ns, ready_sandbox):
    gateway.exec_in_pod("a", "sh", "-c", "echo second > /sandbox/kept && sync")
    old = ns.get("Pod", "a")["metadata"]["uid"]
    ns.delete("Pod", "a")
    new = ns.wait("Pod", "a", lambda pod: pod["metadata"]["uid"] != old)["metadata"]["uid"]
    ns.wait_conditions("Sandbox", "a", Ready="True DependenciesReady")
    assert read_kept_file(gateway) == "second"
    ns.patch("Sandbox", "a", {"spec": {"operatingMode": "Suspended"}})
    ns.wait_conditions("Sandbox", "a", Suspended="True PodTerminated")
    ns.patch("Sandbox", "a", {"spec": {"operatingMode": "Running"}})
    ns.wait("Pod", "a", lambda pod: pod["metadata"]["uid"] != new)
    ns.wait_conditions("Sandbox", "a", Ready="True DependenciesReady")
    assert read_kept_file(gateway) == "second"


def test_killed_controller_restarts_and_continues(gateway, ns, ready_sandbox):
    pod = controller_pod(gateway)
    (row,) = pod["status"]["containerStatuses"]
    task = row["containerID"].removeprefix("containerd://")
    killed = run_in_container(
        connect(), gateway.container, ["ctr", "-n", "k8s.io", "task", "kill", "-s", "SIGKILL", task]
    )
    assert killed.exit_code == 0, killed.output
    ns.delete("Pod", "a", wait=60)
    ns.wait("Pod", "a", bool, seconds=120)
    ns.wait_conditions("Sandbox", "a", Ready="True DependenciesReady")
    after = controller_pod(gateway)
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == row["restartCount"] + 1
    assert read_kept_file(gateway) == "second"


def test_unstartable_sandbox_is_reported_within_seconds(ns, ready_sandbox):
    ns.create_sandbox("b", pod_spec={"containers": [{"name": "main", "image": "localhost:1/no/such:image"}]})

    def told(found):
        rows = (found.get("status") or {}).get("conditions") or ()
        return any("ErrImagePull" in row["message"] or "ImagePullBackOff" in row["message"] for row in rows)

    ns.wait("Sandbox", "b", told, seconds=60)
    failing = sandbox_spec("exit 7")
    failing |= {"restartPolicy": "Never"}
    recreate = {"annotations": {"holdfast.dev/failed-pods": "Recreate"}}
    ns.create_sandbox("c", recreate, failing, volumeClaimTemplates=[CLAIM])
    # A client that treats PodFailed as final must not give up while the pod is about to be recreated.
    failed = {"Ready": "False DependenciesNotReady", sandbox_scenarios.EXPLANATION: "True PodFailed"}
    found = ns.wait_conditions("Sandbox", "c", Finished=None, **failed)
    assert "exited with code 7" in sandbox_scenarios.condition_message(found, sandbox_scenarios.EXPLANATION)
    ns.wait(
        "Sandbox", "c", lambda found: found["metadata"]["annotations"].get("holdfast.dev/failures") == "2"
    )


def test_unenforced_network_policy_is_reported_by_get_status_and_doctor(gateway, ns):
    sandbox_scenarios.create_template(ns, "guarded", networkPolicyManagement="Managed")
    sandbox_scenarios.create_empty_pool(ns, "guarded")
    sandbox_scenarios.create_claim(ns, "guarded", "guarded")
    ns.wait_conditions("Sandbox", "guarded", **{"holdfast.dev/NetworkPolicyEnforced": "False NotEnforced"})
    asked = [("sandbox", "get", "guarded", "-g", gateway.name), ("status", gateway.name)]
    with ThreadPoolExecutor(3) as beside:
        view, status = [beside.submit(gateway.holdfast.json, *words) for words in asked]
        doctor = beside.submit(gateway.holdfast.run, "doctor", gateway.name, "--json")
    (row,) = [each for each in view.result()["conditions"] if "NetworkPolicy" in each["type"]]
    assert (row["status"], row["reason"]) == ("False", "NotEnforced")
    assert (
        "guarded-network-policy exists, but this cluster does not enforce network policies" in row["message"]
    )
    (note,) = status.result()["notes"]
    assert "default/guarded-network-policy" in note
    assert "does not enforce" in note
    found = json.loads(doctor.result().stdout)["report"]["findings"]
    (told,) = [each for each in found if each["code"] == "network-policy-unenforced"]
    assert told["subject"] == "default/guarded-network-policy"
    ns.delete("SandboxClaim", "guarded")
    ns.delete("SandboxTemplate", "guarded")
    ns.wait_gone("NetworkPolicy", "guarded-network-policy")


@pytest.fixture(scope="module")
def scenario_ns(ns):
    """A namespace for the rows of the published API."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rows"}}
    ns.objects.create(body)
    return SandboxNamespace(ns.objects, "rows")


@pytest.fixture(scope="module")
def scenario_futures(scenario_ns):
    """All situations, started concurrently."""
    with ThreadPoolExecutor(len(sandbox_scenarios.SCENARIOS)) as beside:
        yield {each.__name__: beside.submit(each, scenario_ns) for each in sandbox_scenarios.SCENARIOS}


@pytest.mark.parametrize("name", [each.__name__ for each in sandbox_scenarios.SCENARIOS])
def test_scenario_reports_expected_condition(scenario_futures, name):
    scenario_futures[name].result()


def test_every_published_condition_was_observed(scenario_ns, request):
    of_no_node = {("Sandbox", "PodScheduled", "Unknown PodSchedulingUnknown")}
    assert (SANDBOX_CONDITIONS | CLAIM_CONDITIONS) - observed_conditions_of_file(
        scenario_ns, request
    ) <= of_no_node


def test_deleted_sandboxes_leave_no_objects(ns, ready_sandbox):
    for name in ("a", "b", "c"):
        ns.delete("Sandbox", name)
    for name in ("a", "b", "c"):
        ns.wait_gone("Pod", name)
        ns.wait_gone("PersistentVolumeClaim", f"workspace-{name}")
    assert [each["metadata"]["name"] for each in ns.list("Service")] == ["kubernetes"]
