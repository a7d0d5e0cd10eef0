"""The container engine: does it answer, can it run a node, and are the gateway's objects its own?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.containers.containers import find_container, list_containers
from holdfast.containers.labels import GATEWAY, HELPER
from holdfast.containers.networks import find_network, find_volume
from holdfast.containers.translation import is_transient, translated
from holdfast.errors import HoldfastError, UsageError
from holdfast.gateway.doctor.findings import Finding, note, problem
from holdfast.gateway.node_container import check_engine
from holdfast.gateway.spec import read_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.gateway.doctor.case import Case

_OLD_CGROUPS = "1"


def engine(case: Case) -> Iterator[Finding]:
    """The engine answers and allows what a node needs."""
    try:
        facts = case.connect().facts()
        check_engine(facts)
    except HoldfastError as error:
        code = "engine-unreachable" if isinstance(error, UsageError) else error.code
        passing = is_transient(error)
        again = f" Then: holdfast doctor {case.name or ''}".rstrip()
        yield problem(
            code,
            "container engine",
            f"{error.message}.",
            mend="command" if passing else "person",
            repair=(error.hint or "See the engine's own log.") + again,
        )
        return
    if facts.cgroup_version == _OLD_CGROUPS:
        yield note(
            "cgroup-v1",
            "container engine",
            "The engine's host has cgroup v1, which Kubernetes refuses by default from 1.35 on.",
            repair="Boot that host with cgroup v2 before such an upgrade.",
        )


def foreign(case: Case) -> Iterator[Finding]:
    """Nothing else goes by the gateway's name."""
    name, connected = case.work.object, case.engine
    looked: dict[str, Any] = {
        "container": find_container(connected, name),
        "network": find_network(connected, name),
        "volume": find_volume(connected, name),
    }
    for kind, found in looked.items():
        if found is not None and found.labels.get(GATEWAY) != case.name:
            yield problem(
                "foreign-object",
                f"{kind} {name}",
                f"There is a {kind} {name} that holdfast did not make, and it is never touched.",
                mend="person",
                repair=f"Rename or remove that {kind}, or choose another name for the gateway.",
            )


def orphans(case: Case) -> Iterator[Finding]:
    """Objects with our label whose gateway is not remembered on this machine."""
    found: dict[str, list[str]] = {}
    for helper in list_containers(case.engine, label=HELPER):
        if helper.get("State") != "running":
            name = helper["Names"][0].lstrip("/")
            yield note(
                "orphans",
                f"container {name}",
                "A helper of an earlier command was left behind; it is in nobody's way.",
                repair=f"The next command that needs it clears it away, or: docker rm {name}",
            )
    for kind, gateway in _labelled(case):
        if gateway != case.name and not _is_remembered(gateway):
            found.setdefault(gateway, []).append(kind)
    if found:
        said = "; ".join(f"{gateway} ({', '.join(sorted(found[gateway]))})" for gateway in sorted(found))
        yield note(
            "orphans",
            f"{len(found)} gateways" if len(found) > 1 else f"gateway {next(iter(found))}",
            f"On the engine, but not remembered on this machine: {said}. Other users may have them.",
            repair="`holdfast up NAME` takes up again what is yours; `holdfast destroy NAME` takes it away.",
        )


def _labelled(case: Case) -> Iterator[tuple[str, str]]:
    connected = case.engine
    for container in list_containers(connected, label=GATEWAY):
        if HELPER not in container["Labels"]:
            yield "container", container["Labels"][GATEWAY]
    with translated("listing networks and volumes", connected.address):
        networks = connected.client.networks(filters={"label": GATEWAY})
        volumes = connected.client.volumes(filters={"label": GATEWAY})["Volumes"] or []
    for kind, listed in (("network", networks), ("volume", volumes)):
        for each in listed:
            yield kind, each["Labels"][GATEWAY]


def _is_remembered(gateway: str) -> bool:
    try:
        return read_metadata(gateway) is not None
    except HoldfastError:
        return True  # damaged, or no name at all: the files' own check has its say
