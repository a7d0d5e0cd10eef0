"""A sandbox's workspace: the claim that holds it, how pods mount it, and its first filling from the image.

The data is in one folder of the claim. An init container from the sandbox's own image copies the image's
`/sandbox` beside it and renames the copy: that folder is there whole or not at all, so that its being there
is the sign that nothing is left to do. Needs `/bin/sh`, `cp`, `mv`, `rm`, `mkdir`, `chmod` and `sync` in the
image. Not here: the rest of the pod (creation.py), and making the claim (parts.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.sandbox.wire import Workspace

VOLUME = "workspace"
"""The name of the volume and of its claim template; the claim is `workspace-<sandbox>`."""
MOUNT_PATH = "/sandbox"
FOLDER = "data"
"""Where the workspace is in its claim: beside it is room for a copy that is not finished."""
SEED_CONTAINER = "seed-workspace"
_CLAIM_PATH = "/holdfast/workspace"
_POD_UID = "HOLDFAST_POD_UID"

SEED_SCRIPT = r"""
set -u
from=$1 claim=$2 stage=.seeding.${HOLDFAST_POD_UID:-0} copy= copied=
cd "$claim" || exit 1
fail() { echo "the workspace could not be filled: $1" >&2; rm -rf "$stage"; exit 1; }
trap '[ -n "$copy" ] && kill "$copy" 2>/dev/null; exit 143' TERM INT
something() { for entry do { [ -e "$entry" ] || [ -L "$entry" ]; } && return 0; done; return 1; }
flush() { sync -f . 2>/dev/null || sync; }

# What others left is renamed before it is removed: one that still runs must not put it in place half removed.
for left in .seeding.*; do
  [ -e "$left" ] || continue
  mv "$left" ".trash.$left" || fail "what is left of $left cannot be put away"
done
something .trash.* && { rm -rf .trash.* || fail "what was left there cannot be removed"; }
[ -e data ] && exit 0

mkdir "$stage" || fail "no folder can be made in it"
if something "$from"/* "$from"/.[!.]* "$from"/..?*; then
  cp -a "$from/." "$stage/" & copy=$!
  wait "$copy" || fail "copying the image's $from failed"
  copy= copied=yes
fi
# Whoever the image runs as, the workspace is theirs to write.
chmod a+rwx "$stage" || fail "its mode cannot be set"
[ -z "$copied" ] || flush
[ -e data ] || mv "$stage" data || fail "the copy cannot be put in place"
rm -rf "data/$stage" "$stage"
[ -z "$copied" ] || flush
"""


def claim_template(workspace: Workspace) -> dict[str, Any]:
    """What the claim of a workspace asks for."""
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": workspace.size}},
    }
    if workspace.storage_class is not None:
        spec["storageClassName"] = workspace.storage_class
    return {"metadata": {"name": VOLUME}, "spec": spec}


def mount() -> dict[str, Any]:
    """How the sandbox's own container sees the workspace."""
    return {"name": VOLUME, "mountPath": MOUNT_PATH, "subPath": FOLDER}


def seed_container(
    image: str, *, security: Mapping[str, Any], resources: Mapping[str, Any]
) -> dict[str, Any]:
    """The init container that fills an empty workspace, and leaves any other alone."""
    return {
        "name": SEED_CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", SEED_SCRIPT, SEED_CONTAINER, MOUNT_PATH, _CLAIM_PATH],
        "env": [{"name": _POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
        "workingDir": "/",
        "resources": dict(resources),
        "securityContext": dict(security),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": VOLUME, "mountPath": _CLAIM_PATH}],
    }
