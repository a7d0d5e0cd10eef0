"""Measure how long a gateway takes to come up, stop and start, against the same container without holdfast.

The baseline is the container that `holdfast up` creates, started with plain engine calls and awaited with the
node's `wait` command. Rounds are interleaved; the output has medians and ranges.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import measured

from holdfast.containers import (
    ContainerEngine,
    create_container,
    create_network,
    create_volume,
    free_port,
    remove_container,
    remove_network,
    remove_volume,
    reserved_ports,
    run_in_container,
    start_container,
)
from holdfast.gateway.context import DEFAULT_IMAGE
from holdfast.gateway.node.container import container_config, host_config, networking_config
from holdfast.gateway.spec import HOLDFAST_NODE, GatewaySpec
from holdfast.remote import connect

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = f"bench-{uuid.uuid4().hex[:6]}"
COMMAND = (sys.executable, str(Path(sys.executable).parent / "holdfast"))
LAST_STEP = "write-metadata"
IDLE_SECONDS = 30
MIB = 1 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds, a shorter rest before memory is read"
    )
    quick = parser.parse_args().quick
    engine = connect()
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOLDFAST_HOME"] = home
        try:
            return measured.report(
                claims(engine, rounds=2 if quick else 5, rest=5 if quick else IDLE_SECONDS)
            )
        finally:
            clear(engine)


def claims(engine: ContainerEngine, *, rounds: int, rest: float):
    baseline, bare_up, up, resumed, stop, start = [], [], [], [], [], []
    for _ in range(rounds):
        clear(engine)
        baseline.append(timed(lambda: bare(engine)))
        clear(engine)
        bare_up.append(timed(lambda: holdfast("up", NAME, HOLDFAST_WORKLOADS="false")))
        clear(engine)
        up.append(timed(lambda: holdfast("up", NAME)))
        clear(engine)
        killed_at_the_last_step()
        resumed.append(timed(lambda: holdfast("up", NAME)))
        stop.append(timed(lambda: holdfast("stop", NAME)))
        start.append(timed(lambda: holdfast("start", NAME)))
    container = ("the same container without holdfast", statistics.median(baseline))
    yield claim("holdfast up, from nothing to probe-ready", up, container, at_most=2.5)
    yield claim("the same without holdfast's own workloads", bare_up, container, at_most=2.0)
    whole = ("the whole run", statistics.median(up))
    yield claim("holdfast up after a kill at its last step", resumed, whole, at_most=0.5)
    yield claim("holdfast start after stop", start, container, at_most=1.5)
    yield claim("holdfast stop", stop, None)
    noop = [timed(lambda: holdfast("up", NAME)) for _ in range(rounds * 2)]
    imports = [timed(import_only) for _ in range(rounds * 2)]
    above = statistics.median(noop) - statistics.median(imports)
    yield measured.claim(
        "up with nothing to do, above its imports", above, "s", at_most=0.4,
        up_again=round(statistics.median(noop), 3), imports=round(statistics.median(imports), 3),
    )  # fmt: skip
    time.sleep(rest)
    whole = resident(engine)
    clear(engine)
    holdfast("up", NAME, HOLDFAST_WORKLOADS="false")
    time.sleep(rest)
    alone = resident(engine)
    yield measured.claim("idle node, resident memory", alone / MIB, "MiB", at_most=500.0)
    yield measured.claim(
        "the same with holdfast's own workloads", whole / MIB, "MiB", baseline=("the node alone", alone / MIB)
    )


def killed_at_the_last_step() -> None:
    """Run `up` from nothing and kill it when its last step starts."""
    with subprocess.Popen([*COMMAND, "up", NAME, "--json"], stderr=subprocess.PIPE, text=True) as child:
        for line in child.stderr:
            event = json.loads(line)
            if event.get("event") == "step.started" and event.get("step") == LAST_STEP:
                child.kill()
                break
        else:
            raise SystemExit(f"up did not reach {LAST_STEP}")
    if child.returncode != -signal.SIGKILL:
        raise SystemExit(f"up ended with {child.returncode} before {LAST_STEP}")


def claim(name: str, times: list[float], baseline: tuple[str, float] | None, **bounds: float):
    spread = [round(min(times), 2), round(max(times), 2)]
    return measured.claim(name, statistics.median(times), "s", baseline=baseline, range=spread, **bounds)


def bare(engine: ContainerEngine) -> None:
    """The baseline: network, volume and container by plain engine calls, awaited until ready."""
    port = free_port(reserved=reserved_ports(engine))
    gateway_port = free_port(reserved={port, *reserved_ports(engine)})
    spec = GatewaySpec(name=NAME, image=DEFAULT_IMAGE, port=port, gateway_port=gateway_port)
    name = f"holdfast-{NAME}"
    create_network(engine, name, gateway=NAME)
    create_volume(engine, name, gateway=NAME)
    create_container(
        engine, name, image=spec.image, config=container_config(spec, HOLDFAST_NODE),
        host_config=host_config(spec, HOLDFAST_NODE), networking_config=networking_config(spec),
    )  # fmt: skip
    start_container(engine, name)
    ended = run_in_container(engine, name, [*HOLDFAST_NODE.wait_command, "ready", "--timeout", "120s"])
    if ended.exit_code != 0:
        raise SystemExit(f"the bare node did not become ready: {ended.output}")


def holdfast(*words: str, **environment: str) -> None:
    subprocess.run([*COMMAND, *words], check=True, capture_output=True, env={**os.environ, **environment})


def import_only() -> None:
    """Import what `up` imports, and nothing else."""
    own = (
        "holdfast.cli.up, holdfast.gateway.commands, holdfast.workflow.runner, holdfast.workflow.store.sqlite"
    )
    code = f"import {own}, docker, kubernetes, cryptography.x509, sqlite3, yaml, ssl"
    subprocess.run([sys.executable, "-c", code], check=True)


def resident(engine: ContainerEngine) -> int:
    """The memory of the container as `docker stats` shows it, without reclaimable file cache."""
    memory = engine.client.stats(f"holdfast-{NAME}", stream=False)["memory_stats"]
    details = memory["stats"]
    return int(memory["usage"]) - int(details.get("total_inactive_file", details.get("inactive_file", 0)))


def clear(engine: ContainerEngine) -> None:
    """Remove everything on the engine and in this home, so that no step is skipped."""
    for remembered in Path(os.environ["HOLDFAST_HOME"]).iterdir():
        shutil.rmtree(remembered)
    name = f"holdfast-{NAME}"
    remove_container(engine, name)
    remove_network(engine, name)
    remove_volume(engine, name)


def timed(action: Callable[[], None]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
