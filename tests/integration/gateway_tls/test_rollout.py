"""Rollouts on a real control plane: its controllers make the pods, a stand-in for the kubelet runs them."""

from __future__ import annotations

import threading

import pytest
from tests.integration.gateway_tls.conftest import Bench
from tests.support.background import Background

from holdfast.containers.images import ImageView
from holdfast.errors import WaitFailedError, WaitTimeoutError
from holdfast.gateway.settings import resolve
from holdfast.gateway.steps.namespace import EnsureNamespace
from holdfast.gateway.steps.tls import ReconcileTls
from holdfast.gateway.steps.workloads import ApplyWorkloads, WaitRollout
from holdfast.pki import CLIENT_SECRET
from holdfast.retry import Policy, constant
from holdfast.testing.faults import Fault, FaultProxy, rule
from holdfast.testing.kube_server import KubeServer

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]

STEPS = (ReconcileTls, ApplyWorkloads, WaitRollout)
FAULTS = [
    Fault(kind="unavailable", retry_after="1"),
    Fault(kind="too-many-requests", retry_after="1"),
    Fault(kind="reset-before"),
    Fault(kind="reset-after"),
]


class Kubelet(Background):
    """Answers for pods as a node would: each new one gets the status that the test asks for."""

    def __init__(self, server, namespace) -> None:
        super().__init__()
        self.server, self.pods = server, f"/api/v1/namespaces/{namespace}/pods"
        self.status = ready()

    def work(self):
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


def ready():
    row = {"name": "api", "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
    row["state"] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    conditions = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
    return {"phase": "Running", "conditions": conditions, "containerStatuses": [row]}


def waiting(reason):
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
        "holdfast.gateway.steps.workloads.find_image",
        lambda _engine, _reference: ImageView(id=view["id"], labels={}, architecture="amd64", size=1),
    )
    return view


@pytest.fixture
def rollouts(control_plane, proxy, home, image):
    bench = Bench(control_plane, proxy.kubeconfig, home, control_plane.create_namespace())
    bench.work.__dict__["engine"] = None
    with Kubelet(control_plane, bench.namespace) as kubelet:
        bench.kubelet = kubelet
        yield bench


def living(bench, name="holdfast-api"):
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
def test_a_fault_in_any_apply_is_survived_and_makes_one_pod(rollouts, proxy, fault, kind):
    count = 1 if fault.retry_after else 2
    with proxy.faults(rule(fault, methods="PATCH", path=f"/{kind}/holdfast-api$", count=count)) as log:
        rollouts.run(*STEPS)
    assert log.faults() == {fault.kind: count}
    (pod,) = living(rollouts)
    assert rollouts.run(*STEPS).changed == ()
    assert [each["metadata"]["uid"] for each in living(rollouts)] == [pod["metadata"]["uid"]]


def test_faults_while_the_rollout_is_watched_are_survived(rollouts, proxy):
    watches = [
        Fault(kind="drop-stream", events=0),
        Fault(kind="event-gone", events=0),
        Fault(kind="event-too-many-requests", events=0, retry_after="1"),
        Fault(kind="unavailable", retry_after="1"),
    ]
    rules = [rule(fault, path="/pods|/deployments", query="watch=true", count=1) for fault in watches]
    rollouts.kubelet.status = waiting("ContainerCreating")
    rollouts.run(ReconcileTls, ApplyWorkloads)
    with proxy.faults(*rules) as log:

        def ready_after_all_faults():
            assert sum(log.faults().values()) == len(watches)
            rollouts.kubelet.status = ready()

        met = Policy(attempts=None, deadline=60, backoff=constant(0.05), retry_on=AssertionError)
        waiter = threading.Thread(target=met.call, args=(ready_after_all_faults,))
        waiter.start()
        rollouts.run(*STEPS)
        waiter.join()
    assert sum(log.faults().values()) == 4
    assert len(living(rollouts)) == 1


def test_rotated_certificates_and_a_new_image_restart_the_workload_once_each(rollouts, image):
    rollouts.run(*STEPS)
    (first,), controllers = living(rollouts), living(rollouts, "holdfast-controller")
    rollouts.server.request("DELETE", rollouts.path(CLIENT_SECRET))
    assert rollouts.run(*STEPS).changed == ("reconcile-tls", "apply-workloads")
    (second,) = living(rollouts)
    assert [pod["metadata"]["uid"] for pod in living(rollouts, "holdfast-controller")] == [
        pod["metadata"]["uid"] for pod in controllers
    ]
    image["id"] = "sha256:" + "2" * 64
    assert rollouts.run(*STEPS).changed == ("apply-workloads",)
    (third,) = living(rollouts)
    assert len({pod["metadata"]["uid"] for pod in (first, second, third)}) == 3
    assert rollouts.run(*STEPS).changed == ()


def test_what_somebody_changed_is_put_right_and_named(rollouts):
    rollouts.run(*STEPS)
    path = f"/apis/apps/v1/namespaces/{rollouts.namespace}/deployments/holdfast-api"
    deployment = rollouts.server.request("GET", path)[1]
    deployment["spec"]["replicas"] = 0
    assert rollouts.server.request("PUT", path, deployment)[0] == 200
    rollouts.run(*STEPS)
    assert rollouts.server.request("GET", path)[1]["spec"]["replicas"] == 1
    assert "Deployment holdfast-api changed" in rollouts.note("apply-workloads")


@pytest.mark.parametrize("reason", ["ErrImageNeverPull", "CrashLoopBackOff"])
def test_a_pod_that_cannot_run_ends_the_wait_at_once(rollouts, reason):
    rollouts.kubelet.status = waiting(reason)
    with pytest.raises(WaitFailedError, match=f"(?s)holdfast-api cannot run: {reason}: it says why"):
        rollouts.run(*STEPS)
    rollouts.kubelet.show(ready())
    rollouts.run(*STEPS)


def test_a_rollout_that_takes_too_long_says_what_was_seen_last(rollouts):
    rollouts.work.resolved = resolve({"namespace": rollouts.namespace, "timeouts.rollout": 2})
    rollouts.kubelet.status = waiting("ContainerCreating")
    with pytest.raises(WaitTimeoutError, match="within 2 s: its container is being made"):
        rollouts.run(*STEPS)


def test_a_namespace_that_is_going_away_is_waited_for_and_made_anew(rollouts):
    path = f"/api/v1/namespaces/{rollouts.namespace}"
    uid = rollouts.server.request("GET", path)[1]["metadata"]["uid"]
    assert rollouts.run(EnsureNamespace).changed == ()
    rollouts.server.request("DELETE", path)
    assert rollouts.run(EnsureNamespace).changed == ("ensure-namespace",)
    found = rollouts.server.request("GET", path)[1]
    assert found["status"]["phase"] == "Active"
    assert found["metadata"]["uid"] != uid
