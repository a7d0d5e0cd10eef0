"""What `resilient` adds to a call of the official client on a real API server: CPU of GET and of create.

Starts a kube-apiserver with its etcd, measures bare and resilient calls turn by turn, and stops it. CPU is
this thread's own, so that what the server and other programs do does not count. Each resilient call is
compared with the bare one of the same turn, in random order, as the speed of a machine changes over seconds
by more than what is measured: the figure is the median of these differences, `spread` its lowest and highest
of five parts of the run, and `best` the difference of the lowest times. Part of the figure is what is asked
for and not how: lines called `same_…` say what remains when the bare client sends the same bytes (the
operation id of a create), or makes the same request (the timeout too). Prints one JSON object a line.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import statistics
import sys
import time
import tracemalloc

from kubernetes import client, config
from kubernetes.aio import client as aio

from holdfast.kube import api_client, async_api_client, resilient
from holdfast.kube.exchange import DEFAULT_TIMEOUT
from holdfast.kube.stamp import OPERATION
from holdfast.retry import Policy
from holdfast.testing.kube_server import KubeServer

TARGET = 50.0
MOST_GROWTH = 32


def line(name, ours, bare, limit, what="official client"):
    """One line of the contract: microseconds that were added to a call."""
    added = [(mine - theirs) * 1e6 for mine, theirs in zip(ours, bare, strict=True)]
    parts = [statistics.median(added[n::PARTS]) for n in range(PARTS)]
    value, base = statistics.median(added), statistics.median(bare) * 1e6
    ok = limit is None or value <= limit
    figures = {
        "name": name,
        "value": round(value, 1),
        "spread": [round(min(parts), 1), round(max(parts), 1)],
        "best": round((min(ours) - min(bare)) * 1e6, 1),
        "unit": "us CPU added per call",
        "baseline": {"what": f"{what}, us CPU per call", "value": round(base, 1)},
        "ratio": round((base + value) / base, 4),
        "target": "printed" if limit is None else f"<= {limit:g} us",
        "ok": ok,
    }
    print(json.dumps(figures), flush=True)
    return ok


PARTS = 5
# Calls between two collections of garbage, which are kept out of the times.
ROUND = 200


def shuffled(functions):
    """The same calls in another order each time, so that none always comes after the same one."""
    return random.sample(sorted(functions.items()), len(functions))


def turns(count):
    """Numbers of the turns; garbage is collected between them and not within."""
    try:
        for n in range(count):
            if n % ROUND == 0:
                gc.enable()
                gc.collect()
                gc.disable()
            yield n
    finally:
        gc.enable()


def measured(functions, calls):
    """CPU seconds of each call, called turn by turn in random order."""
    spent, clock = {name: [] for name in functions}, time.thread_time
    for n in turns(calls):
        for name, fn in shuffled(functions):
            began = clock()
            fn(n)
            spent[name].append(clock() - began)
    return spent


async def ameasured(functions, calls):
    spent, clock = {name: [] for name in functions}, time.thread_time
    for n in turns(calls):
        for name, fn in shuffled(functions):
            began = clock()
            await fn(n)
            spent[name].append(clock() - began)
    return spent


def body(name):
    return {"metadata": {"name": name}, "data": {"key": "value"}}


def annotated(name, n):
    made = body(name)
    made["metadata"]["annotations"] = {OPERATION: f"{n:0>32}"}
    return made


def in_threads(server, rounds):
    configuration = client.Configuration()
    config.load_kube_config(str(server.kubeconfig), client_configuration=configuration)
    with client.ApiClient(configuration) as plain, api_client(server.kubeconfig) as ours:
        bare, core = client.CoreV1Api(plain), resilient(client.CoreV1Api(ours))
        bare.create_namespaced_config_map("default", body("subject"))
        read, create, timed = (
            bare.read_namespaced_config_map,
            bare.create_namespaced_config_map,
            {"_request_timeout": DEFAULT_TIMEOUT},
        )
        gets = {
            "bare": lambda _: read("subject", "default"),
            "request": lambda _: read("subject", "default", **timed),
            "ours": lambda _: core.read_namespaced_config_map("subject", "default"),
        }
        creates = {
            "bare": lambda n: create("default", body(f"bare-{n}")),
            "bytes": lambda n: create("default", annotated(f"byte-{n}", n)),
            "request": lambda n: create("default", annotated(f"same-{n}", n), **timed),
            "ours": lambda n: core.create_namespaced_config_map("default", body(f"ours-{n}")),
        }
        measured(gets, 20)
        return told(measured(gets, rounds), measured(creates, rounds))


def told(got, made):
    """The two lines with a target, and what of them the request itself costs."""
    stamped, timed = "official client, same annotation", "official client, same timeout"
    return [
        line("kube.get", got["ours"], got["bare"], TARGET),
        line("kube.get.same_request", got["ours"], got["request"], None, timed),
        line("kube.create", made["ours"], made["bare"], TARGET),
        line("kube.create.same_bytes", made["ours"], made["bytes"], None, stamped),
        line("kube.create.same_request", made["ours"], made["request"], None, f"{stamped} and timeout"),
    ]


def memory(server, calls):
    """What calls under a deadline leave behind; each of them has another time left."""
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
    grown = (after - before) / 1024
    figures = {
        "name": "kube.memory",
        "value": round(grown, 1),
        "unit": f"KiB after {calls} calls with a deadline",
        "baseline": {"what": "none", "value": 0.0},
        "ratio": None,
        "target": f"<= {MOST_GROWTH} KiB",
        "ok": grown <= MOST_GROWTH,
    }
    print(json.dumps(figures), flush=True)
    return grown <= MOST_GROWTH


async def in_tasks(server, rounds):
    async with await async_api_client(server.kubeconfig) as ours:
        core = resilient(aio.CoreV1Api(ours))
        configuration = ours.configuration
        async with aio.ApiClient(configuration) as plain:
            bare = aio.CoreV1Api(plain)
            gets = {
                "bare": lambda _: bare.read_namespaced_config_map("subject", "default"),
                "ours": lambda _: core.read_namespaced_config_map("subject", "default"),
            }
            await ameasured(gets, 20)
            got = await ameasured(gets, rounds)
    return [line("kube.aio.get", got["ours"], got["bare"], None)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 200 if parser.parse_args().quick else 2000
    with KubeServer() as server:
        oks = in_threads(server, rounds)
        oks.append(memory(server, rounds))
        oks += asyncio.run(in_tasks(server, rounds))
    return 0 if all(oks) else 1


if __name__ == "__main__":
    sys.exit(main())
