"""Controller cost per sandbox, and its latency with 100 and with 1,000 sandboxes.

Uses a real API server with simulated nodes, whose pods run immediately, so that only the controller is
measured. Latency is measured from outside: from a new Sandbox to its pod, and from a ready pod to a ready
Sandbox. At each size, the benchmark creates and deletes the same number of sandboxes in addition to those
that stay.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time

import measured
from support.onlookers import Onlooker
from support.simulated import ControllerProcess, simulated_cluster

from holdfast.api import API_VERSION
from holdfast.kube import Objects, api_client

NODES = 10
SMALL, LARGE = 100, 1000
PACE = 10.0
"""Sandboxes a second: well below what any of the parts can do."""
LONGEST = 120.0
SPEC = {
    "automountServiceAccountToken": False,
    "terminationGracePeriodSeconds": 0,
    "containers": [{"name": "main", "image": "pause:1"}],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of it")
    given = parser.parse_args()
    small, large, probes = (10, 100, 30) if given.quick else (SMALL, LARGE, 300)
    with simulated_cluster(NODES) as server:
        namespace = server.create_namespace()
        log = server.directory / "controller.log"
        with (
            ControllerProcess(server.kubeconfig, namespace, log) as controller,
            api_client(server.kubeconfig) as api,
        ):
            return measured.report(Growth(server, api, namespace, controller).claims(small, large, probes))


class Growth:
    def __init__(self, server, api, namespace, controller) -> None:
        self.objects, self.namespace, self.controller = Objects(api), namespace, controller
        self.moments = {}
        self.changed = threading.Condition()
        for path in (f"/apis/{API_VERSION}", "/api/v1"):
            plural = "pods" if path == "/api/v1" else "sandboxes"
            Onlooker(server, f"{path}/namespaces/{namespace}/{plural}", self.saw)

    def claims(self, small, large, probes):
        self.pass_through("warm", 20)
        memory = self.controller.memory_mib()
        self.stay("a", small)
        few = self.pass_through("p", probes)
        used = self.controller.cpu_seconds()
        self.stay("b", large - small)
        used = (self.controller.cpu_seconds() - used) / (large - small)
        rose = (self.controller.memory_mib() - memory) / large
        many = self.pass_through("q", probes)
        yield measured.claim("controller CPU for a sandbox until Ready", used * 1000, "ms")
        yield measured.claim(
            "controller memory for a sandbox", rose * 1024, "KiB",
            without_mib=round(memory, 1), with_all_mib=round(self.controller.memory_mib(), 1),
        )  # fmt: skip
        yield measured.claim(
            f"reconcile latency p99 at {large} sandboxes", p99(many) * 1000, "ms",
            baseline=(f"p99 at {small} sandboxes, ms", p99(few) * 1000), at_most=2.0,
            medians_ms=[round(statistics.median(each) * 1000, 1) for each in (few, many)],
        )  # fmt: skip

    def stay(self, letter, size):
        """Make sandboxes that stay."""
        names = [f"{letter}{number}" for number in range(size)]
        self.paced(names, 2 * PACE, self.make)
        self.until(names, "ready")

    def pass_through(self, letter, size):
        """Make sandboxes one after the other, and take each away when it is ready; what each step took."""
        names = [f"{letter}{number}" for number in range(size)]
        self.paced(names, PACE, self.make)
        self.until(names, "ready")
        for name in names:
            self.objects.delete("Sandbox", name, namespace=self.namespace, api_version=API_VERSION)
        self.until(names, "gone")
        seen = [self.moments[name] for name in names]
        made = [max(0.0, one["pod"] - one["sandbox"]) for one in seen]
        told = [max(0.0, one["ready"] - one["running"]) for one in seen]
        return made + told

    def paced(self, names, pace, do):
        began = time.perf_counter()
        for number, name in enumerate(names):
            time.sleep(max(0.0, began + number / pace - time.perf_counter()))
            do(name)

    def make(self, name):
        metadata = {"name": name, "namespace": self.namespace}
        self.objects.create(
            {
                "apiVersion": API_VERSION,
                "kind": "Sandbox",
                "metadata": metadata,
                "spec": {"podTemplate": {"spec": SPEC}},
            }
        )

    def saw(self, kind, found, moment):
        name, is_pod = found["metadata"]["name"], found["kind"] == "Pod"
        with self.changed:
            seen = self.moments.setdefault(name, {})
            if kind == "DELETED":
                seen.setdefault("gone" if is_pod else "left", moment)
            else:
                seen.setdefault("pod" if is_pod else "sandbox", moment)
                if is_ready(found):
                    seen.setdefault("running" if is_pod else "ready", moment)
            self.changed.notify_all()

    def until(self, names, what):
        ends = time.perf_counter() + LONGEST
        with self.changed:
            while missing := [name for name in names if what not in self.moments.get(name, {})]:
                if not self.changed.wait(ends - time.perf_counter()):
                    raise SystemExit(f"not {what} in time: {missing[:5]} of {len(missing)}")


def is_ready(found):
    rows = (found.get("status") or {}).get("conditions") or ()
    return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)


def p99(values):
    return statistics.quantiles(values, n=100)[98]


if __name__ == "__main__":
    raise SystemExit(main())
