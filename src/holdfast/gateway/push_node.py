"""What the node's runtime says of its images: which it has, how an import ended, and what may pass.

The question is cheap: one `ctr images ls` for just the names in question. The kubelet's half of containerd
keeps each image a second time under its config digest; where both records point to one manifest, that is the
image's digest. Not here: sending anything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from holdfast.containers.commands import run_in
from holdfast.containers.translation import is_disk_full, is_transient
from holdfast.errors import DiskFullError, EngineCallError, HoldfastError, ImageUnfitError, NodeStoppedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.containers.commands import Outcome
    from holdfast.containers.engine import Engine

_IN_K8S = ("--namespace", "k8s.io")
_ASK = ("ctr", "--connect-timeout", "1s", "--timeout", "10s", "version")

_NOT_UP_YET = re.compile(
    r"containerd\.sock|connection refused|transport is closing|code = unavailable|server is not ready|"
    r"error while dialing|failed to dial",
    re.IGNORECASE,
)
_CUT = re.compile(r"unexpected eof|unrecognized image format|invalid tar header", re.IGNORECASE)
_OTHER_MACHINE = re.compile(r"no match for platform|no unpack platforms|mismatched.*platform", re.IGNORECASE)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_KNOWN_TO_KUBELET = "io.cri-containerd.image=managed"
_KILLED = 137
_WAITING = "containerd is not up yet"
_BROKEN_OFF = "the archive was cut: unexpected EOF"


class Runtime(msgspec.Struct, frozen=True):
    """The containerd of one node, and how long it may take over one question.

    Each has an end of its own: a containerd that hangs is told as such, and asked again.
    """

    engine: Engine
    container: str
    seconds: float

    def ctr(self, *words: str) -> Outcome:
        """What `ctr` has to say of the kubelet's images."""
        argv = ["ctr", "--timeout", f"{self.seconds:g}s", *_IN_K8S, *words]
        return run_in(self.engine, self.container, argv)


class _Blob(msgspec.Struct, frozen=True):
    digest: str = ""


class _Manifest(msgspec.Struct, frozen=True):
    config: _Blob = _Blob()


def config_digests(runtime: Runtime, wanted: Mapping[str, str]) -> dict[str, str]:
    """The digest of each image that the kubelet can use; `wanted` maps full names to expected digests."""
    names = dict.fromkeys([*wanted, *wanted.values()])
    asked = runtime.ctr("images", "ls", *(f'name=="{name}"' for name in names))
    if asked.exit_code != 0:
        raise failure(asked)
    targets = targets_of(asked.output)
    found: dict[str, str] = {}
    for name, expected in wanted.items():
        target = targets.get(name)
        if target is None:
            continue
        if target in (expected, targets.get(expected)):
            found[name] = expected
        elif expected in targets:
            found[name] = _config_of(runtime, target)
    return found


def ask_runtime(engine: Engine, container: str) -> None:
    """Whether containerd answers; an error says why not."""
    asked = run_in(engine, container, _ASK)
    if asked.exit_code != 0:
        raise failure(asked)


def import_command(seconds: float) -> tuple[str, ...]:
    """Takes an archive from its standard input, for so long at most."""
    return ("ctr", "--timeout", f"{seconds:g}s", *_IN_K8S, "images", "import", "-")


def known_ids(runtime: Runtime, ids: Sequence[str]) -> set[str]:
    """Those of the config digests that the node has an image for, under whatever name."""
    asked = runtime.ctr("images", "ls", *(f'name=="{name}"' for name in ids))
    return set(targets_of(asked.output)) if asked.exit_code == 0 else set()


def give_name(runtime: Runtime, known: str, name: str) -> None:
    """One more name for an image that is there."""
    ended = runtime.ctr("images", "tag", "--force", known, name)
    if ended.exit_code != 0:
        raise failure(ended)


def give_id(runtime: Runtime, name: str, expected: str) -> None:
    """Keep an image under its config digest too, if that is what it has.

    The kubelet's half of containerd does so for a new name by itself, but not for one whose content changed.
    """
    asked = runtime.ctr("images", "ls", f'name=="{name}"', f'name=="{expected}"')
    targets = targets_of(asked.output)
    target = targets.get(name)
    if target is not None and expected not in targets and _config_of(runtime, target) == expected:
        give_name(runtime, name, expected)


def targets_of(listing: str) -> dict[str, str]:
    """The manifest digest by name, from what `ctr images ls` prints; only what the kubelet knows of, too."""
    targets = {}
    for line in listing.splitlines():
        words = line.split()
        digest = next((word for word in words[1:] if _DIGEST.fullmatch(word)), None)
        if digest is not None and _KNOWN_TO_KUBELET in words[-1].split(","):
            targets[words[0]] = digest
    return targets


def _config_of(runtime: Runtime, manifest: str) -> str:
    """Read the manifest itself: one image may have two manifests, with and without compressed layers."""
    read = runtime.ctr("content", "get", manifest)
    if read.exit_code != 0:
        return ""
    try:
        return msgspec.json.decode(read.output, type=_Manifest).config.digest
    except msgspec.MsgspecError:
        return ""


def failure(ended: Outcome) -> HoldfastError:
    """What a failed `ctr` means, in holdfast's words; also the place that says which failures may pass."""
    words = _last_line(ended.output)
    if is_disk_full(ended.output):
        return DiskFullError("no space left on the gateway's volume while images were put into the node")
    if _OTHER_MACHINE.search(ended.output):
        return ImageUnfitError(f"the node cannot use the image: {words}")
    if ended.exit_code == _KILLED:
        return EngineCallError(f"{_BROKEN_OFF} (the import was killed)")
    if _CUT.search(ended.output):
        return EngineCallError(f"{_BROKEN_OFF} ({words})")
    if _NOT_UP_YET.search(ended.output):
        return EngineCallError(f"{_WAITING}: {words}")
    return EngineCallError(f"the node's runtime refused (exit code {ended.exit_code}): {words}")


def is_waiting(error: Exception) -> bool:
    """Whether the node answered that its runtime is not up yet."""
    return isinstance(error, EngineCallError) and error.message.startswith(_WAITING)


def may_pass(error: Exception) -> bool:
    """Whether a push that ended like this may go well the next time."""
    if isinstance(error, NodeStoppedError) or not isinstance(error, EngineCallError):
        return False
    return error.message.startswith((_WAITING, _BROKEN_OFF)) or is_transient(error)


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1].removeprefix("ctr: ") if lines else "it said nothing"
