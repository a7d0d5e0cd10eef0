"""Rollouts on a real control plane: its controllers make the pods, a stand-in for the kubelet runs them."""

from __future__ import annotations

import threading

import pytest
from tests.integration.gateway_tls.conftest import ClusterSteps
from tests.support.background_thread import BackgroundThread
from tests.support.hints import execute_hint
from tests.support.holdfast_cli import HoldfastCli

from holdfast.api import PUBLISHED_NAMESPACE
from holdfast.containers import ImageView
from holdfast.errors import WaitFailedError, WaitTimeoutError
from holdfast.gateway import resolve_settings
from holdfast.gateway.cluster import ApplyWorkloads, EnsureNamespace, ReconcileTls, WaitRollout
from holdfast.pki import CLIENT_SECRET
from holdfast.retry import Policy, constant
from holdfast.testing.apiserver import KubeServer
from holdfast.testing.faults import Fault, FaultProxy, rule

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]

STEPS = (ReconcileTls, ApplyWorkloads, WaitRollout)
FAULTS = [
    Fault(kind="unavailable", retry_after="1"),
    Fault(kind="too-many-requests", retry_after="1"),
    Fault(kind="reset-before"),
    Fault(kind="reset-after"),
]


class RolloutKubelet(BackgroundThread):
    """Answers for pods as a node would: each new one gets the status that the test asks for."""

    def __init__(self, server, namespace) -> None:
        super().__init__()
        self.server, self.pods = server, f"/api/v1/namespaces/{namespace}/pods"
        self.status = ready_pod_status()

    def run(self):
        while not self.stop.wait(0.1):
            for pod in self.list():
                name = pod["metadata"]["name"]
                if pod["metadata"].get("deletionTimestamp"):
                    body = {"gracePeriodSeconds": 0}
                    self.server.request("DELETE", f"{self.pods}/{name}", body)
                elif (pod["status"].get("containerStatuses") or []) != self.status["containerStatuses"]:
                    self.server.request("PUT", f"{self.pods}/{name}/status", {**pod, "status": self.status})

    def show(self, status):
        """From here on every pod has this status, those that are there already too."""
        self.status = status
        shown = Policy(attempts=None, deadline=30, backoff=constant(0.05), retry_on=AssertionError)
        shown.call(self._assert_shown)

    def _assert_shown(self):
        wanted = [row["state"] for row in self.status["containerStatuses"]]
        for pod in self.list():
            assert [row["state"] for row in pod["status"].get("containerStatuses") or ()] == wanted

    def list(self):
        return self.server.request("GET", self.pods)[1]["items"]


def ready_pod_status():
    row = {"name": "api", "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
    row["state"] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    conditions = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
    return {"phase": "Running", "conditions": conditions, "containerStatuses": [row]}


def waiting_pod_status(reason):
    row = {"name": "api", "image": "i", "imageID": "", "ready": False, "restartCount": 3}
    row["state"] = {"waiting": {"reason": reason, "message": "it says why"}}
    return {"phase": "Pending", "conditions": [], "containerStatuses": [row]}


@pytest.fixture(scope="module")
def control_plane():
    with KubeServer(controllers=True) as server:
        yield server


@pytest.fixture
def proxy(control_plane):
    with FaultProxy(control_plane.kubeconfig) as made:
        yield made


@pytest.fixture
def image(monkeypatch):
    """The image as the engine would show it; its id is what a test changes."""
    view = {"id": "sha256:" + "1" * 64}
    monkeypatch.setattr(
        "holdfast.gateway.cluster.rollout.find_gateway_image",
        lambda _gateway: ImageView(id=view["id"], labels={}, architecture="amd64", size=1),
    )
    return view


@pytest.fixture
def rollout_steps(control_plane, proxy, home, image):
    bench = ClusterSteps(control_plane, proxy.kubeconfig, home, control_plane.create_namespace())
    bench.gateway.__dict__["engine"] = None
    with RolloutKubelet(control_plane, bench.namespace) as kubelet:
        bench.kubelet = kubelet
        yield bench


def current_pods(bench, name="holdfast-api"):
    return [
        pod
        for pod in bench.kubelet.list()
        if not pod["metadata"].get("deletionTimestamp")
        and pod["metadata"]["labels"]["app.kubernetes.io/name"] == name
    ]


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("serviceaccounts", marks=pytest.mark.slow),
        pytest.param("services", marks=pytest.mark.slow),
        "deployments",
    ],
)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind)
def test_fault_in_any_apply_creates_one_pod(rollout_steps, proxy, fault, kind):
    count = 1 if fault.retry_after else 2
    with proxy.faults(rule(fault, methods="PATCH", path=f"/{kind}/holdfast-api$", count=count)) as log:
        rollout_steps.run(*STEPS)
    assert log.faults() == {fault.kind: count}
    (pod,) = current_pods(rollout_steps)
    assert rollout_steps.run(*STEPS).changed == ()
    assert [each["metadata"]["uid"] for each in current_pods(rollout_steps)] == [pod["metadata"]["uid"]]


