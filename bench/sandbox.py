"""Time from the create call to Ready: a sandbox compared with a bare pod of the same spec, alternating.

The overhead of the controller is the time that the API server reports between the sandbox and its pod, and
between the readiness of both: neither the scheduler nor the kubelet is part of it.

Brings up a gateway with the controller, or uses an existing one (--kubeconfig, for development). Pods run the
node's pause image, so that the container's start is negligible; with a workspace they are those of
`sandbox create`. Reports medians and cleans up. Growth: sandbox_growth.py.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import contextmanager
from pathlib import Path

import measured

from holdfast.api import API_VERSION, EXTENSIONS_API_VERSION, NAME_HASH_LABEL, SandboxRequest
from holdfast.kube import Objects, api_client
from holdfast.sandbox import name_hash
from holdfast.sandbox.from_request import DEFAULT_IMAGE, sandbox_manifest as created

NAME = f"bench-{uuid.uuid4().hex[:6]}"
HOLDFAST = (sys.executable, str(Path(sys.executable).parent / "holdfast"))
IMAGE = "holdfast.dev/pause:1"
LONGEST = 180.0
# Bursts take long: few enough for a run of minutes, enough that one outlier is not the result.
BURSTS = 3
SPEC = {
    "automountServiceAccountToken": False,
    # With 0, the API server deletes a pod before its node has stopped it; the next measurement would pay.
    "terminationGracePeriodSeconds": 1,
    "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "Never"}],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller bursts")
    parser.add_argument("--kubeconfig", help="measure this cluster, whose controller runs already")
    parser.add_argument("--only", default="", help="only claims whose name has this in it")
    given = parser.parse_args()
    with gateway() if given.kubeconfig is None else given_one(given.kubeconfig) as kubeconfig:
        bench = Bench(kubeconfig)
        try:
            return measured.report(bench.claims(quick=given.quick, only=given.only))
        finally:
            bench.clear()


@contextmanager
def given_one(kubeconfig):
    yield kubeconfig


@contextmanager
def gateway():
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOLDFAST_HOME"] = home
        try:
            # Without it the first sandbox with a workspace would bring it along, or wait for a registry.
            words = ["up", NAME, "--push-image", DEFAULT_IMAGE]
            subprocess.run([*HOLDFAST, *words], check=True, stdout=sys.stderr)
            found = subprocess.run(
                [*HOLDFAST, "kubeconfig", NAME, "--path"], check=True, capture_output=True, text=True
            )
            yield found.stdout.strip()
        finally:
            subprocess.run(
                [*HOLDFAST, "destroy", NAME, "--data", "--yes", NAME], check=False, stdout=sys.stderr
            )


class Bench:
    def __init__(self, kubeconfig):
        self.objects = Objects(api_client(kubeconfig))
        self.namespace = os.environ.get("BENCH_NAMESPACE", NAME)
        self.objects.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        self.serial = 0

    def claims(self, *, quick, only):
        few, some = (3, 5) if quick else (7, 11)
        plans = [
            ("controller overhead", lambda: self.overheads(some)),
            ("single sandbox", lambda: self.against_pods("single sandbox", 1, some, 1.4)),
            ("burst of 20", lambda: self.against_pods("burst of 20", 20, BURSTS, 1.25)),
            ("burst of 50", lambda: self.against_pods("burst of 50", 50, BURSTS, 1.25)),
            ("workspace", lambda: self.with_workspace(few)),
            ("warm claim", lambda: self.warm_claims(some)),
            ("resume", lambda: self.resumes(few)),
        ]
        for name, plan in plans:
            if only in name and not (quick and name == "burst of 50"):
                yield plan()

    def overheads(self, rounds):
        times = [self.overhead(name) * 1000 for name in self.names("o", rounds)]
        return measured.claim(
            "controller overhead by API server times, single", statistics.median(times), "ms", at_most=25,
            spread=[round(min(times), 1), round(max(times), 1)],
        )  # fmt: skip

    def overhead(self, name):
        """Seconds from the sandbox to its pod, and from the ready pod to the ready sandbox."""
        sandboxes = Watch(self, "Sandbox", API_VERSION, [name], is_ready)
        pods = Watch(self, "Pod", "v1", [name], pod_is_ready, f"{NAME_HASH_LABEL}={name_hash(name)}")
        self.objects.create(self.sandbox(name))
        for watch in (sandboxes, pods):
            watch.wait()
        self.remove("Sandbox", API_VERSION, [name])
        self.until_gone("Pod", "v1", [name])
        until_pod = pods.seen[name] - sandboxes.seen[name]
        return until_pod + sandboxes.done[name] - pods.done[name]

    def against_pods(self, name, size, rounds, at_most):
        ours, bare = in_turns(rounds, lambda: self.sandboxes(size), lambda: self.pods(size))
        base = (f"{size} bare pod(s) with the same spec, s", statistics.median(bare))
        return measured.claim(
            f"{name}: create to Ready", statistics.median(ours), "s", baseline=base, at_most=at_most,
            spread=spread(ours), baseline_spread=spread(bare),
        )  # fmt: skip

    def with_workspace(self, rounds):
        """The same claim and init container, made by hand and by the controller."""
        ours, bare = in_turns(rounds, self.whole_one, self.whole_one_by_hand)
        base = ("one pod with the same claim and init container, s", statistics.median(bare))
        return measured.claim(
            "sandbox with a workspace: create to Ready", statistics.median(ours), "s", baseline=base,
            at_most=1.25, spread=spread(ours), baseline_spread=spread(bare),
        )  # fmt: skip

    def whole_one(self):
        [name] = self.names("w", 1)
        make = lambda name: self.objects.create(self.whole_sandbox(name))  # noqa: E731
        took = self.timed("Sandbox", API_VERSION, [name], make, is_ready)
        self.remove("Sandbox", API_VERSION, [name])
        self.until_gone("Pod", "v1", [name])
        return took

    def whole_one_by_hand(self):
        [name] = self.names("w", 1)
        took = self.timed("Pod", "v1", [name], self.make_by_hand, pod_is_ready)
        self.remove("Pod", "v1", [name])
        self.remove("PersistentVolumeClaim", "v1", [name])
        return took

    def whole_sandbox(self, name):
        made = created(SandboxRequest(name=name), namespace=self.namespace, endpoint=None)
        made["metadata"]["labels"]["bench"] = "yes"
        made["spec"]["podTemplate"]["spec"]["terminationGracePeriodSeconds"] = 1
        return made

    def make_by_hand(self, name):
        spec = self.whole_sandbox(name)["spec"]
        [template] = spec["volumeClaimTemplates"]
        volume = {"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": name}}
        whole = {**spec["podTemplate"]["spec"]}
        whole["volumes"] = [*whole.get("volumes", ()), volume]
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": template["spec"]}
        self.objects.create({**claim, "metadata": self.about(name)})
        self.objects.create({**self.pod(name), "spec": whole})

    def pods(self, size):
        names = self.names("p", size)
        took = self.timed("Pod", "v1", names, lambda name: self.objects.create(self.pod(name)), pod_is_ready)
        self.remove("Pod", "v1", names)
        return took

    def sandboxes(self, size):
        names = self.names("s", size)
        make = lambda name: self.objects.create(self.sandbox(name))  # noqa: E731
        took = self.timed("Sandbox", API_VERSION, names, make, is_ready)
        self.remove("Sandbox", API_VERSION, names)
        self.until_gone("Pod", "v1", names)
        return took

    def warm_claims(self, rounds):
        pool, ready = f"pool-{uuid.uuid4().hex[:4]}", 4
        blueprint = {"podTemplate": {"spec": SPEC}, "networkPolicyManagement": "Unmanaged"}
        self.objects.create(self.extension("SandboxTemplate", pool, blueprint))
        spec = {"replicas": ready, "sandboxTemplateRef": {"name": pool}}
        self.objects.create(self.extension("SandboxWarmPool", pool, spec))
        times = []
        for name in self.names("c", rounds):
            self.until(
                "SandboxWarmPool", pool, lambda one: (one.get("status") or {}).get("readyReplicas") == ready
            )
            manifest = self.extension("SandboxClaim", name, {"warmPoolRef": {"name": pool}})
            make = lambda _, manifest=manifest: self.objects.create(manifest)  # noqa: E731
            times.append(self.timed("SandboxClaim", EXTENSIONS_API_VERSION, [name], make, is_ready))
            # Exclude the termination of one SandboxClaim's pod from the time of the next.
            claim = self.objects.get(
                "SandboxClaim", name, namespace=self.namespace, api_version=EXTENSIONS_API_VERSION
            )
            self.remove("SandboxClaim", EXTENSIONS_API_VERSION, [name])
            self.until_gone("Pod", "v1", [claim["status"]["sandbox"]["name"]])
        for kind in ("SandboxWarmPool", "SandboxTemplate"):
            self.remove(kind, EXTENSIONS_API_VERSION, [pool])
        return measured.claim(
            "warm claim: create to Ready", statistics.median(times) * 1000, "ms", at_most=40,
            spread=[round(min(times) * 1000, 1), round(max(times) * 1000, 1)],
        )  # fmt: skip

    def resumes(self, rounds):
        [name] = self.names("r", 1)
        self.objects.create(self.sandbox(name))
        self.until("Sandbox", name, is_ready)
        ours, bare = [], []
        resume = lambda name: self.mode(name, "Running")  # noqa: E731
        for turn in range(rounds):
            self.mode(name, "Suspended")
            self.until("Sandbox", name, is_suspended)
            # A node that still ends a pod starts the next one later: each comes first in turn.
            if turn % 2:
                bare.append(self.pods(1))
            ours.append(self.timed("Sandbox", API_VERSION, [name], resume, is_ready))
            if not turn % 2:
                self.mode(name, "Suspended")
                self.until("Sandbox", name, is_suspended)
                bare.append(self.pods(1))
        self.remove("Sandbox", API_VERSION, [name])
        base = ("one bare pod with the same spec, s", statistics.median(bare))
        return measured.claim(
            "resume: call to Ready", statistics.median(ours), "s", baseline=base, at_most=1.3,
            spread=spread(ours), baseline_spread=spread(bare),
        )  # fmt: skip

    def mode(self, name, mode):
        patch = {"spec": {"operatingMode": mode}}
        self.objects.patch("Sandbox", name, patch, namespace=self.namespace, api_version=API_VERSION)

    def timed(self, kind, api_version, names, make, is_done):
        """Seconds from the first call until the last one is as wanted; a watch is there before the calls."""
        watch = Watch(self, kind, api_version, names, is_done)
        # Closing the last watch closed a connection: reconnect outside of the measured time.
        self.objects.get("Namespace", self.namespace)
        began = time.perf_counter()
        for name in names:
            make(name)
        watch.wait()
        return max(watch.done[name] for name in names) - began

    def until(self, kind, name, is_done):
        version = API_VERSION if kind == "Sandbox" else EXTENSIONS_API_VERSION
        self.objects.wait(
            kind,
            name,
            lambda one: one is not None and is_done(one),
            namespace=self.namespace,
            api_version=version,
            deadline=LONGEST,
        )

    def remove(self, kind, api_version, names):
        for name in names:
            self.objects.delete(
                kind,
                name,
                namespace=self.namespace,
                api_version=api_version,
                propagation="Background" if kind == "Sandbox" else None,
            )
        self.until_gone(kind, api_version, names)

    def until_gone(self, kind, api_version, names):
        for name in names:
            self.objects.wait(
                kind,
                name,
                lambda one: one is None,
                namespace=self.namespace,
                api_version=api_version,
                deadline=LONGEST,
            )

    def names(self, letter, size):
        self.serial += 1
        return [f"{letter}{self.serial}-{number}" for number in range(size)]

    def about(self, name):
        return {"name": name, "namespace": self.namespace, "labels": {"bench": "yes"}}

    def pod(self, name):
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": self.about(name),
            "spec": copy.deepcopy(SPEC),
        }

    def sandbox(self, name):
        spec = {"podTemplate": {"spec": copy.deepcopy(SPEC)}}
        return {"apiVersion": API_VERSION, "kind": "Sandbox", "metadata": self.about(name), "spec": spec}

    def extension(self, kind, name, spec):
        return {
            "apiVersion": EXTENSIONS_API_VERSION,
            "kind": kind,
            "metadata": self.about(name),
            "spec": spec,
        }

    def clear(self):
        if "BENCH_NAMESPACE" not in os.environ:
            self.objects.delete("Namespace", self.namespace, wait=LONGEST)


class Watch:
    """When the API server reports that objects exist, and that they are as wanted."""

    def __init__(self, bench, kind, api_version, names, is_done, selector="bench=yes"):
        self.seen, self.done = {}, {}
        self._kind, self._names, self._is_done = kind, set(names), is_done
        self._listening, self._finished = threading.Event(), threading.Event()
        options = {"namespace": bench.namespace, "api_version": api_version, "label_selector": selector}

        def watch():
            bench.objects.wait_many(kind, self._note, deadline=LONGEST, **options)
            self._finished.set()

        threading.Thread(target=watch, daemon=True).start()
        self._listening.wait(10)

    def _note(self, found):
        now = time.perf_counter()
        for one in found:
            self.seen.setdefault(one["metadata"]["name"], now)
            if self._is_done(one):
                self.done.setdefault(one["metadata"]["name"], now)
        self._listening.set()
        return self._names <= self.done.keys()

    def wait(self):
        if not self._finished.wait(LONGEST):
            raise SystemExit(f"{self._kind} not ready in time: {sorted(self._names - self.done.keys())}")


def in_turns(rounds, ours, bare):
    """What each took, round by round: who comes first changes, as a node may still be busy with the last."""
    first, second, times = ours, bare, {ours: [], bare: []}
    for _ in range(rounds):
        first, second = second, first
        for one in (first, second):
            times[one].append(one())
    return times[ours], times[bare]


def spread(times):
    return [round(min(times), 3), round(max(times), 3)]


def condition(found, kind):
    rows = (found.get("status") or {}).get("conditions") or ()
    return next((row["status"] for row in rows if row["type"] == kind), None)


def pod_is_ready(pod):
    return condition(pod, "Ready") == "True" and bool(pod["status"].get("podIP"))


def is_ready(found):
    return condition(found, "Ready") == "True"


def is_suspended(found):
    return condition(found, "Suspended") == "True"


if __name__ == "__main__":
    raise SystemExit(main())
