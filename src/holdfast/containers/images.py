"""Images of a container engine: find, pull, load and remove them. The images package builds them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.containers.errors import call_if_found, is_disk_full, translate_errors
from holdfast.errors import ContainerEngineError, DiskFullError, ImageNotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from holdfast.containers.client import ContainerEngine

_REGISTRY_PATTERN = r"(?:localhost|[a-zA-Z0-9-]+(?:\.[a-zA-Z0-9-]+)+|[a-zA-Z0-9-]+(?=:\d+/))(?::\d+)?/"
_PATH_PATTERN = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+|/)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:{_REGISTRY_PATTERN})?{_PATH_PATTERN}(?::\w[\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)
_IMAGE_ID = re.compile(r"(?:sha256:)?[0-9a-f]{12,64}")


class ImageView(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of an image that holdfast reads."""

    id: str
    labels: dict[str, str]
    architecture: str
    size: int
    layers: tuple[str, ...] = ()


def validate_reference(reference: str) -> str:
    """Return the reference.

    Raises:
        UsageError: it is not a valid image reference or image ID.
    """
    if _REFERENCE.fullmatch(reference) or _IMAGE_ID.fullmatch(reference):
        return reference
    raise UsageError(
        f"{reference!r}: not an image reference", hint="Write [registry/]name[:tag] in lower case."
    )


def find_image(engine: ContainerEngine, reference: str) -> ImageView | None:
    """Return the image with this reference or ID, or None."""
    raw: Mapping[str, Any] | None = call_if_found(
        engine, f"inspecting image {reference}", lambda: engine.client.inspect_image(reference)
    )
    if raw is None:
        return None
    return ImageView(
        id=raw["Id"],
        labels=(raw.get("Config") or {}).get("Labels") or {},
        architecture=str(raw.get("Architecture", "")),
        size=int(raw.get("Size", 0)),
        layers=tuple((raw.get("RootFS") or {}).get("Layers") or ()),
    )


def load_image(engine: ContainerEngine, archive: Iterable[bytes]) -> None:
    """Load images from the chunks of a Docker archive."""
    with translate_errors("loading an image into the engine", engine.address):
        # A generator, because the HTTP library asks other iterables for their length.
        for message in engine.client.load_image(chunk for chunk in archive):
            _raise_if_error(message, "loading an image into the engine")


def remove_unused_image(engine: ContainerEngine, image_id: str) -> bool:
    """Remove an image without a tag that no container uses; return whether it was removed."""
    import docker.errors

    with translate_errors(f"removing image {image_id}", engine.address):
        try:
            if engine.client.inspect_image(image_id)["RepoTags"]:
                return False
            engine.client.remove_image(image_id)
        except docker.errors.APIError as error:
            # 404: already removed. 409: a container uses the image.
            if error.status_code in (404, 409):
                return False
            raise
    return True


def pull_image(
    engine: ContainerEngine,
    reference: str,
    *,
    progress: Callable[[str, float | None], None],
    login: tuple[str, str] | None = None,
) -> None:
    """Pull an image.

    Args:
        engine: the container engine.
        reference: the image.
        progress: receives a message and the fraction of the downloaded bytes.
        login: user and password; default: the credentials in the user's Docker configuration.

    Raises:
        ImageNotFoundError: the registry does not have the image.
    """
    import docker.errors

    auth = None if login is None else {"username": login[0], "password": login[1]}
    layers: dict[str, tuple[int, int]] = {}
    with translate_errors(f"pulling {reference}", engine.address):
        try:
            for message in engine.client.pull(reference, stream=True, decode=True, auth_config=auth):
                _raise_if_error(message, f"pulling {reference}")
                detail = message.get("progressDetail") or {}
                if message.get("status") == "Downloading" and detail.get("total"):
                    layers[str(message.get("id"))] = (int(detail["current"]), int(detail["total"]))
                    done, total = (sum(column) for column in zip(*layers.values(), strict=True))
                    progress(f"{done / 1e6:.0f} of {total / 1e6:.0f} MB", done / total)
        except docker.errors.NotFound as error:
            raise ImageNotFoundError(f"image {reference}: not found in its registry") from error


def _raise_if_error(message: Mapping[str, Any], operation: str) -> None:
    # The engine sends status 200 before it loads or pulls: a failure is a message in the stream.
    if "error" not in message:
        return
    if is_disk_full(str(message["error"])):
        raise DiskFullError(f"container engine: no space left on its disk while {operation}")
    raise ContainerEngineError(f"{operation} failed: {message['error']}")
