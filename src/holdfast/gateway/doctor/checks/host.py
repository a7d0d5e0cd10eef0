"""The engine's host: room on its disk, its clock, and limits of its kernel that a node shares."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from holdfast.containers.commands import run_in
from holdfast.errors import HoldfastError
from holdfast.gateway.clocks import skew
from holdfast.gateway.doctor.case import Unavailable
from holdfast.gateway.doctor.findings import Finding, note, problem, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.gateway.doctor.case import Case

_TIGHT, _OUT = 0.15, 0.05
"""Below the first share of free disk the kubelet begins to remove images, below a tenth to evict pods."""

_ODD_SECONDS, _BAD_SECONDS = 30.0, 300.0
_FEW_INSTANCES, _FEW_WATCHES = 512, 65536
_INOTIFY = "/proc/sys/fs/inotify"


def disk(case: Case) -> Iterator[Finding]:
    """There is room where the gateway's data is."""
    where, free, total = _room(case)
    if total <= 0 or free / total >= _TIGHT:
        return
    cause = f"Only {free / 1e9:.1f} of {total / 1e9:.0f} GB are free ({free / total:.0%})."
    repair = "Free some space on the engine's host: unused images and volumes of other programs first."
    if free / total < _OUT:
        yield problem("disk-low", where, cause, mend="person", repair=repair)
    else:
        yield warning("disk-low", where, cause, mend="person", repair=repair)


def clock(case: Case) -> Iterator[Finding]:
    """This machine, the engine's host and the API server agree on the time."""
    info = case.info
    yield from _judged(
        "the engine's host", skew(str(info.get("SystemTime", "")), info["asked"], info["answered"])
    )
    try:
        heard = case.hear("/readyz")
    except (HoldfastError, Unavailable):
        return
    yield from _judged("the API server", skew(heard.date, heard.before, heard.after))


def kernel(case: Case) -> Iterator[Finding]:
    """Limits that all nodes of a host share, and that many pods use up."""
    said = case.run("cat", f"{_INOTIFY}/max_user_instances", f"{_INOTIFY}/max_user_watches").split()
    if len(said) != 2 or not all(word.isdigit() for word in said):  # noqa: PLR2004 (two files)
        return
    instances, watches = map(int, said)
    where, limits = "kernel of the engine's host", f"{instances} inotify instances and {watches} watches"
    repair = (
        f"On that host: sysctl fs.inotify.max_user_instances={max(2 * instances, _FEW_INSTANCES)}"
        f" fs.inotify.max_user_watches={max(watches, _FEW_WATCHES)}"
    )
    if _is_used_up(case):
        cause = f"All of the {limits} that it allows are in use: new pods and nodes do not start."
        yield problem("inotify-exhausted", where, cause, mend="person", repair=repair)
    elif instances < _FEW_INSTANCES or watches < _FEW_WATCHES:
        cause = f"It allows {limits} for each user; several gateways or many pods use them up."
        yield note("inotify-low", where, cause, repair=repair)


def _is_used_up(case: Case) -> bool:
    """Ask for one more: `tail` says so when it gets none."""
    log = f"{case.work.profile.log_folder}/containerd.log"
    asked = ["timeout", "0.1", "tail", "-n", "0", "-F", log]
    return "inotify cannot be used" in run_in(case.engine, case.work.object, asked).output


def _judged(whose: str, seconds: float) -> Iterator[Finding]:
    if abs(seconds) < _ODD_SECONDS:
        return
    way = "ahead of" if seconds > 0 else "behind"
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    cause = f"The clock of {whose} is {abs(seconds):.0f} s {way} this machine's, which says {now}."
    repair = "Set the wrong clock right (NTP); certificates and leases depend on it."
    if abs(seconds) >= _BAD_SECONDS:
        yield problem("clock-skew", whose, cause, mend="person", repair=repair)
    else:
        yield warning("clock-skew", whose, cause, mend="person", repair=repair)


def _room(case: Case) -> tuple[str, int, int]:
    """Where the data is, and bytes free and in all: asked of the node, else of this machine's own disk."""
    if case.name is not None and case.container is not None and case.container.state == "running":
        path = case.work.profile.state_path
        fields = case.run("df", "-Pk", path).splitlines()[-1:]
        words = fields[0].split() if fields else []
        if len(words) >= 6 and words[1].isdigit() and words[3].isdigit():  # noqa: PLR2004 (POSIX columns)
            return f"volume {case.work.object}", int(words[3]) * 1024, int(words[1]) * 1024
    root = str(case.info.get("DockerRootDir", ""))
    if not case.engine.is_local or not root:
        raise Unavailable("the disk of the engine's host cannot be seen from here")
    try:
        usage = shutil.disk_usage(root)
    except OSError as error:
        raise Unavailable("the engine's folder cannot be seen by this user") from error
    return root, usage.free, usage.total
