"""CPU time that `resilient` adds to a call of the official client, measured on a real API server.

Starts a kube-apiserver with its etcd. Each variant of a call (bare, resilient, bare with the same timeout)
runs in its own process: in one process, the interpreter's inline caches that one client has specialised slow
down the other. The processes take turns call by call, in random order, since the speed of a machine changes
over seconds by more than what is measured. The figure is the median of the differences in one turn, `spread`
the lowest and highest median of five parts of the run. Prints one JSON object per line.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import statistics
import subprocess
import sys
import time
import tracemalloc

from kubernetes import client, config
from kubernetes.aio import client as aio

from holdfast.kube import OPERATION_ID_ANNOTATION, api_client, async_api_client, resilient
from holdfast.retry import Policy
from holdfast.testing.apiserver import KubeServer

TARGET_US = 50.0
MAX_GROWTH_KIB = 32
WARM_UP = 50
STACK_DEPTHS = 30
TIMEOUT = {"_request_timeout": 30.0}
# variant: what the bare client does
GET_VARIANTS = {"get-bare": "official client", "get-timeout": "official client, same timeout"}
CREATE_VARIANTS = {
    "create-bare": "official client",
    "create-bytes": "official client, same annotation",
    "create-timeout": "official client, same annotation and timeout",
}
AIO_VARIANTS = {"aio-get-bare": "official client"}


def config_map(name, **annotations):
    return {"metadata": {"name": name, "annotations": annotations}, "data": {"key": "value"}}


def operation_id(n):
    return {OPERATION_ID_ANNOTATION: f"{n:0>32}"}


def sync_call(variant, kubeconfig, prefix):
    """The function that a process of this variant measures; it takes the number of the call."""
    if variant.endswith("-ours"):
        core = resilient(client.CoreV1Api(api_client(kubeconfig)))
    else:
        configuration = client.Configuration()
        config.load_kube_config(kubeconfig, client_configuration=configuration)
        core = client.CoreV1Api(client.ApiClient(configuration))
    read, create = core.read_namespaced_config_map, core.create_namespaced_config_map
    return {
        "get-bare": lambda _: read("subject", "default"),
        "get-timeout": lambda _: read("subject", "default", **TIMEOUT),
        "get-ours": lambda _: read("subject", "default"),
        "create-bare": lambda n: create("default", config_map(f"{prefix}-{n}")),
        "create-bytes": lambda n: create("default", config_map(f"{prefix}-{n}", **operation_id(n))),
        "create-timeout": lambda n: create(
            "default", config_map(f"{prefix}-{n}", **operation_id(n)), **TIMEOUT
        ),
        "create-ours": lambda n: create("default", config_map(f"{prefix}-{n}")),
    }[variant]


def at_depth(depth, call, n):
    """Make a call from a deeper stack: CPython pays extra for a call that needs another chunk of frames."""
    return at_depth(depth - 1, call, n) if depth else call(n)


def serve_sync(variant, kubeconfig):
    """Make one call for each line of stdin and print its CPU seconds."""
    call = sync_call(variant, kubeconfig, variant)
    for n in collecting_garbage():
        began = time.thread_time()
        at_depth(n % STACK_DEPTHS, call, n)
        print(time.thread_time() - began, flush=True)


async def serve_async(variant, kubeconfig):
    async with await async_api_client(kubeconfig) as ours, aio.ApiClient(ours.configuration) as bare:
        core = resilient(aio.CoreV1Api(ours)) if variant.endswith("-ours") else aio.CoreV1Api(bare)
        for _ in collecting_garbage():
            began = time.thread_time()
            await core.read_namespaced_config_map("subject", "default")
            print(time.thread_time() - began, flush=True)


def collecting_garbage():
    """The lines of stdin as numbers; collects garbage every 100 calls and not in between."""
    gc.disable()
    for line in sys.stdin:
        if int(line) % 100 == 0:
            gc.collect()
        yield int(line)


class Variant:
    """A process that makes calls of one variant on demand."""

    def __init__(self, variant, server):
        self.times = []
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--variant", variant, str(server.kubeconfig)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, n):
        self._process.stdin.write(f"{n}\n")
        self._process.stdin.flush()
        self.times.append(float(self._process.stdout.readline()) * 1e6)

    def close(self):
        self._process.communicate(timeout=30)


def measure(server, names, calls):
    """Microseconds of each variant, without the first calls, which open connections and fill caches."""
    variants = {name: Variant(name, server) for name in names}
    try:
        for n in range(WARM_UP + calls):
            for variant in random.sample(list(variants.values()), len(variants)):
                variant.call(n)
    finally:
        for variant in variants.values():
            variant.close()
    return {name: variant.times[WARM_UP:] for name, variant in variants.items()}


def compare(server, name, variants, *, calls, limit):
    """Print one line per variant: what the resilient call adds to it. Only the first one has a limit."""
    ours = f"{next(iter(variants)).rpartition('-')[0]}-ours"
    times = measure(server, (*variants, ours), calls)
    results = []
    for variant, description in variants.items():
        differences = [mine - theirs for mine, theirs in zip(times[ours], times[variant], strict=True)]
        parts = [statistics.median(differences[n::5]) for n in range(5)]
        bare, added = statistics.median(times[variant]), statistics.median(differences)
        is_limited = limit is not None and not results
        results.append(not is_limited or added <= limit)
        figures = {
            "name": name if variant.endswith("-bare") else f"{name}.same_{variant.rpartition('-')[2]}",
            "value": round(added, 1),
            "spread": [round(min(parts), 1), round(max(parts), 1)],
            "unit": "us CPU added per call",
            "baseline": {"what": f"{description}, us CPU per call", "value": round(bare, 1)},
            "ratio": round((bare + added) / bare, 4),
            "target": f"<= {limit:g} us" if is_limited else "printed",
            "ok": results[-1],
        }
        print(json.dumps(figures), flush=True)
    return results


def measure_memory(server, calls):
    """Memory that calls under a deadline leave behind."""
    with api_client(server.kubeconfig) as ours:
        core = resilient(client.CoreV1Api(ours), Policy(deadline=20.0))
        for _ in range(200):
            core.read_namespaced_config_map("subject", "default")
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(calls):
            core.read_namespaced_config_map("subject", "default")
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    growth = (after - before) / 1024
    figures = {
        "name": "kube.memory",
        "value": round(growth, 1),
        "unit": f"KiB after {calls} calls with a deadline",
        "baseline": {"what": "none", "value": 0.0},
        "ratio": None,
        "target": f"<= {MAX_GROWTH_KIB} KiB",
        "ok": growth <= MAX_GROWTH_KIB,
    }
    print(json.dumps(figures), flush=True)
    return growth <= MAX_GROWTH_KIB


def run_benchmarks(calls):
    with KubeServer() as server:
        configuration = client.Configuration()
        config.load_kube_config(str(server.kubeconfig), client_configuration=configuration)
        with client.ApiClient(configuration) as bare:
            client.CoreV1Api(bare).create_namespaced_config_map("default", config_map("subject"))
        results = compare(server, "kube.get", GET_VARIANTS, calls=calls, limit=TARGET_US)
        results += compare(server, "kube.create", CREATE_VARIANTS, calls=calls, limit=TARGET_US)
        results.append(measure_memory(server, calls))
        results += compare(server, "kube.aio.get", AIO_VARIANTS, calls=calls, limit=None)
    return 0 if all(results) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer calls")
    parser.add_argument("--variant", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.variant is None:
        return run_benchmarks(300 if arguments.quick else 2000)
    variant, kubeconfig = arguments.variant
    if variant.startswith("aio-"):
        asyncio.run(serve_async(variant, kubeconfig))
    else:
        serve_sync(variant, kubeconfig)
    return 0


if __name__ == "__main__":
    sys.exit(main())