def test_faults_during_rollout_watch_are_retried(rollout_steps, proxy):
    watches = [
        Fault(kind="drop-stream", events=0),
        Fault(kind="event-gone", events=0),
        Fault(kind="event-too-many-requests", events=0, retry_after="1"),
        Fault(kind="unavailable", retry_after="1"),
    ]
    rules = [rule(fault, path="/pods|/deployments", query="watch=true", count=1) for fault in watches]
    rollout_steps.kubelet.status = waiting_pod_status("ContainerCreating")
    rollout_steps.run(ReconcileTls, ApplyWorkloads)
    with proxy.faults(*rules) as log:

        def ready_after_all_faults():
            assert sum(log.faults().values()) == len(watches)
            rollout_steps.kubelet.status = ready_pod_status()

        met = Policy(attempts=None, deadline=60, backoff=constant(0.05), retry_on=AssertionError)
        waiter = threading.Thread(target=met.call, args=(ready_after_all_faults,))
        waiter.start()
        rollout_steps.run(*STEPS)
        waiter.join()
    assert sum(log.faults().values()) == 4
    assert len(current_pods(rollout_steps)) == 1


def test_rotated_certificates_and_new_image_restart_workload_once_each(rollout_steps, image):
    rollout_steps.run(*STEPS)
    (first,), controllers = current_pods(rollout_steps), current_pods(rollout_steps, "holdfast-controller")
    rollout_steps.server.request("DELETE", rollout_steps.path(CLIENT_SECRET))
    assert rollout_steps.run(*STEPS).changed == ("reconcile-tls", "apply-workloads")
    (second,) = current_pods(rollout_steps)
    assert [pod["metadata"]["uid"] for pod in current_pods(rollout_steps, "holdfast-controller")] == [
        pod["metadata"]["uid"] for pod in controllers
    ]
    image["id"] = "sha256:" + "2" * 64
    assert rollout_steps.run(*STEPS).changed == ("apply-workloads",)
    (third,) = current_pods(rollout_steps)
    assert len({pod["metadata"]["uid"] for pod in (first, second, third)}) == 3
    assert rollout_steps.run(*STEPS).changed == ()


def test_modified_objects_are_restored_and_named(rollout_steps):
    rollout_steps.run(*STEPS)
    path = f"/apis/apps/v1/namespaces/{rollout_steps.namespace}/deployments/holdfast-api"
    deployment = rollout_steps.server.request("GET", path)[1]
    deployment["spec"]["replicas"] = 0
    assert rollout_steps.server.request("PUT", path, deployment)[0] == 200
    rollout_steps.run(*STEPS)
    assert rollout_steps.server.request("GET", path)[1]["spec"]["replicas"] == 1
    assert "Deployment holdfast-api changed" in rollout_steps.note("apply-workloads")


@pytest.mark.parametrize("reason", ["ErrImageNeverPull", "CrashLoopBackOff"])
def test_unstartable_pod_fails_wait_immediately(rollout_steps, reason):
    rollout_steps.kubelet.status = waiting_pod_status(reason)
    with pytest.raises(WaitFailedError, match=f"(?s)holdfast-api: cannot run: {reason}: it says why"):
        rollout_steps.run(*STEPS)
    rollout_steps.kubelet.show(ready_pod_status())
    rollout_steps.run(*STEPS)


def test_rollout_timeout_reports_last_state(rollout_steps):
    rollout_steps.gateway.resolved = resolve_settings(
        {"namespace": rollout_steps.namespace, "timeouts.rollout": 2}
    )
    rollout_steps.kubelet.status = waiting_pod_status("ContainerCreating")
    with pytest.raises(WaitTimeoutError, match="within 2 s: creating its container") as caught:
        rollout_steps.run(*STEPS)
    described = execute_hint(
        HoldfastCli(rollout_steps.home),
        caught.value.hint,
        "Run `kubectl --kubeconfig {} -n {} describe {}`.",
    )
    assert "holdfast-api" in described


@pytest.mark.parametrize("of_lease", [False, True], ids=["of the workloads", "of the Lease"])
def test_terminating_namespace_is_awaited_and_recreated(rollout_steps, of_lease):
    path = f"/api/v1/namespaces/{PUBLISHED_NAMESPACE if of_lease else rollout_steps.namespace}"
    rollout_steps.run(EnsureNamespace)
    uid = rollout_steps.server.request("GET", path)[1]["metadata"]["uid"]
    assert rollout_steps.run(EnsureNamespace).changed == ()
    rollout_steps.server.request("DELETE", path)
    assert rollout_steps.run(EnsureNamespace).changed == ("ensure-namespace",)
    found = rollout_steps.server.request("GET", path)[1]
    assert found["status"]["phase"] == "Active"
    assert found["metadata"]["uid"] != uid
