"""Checks of the container engine, of other objects on it, and of its host: disk, clock, kernel limits."""

from __future__ import annotations

import re
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.containers import (
    GATEWAY,
    HELPER,
    is_transient,
    list_containers,
    run_in_container,
    translate_errors,
)
from holdfast.errors import HoldfastError, UsageError
from holdfast.gateway.cluster import clock_skew_seconds
from holdfast.gateway.doctor.facts import OBJECT_FINDERS, FactUnavailable
from holdfast.gateway.doctor.findings import Finding, Severity, new_finding, note, problem, up_command
from holdfast.gateway.node import check_engine
from holdfast.gateway.registry import known_gateway_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.gateway.doctor.facts import GatewayFacts

_CGROUP_V1 = "1"
_DF_ROW = re.compile(r"\s(?P<total>\d+)\s+\d+\s+(?P<free>\d+)\s+\d+%")
# The kubelet removes images below 15 % free disk space and evicts pods below 10 %.
_LOW_DISK_FRACTION, _FULL_DISK_FRACTION = 0.15, 0.05
_SKEW_WARNING_SECONDS, _SKEW_PROBLEM_SECONDS = 30.0, 300.0
_MIN_INOTIFY_INSTANCES, _MIN_INOTIFY_WATCHES = 512, 65536
_INOTIFY_SYSCTL_DIR = "/proc/sys/fs/inotify"


def check_container_engine(facts: GatewayFacts) -> Iterator[Finding]:
    """The container engine answers and can run a node."""
    try:
        engine_facts = facts.connected_engine.facts()
        check_engine(engine_facts)
    except HoldfastError as error:
        code = "engine-unreachable" if isinstance(error, UsageError) else error.code
        yield problem(
            code,
            "container engine",
            f"{error.message}.",
            fixed_by="command" if is_transient(error) else "person",
            repair=f"{error.hint or 'See the log of the container engine.'} Then run the same command again.",
        )
        return
    if engine_facts.cgroup_version == _CGROUP_V1:
        cause = "The engine's host uses cgroup v1, which Kubernetes rejects by default since 1.35."
        repair = "Boot that host with cgroup v2 before you upgrade to 1.35."
        yield note("cgroup-v1", "container engine", cause, repair=repair)


def check_foreign_objects(facts: GatewayFacts) -> Iterator[Finding]:
    """No container, network or volume of another program has the gateway's name."""
    name = facts.gateway.object_name
    # Not `facts.container` and the like: these raise for an object of another owner.
    for kind in OBJECT_FINDERS:
        if facts.is_foreign(facts.find_object(kind)):
            cause = f"holdfast did not create the {kind} {name} and does not change it."
            repair = f"Rename or remove that {kind}, or choose another name for the gateway."
            yield problem("foreign-object", f"{kind} {name}", cause, fixed_by="person", repair=repair)


def check_orphans(facts: GatewayFacts) -> Iterator[Finding]:
    """Report helper containers, and objects of gateways that this machine has no metadata of."""
    for helper in list_containers(facts.engine, label=HELPER):
        if helper.get("State") != "running":
            name = helper["Names"][0].lstrip("/")
            cause = "An earlier command left this helper container; it does no harm."
            repair = "The next command that needs a helper removes it."
            yield note("orphans", f"container {name}", cause, repair=repair)
    orphans = _orphaned_gateways(facts)
    if orphans:
        listed = "; ".join(f"{gateway} ({', '.join(kinds)})" for gateway, kinds in sorted(orphans.items()))
        yield note(
            "orphans",
            f"{len(orphans)} gateways" if len(orphans) > 1 else f"gateway {next(iter(orphans))}",
            f"On the container engine, without metadata on this machine: {listed}. They may belong to other"
            " users.",
            repair=f"{up_command(min(orphans))} That adopts the gateway; do it only if it is yours.",
        )


def _orphaned_gateways(facts: GatewayFacts) -> dict[str, list[str]]:
    """The kinds of objects of each gateway that this machine has no metadata of."""
    engine, labeled = facts.engine, {"label": GATEWAY}
    containers = [row for row in list_containers(engine, label=GATEWAY) if HELPER not in row["Labels"]]
    with translate_errors("listing networks and volumes", engine.address):
        networks = engine.client.networks(filters=labeled)
        volumes = engine.client.volumes(filters=labeled)["Volumes"] or []
    known, orphans = {facts.name, *known_gateway_names()}, dict[str, list[str]]()
    for kind, rows in (("container", containers), ("network", networks), ("volume", volumes)):
        for gateway in (row["Labels"][GATEWAY] for row in rows):
            if gateway not in known:
                orphans.setdefault(gateway, []).append(kind)
    return orphans


