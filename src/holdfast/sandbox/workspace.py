"""The workspace of a sandbox: its volume claim template, its mount, and the init container that seeds it.

The data is in one directory of the PVC. The init container copies the image's `/sandbox` directory to a
temporary directory of the PVC and renames the copy. So the data directory either is complete or does not
exist, and its existence means that there is nothing left to do. The image needs `/bin/sh`, `cp`, `mv`, `rm`,
`mkdir`, `chmod` and `sync`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.api import Workspace

# Name of the volume and of its volume claim template; the PVC is `workspace-<sandbox>`.
VOLUME_NAME = "workspace"
MOUNT_PATH = "/sandbox"
# The workspace is a subdirectory of the PVC, so that unfinished copies have a place outside it.
DATA_DIR = "data"
SEED_CONTAINER = "seed-workspace"
_PVC_MOUNT_PATH = "/holdfast/workspace"
_POD_UID_ENV = "HOLDFAST_POD_UID"

# The script flushes the copy before the rename and the rename afterwards: a power failure leaves no `data`
# directory or a complete one. If `data` appears just before `mv`, the copy ends up inside it and is removed
# there.
SEED_SCRIPT = r"""
set -u
from=$1 claim=$2 stage=.seeding.${HOLDFAST_POD_UID:-0} copy= copied=
cd "$claim" || exit 1
fail() { echo "cannot seed the workspace: $1" >&2; rm -rf "$stage"; exit 1; }
trap '[ -n "$copy" ] && kill "$copy" 2>/dev/null; exit 143' TERM INT
exists() { for entry do { [ -e "$entry" ] || [ -L "$entry" ]; } && return 0; done; return 1; }
flush() { sync -f . 2>/dev/null || sync; }

# Rename leftovers before removing them: a concurrent run must not move a half-removed copy into place.
for old in .seeding.*; do
  [ -e "$old" ] || continue
  mv "$old" ".trash.$old" || fail "cannot rename the leftover $old"
done
exists .trash.* && { rm -rf .trash.* || fail "cannot remove leftovers"; }
[ -e data ] && exit 0

mkdir "$stage" || fail "cannot create a directory on the volume"
if exists "$from"/* "$from"/.[!.]* "$from"/..?*; then
  cp -a "$from/." "$stage/" & copy=$!
  wait "$copy" || fail "cannot copy $from of the image"
  copy= copied=yes
fi
# The workspace is writable for every user that the image may run as.
chmod a+rwx "$stage" || fail "cannot set the mode of the workspace"
[ -z "$copied" ] || flush
[ -e data ] || mv "$stage" data || fail "cannot move the copy into place"
rm -rf "data/$stage" "$stage"
[ -z "$copied" ] || flush
"""


def volume_claim_template(workspace: Workspace) -> dict[str, Any]:
    """Volume claim template of a workspace."""
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": workspace.size}},
    }
    if workspace.storage_class is not None:
        spec["storageClassName"] = workspace.storage_class
    return {"metadata": {"name": VOLUME_NAME}, "spec": spec}


def volume_mount() -> dict[str, Any]:
    """Mount of the workspace in the sandbox's container."""
    # The kubelet creates a missing subPath directory when it starts this container: after the init container,
    # which depends on whether the directory exists.
    return {"name": VOLUME_NAME, "mountPath": MOUNT_PATH, "subPath": DATA_DIR}


def seed_container(
    image: str, *, security: Mapping[str, Any], resources: Mapping[str, Any]
) -> dict[str, Any]:
    """Init container that seeds an empty workspace and leaves any other unchanged."""
    return {
        "name": SEED_CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", SEED_SCRIPT, SEED_CONTAINER, MOUNT_PATH, _PVC_MOUNT_PATH],
        "env": [{"name": _POD_UID_ENV, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
        "workingDir": "/",
        "resources": dict(resources),
        "securityContext": dict(security),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": VOLUME_NAME, "mountPath": _PVC_MOUNT_PATH}],
    }
