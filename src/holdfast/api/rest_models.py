"""REST models, exec frames and event names of the gateway's API.

The API server decodes requests into these models, encodes responses from them and builds its OpenAPI document
from them. The client uses the same models.
"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 (in a public TypedDict)
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Annotated, Any, Literal, TypeAlias, TypedDict

import msgspec
from msgspec import Meta

from holdfast.api.event_models import EventView  # noqa: TC001 (msgspec evaluates the annotations)

# In Python, `$` alone also matches before a trailing newline.
END_OF_TEXT = r"$(?!\n)"
LABEL_PART = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
DOMAIN_PART = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
MAX_NAME_LENGTH = 63
NAME_PATTERN = f"^{DOMAIN_PART}{END_OF_TEXT}"
QUANTITY_PATTERN = f"^([1-9][0-9]{{0,14}}([.][0-9]{{1,3}})?|0[.][0-9]{{0,2}}[1-9])(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?{END_OF_TEXT}"  # noqa: E501
SIZE_PATTERN = f"^[1-9][0-9]{{0,14}}(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?{END_OF_TEXT}"
# Users cannot set labels of these domains: the controller and network policies select objects by them.
LABEL_KEY_PATTERN = (
    "^(?!([a-z0-9.-]+[.])?(holdfast[.]dev|agents[.]x-k8s[.]io|kubernetes[.]io|k8s[.]io)/)"
    f"({DOMAIN_PART}([.]{DOMAIN_PART}){{0,3}}/)?{LABEL_PART}{END_OF_TEXT}"
)
# A mount at one of these directories would hide files that programs need.
_RESERVED_PATHS = (
    "(bin|boot|etc|home|lib|lib64|opt|root|run|sandbox|sbin|srv|tmp|usr|usr/bin|usr/lib|var)"
    f"{END_OF_TEXT}|(dev|etc/holdfast|proc|sys)(/|{END_OF_TEXT})"
)
SECRET_PATH_PATTERN = f"^(?!/({_RESERVED_PATHS}))(/(?![.]{{1,2}}(/|$))[A-Za-z0-9._@+-]+)+{END_OF_TEXT}"
_MAX_TEXT_LENGTH = 4096
_MAX_ENTRIES = 256

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH, pattern=NAME_PATTERN)]
Quantity: TypeAlias = Annotated[str, Meta(min_length=1, max_length=32, pattern=QUANTITY_PATTERN)]
Size: TypeAlias = Annotated[str, Meta(min_length=1, max_length=32, pattern=SIZE_PATTERN)]
Image: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=_MAX_TEXT_LENGTH, pattern=r"^[!-~]+" + END_OF_TEXT)
]
# Neither arguments nor environment variables can contain NUL.
NulFreeText: TypeAlias = Annotated[str, Meta(pattern=r"^[^\u0000]*$")]
CommandArgs: TypeAlias = Annotated[list[NulFreeText], Meta(max_length=_MAX_ENTRIES)]
EnvVarName: TypeAlias = Annotated[str, Meta(max_length=256, pattern=f"^[A-Za-z_][A-Za-z0-9_]*{END_OF_TEXT}")]
EnvVars: TypeAlias = Annotated[dict[EnvVarName, NulFreeText], Meta(max_length=_MAX_ENTRIES)]
LabelKey: TypeAlias = Annotated[str, Meta(max_length=253, pattern=LABEL_KEY_PATTERN)]
LabelValue: TypeAlias = Annotated[str, Meta(max_length=63, pattern=f"^({LABEL_PART})?{END_OF_TEXT}")]
Labels: TypeAlias = Annotated[dict[LabelKey, LabelValue], Meta(max_length=_MAX_ENTRIES)]
Timestamp: TypeAlias = Annotated[datetime, Meta(tz=True)]
Seconds: TypeAlias = Annotated[int, Meta(ge=1, le=366 * 24 * 3600)]
SecretPath: TypeAlias = Annotated[str, Meta(max_length=1024, pattern=SECRET_PATH_PATTERN)]
FailedPodPolicy: TypeAlias = Literal["Recreate", "Keep"]


class Phase(StrEnum):
    """Summary of a sandbox's state."""

    PENDING = "Pending"
    READY = "Ready"
    SUSPENDED = "Suspended"
    FAILED = "Failed"
    FINISHED = "Finished"
    EXPIRED = "Expired"
    DELETING = "Deleting"


