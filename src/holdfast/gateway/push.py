"""Local images into a running gateway's node: only what it lacks, as one stream, verified afterwards.

    pushed = push_images(work, ["my-app:dev"], progress=ctx.progress)

One call is one attempt, so that the caller's policy (`PUSH_CALLS`) is the only one that tries again: run
again, it goes on with what is missing. An import that is cut leaves no image behind, for containerd names an
image only when its whole archive is in. Not here: the bytes' way (containers/transfer.py).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from holdfast.containers.containers import ends_within
from holdfast.containers.images import check_reference, find_image
from holdfast.containers.transfer import transfer_images
from holdfast.errors import (
    EngineCallError,
    HoldfastError,
    ImageMissingError,
    ImageUnfitError,
    NodeStoppedError,
    UnknownGatewayError,
    UsageError,
    WaitTimeoutError,
)
from holdfast.gateway import push_node
from holdfast.gateway.place import patience_of
from holdfast.gateway.push_meter import Meter
from holdfast.gateway.push_names import full_name, with_tag
from holdfast.retry import Policy, constant, exponential

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from holdfast.containers.engine import Engine
    from holdfast.gateway.work import Work

PUSH_CALLS = Policy(attempts=4, backoff=exponential(0.5, cap=5), retry_on=push_node.may_pass)
"""For steps that push: containerd that is not up yet, a reset or a cut stream is tried again."""

_DYING_SECONDS = 3.0


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """One image that is in the node now, verified; `changed` says whether it had to be sent."""

    reference: str
    name: str
    id: str
    size: int
    changed: bool = False


def push_images(
    work: Work,
    references: Sequence[str],
    *,
    progress: Callable[[str, float | None], None],
    stop: threading.Event | None = None,
) -> list[Pushed]:
    """Put images of this machine's engine into the gateway's node; the same ones are not sent again."""
    source = source_engine(work)
    wanted = [find_source(source, reference, work) for reference in dict.fromkeys(references)]
    try:
        missing = missing_images(work, wanted)
        if missing:
            _put(work, source, missing, progress, stop)
    except EngineCallError as error:
        _prefer_ended_node(work, error)
        raise
    sent = {image.name for image in missing}
    return [msgspec.structs.replace(image, changed=image.name in sent) for image in wanted]


def _prefer_ended_node(work: Work, error: EngineCallError) -> None:
    """A node that has ended is the better reason; one that was just killed may take a moment to be over."""
    if push_node.is_waiting(error) or ends_within(work.engine, work.object, within=_DYING_SECONDS):
        check_running(work)


def _put(
    work: Work,
    source: Engine,
    missing: Sequence[Pushed],
    progress: Callable[[str, float | None], None],
    stop: threading.Event | None,
) -> None:
    """Send what the node does not have under any name, and see that all of it is there."""
    unknown = _name_known(work, missing)
    if unknown:
        _send(work, source, unknown, progress, stop)
        for image in unknown:
            push_node.give_id(_runtime(work), image.name, image.id)
    _verify(work, missing)


def source_engine(work: Work) -> Engine:
    """The engine that local images are taken from: always this machine's, wherever the gateway lives."""
    if not work.place.remote:
        return work.engine
    from holdfast.containers.engine import connect

    return connect(timeout=work.settings.timeouts.engine, patience=patience_of(work.settings))


def _runtime(work: Work) -> push_node.Runtime:
    return push_node.Runtime(work.engine, work.object, work.settings.timeouts.runtime)


def find_source(source: Engine, reference: str, work: Work) -> Pushed:
    """The image as it is on this machine; refuses one that is missing or for another kind of machine."""
    tagged = with_tag(check_reference(reference))
    found = find_image(source, tagged)
    if found is None:
        raise _not_there(source, reference)
    there = work.engine.architecture
    if there and found.architecture and found.architecture != there:
        raise ImageUnfitError(
            f"{reference} is for {found.architecture}, and gateway {work.name} runs on {there}",
            hint=f"Build it for linux/{there} (docker build --platform linux/{there} …).",
        )
    return Pushed(reference=reference, name=full_name(tagged), id=found.id, size=found.size)


def _not_there(source: Engine, reference: str) -> HoldfastError:
    if find_image(source, reference) is not None:
        return UsageError(
            f"{reference} is the id of an image, and inside the node it needs a name",
            hint=f"Give it one first: docker tag {reference} NAME:TAG",
        )
    return ImageMissingError(
        f"the image {reference} is not on this machine's engine",
        hint=f"Build it (docker build -t {reference} .) or pull it (docker pull {reference}), "
        "then run the same command again.",
    )


def missing_images(work: Work, wanted: Sequence[Pushed]) -> list[Pushed]:
    """Those that the node does not have, or has under that name with another content."""
    check_running(work)
    there = push_node.config_digests(_runtime(work), {image.name: image.id for image in wanted})
    return [image for image in wanted if there.get(image.name) != image.id]


def _name_known(work: Work, missing: Sequence[Pushed]) -> list[Pushed]:
    """Give their name to those that the node has under another one; return the rest."""
    known = push_node.known_ids(_runtime(work), [image.id for image in missing])
    for image in missing:
        if image.id in known:
            push_node.give_name(_runtime(work), image.id, image.name)
    return [image for image in missing if image.id not in known]


def _send(
    work: Work,
    source: Engine,
    missing: Sequence[Pushed],
    progress: Callable[[str, float | None], None],
    stop: threading.Event | None,
) -> None:
    total = max(1, sum({image.id: image.size for image in missing}.values()))
    meter = Meter(total, progress)
    progress(f"saving {', '.join(image.reference for image in missing)}", None)
    names = [with_tag(image.reference) for image in missing]
    seconds = work.settings.timeouts.push
    command, begun = push_node.import_command(seconds), time.monotonic()
    ended = transfer_images(
        source,
        names,
        work.engine,
        work.object,
        command,
        progress=meter.tell,
        silence=work.settings.timeouts.image,
        stop=stop,
    )
    meter.end()
    if ended.exit_code == 0:
        return
    if time.monotonic() - begun >= seconds:
        raise WaitTimeoutError(
            f"{', '.join(image.reference for image in missing)} was not in the node within {seconds:g} s",
            hint="Give it more time: HOLDFAST_TIMEOUTS_PUSH=7200, say; then run the same command again.",
        )
    raise push_node.failure(ended)


def _verify(work: Work, sent: Sequence[Pushed]) -> None:
    """The kubelet's half of containerd learns of an import by an event, a moment later: wait for that."""

    def look() -> None:
        wrong = missing_images(work, sent)
        if wrong:
            raise EngineCallError(
                f"{wrong[0].reference} was sent, but the node does not show it with the digest {wrong[0].id}"
            )

    seconds = work.settings.timeouts.runtime
    shown = Policy(attempts=None, deadline=seconds, backoff=constant(0.1), retry_on=EngineCallError)
    shown.call(look)


def check_running(work: Work) -> None:
    """Refuse a gateway that is not there or does not run: nothing can be put into it."""
    container = work.container()
    if container is None:
        raise UnknownGatewayError(
            f"there is no gateway {work.name} to push into", hint=f"Bring it up: holdfast up {work.name}"
        )
    if container.state != "running":
        raise NodeStoppedError(
            f"gateway {work.name} does not run ({container.state})",
            hint=f"Start it: holdfast start {work.name}",
        )
