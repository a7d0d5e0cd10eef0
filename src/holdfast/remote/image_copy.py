"""Copy an image from the local container engine to another one as a stream, without a copy on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.containers import TransferProgress, find_image, load_image, translate_errors
from holdfast.errors import ContainerEngineError, HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.containers import ContainerEngine, ImageView


def copy_image(
    connect_source: Callable[[], ContainerEngine],
    target: ContainerEngine,
    reference: str,
    check: Callable[[ImageView], None],
    progress: Callable[[str, float | None], None],
) -> bool:
    """Copy an image to another engine and verify its ID there.

    Args:
        connect_source: connects to the engine that may have the image.
        target: the engine that receives it.
        reference: the image.
        check: raises if the target cannot use the image; called before anything is sent.
        progress: receives a message and the fraction of the sent bytes.

    Returns:
        False if the source engine does not answer or does not have the image.
    """
    try:
        source = connect_source()
        image = find_image(source, reference)
    except HoldfastError:
        return False
    if image is None:
        return False
    check(image)
    load_image(target, _export_image(source, reference, image.size, progress))
    copied = find_image(target, reference)
    if copied is None or copied.id != image.id:
        # "unexpected EOF" makes the error transient (containers.errors): the step sends the image again.
        raise ContainerEngineError(
            f"{reference}: unexpected EOF, the image on {target.address} is incomplete"
        )
    return True


def _export_image(
    source: ContainerEngine, reference: str, size: int, progress: Callable[[str, float | None], None]
) -> Iterator[bytes]:
    transfer, sent = TransferProgress(size, progress, prefix="sending: "), 0
    with translate_errors(f"exporting {reference}", source.address):
        for chunk in source.client.get_image(reference):
            yield chunk
            sent += len(chunk)
            transfer.update(sent)
    transfer.finish()
