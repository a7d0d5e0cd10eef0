"""SIGKILL of a gateway's controller at random times, verified by exit code, restart count and log.

A kubelet restarts a container immediately after its first exit, then after 10 s, 20 s and so on up to 5 min.
It resets this backoff after ten minutes or with a new pod. So each pod is killed three times. After the first
kill the container restarts immediately with the Lease that it held, after the second in 10 s. After the third
kill the pod is deleted, and another pod waits until the Lease expires. Some kills hit a start, most of them
the normal work.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.support.background_thread import BackgroundThread
from tests.support.controller_process import status_of

from holdfast.api import PUBLISHED_NAMESPACE
from holdfast.containers import run_in_container
from holdfast.controller.leader_election import LEASE_NAME
from holdfast.kube import Objects, WaitResult, api_client
from holdfast.remote import connect

NAMESPACE = "holdfast"
LABELS = "app.kubernetes.io/name=holdfast-controller"
KILLS_PER_POD = 3
KILLED_DURING_START_RATIO = 0.3
"""How many of them die while they start, the others while they work."""
MAX_START_SECONDS, MAX_LEADING_SECONDS = 3.0, 6.0
WAIT_SECONDS = 120.0
SIGKILL_EXIT_CODE = 137
POD_LOG_DIRECTORY = "/var/lib/holdfast/logs/pods"


@dataclass(frozen=True)
class KilledContainer:
    """One container of the controller that was killed."""

    pod: str
    restart_count: int
    was_leading: bool
    """whether it had begun to work"""
    log: str


class ControllerKiller(BackgroundThread):
    """Kills so many times; `over` once that is done, or something is not as it must be (`trouble`)."""

    def __init__(self, gateway, seed, *, kills):
        super().__init__()
        self._gateway, self._random, self._kill_count = gateway, random.Random(seed), kills
        self._kubeconfig = gateway.holdfast.home / "config" / "gateways" / gateway.name / "kubeconfig"
        self.kills: list[KilledContainer] = []
        self.error: BaseException | None = None
        self.is_finished = False

    def __exit__(self, kind, error, trace):
        super().__exit__(kind, error, trace)
        if self.error is not None:
            raise self.error

    @property
    def killed_while_leading(self):
        """How many of those that were killed were at work."""
        return sum(kill.was_leading for kill in self.kills)

    def run(self):
        try:
            with api_client(self._kubeconfig) as api:
                self._kill_repeatedly(Objects(api))
        except BaseException as error:  # noqa: BLE001 - told to the test, which runs in another thread
            self.error = error
        self.is_finished = True

    def _kill_repeatedly(self, objects):
        pod, taken = wait_pod(objects, is_running), None
        while len(self.kills) < self._kill_count:
            if not self._wait_random_time(objects, pod, taken):
                return
            # Read it before the kill: the next container may start before the exit is observed.
            taken = lease_spec(objects).get("acquireTime")
            self._kill(objects, pod)
            pod = self._wait_replacement(objects, pod)

    def _wait_random_time(self, objects, pod, taken):
        """Let it live for a random time; False if that is no longer wanted."""
        if self._random.random() < KILLED_DURING_START_RATIO:
            return not self.stop.wait(self._random.uniform(0.0, MAX_START_SECONDS))
        wait_lease_acquired(objects, pod, not_at=taken)
        return not self.stop.wait(self._random.uniform(0.0, MAX_LEADING_SECONDS))

    def _wait_replacement(self, objects, dead):
        """The same pod's next container, which counts one restart more; or the next pod's first one."""
        old, before = dead["metadata"]["uid"], restart_count(dead)
        if len([kill for kill in self.kills if kill.pod == old]) < KILLS_PER_POD:
            pod = wait_pod(objects, lambda pod: restart_count(pod) > before and is_running(pod))
            assert (pod["metadata"]["uid"], restart_count(pod)) == (old, before + 1)
            return pod
        objects.delete("Pod", dead["metadata"]["name"], namespace=NAMESPACE, uid=old)
        pod = wait_pod(objects, lambda pod: pod["metadata"]["uid"] != old and is_running(pod))
        assert restart_count(pod) == 0
        return pod

    def _kill(self, objects, pod):
        row, about = container_status(pod), pod["metadata"]
        task = row["containerID"].removeprefix("containerd://")
        killed = self._in_node("ctr", "-n", "k8s.io", "task", "kill", "--all", "-s", "SIGKILL", task)
        if killed.exit_code == 0:
            wait_pod(objects, lambda found: sigkill_termination(found, row["containerID"]) is not None)
        folder = f"{POD_LOG_DIRECTORY}/{NAMESPACE}_{about['name']}_{about['uid']}/{row['name']}"
        log = self._in_node("cat", f"{folder}/{row['restartCount']}.log").output
        if killed.exit_code != 0:
            now = container_status(objects.get("Pod", about["name"], namespace=NAMESPACE))
            raise AssertionError(f"it had ended before it was killed: {killed.output}\n{now}\n{log}")
        self.kills.append(KilledContainer(about["uid"], row["restartCount"], " leading: " in log, log))

    def _in_node(self, *words):
        return run_in_container(connect(), self._gateway.container, words)


def wait_pod(objects, until):
    """Watch the controller's pods until one that stays is as wanted."""
    found = []

    def sight(pods):
        staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        found[:] = [pod for pod in staying if until(pod)]
        return WaitResult(
            done=bool(found), observed=str([status_of(pod).get("containerStatuses") for pod in staying])
        )

    objects.wait_many("Pod", sight, label_selector=LABELS, namespace=NAMESPACE, deadline=WAIT_SECONDS)
    (pod,) = found
    return pod


def wait_leading(objects):
    """Until the pod that is there holds the Lease and works; that pod."""
    pod = wait_pod(objects, lambda pod: is_running(pod) and container_status(pod)["ready"])
    wait_lease_acquired(objects, pod, not_at=None)
    return pod


def wait_lease_acquired(objects, pod, *, not_at):
    """Until a pod has taken the Lease, and not at the time at which the one before it did."""

    def held(lease):
        spec = (lease or {}).get("spec") or {}
        done = spec.get("holderIdentity") == pod["metadata"]["uid"] and spec.get("acquireTime") != not_at
        return WaitResult(done=done, observed=str(spec))

    objects.wait("Lease", LEASE_NAME, held, namespace=PUBLISHED_NAMESPACE, deadline=WAIT_SECONDS)


def lease_spec(objects):
    return (objects.get("Lease", LEASE_NAME, namespace=PUBLISHED_NAMESPACE) or {}).get("spec") or {}


def container_status(pod):
    rows = status_of(pod).get("containerStatuses") or ({},)
    return rows[0]


def restart_count(pod):
    return container_status(pod).get("restartCount", 0)


def is_running(pod):
    return "running" in container_status(pod).get("state", {})


def sigkill_termination(pod, container_id):
    """What the kubelet says of a container that SIGKILL has ended; None if it does not say so."""
    row = container_status(pod)
    ends = [row.get(key, {}).get("terminated") or {} for key in ("state", "lastState")]
    return next(
        (
            end
            for end in ends
            if (end.get("containerID"), end.get("exitCode")) == (container_id, SIGKILL_EXIT_CODE)
        ),
        None,
    )
