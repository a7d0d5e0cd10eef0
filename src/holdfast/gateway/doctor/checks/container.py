"""The gateway's container, network, volume, image and port, as the engine shows them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from holdfast.containers import labels
from holdfast.containers.images import find_image
from holdfast.containers.ports import holder_of
from holdfast.gateway.doctor.findings import Finding, problem, warning
from holdfast.gateway.node_container import MEANT_TO_RUN, STOPPED_ON_PURPOSE, settings_fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.containers.containers import ContainerView
    from holdfast.gateway.doctor.case import Case

_NEEDS_A_PERSON = 3
"""The node's exit code when it cannot run with the settings it was given."""

_MANY_RESTARTS = 3
_LATELY = 600.0


def container(case: Case) -> Iterator[Finding]:
    """The container is there, runs and is healthy."""
    found = case.container
    if found is None:
        if case.predecessor is None:  # in the middle of an upgrade it is put aside
            yield _missing(case)
        return
    logs = f"`holdfast logs {case.name}` shows what it printed."
    if found.state == "restarting" or _keeps_ending(case, found):
        yield problem(
            "restart-loop",
            found.name,
            f"The node keeps ending, the last time with exit code {found.exit_code}; the engine starts it"
            " again each time.",
            mend="person",
            repair=f"{logs} Mend what it says, then: holdfast up {case.name}",
        )
    elif not found.running:
        yield _stopped(case, found, logs)
    elif found.state == "paused":
        yield problem(
            "container-paused",
            found.name,
            "The container is paused, so nothing on it answers.",
            mend="fix",
            repair="--fix lets it go on.",
        )
    elif found.health == "unhealthy":
        yield problem(
            "container-unhealthy",
            found.name,
            "The node says of itself that it is not healthy.",
            mend="fix",
            repair=f"--fix waits until it is ready and says what it waits for. {logs}",
        )


def network(case: Case) -> Iterator[Finding]:
    """The gateway's network is there, and the container is attached to this very one."""
    found, attached = case.network, case.container
    if attached is None:
        return
    known = attached.networks.get(case.work.object)
    if found is None:
        cause = "The gateway's network is gone."
    elif known is None:
        cause = "The container is not attached to the gateway's network."
    elif known not in ("", found.id):
        cause = "The network was made anew, and the container knows only the old one."
    else:
        return
    yield problem(
        "network-stale", case.work.object, cause, mend="fix", repair="--fix attaches the container again."
    )


def volume(case: Case) -> Iterator[Finding]:
    """The volume with all data is there."""
    if case.volume is not None or (case.container is None and not case.was_here):
        return
    yield problem(
        "volume-missing",
        case.work.object,
        "The volume with the gateway's data is not on this engine.",
        mend="person",
        repair="See that DOCKER_HOST and the Docker context name the right engine, or put the volume back. "
        f"`holdfast up {case.name}` would begin with an empty one.",
    )


def image(case: Case) -> Iterator[Finding]:
    """The node image is at hand whenever a container has to be made."""
    if case.container is not None:
        return
    if case.volume is None and case.work.remembered is None:
        return
    reference = case.work.spec.image
    if find_image(case.engine, reference) is None:
        yield problem(
            "image-missing",
            reference,
            "The node image is not on the engine, and a container has to be made from it.",
            mend="command",
            repair=f"`holdfast image build node` builds it; `holdfast up {case.name}` pulls it where a"
            " registry has it.",
        )


def upgrade(case: Case) -> Iterator[Finding]:
    """No upgrade is left in its middle."""
    old = case.predecessor
    if old is not None:
        yield problem(
            "upgrade-unfinished",
            old.name,
            "An upgrade was begun and not finished; the old container is put aside under this name.",
            mend="command",
            repair=f"`holdfast upgrade {case.name}` goes on from there, forward or back.",
        )


def restarts(case: Case) -> Iterator[Finding]:
    """The engine brings a running container back by itself."""
    found = case.container
    if found is not None and found.state == "running" and found.restart != MEANT_TO_RUN:
        yield warning(
            "restart-policy",
            found.name,
            "The engine would not bring the container back by itself after a restart.",
            mend="fix",
            repair="--fix sets its restart policy.",
        )


def port(case: Case) -> Iterator[Finding]:
    """The ports of a gateway that does not run are still free."""
    found = case.container
    if found is None or found.running:
        return
    for _, number in found.ports.values():
        if case.work.place.is_taken(number):
            holder = holder_of(case.engine, number) if case.engine.is_local else "another program"
            yield problem(
                "port-taken",
                f"port {number}",
                f"The gateway's port is held by {holder}.",
                mend="command",
                repair=f"Stop that, or take another port: holdfast up {case.name} --port auto",
            )


def settings(case: Case) -> Iterator[Finding]:
    """The container was made with the settings that count here."""
    found = case.container
    if found is None:
        return
    wanted = settings_fingerprint(case.work.spec, case.work.profile)
    asked = case.work.settings.image
    image = find_image(case.engine, asked) if asked is not None else None
    if asked is not None and (image is None or image.id != found.image_id):
        yield warning(
            "image-differs",
            found.name,
            f"The container runs {found.image}, and the settings ask for {asked}.",
            mend="command",
            repair=f"`holdfast up {case.name} --plan` shows what would be done; --fix does not do it.",
        )
    elif found.labels.get(labels.SETTINGS) != wanted or found.hostname != case.work.node:
        yield warning(
            "settings-differ",
            found.name,
            "The container was made with other settings, or another name of its node, than count here.",
            mend="command",
            repair=f"`holdfast up {case.name}` makes it anew on the same volume; --fix does not, for that"
            " stops the gateway for a moment.",
        )


def _missing(case: Case) -> Finding:
    name = case.name
    if case.volume is not None:
        return problem(
            "container-missing",
            case.work.object,
            "The container is gone; the gateway's data is on its volume.",
            mend="fix",
            repair="--fix makes the container anew on that volume.",
        )
    remembered = case.work.remembered is not None
    return problem(
        "container-missing" if remembered else "gateway-unknown",
        case.work.object,
        "The container is gone." if remembered else f"There is no gateway {name} here.",
        mend="command",
        repair=f"holdfast up {name}" + ("" if remembered else "; `holdfast list` shows all there are."),
    )


def _stopped(case: Case, found: ContainerView, logs: str) -> Finding:
    if found.exit_code == _NEEDS_A_PERSON:
        return problem(
            "container-stopped",
            found.name,
            "The node ended because it cannot run with the settings it was given (exit code 3).",
            mend="person",
            repair=logs,
        )
    if found.restart == STOPPED_ON_PURPOSE:
        return warning(
            "container-stopped",
            found.name,
            "The gateway was stopped on purpose.",
            mend="command",
            repair=f"holdfast start {case.name}",
        )
    how = "It was never started." if found.state == "created" else f"It ended with code {found.exit_code}."
    return problem(
        "container-stopped",
        found.name,
        f"The container does not run. {how}",
        mend="fix",
        repair=f"--fix starts it, as `holdfast start {case.name}` does.",
    )


def _keeps_ending(case: Case, found: ContainerView) -> bool:
    """Whether the engine had to start it several times, the last time only now."""
    if found.state != "running" or int(case.inspected.get("RestartCount", 0)) < _MANY_RESTARTS:
        return False
    try:
        started = dt.datetime.fromisoformat(found.started_at[:19] + "+00:00")
    except ValueError:
        return False
    return (dt.datetime.now(dt.UTC) - started).total_seconds() < _LATELY
