"""How long a gateway takes to come up, stop and start, against the same container started bare.

The floor is the very container that `holdfast up` makes, started with the engine's own calls and watched by
the node's own `wait`. Rounds are interleaved; medians and ranges are printed. Cleans up after itself.
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

from holdfast.containers.commands import run_in
from holdfast.containers.containers import create_container, remove_container, start_container
from holdfast.containers.engine import Engine, connect
from holdfast.containers.networks import create_network, create_volume, remove_network, remove_volume
from holdfast.containers.ports import free_port, reserved_ports
from holdfast.gateway.node_container import container_config, host_config, networking_config
from holdfast.gateway.profile import HOLDFAST
from holdfast.gateway.spec import GatewaySpec
from holdfast.gateway.work import DEFAULT_IMAGE

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


def claims(engine: Engine, *, rounds: int, rest: float):
    floor, bare_up, up, resumed, stop, start = [], [], [], [], [], []
    for _ in range(rounds):
        clear(engine)
        floor.append(timed(lambda: bare(engine)))
        clear(engine)
        bare_up.append(timed(lambda: holdfast("up", NAME, HOLDFAST_WORKLOADS="false")))
        clear(engine)
        up.append(timed(lambda: holdfast("up", NAME)))
        clear(engine)
        killed_at_the_last_step()
        resumed.append(timed(lambda: holdfast("up", NAME)))
        stop.append(timed(lambda: holdfast("stop", NAME)))
        start.append(timed(lambda: holdfast("start", NAME)))
    the_floor = ("the same container, started bare", statistics.median(floor))
    yield claim("holdfast up, from nothing to probe-ready", up, the_floor, at_most=2.5)
    yield claim("the same without holdfast's own workloads", bare_up, the_floor, at_most=2.0)
    whole = ("the whole run", statistics.median(up))
    yield claim("holdfast up after a kill at its last step", resumed, whole, at_most=0.5)
    yield claim("holdfast start after stop", start, the_floor, at_most=1.5)
    yield claim("holdfast stop", stop, None)
    noop = [timed(lambda: holdfast("up", NAME)) for _ in range(rounds * 2)]
    imports = [timed(import_only) for _ in range(rounds * 2)]
    above = statistics.median(noop) - statistics.median(imports)
    yield measured.claim(
        "up again, above what its imports cost", above, "s", at_most=0.4,
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
    """`up` from nothing, killed as soon as it says that it begins its last step."""
    with subprocess.Popen([*COMMAND, "up", NAME, "--json"], stderr=subprocess.PIPE, text=True) as child:
        for line in child.stderr:
            event = json.loads(line)
            if event.get("event") == "step.started" and event.get("step") == LAST_STEP:
                child.kill()
                break
        else:
            raise SystemExit(f"up never came to {LAST_STEP}")
    if child.returncode != -signal.SIGKILL:
        raise SystemExit(f"up was not killed at {LAST_STEP}, it ended before with {child.returncode}")


def claim(name: str, times: list[float], baseline: tuple[str, float] | None, **bounds: float):
    spread = [round(min(times), 2), round(max(times), 2)]
    return measured.claim(name, statistics.median(times), "s", baseline=baseline, range=spread, **bounds)


def bare(engine: Engine) -> None:
    """The floor: network, volume and container by plain engine calls, watched until ready."""
    port = free_port(reserved=reserved_ports(engine))
    gateway_port = free_port(reserved={port, *reserved_ports(engine)})
    spec = GatewaySpec(name=NAME, image=DEFAULT_IMAGE, port=port, gateway_port=gateway_port)
    name = f"holdfast-{NAME}"
    create_network(engine, name, gateway=NAME)
    create_volume(engine, name, gateway=NAME)
    create_container(
        engine, name, image=spec.image, config=container_config(spec, HOLDFAST),
        host_config=host_config(spec, HOLDFAST), networking=networking_config(spec),
    )  # fmt: skip
    start_container(engine, name)
    ended = run_in(engine, name, [*HOLDFAST.wait_command, "--timeout", "120s"])
    if ended.exit_code != 0:
        raise SystemExit(f"the bare node did not become ready: {ended.output}")


def holdfast(*words: str, **environment: str) -> None:
    subprocess.run([*COMMAND, *words], check=True, capture_output=True, env={**os.environ, **environment})


def import_only() -> None:
    """What `up` imports on its way, and nothing else."""
    own = "holdfast.cli.gateway, holdfast.gateway.commands, holdfast.engine.runner, holdfast.engine.sqlite"
    code = f"import {own}, docker, kubernetes, cryptography.x509, sqlite3, yaml, ssl"
    subprocess.run([sys.executable, "-c", code], check=True)


def resident(engine: Engine) -> int:
    """What `docker stats` shows: the container's memory without the file cache that is free to go."""
    memory = engine.client.stats(f"holdfast-{NAME}", stream=False)["memory_stats"]
    details = memory["stats"]
    return int(memory["usage"]) - int(details.get("total_inactive_file", details.get("inactive_file", 0)))


def clear(engine: Engine) -> None:
    """Nothing is left, neither on the engine nor in this home: what is remembered would be skipped."""
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
