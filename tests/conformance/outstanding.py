"""Rows of the contract that do not hold yet, and rows that need more than an API server."""

from __future__ import annotations

CONTROLLER = "the Lease has a name of holdfast"

MISSING = {
    "12 Lease: published name": CONTROLLER,
}
"""Rows that the suite runs, and that must not pass: the list becomes only shorter."""

UNTESTED: dict[str, str] = {
    "8 one pass: old NetworkPolicy of a claim is deleted": "only policies of holdfast are watched",
    "8 one pass: status is written with resourceVersion": "the status is written without one",
    "7 replacement: at most 300 members at a time": "all are created in one pass",
    "7 replacement: doubling batches": "all are created in one pass",
    "3 Ready: Service does not exist": "the Service is created before the status is written",
    "9 events: WarmPoolNotProgressing": "pools report no events",
    "9 events: WarmPoolProgressing": "pools report no events",
    "11 tracing: OTLP export": "spans are not exported",
    "12 flags: --cluster-domain": "the cluster domain is fixed",
    "12 flags: of the published binary": "holdfast has options of its own",
}
"""Rows that are not implemented and have no scenario."""

NODE_ROWS: dict[str, str] = {
    "4 PVC: pod uses the volume": "kubelet",
    "5 life cycle: grace period of a real pod": "kubelet",
    "6 template: default policy is enforced": "network plugin",
    "7 member: not ready for 5 min is replaced": "five minutes; unit test of the warm pool",
    "7 member: unschedulable is held": "scheduler; unit test of the warm pool",
    "8 one pass: DeleteForeground waits for the pod": "kubelet",
    "13 router: headers": "router",
    "13 router: error bodies": "router",
    "13 router: dropped headers": "router",
    "13 router: WebSocket upgrades": "router",
    "13 router: timeout": "router",
    "13 router: dial retries": "router",
    "14 runtime: execute": "runtime in a pod",
    "14 runtime: upload and download": "runtime in a pod",
    "14 runtime: list and exists": "runtime in a pod",
    "14 sandboxd: files": "runtime in a pod",
    "14 sandboxd: processes": "runtime in a pod",
    "15 clients: Python, sync": "PyPI package and a gateway",
    "15 clients: Python, async": "PyPI package and a gateway",
    "15 clients: Go": "Go toolchain and a gateway",
}
"""Rows that need a kubelet, a network or another program."""