def check_disk(facts: GatewayFacts) -> Iterator[Finding]:
    """The disk with the gateway's data has enough free space."""
    where, free, total = _disk_space(facts)
    if total <= 0 or free / total >= _LOW_DISK_FRACTION:
        return
    severity: Severity = "problem" if free / total < _FULL_DISK_FRACTION else "warning"
    cause = f"Only {free / 1e9:.1f} of {total / 1e9:.0f} GB are free ({free / total:.0%})."
    repair = "Free disk space on the engine's host, for example `docker image prune`."
    yield new_finding(severity, "disk-low", where, cause, fixed_by="person", repair=repair)


def check_clocks(facts: GatewayFacts) -> Iterator[Finding]:
    """The clocks of this machine, the engine's host and the API server agree."""
    _ = facts.engine  # connect before the time is taken: the two times limit the skew that can be measured
    sent_at = time.time()
    timestamp = str(facts.engine_info.get("SystemTime", ""))
    yield from _skew_findings("the engine's host", clock_skew_seconds(timestamp, sent_at, time.time()))
    with suppress(HoldfastError, FactUnavailable):
        _ = facts.credentials
        sent_at = time.time()
        timestamp = facts.api_get("/readyz").date
        yield from _skew_findings("the API server", clock_skew_seconds(timestamp, sent_at, time.time()))


def _skew_findings(owner: str, seconds: float) -> Iterator[Finding]:
    if abs(seconds) < _SKEW_WARNING_SECONDS:
        return
    severity: Severity = "problem" if abs(seconds) >= _SKEW_PROBLEM_SECONDS else "warning"
    direction = "ahead of" if seconds > 0 else "behind"
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    cause = f"The clock of {owner} is {abs(seconds):.0f} s {direction} this machine's clock ({now})."
    repair = "Correct the wrong clock (NTP); certificates and leases depend on it."
    yield new_finding(severity, "clock-skew", owner, cause, fixed_by="person", repair=repair)


def check_kernel_limits(facts: GatewayFacts) -> Iterator[Finding]:
    """The host's inotify limits, which all nodes and pods share, are high enough."""
    paths = [f"{_INOTIFY_SYSCTL_DIR}/max_user_{limit}" for limit in ("instances", "watches")]
    # Read in the node: it has the kernel of the engine's host, which may not be this machine.
    output = facts.run_in_node("cat", *paths)
    if not output:
        return
    instances, watches = map(int, output.split())
    where, limits = "kernel of the engine's host", f"{instances} inotify instances and {watches} watches"
    needed = max(2 * instances, _MIN_INOTIFY_INSTANCES)
    repair = (
        f"On that host, run `sudo sysctl fs.inotify.max_user_instances={needed}"
        f" fs.inotify.max_user_watches={max(watches, _MIN_INOTIFY_WATCHES)}`."
    )
    if _is_inotify_exhausted(facts):
        cause = f"All of the {limits} that it allows are in use: new pods and nodes do not start."
        yield problem("inotify-exhausted", where, cause, fixed_by="person", repair=repair)
    elif instances < _MIN_INOTIFY_INSTANCES or watches < _MIN_INOTIFY_WATCHES:
        cause = f"It allows {limits} per user; several gateways or many pods exhaust them."
        yield note("inotify-low", where, cause, repair=repair)


def _is_inotify_exhausted(facts: GatewayFacts) -> bool:
    """Request one more inotify instance: `tail -F` prints a warning if it gets none."""
    log = f"{facts.gateway.contract.log_directory}/containerd.log"
    command = ["timeout", "0.1", "tail", "-n", "0", "-F", log]
    result = run_in_container(facts.engine, facts.gateway.object_name, command)
    return "inotify cannot be used" in result.output


def _disk_space(facts: GatewayFacts) -> tuple[str, int, int]:
    """Return where the data is, and free and total bytes: from the node, else from this machine's disk."""
    with suppress(FactUnavailable):
        row = _DF_ROW.search(facts.run_in_node("df", "-Pk", facts.gateway.contract.state_path))
        if row is not None:
            return f"volume {facts.gateway.object_name}", int(row["free"]) * 1024, int(row["total"]) * 1024
    root = str(facts.engine_info.get("DockerRootDir", ""))
    if not facts.engine.is_local or not root:
        raise FactUnavailable("the disk of the engine's host is not visible from this machine")
    try:
        usage = shutil.disk_usage(root)
    except OSError as error:
        raise FactUnavailable("this user cannot read the engine's data directory") from error
    return root, usage.free, usage.total
