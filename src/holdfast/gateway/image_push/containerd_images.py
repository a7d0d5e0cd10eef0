"""The images in a node's containerd: list, tag and verify them, and classify errors of `ctr`.

The CRI plugin of containerd stores each image a second time under its config digest; if both records refer to
the same manifest, that is the image's config digest.

Docker and the kubelet use short image names, containerd only full ones (`docker.io/library/my-app:dev`), so
that `image: my-app:dev` in a pod has to be found under the full name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from holdfast.containers import is_disk_full, is_transient, run_in_container
from holdfast.errors import (
    ContainerEngineError,
    DiskFullError,
    HoldfastError,
    ImageIncompatibleError,
    UsageError,
)
from holdfast.gateway.registries import DOCKER_HUB, LEGACY_DOCKER_HUB, registry_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.containers import CommandResult
    from holdfast.gateway.context import GatewayContext


# The containerd namespace of the CRI plugin: the kubelet uses images of no other namespace.
_K8S_NAMESPACE = ("--namespace", "k8s.io")
_VERSION_COMMAND = ("ctr", "--connect-timeout", "1s", "--timeout", "10s", "version")

_NOT_READY_PATTERN = re.compile(
    r"containerd\.sock|connection refused|transport is closing|code = unavailable|server is not ready|"
    r"error while dialing|failed to dial",
    re.IGNORECASE,
)
_TRUNCATED_PATTERN = re.compile(r"unexpected eof|unrecognized image format|invalid tar header", re.IGNORECASE)
_PLATFORM_MISMATCH_PATTERN = re.compile(
    r"no match for platform|no unpack platforms|mismatched.*platform", re.IGNORECASE
)
_DIGEST_PATTERN = re.compile(r"sha256:[0-9a-f]{64}")
_CRI_MANAGED_LABEL = "io.cri-containerd.image=managed"
_SIGKILL_EXIT_CODE = 137
_NOT_READY = "containerd is not ready yet"
_TRUNCATED = "the archive was truncated: unexpected EOF"


def _ctr(gateway: GatewayContext, *args: str) -> CommandResult:
    """Run `ctr` in the namespace of the kubelet's images; with a timeout, so that a hung call is retried."""
    argv = ["ctr", "--timeout", f"{gateway.settings.timeouts.runtime:g}s", *_K8S_NAMESPACE, *args]
    return run_in_container(gateway.engine, gateway.object_name, argv)


def config_digests(gateway: GatewayContext, expected_digests: Mapping[str, str]) -> dict[str, str]:
    """The config digests of those images that the kubelet can use.

    Args:
        gateway: The gateway.
        expected_digests: Maps full image names to the digests that they should have.
    """
    names = dict.fromkeys([*expected_digests, *expected_digests.values()])
    targets = parse_image_list(_check(_list_images(gateway, names)))
    digests: dict[str, str] = {}
    for name, expected in expected_digests.items():
        target = targets.get(name)
        if target is None:
            continue
        # An engine with the containerd image store uses the digest of the manifest as image id.
        if target in (expected, targets.get(expected)):
            digests[name] = expected
        elif expected in targets:
            digests[name] = _read_config_digest(gateway, target)
    return digests


def _list_images(gateway: GatewayContext, names: Iterable[str]) -> CommandResult:
    # Neither a validated reference nor a digest contains a quote, so a name cannot change the filter.
    return _ctr(gateway, "images", "ls", *(f'name=="{name}"' for name in names))


def _check(result: CommandResult) -> str:
    """Return the output of a successful command, or raise what the failure means."""
    if result.exit_code != 0:
        raise ctr_error(result)
    return result.output


def check_containerd(gateway: GatewayContext) -> None:
    """Raise an error unless the node's containerd answers."""
    _check(run_in_container(gateway.engine, gateway.object_name, _VERSION_COMMAND))


def import_command(seconds: float) -> tuple[str, ...]:
    """The command that imports an image archive from its standard input within this time."""
    return ("ctr", "--timeout", f"{seconds:g}s", *_K8S_NAMESPACE, "images", "import", "-")


