"""Images of an engine: looked up, pulled with progress, loaded from a stream.

Not here: building them (the images floor) and credentials' storage.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.containers.translation import is_disk_full, translated
from holdfast.errors import DiskFullError, EngineCallError, ImageMissingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from holdfast.containers.engine import Engine

_REGISTRY = r"(?:localhost|[a-zA-Z0-9-]+(?:\.[a-zA-Z0-9-]+)+|[a-zA-Z0-9-]+(?=:\d+/))(?::\d+)?/"
_PATH = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+|/)[a-z0-9]+)*"
_REFERENCE = re.compile(rf"(?:{_REGISTRY})?{_PATH}(?::\w[\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?")
_ID = re.compile(r"(?:sha256:)?[0-9a-f]{12,64}")


class ImageView(msgspec.Struct, frozen=True, kw_only=True):
    """An image as the engine shows it."""

    id: str
    labels: dict[str, str]
    architecture: str
    size: int


def check_reference(reference: str) -> str:
    """Return the reference, or refuse what no registry and no engine could mean."""
    if _REFERENCE.fullmatch(reference) or _ID.fullmatch(reference):
        return reference
    raise UsageError(
        f"{reference!r} is no image reference", hint="Write it as [registry/]name[:tag], in lower case."
    )


def find_image(engine: Engine, reference: str) -> ImageView | None:
    """The image under this name or id, or None."""
    import docker.errors

    with translated(f"looking for image {reference}", engine.address):
        try:
            raw: Mapping[str, Any] = engine.client.inspect_image(reference)
        except docker.errors.NotFound:
            return None
    return ImageView(
        id=raw["Id"],
        labels=(raw.get("Config") or {}).get("Labels") or {},
        architecture=str(raw.get("Architecture", "")),
        size=int(raw.get("Size", 0)),
    )


def load_image(engine: Engine, archive: Iterable[bytes]) -> None:
    """Load images from the chunks of a docker archive."""
    with translated("loading an image into the engine", engine.address):
        for answer in engine.client.load_image(_as_stream(archive)):
            _raise_if_error(answer, "loading an image into the engine")


def remove_unused_image(engine: Engine, image_id: str) -> bool:
    """Remove an image that has no name any more and that no container uses; False when it had to stay."""
    import docker.errors

    with translated(f"removing image {image_id}", engine.address):
        try:
            if find_image(engine, image_id) is None or engine.client.inspect_image(image_id)["RepoTags"]:
                return False
            engine.client.remove_image(image_id)
        except docker.errors.APIError as error:
            if error.status_code in (404, 409):
                return False
            raise
    return True


def pull_image(
    engine: Engine,
    reference: str,
    *,
    progress: Callable[[str, float | None], None],
    login: tuple[str, str] | None = None,
) -> None:
    """Pull an image once, telling how far it is; a name that no registry has is an error of its own.

    `login` is user and password; without it the engine is shown what the user's Docker configuration has.
    """
    import docker.errors

    auth = None if login is None else {"username": login[0], "password": login[1]}
    layers: dict[str, tuple[int, int]] = {}
    with translated(f"pulling {reference}", engine.address):
        try:
            for answer in engine.client.pull(reference, stream=True, decode=True, auth_config=auth):
                _raise_if_error(answer, f"pulling {reference}")
                _tell(answer, layers, progress)
        except docker.errors.NotFound as error:
            raise ImageMissingError(f"no registry has the image {reference}") from error


def _tell(
    answer: Mapping[str, Any],
    layers: dict[str, tuple[int, int]],
    progress: Callable[[str, float | None], None],
) -> None:
    detail = answer.get("progressDetail") or {}
    if answer.get("status") == "Downloading" and detail.get("total"):
        layers[str(answer.get("id"))] = (int(detail["current"]), int(detail["total"]))
        done, total = (sum(column) for column in zip(*layers.values(), strict=True))
        progress(f"{done / 1e6:.0f} of {total / 1e6:.0f} MB", done / total)


def _raise_if_error(answer: Mapping[str, Any], doing: str) -> None:
    if "error" not in answer:
        return
    if is_disk_full(str(answer["error"])):
        raise DiskFullError(f"no space left on the container engine's disk while {doing}")
    raise EngineCallError(f"{doing} failed: {answer['error']}")


def _as_stream(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """A true generator: the HTTP layer sends those chunked instead of asking for a length."""
    yield from chunks
