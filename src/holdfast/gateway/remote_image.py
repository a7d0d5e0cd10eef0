"""The node image on its way from this machine's engine to another host's: one stream, no copy in between.

Not here: when it is needed (steps/image.py) and trying again (the step's policy).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.containers.images import find_image, load_image
from holdfast.containers.translation import translated
from holdfast.errors import EngineCallError, HoldfastError
from holdfast.gateway.push_meter import Meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.containers.engine import Engine
    from holdfast.containers.images import ImageView


def bring_image(
    here: Callable[[], Engine],
    there: Engine,
    reference: str,
    check: Callable[[ImageView], None],
    progress: Callable[[str, float | None], None],
) -> bool:
    """Stream an image to another engine and see that it is the same there; False when it is not here.

    `check` refuses one that is of no use over there, before anything is sent.
    """
    found = _find_here(here, reference)
    if found is None:
        return False
    source, image = found
    check(image)
    load_image(there, _told(_saved(source, reference), image.size, progress))
    arrived = find_image(there, reference)
    if arrived is None or arrived.id != image.id:
        raise EngineCallError(
            f"{reference} was sent to {there.address}, and unexpected EOF: it did not arrive as it was",
        )
    return True


def _find_here(here: Callable[[], Engine], reference: str) -> tuple[Engine, ImageView] | None:
    """No engine on this machine says the same as one without the image."""
    try:
        source = here()
        image = find_image(source, reference)
    except HoldfastError:
        return None
    return (source, image) if image is not None else None


def _saved(source: Engine, reference: str) -> Iterator[bytes]:
    with translated(f"saving {reference}", source.address):
        yield from source.client.get_image(reference)


def _told(
    chunks: Iterator[bytes], size: int, progress: Callable[[str, float | None], None]
) -> Iterator[bytes]:
    meter, sent = Meter(size, progress, words="sending: "), 0
    for chunk in chunks:
        yield chunk
        sent += len(chunk)
        meter.tell(sent)
    meter.end()