def known_config_digests(gateway: GatewayContext, ids: Sequence[str]) -> set[str]:
    """Those of the config digests that the node has an image for, under any name."""
    result = _list_images(gateway, ids)
    # After a failure the images are sent in full: that is slower, but correct.
    return set(parse_image_list(result.output)) if result.exit_code == 0 else set()


def tag_image(gateway: GatewayContext, known: str, name: str) -> None:
    """Give an existing image another name."""
    # `--force` replaces a name that refers to other content.
    _check(_ctr(gateway, "images", "tag", "--force", known, name))


def tag_config_digest(gateway: GatewayContext, name: str, expected: str) -> None:
    """Tag an image with its config digest, if it has the expected one.

    The CRI plugin does that for a new name, but not for a name whose content changed.
    """
    targets = parse_image_list(_check(_list_images(gateway, (name, expected))))
    target = targets.get(name)
    if target is not None and expected not in targets and _read_config_digest(gateway, target) == expected:
        tag_image(gateway, name, expected)


def parse_image_list(listing: str) -> dict[str, str]:
    """Parse `ctr images ls`: manifest digests by name, of images that the CRI plugin manages."""
    targets = {}
    for line in listing.splitlines():
        columns = line.split()
        # By its form, not by its column: a size like `1.9 MiB` takes two columns.
        digest = next((column for column in columns[1:] if _DIGEST_PATTERN.fullmatch(column)), None)
        if digest is not None and _CRI_MANAGED_LABEL in columns[-1].split(","):
            targets[columns[0]] = digest
    return targets


def _read_config_digest(gateway: GatewayContext, manifest: str) -> str:
    """Read it from the manifest: one image may have two manifests, with and without compressed layers."""
    content = _check(_ctr(gateway, "content", "get", manifest))
    try:
        return str(msgspec.json.decode(content)["config"]["digest"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return ""


def ctr_error(result: CommandResult) -> HoldfastError:
    """Translate a failed `ctr` command; `is_push_retryable` relies on the texts of transient errors."""
    message = _last_line(result.output)
    # Before the transient errors: a full disk can also end the stream early, and a retry does not help.
    if is_disk_full(result.output):
        return DiskFullError("gateway's volume: no space left while images were imported")
    if _PLATFORM_MISMATCH_PATTERN.search(result.output):
        return ImageIncompatibleError(f"image: the node cannot use it: {message}")
    # 128 + SIGKILL: for example, the OOM killer or a stopping node has ended `ctr`.
    if result.exit_code == _SIGKILL_EXIT_CODE:
        return ContainerEngineError(f"{_TRUNCATED} (the import was killed)")
    if _TRUNCATED_PATTERN.search(result.output):
        return ContainerEngineError(f"{_TRUNCATED} ({message})")
    if _NOT_READY_PATTERN.search(result.output):
        return ContainerEngineError(f"{_NOT_READY}: {message}")
    return ContainerEngineError(f"the node's containerd failed (exit code {result.exit_code}): {message}")


def is_containerd_not_ready(error: Exception) -> bool:
    """Whether the error says that the node's containerd is not ready yet."""
    return isinstance(error, ContainerEngineError) and error.message.startswith(_NOT_READY)


def is_push_retryable(error: Exception) -> bool:
    """Whether another attempt of a failed push may succeed."""
    if not isinstance(error, ContainerEngineError):
        return False
    return error.message.startswith((_NOT_READY, _TRUNCATED)) or is_transient(error)


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1].removeprefix("ctr: ") if lines else "no output"


_OFFICIAL_PREFIX = "library/"


def with_tag(reference: str) -> str:
    """Add the tag `latest` if there is none: an engine would save every tag of that name."""
    if "@" in reference:
        raise UsageError(
            f"{reference}: an image in the node needs a name and tag, not a digest",
            hint="Give it a name with docker tag, and push that name.",
        )
    return reference if ":" in reference.rpartition("/")[2] else f"{reference}:latest"


def full_image_name(reference: str) -> str:
    """The name of an image in containerd."""
    tagged, registry = with_tag(reference), registry_host(reference)
    path = (
        tagged.partition("/")[2] if tagged.startswith((f"{registry}/", f"{LEGACY_DOCKER_HUB}/")) else tagged
    )
    if registry == DOCKER_HUB and "/" not in path:
        path = _OFFICIAL_PREFIX + path
    return f"{registry}/{path}"
