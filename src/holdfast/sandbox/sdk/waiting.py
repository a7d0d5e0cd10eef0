"""Waiting for a sandbox: what is done, what can no longer come true, and what is seen meanwhile.

Pure readings of a view, and of the bytes of an event stream. Not here: the stream itself (handle.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from holdfast.sandbox.wire import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.sandbox.wire import SandboxView

HOPELESS = frozenset(
    {
        "ContainerCannotRun", "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError",
        "EnvVarsInjectionRejected", "ErrImageNeverPull", "ImageInspectError", "ImagePullBackOff",
        "InvalidImageName", "InvalidMetadata", "MultiplePods", "PodNotOwned", "RunContainerError",
        "StartError", "TemplateNotFound", "VolumeClaimTemplatesError", "WarmPoolNotFound",
    }
)  # fmt: skip
"""Reasons for which a sandbox is Pending and that time does not cure."""

DOUBTFUL = frozenset(
    {
        "AdoptionConflict", "Completed", "ErrImagePull", "Error", "OOMKilled", "ReconcilerError",
        "SandboxMissing", "Unschedulable",
    }
)  # fmt: skip
"""Reasons that often pass by themselves at once; one that stays is as good as hopeless.

A program that ended is among them: it is started again, and may have waited for something. So is a name that
another sandbox has, which may be on its way out, and a claim whose sandbox is gone, which gets another one.
"""
DOUBT_SECONDS = 5.0

_ENDS = {
    Phase.READY: (Phase.FAILED, Phase.FINISHED, Phase.EXPIRED, Phase.DELETING, Phase.SUSPENDED),
    Phase.SUSPENDED: (Phase.FINISHED, Phase.EXPIRED, Phase.DELETING),
    Phase.FINISHED: (Phase.EXPIRED, Phase.DELETING, Phase.SUSPENDED),
}
"""From which phases each awaited one is not reached any more, unless somebody acts."""

_ON_ITS_WAY = "unbound immediate PersistentVolumeClaims"
"""A volume that is made somewhere else may take its time."""
_FINAL_WORDS = ("not found", "denied", "unauthorized", "manifest unknown", "invalid reference")


@dataclass(frozen=True, slots=True)
class Judgement:
    """One reading of a sandbox that is waited for."""

    seen: str
    """what is there, in few words"""
    done: bool = False
    hopeless: bool = False
    """it can no longer come true"""
    doubtful: bool = False
    """it cannot either if this stays for some seconds"""


def judge(view: SandboxView, wanted: Phase) -> Judgement:
    """Whether a sandbox is where it is wanted, may still get there, or cannot."""
    seen = words(view)
    if view.phase == wanted:
        return Judgement(seen, done=True)
    if wanted == Phase.READY and view.phase == Phase.FAILED and view.failed_pods == "Recreate":
        # The next pod comes after a pause that doubles: one that outlasts the doubt follows many failures.
        return Judgement(seen, doubtful=True)
    if view.phase in _ENDS.get(wanted, (Phase.DELETING,)):
        return Judgement(seen, hopeless=True)
    if wanted != Phase.READY:
        return Judgement(seen)
    final = view.reason == "ErrImagePull" and any(word in view.message.lower() for word in _FINAL_WORDS)
    doubtful = view.reason in DOUBTFUL and _ON_ITS_WAY not in view.message
    return Judgement(seen, hopeless=final or view.reason in HOPELESS, doubtful=doubtful)


def words(view: SandboxView) -> str:
    """A sandbox's state in one line."""
    line = view.message.strip().split("\n", 1)[0]
    reason = "" if view.reason in line else view.reason
    why = ": ".join(part for part in (reason, line) if part)
    return f"{view.phase} ({why})" if why else str(view.phase)


class StreamEvent(NamedTuple):
    """One event of a stream of Server-Sent Events."""

    name: str
    data: bytes


class EventReader:
    """Takes the stream's bytes as they come, in pieces of any size, and gives whole events."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = "message"
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[StreamEvent]:
        """The events that are complete with this piece."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for raw in lines:
            line = raw.removesuffix(b"\r")
            if line:
                self._field(line)
                continue
            if self._data:
                yield StreamEvent(self._name, b"\n".join(self._data))
            self._name, self._data = "message", []

    def _field(self, line: bytes) -> None:
        key, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if key == b"event":
            self._name = value.decode(errors="replace")
        elif key == b"data":
            self._data.append(value)