class Workspace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The volume mounted at `/sandbox`; its data outlives the pod.

    Attributes:
        size: requested size of the PVC.
        storage_class: storage class of the PVC; the cluster's default if omitted.
        seed: whether a new volume starts as a copy of the image's `/sandbox` directory; needs a shell and
            `cp` in the image.
    """

    size: Size = "2Gi"
    storage_class: Name | None = None
    seed: bool = True


class NetworkPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Allowed connections of a sandbox, as rules of a Kubernetes NetworkPolicy.

    An empty list denies all connections of that direction; an omitted list does not restrict them.

    Attributes:
        ingress: rules for connections to the sandbox.
        egress: rules for connections from the sandbox.
    """

    ingress: list[dict[str, Any]] | None = None
    egress: list[dict[str, Any]] | None = None


class SandboxSecret(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A secret that a sandbox uses.

    Attributes:
        name: name of the secret.
        path: directory in which each key is a read-only file; the keys are environment variables if omitted.
    """

    name: Name
    path: SecretPath | None = None


class PodRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the requests for a sandbox and for a template have in common."""

    name: Name
    image: Image | None = None
    command: CommandArgs | None = None
    args: CommandArgs | None = None
    env: EnvVars = {}
    cpu: Quantity | None = None
    memory: Quantity | None = None
    workspace: Workspace | bool = True
    labels: Labels = {}


class SandboxRequest(PodRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sandbox to create. Sending the same request twice creates one sandbox.

    Attributes:
        name: name of the sandbox, unique on the gateway.
        image: container image; holdfast's sandbox image if omitted.
        command: entrypoint; the image's own if omitted.
        args: arguments of the entrypoint.
        env: environment variables.
        cpu: CPU limit, such as `500m` or `2`.
        memory: memory limit, such as `2Gi`; at least `16Mi`.
        workspace: a `Workspace`, `true` for the default one, or `false` for none.
        labels: labels of the sandbox and its pod.
        shutdown_time: when the sandbox expires.
        shutdown_after: seconds after creation when the sandbox expires; excludes `shutdown_time`.
        idle_suspend_after: seconds without use before the sandbox is suspended.
        network_policy: allowed connections.
        template: a SandboxTemplate; the sandbox is then created by a SandboxClaim on a pool of the template.
        failed_pods: whether a failed pod is recreated or kept.
        secrets: secrets of the gateway that the sandbox uses.
    """

    shutdown_time: Timestamp | None = None
    shutdown_after: Seconds | None = None
    idle_suspend_after: Seconds | None = None
    network_policy: NetworkPolicy | None = None
    template: Name | None = None
    failed_pods: FailedPodPolicy = "Recreate"
    secrets: Annotated[list[SandboxSecret], Meta(max_length=32)] = []


class WorkspaceOptions(TypedDict, total=False):
    """The fields of `Workspace` as a dictionary."""

    size: str
    storage_class: str | None
    seed: bool


class SandboxSecretOptions(TypedDict, total=False):
    """The fields of `SandboxSecret` as a dictionary."""

    name: str
    path: str | None


class PodOptions(TypedDict, total=False):
    """What the options of `create` of a sandbox and of a template have in common; None means the default."""

    command: list[str] | tuple[str, ...] | None
    args: list[str] | tuple[str, ...] | None
    env: dict[str, str] | None
    cpu: str | None
    memory: str | None
    workspace: Workspace | WorkspaceOptions | bool | None
    labels: dict[str, str] | None
    network_policy: NetworkPolicy | dict[str, Any] | None


class SandboxOptions(PodOptions, total=False):
    """Options of `create`: the fields of `SandboxRequest` except name and image; None means the default."""

    shutdown_time: datetime | str | None
    shutdown_after: int | None
    idle_suspend_after: int | None
    template: str | None
    failed_pods: FailedPodPolicy | None
    secrets: Sequence[SandboxSecret | SandboxSecretOptions | str] | None


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One condition of the Sandbox object."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: str | None = None


class WorkspaceView(msgspec.Struct, frozen=True, kw_only=True):
    """State of a sandbox's workspace.

    Attributes:
        pvc: name of the PVC.
        size: requested size.
        storage_class: storage class of the PVC.
        phase: the PVC's phase (Pending, Bound or Lost), or `Missing` if the PVC does not exist yet.
        capacity: actual size.
        kept: whether the PVC remains when the sandbox is deleted.
        size_enforced: whether the data is limited to the size; else it can use all free space of the node.
    """

    pvc: str
    size: str | None = None
    storage_class: str | None = None
    phase: str = "Pending"
    capacity: str | None = None
    kept: bool = False
    size_enforced: bool = True


class SandboxView(msgspec.Struct, frozen=True, kw_only=True):
    """State of a sandbox.

    Attributes:
        name: name of the sandbox.
        id: ID that the sandbox keeps as long as its name and workspace exist.
        phase: summary of the state.
        reason: reason of the Ready condition.
        message: message of the Ready condition.
        image: container image.
        command: entrypoint; the image's own if omitted.
        args: arguments of the entrypoint.
        cpu: CPU limit.
        memory: memory limit.
        pod: name of the pod.
        pod_ip: primary IP address of the pod.
        pod_ips: all IP addresses of the pod.
        node: node of the pod.
        workspace: state of the workspace.
        conditions: conditions of the Sandbox object.
        labels: labels of the sandbox.
        created: creation time.
        shutdown_time: when the sandbox expires.
        idle_suspend_after: seconds without use before the sandbox is suspended.
        last_used: last use that is recorded; only for sandboxes that are suspended when they are unused.
        sandbox_claim: SandboxClaim that the sandbox is bound to.
        template: SandboxTemplate that the sandbox was created from.
        failed_pods: whether a failed pod is recreated; with `Keep`, the phase `Failed` is final.
        notes: remarks for the user, one sentence each.
        events: recent Kubernetes events of its objects, the newest last; only in the response to `get`.
    """

    name: str
    id: str
    phase: Phase
    reason: str = ""
    message: str = ""
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    cpu: str | None = None
    memory: str | None = None
    pod: str | None = None
    pod_ip: str | None = None
    pod_ips: list[str] = []
    node: str | None = None
    workspace: WorkspaceView | None = None
    conditions: list[Condition] = []
    labels: dict[str, str] = {}
    created: str | None = None
    shutdown_time: str | None = None
    idle_suspend_after: int | None = None
    last_used: str | None = None
    sandbox_claim: str | None = None
    template: str | None = None
    failed_pods: FailedPodPolicy = "Recreate"
    notes: list[str] = []
    events: list[EventView] = []


class SandboxList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of sandboxes; `next` is the `continue` parameter of the next page."""

    items: list[SandboxView]
    next: str | None = None


class SandboxChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change in a list of sandboxes: `sandbox` is the new state, or the last one of a deleted sandbox."""

    type: Literal["added", "modified", "deleted"]
    sandbox: SandboxView


class DeletionResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a deletion.

    Attributes:
        deleted: whether the sandbox existed.
        workspace: what happened to the data; `unknown` if the client lost the response.
        pvc: PVC of the workspace.
        pvcs: all PVCs of the sandbox.
    """

    deleted: bool
    workspace: Literal["deleted", "kept", "none", "unknown"]
    pvc: str | None = None
    pvcs: list[str] = []


class UploadResult(msgspec.Struct, frozen=True, kw_only=True):
    """Number of entries and bytes of content in an uploaded archive."""

    entries: int
    bytes: int


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Body of every error response: a code for programs, a message, and what to do next."""

    code: str
    message: str
    hint: str = ""


class SandboxEventType(StrEnum):
    """Event names of the event streams of one sandbox and of all sandboxes.

    `sandbox` carries the current SandboxView. `deleted` carries the last one; it ends the stream of one
    sandbox. `synced` carries an empty object: the stream of all sandboxes has sent those that exist.
    `problem` carries a Problem and ends the stream; the client may open it again.
    """

    STATE = "sandbox"
    DELETED = "deleted"
    SYNCED = "synced"
    FAILED = "problem"


class Channel(IntEnum):
    """First byte of every exec frame, as in Kubernetes' `v5.channel.k8s.io` protocol.

    STATUS carries a Kubernetes Status as JSON and is the last frame. RESIZE carries
    `{"Width": columns, "Height": rows}`. The byte after CLOSE is the channel to close.
    """

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    STATUS = 3
    RESIZE = 4
    CLOSE = 255


# Reason of the Status frame if the connection to the command was lost, so that its exit code is unknown.
CONNECTION_LOST = "ConnectionLost"
# Header of a download: text before the Problem that ends the response if `tar` fails.
FAILURE_MARKER_HEADER = "Holdfast-Failure-Marker"


def encode_frame(channel: Channel, data: bytes = b"") -> bytes:
    """Encode one exec frame."""
    return bytes((channel,)) + data


def encode_resize_frame(columns: int, rows: int) -> bytes:
    """Encode a frame with a new terminal size."""
    return encode_frame(Channel.RESIZE, msgspec.json.encode({"Width": columns, "Height": rows}))


def parse_exit_code(status: bytes) -> int | None:
    """Read the command's exit code from a Status frame.

    Returns:
        The exit code, or None if the command did not run to its end.
    """
    try:
        decoded = msgspec.json.decode(status)
    except msgspec.DecodeError:
        return None
    if not isinstance(decoded, dict):
        return None
    if decoded.get("status") == "Success":
        return 0
    details = decoded.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode":
            text = str(cause.get("message", ""))
            return int(text) if text.isascii() and text.isdigit() else None
    return None
