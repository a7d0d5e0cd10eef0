"""What the gateway's API and its clients say to each other about sandboxes: bodies, frames and event names.

The server reads and writes these models, its OpenAPI document is made from them, and the SDK uses the very
same ones. Not here: routes and limits (the server floor), and what becomes of a request (creation.py).
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

# Each ends in a look ahead: in Python a lone `$` would let a line break at the end through.
_END = r"$(?!\n)"
_LABEL_PART = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN_PART = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
LONGEST_NAME = 63
NAME_PATTERN = f"^{_DOMAIN_PART}{_END}"
QUANTITY_PATTERN = (
    f"^([1-9][0-9]{{0,14}}([.][0-9]{{1,3}})?|0[.][0-9]{{0,2}}[1-9])(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?{_END}"
)
SIZE_PATTERN = f"^[1-9][0-9]{{0,14}}(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?{_END}"
LABEL_PATTERN = (
    "^(?!([a-z0-9.-]+[.])?(holdfast[.]dev|agents[.]x-k8s[.]io|kubernetes[.]io|k8s[.]io)/)"
    f"({_DOMAIN_PART}([.]{_DOMAIN_PART}){{0,3}}/)?{_LABEL_PART}{_END}"
)
_LONGEST_TEXT = 4096
_MOST_ENTRIES = 256

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, pattern=NAME_PATTERN)]
Quantity: TypeAlias = Annotated[str, Meta(min_length=1, max_length=32, pattern=QUANTITY_PATTERN)]
Size: TypeAlias = Annotated[str, Meta(min_length=1, max_length=32, pattern=SIZE_PATTERN)]
Image: TypeAlias = Annotated[str, Meta(min_length=1, max_length=_LONGEST_TEXT, pattern=r"^[!-~]+" + _END)]
Text: TypeAlias = Annotated[str, Meta(pattern=r"^[^\u0000]*$")]
"""no word of a command line, and no variable, can hold a NUL"""
Words: TypeAlias = Annotated[list[Text], Meta(max_length=_MOST_ENTRIES)]
VariableName: TypeAlias = Annotated[str, Meta(max_length=256, pattern=f"^[A-Za-z_][A-Za-z0-9_]*{_END}")]
Variables: TypeAlias = Annotated[dict[VariableName, Text], Meta(max_length=_MOST_ENTRIES)]
LabelKey: TypeAlias = Annotated[str, Meta(max_length=253, pattern=LABEL_PATTERN)]
LabelValue: TypeAlias = Annotated[str, Meta(max_length=63, pattern=f"^({_LABEL_PART})?{_END}")]
Labels: TypeAlias = Annotated[dict[LabelKey, LabelValue], Meta(max_length=_MOST_ENTRIES)]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
Seconds: TypeAlias = Annotated[int, Meta(ge=1, le=366 * 24 * 3600)]


FailedPods: TypeAlias = Literal["Recreate", "Keep"]


class Phase(StrEnum):
    """Where a sandbox is, in one word."""

    PENDING = "Pending"
    READY = "Ready"
    SUSPENDED = "Suspended"
    FAILED = "Failed"
    FINISHED = "Finished"
    EXPIRED = "Expired"
    DELETING = "Deleting"


class Workspace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The volume at `/sandbox` that outlives the pod."""

    size: Size = "2Gi"
    storage_class: Name | None = None
    """the cluster's default one where nothing is said"""
    seed: bool = True
    """whether it starts as a copy of the image's own `/sandbox`; that needs a shell and `cp` in the image"""


class NetworkPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may talk to the sandbox, and to whom it may talk: rules as Kubernetes' NetworkPolicy has them.

    An empty list lets nothing through; a list that is not given leaves that way as it is.
    """

    ingress: list[dict[str, Any]] | None = None
    egress: list[dict[str, Any]] | None = None


class SandboxRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a sandbox is to be. Sent twice, it makes one sandbox."""

    name: Name
    image: Image | None = None
    """holdfast's own one where nothing is said"""
    command: Words | None = None
    args: Words | None = None
    env: Variables = {}
    cpu: Quantity | None = None
    memory: Quantity | None = None
    workspace: Workspace | bool = True
    """`true` for the default one, `false` for none"""
    labels: Labels = {}
    shutdown_time: Moment | None = None
    shutdown_after: Seconds | None = None
    """seconds after which it ends, counted from when it is made; in place of `shutdown_time`"""
    idle_suspend_after: Seconds | None = None
    """seconds without use after which it is suspended"""
    network_policy: NetworkPolicy | None = None
    template: Name | None = None
    """a SandboxTemplate; the sandbox then comes from a claim on a pool of that template"""
    failed_pods: FailedPods = "Recreate"
    """what becomes of a pod that failed"""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One condition, as the Sandbox object has it."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: str | None = None


