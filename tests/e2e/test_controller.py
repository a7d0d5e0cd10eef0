"""The controller in a real gateway: `up` puts it there; with a real kubelet sandboxes keep their files."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support import situations
from tests.support.api_rows import CLAIM_ROWS, SANDBOX_ROWS, all_heard
from tests.support.commands import Holdfast
from tests.support.controllers import Place
from tests.support.gateways import HELPER

from holdfast.containers.commands import run_in
from holdfast.containers.engine import connect
from holdfast.kube import Objects, api_client

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

NAMESPACE = "holdfast"
CLAIM = {
    "metadata": {"name": "workspace"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}},
}
WRITES = "date > /sandbox/born-$HOSTNAME 2>/dev/null; [ -e /sandbox/kept ] || echo first > /sandbox/kept; "


def spec(command="exec tail -f /dev/null"):
    container = {
        "name": "main",
        "image": HELPER,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", WRITES + command],
        "volumeMounts": [{"name": "workspace", "mountPath": "/sandbox"}],
    }
    return {"terminationGracePeriodSeconds": 1, "containers": [container]}


@pytest.fixture(scope="module")
def gateway(new_gateway, holdfast):
    made = new_gateway("controller", holdfast=Holdfast(holdfast.home))
    made.up()
    return made


@pytest.fixture(scope="module")
def place(gateway):
    path = gateway.holdfast.home / "config" / "gateways" / gateway.name / "kubeconfig"
    with api_client(path) as api:
        yield Place(Objects(api), "default")


@pytest.fixture(scope="module")
def ready(place):
    place.sandbox("a", pod_spec=spec(), volumeClaimTemplates=[CLAIM], service=True)
    return place.wait_said("Sandbox", "a", Ready="True DependenciesReady")


def kept(gateway):
    return gateway.execute("a", "cat", "/sandbox/kept").strip()


def controller_pod(gateway):
    found = gateway.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=holdfast-controller")
    (pod,) = found["items"]
    return pod


def test_up_made_the_controller_and_it_leads(gateway):
    pod = controller_pod(gateway)
    assert pod["spec"]["serviceAccountName"] == "holdfast-controller"
    lease = gateway.get("lease", "-n", NAMESPACE, "holdfast-controller")
    assert lease["spec"]["holderIdentity"] == pod["metadata"]["uid"]
    again = json.loads(gateway.holdfast("up", gateway.name, "--json"))
    assert "apply-workloads" not in again["changed"]


def test_a_sandbox_is_ready_with_an_address_and_a_node(gateway, place, ready):
    assert ready["status"]["nodeName"] == f"holdfast-{gateway.name}"
    assert ready["status"]["podIPs"]
    assert kept(gateway) == "first"


def test_its_files_stay_when_the_pod_is_deleted_fails_or_sleeps(gateway, place, ready):
    gateway.execute("a", "sh", "-c", "echo second > /sandbox/kept && sync")
    old = place.get("Pod", "a")["metadata"]["uid"]
    place.delete("Pod", "a")
    new = place.wait("Pod", "a", lambda pod: pod["metadata"]["uid"] != old)["metadata"]["uid"]
    place.wait_said("Sandbox", "a", Ready="True DependenciesReady")
    assert kept(gateway) == "second"
    place.patch("Sandbox", "a", {"spec": {"operatingMode": "Suspended"}})
    place.wait_said("Sandbox", "a", Suspended="True PodTerminated")
    place.patch("Sandbox", "a", {"spec": {"operatingMode": "Running"}})
    place.wait("Pod", "a", lambda pod: pod["metadata"]["uid"] != new)
    place.wait_said("Sandbox", "a", Ready="True DependenciesReady")
    assert kept(gateway) == "second"


def test_a_controller_that_is_killed_is_back_at_once_and_goes_on(gateway, place, ready):
    pod = controller_pod(gateway)
    (row,) = pod["status"]["containerStatuses"]
    task = row["containerID"].removeprefix("containerd://")
    killed = run_in(
        connect(), gateway.container, ["ctr", "-n", "k8s.io", "task", "kill", "-s", "SIGKILL", task]
    )
    assert killed.exit_code == 0, killed.output
    place.delete("Pod", "a", wait=60)
    place.wait("Pod", "a", bool, seconds=120)
    place.wait_said("Sandbox", "a", Ready="True DependenciesReady")
    after = controller_pod(gateway)
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == row["restartCount"] + 1
    assert kept(gateway) == "second"


def test_what_cannot_run_is_told_within_seconds(place, ready):
    place.sandbox("b", pod_spec={"containers": [{"name": "main", "image": "localhost:1/no/such:image"}]})

    def told(found):
        rows = (found.get("status") or {}).get("conditions") or ()
        return any("ErrImagePull" in row["message"] or "ImagePullBackOff" in row["message"] for row in rows)

    place.wait("Sandbox", "b", told, seconds=60)
    failing = spec("exit 7")
    failing |= {"restartPolicy": "Never"}
    place.sandbox("c", pod_spec=failing, volumeClaimTemplates=[CLAIM])
    place.wait_said("Sandbox", "c", Ready="False PodFailed", Finished="True PodFailed")
    place.wait("Sandbox", "c", lambda found: found["metadata"]["annotations"]["holdfast.dev/failures"] == "2")


def test_a_network_policy_that_nobody_keeps_to_is_said_by_get_status_and_doctor(gateway, place):
    situations.template(place, "guarded", networkPolicyManagement="Managed")
    situations.cold_pool(place, "guarded")
    situations.claim(place, "guarded", "guarded")
    place.wait_said("Sandbox", "guarded", **{"holdfast.dev/NetworkPolicyEnforced": "False NotEnforced"})
    asked = [("sandbox", "get", "guarded", "-g", gateway.name), ("status", gateway.name)]
    with ThreadPoolExecutor(3) as beside:
        view, status = [beside.submit(gateway.holdfast.json, *words) for words in asked]
        doctor = beside.submit(gateway.holdfast.run, "doctor", gateway.name, "--json")
    (row,) = [each for each in view.result()["conditions"] if "NetworkPolicy" in each["type"]]
    assert (row["status"], row["reason"]) == ("False", "NotEnforced")
    assert "guarded-network-policy is there, but this cluster's network does not enforce it" in row["message"]
    (note,) = status.result()["notes"]
    assert "default/guarded-network-policy" in note
    assert "does not enforce" in note
    found = json.loads(doctor.result().stdout)["report"]["findings"]
    (told,) = [each for each in found if each["code"] == "network-policy-unenforced"]
    assert told["subject"] == "default/guarded-network-policy"
    place.delete("SandboxClaim", "guarded")
    place.delete("SandboxTemplate", "guarded")
    place.wait_gone("NetworkPolicy", "guarded-network-policy")


@pytest.fixture(scope="module")
def rows(place):
    """A namespace for the rows of the published API."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rows"}}
    place.objects.create(body)
    return Place(place.objects, "rows")


@pytest.fixture(scope="module")
def begun(rows):
    """All situations, begun at once."""
    with ThreadPoolExecutor(len(situations.SITUATIONS)) as beside:
        yield {each.__name__: beside.submit(each, rows) for each in situations.SITUATIONS}


@pytest.mark.parametrize("name", [each.__name__ for each in situations.SITUATIONS])
def test_a_situation_made_real_on_a_node_is_said_by_its_condition_and_reason(begun, name):
    begun[name].result()


def test_every_condition_and_reason_was_heard_of_the_real_gateway(rows, request):
    of_no_node = {("Sandbox", "PodScheduled", "Unknown PodSchedulingUnknown")}
    assert (SANDBOX_ROWS | CLAIM_ROWS) - all_heard(rows, request) <= of_no_node


def test_deleted_sandboxes_leave_nothing(place, ready):
    for name in ("a", "b", "c"):
        place.delete("Sandbox", name)
    for name in ("a", "b", "c"):
        place.wait_gone("Pod", name)
        place.wait_gone("PersistentVolumeClaim", f"workspace-{name}")
    assert [each["metadata"]["name"] for each in place.list("Service")] == ["kubernetes"]
