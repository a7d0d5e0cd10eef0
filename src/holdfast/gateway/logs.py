"""What a node prints: its own lines through the engine, a component's from the files on the volume.

Works on a stopped node too, which is when logs are wanted most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.containers.commands import RunningCommand, read_file
from holdfast.containers.containers import container_logs, follow_logs
from holdfast.errors import UnknownGatewayError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.gateway.work import Work


def node_lines(work: Work, *, component: str | None, tail: int, follow: bool) -> Iterator[str]:
    """The newest lines, and those to come if asked for."""
    container = work.container()
    if container is None:
        raise UnknownGatewayError(
            f"gateway {work.name} has no container", hint=f"`holdfast up {work.name}` makes one."
        )
    if component is None:
        return _own_lines(work, tail, follow=follow)
    if component not in work.profile.components:
        raise UsageError(
            f"a node has no component {component!r}",
            hint=f"Components: {', '.join(work.profile.components)}.",
        )
    path = f"{work.profile.log_folder}/{component}.log"
    if follow and container.state == "running":
        return RunningCommand(work.engine, work.object, ["tail", "-n", str(tail), "-F", path]).lines()
    return iter(_last_lines(read_file(work.engine, work.object, path) or b"", tail))


def _own_lines(work: Work, tail: int, *, follow: bool) -> Iterator[str]:
    if not follow:
        yield from container_logs(work.engine, work.object, tail=tail).splitlines()
        return
    rest = b""
    for chunk in follow_logs(work.engine, work.object, tail=tail):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")


def _last_lines(content: bytes, tail: int) -> list[str]:
    lines = content.decode(errors="replace").splitlines()
    return lines[-tail:] if tail else []