class WorkspaceView(msgspec.Struct, frozen=True, kw_only=True):
    """The claim that holds a sandbox's data."""

    claim: str
    size: str | None = None
    """as it was asked for"""
    storage_class: str | None = None
    phase: str = "Pending"
    """the claim's own: Pending, Bound or Lost; `Missing` where there is none yet"""
    capacity: str | None = None
    kept: bool = False
    """whether it stays when the sandbox is deleted"""


class SandboxView(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox as it is now."""

    name: str
    id: str
    phase: Phase
    reason: str = ""
    message: str = ""
    image: str | None = None
    pod: str | None = None
    pod_ip: str | None = None
    pod_ips: list[str] = []
    node: str | None = None
    workspace: WorkspaceView | None = None
    conditions: list[Condition] = []
    labels: dict[str, str] = {}
    created: str | None = None
    shutdown_time: str | None = None
    claim: str | None = None
    """the SandboxClaim that it was made for, if there is one"""
    template: str | None = None
    failed_pods: FailedPods = "Recreate"
    """what becomes of a pod that failed: with `Keep` the phase `Failed` is for good"""
    notes: list[str] = []
    """what its user should know, in sentences"""


class SandboxList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of sandboxes; `next` is the `continue` of the following one."""

    items: list[SandboxView]
    next: str | None = None


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """What a delete did, and what became of the data."""

    deleted: bool
    workspace: Literal["deleted", "kept", "none"]
    claim: str | None = None
    claims: list[str] = []
    """all that this is said of: a sandbox may have more than its workspace"""


class Unpacked(msgspec.Struct, frozen=True, kw_only=True):
    """What came out of an uploaded archive."""

    entries: int
    bytes: int


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Every refusal and failure: a word for programs, a sentence for people, and what to do."""

    code: str
    message: str
    hint: str = ""


class Event(StrEnum):
    """The names of the events of a sandbox's stream; each has a SandboxView as its data."""

    STATE = "sandbox"
    """how it is now"""
    DELETED = "deleted"
    """how it was last; the stream ends here"""
    FAILED = "problem"
    """a Problem; the stream ends here, and may be asked for again"""


class Channel(IntEnum):
    """The first byte of every frame of an exec, as in Kubernetes' `v5.channel.k8s.io`."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    STATUS = 3
    """a Kubernetes Status as JSON: the last frame"""
    RESIZE = 4
    """`{"Width": columns, "Height": rows}`"""
    CLOSE = 255
    """the next byte is the channel that gets no more"""


CONNECTION_LOST = "ConnectionLost"
"""The reason in the last frame's Status where nobody knows how the command ended: its connection was cut."""


def frame(channel: Channel, data: bytes = b"") -> bytes:
    """One message of an exec."""
    return bytes((channel,)) + data


def resize_frame(columns: int, rows: int) -> bytes:
    """Tell the terminal's size."""
    return frame(Channel.RESIZE, msgspec.json.encode({"Width": columns, "Height": rows}))


def has_not_begun(status: bytes) -> bool:
    """Whether the last frame's JSON says that the pod's node, which has just started, does not know the pod.

    It says so before it looks for the container: nothing was run.
    """
    return b"unable to upgrade connection: pod does not exist" in status


def exit_code(status: bytes) -> int | None:
    """The command's exit code out of the last frame's JSON; None where the command did not run to an end."""
    try:
        said = msgspec.json.decode(status)
    except msgspec.DecodeError:
        return None
    if not isinstance(said, dict):
        return None
    if said.get("status") == "Success":
        return 0
    details = said.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode":
            text = str(cause.get("message", ""))
            return int(text) if text.isascii() and text.isdigit() else None
    return None
