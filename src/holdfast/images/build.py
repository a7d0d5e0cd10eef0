"""Builds the images: all stages of all images as one workflow, independent stages at the same time.

The cache and the engine are the truth; nothing else is remembered between builds.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.containers.engine import Engine, connect
from holdfast.containers.images import find_image
from holdfast.containers.labels import INPUTS
from holdfast.engine import Workflow
from holdfast.images.cache import Cache
from holdfast.images.recipe import Recipe
from holdfast.images.sources import NAMES
from holdfast.images.steps import BuildBinaries, BuildDependencies, BuildLayer, BuildRootfs, LoadImage, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine import Step
    from holdfast.events import Bus


class ImageBuilt(msgspec.Struct, frozen=True, kw_only=True):
    """One image after a build."""

    image: str
    reference: str
    inputs: str
    changed: bool


class ImageState(msgspec.Struct, frozen=True, kw_only=True):
    """One image as the engine has it."""

    image: str
    reference: str
    state: Literal["up to date", "outdated", "missing"]
    id: str = ""
    size: int = 0


def build_images(
    names: Sequence[str] = (), *, refresh: bool = False, kubernetes: str = "", bus: Bus | None = None
) -> list[ImageBuilt]:
    """Build the named images, or all; what is up to date is left alone.

    With another version of Kubernetes than the usual one, the node image alone is meant.
    """
    names = names or (("node",) if kubernetes else NAMES)
    engine, cache = connect(timeout=600), Cache()
    with cache.locked(), cache.refreshing() if refresh else nullcontext():
        recipes = [Recipe(name, kubernetes) for name in dict.fromkeys(names)]
        steps = [step for recipe in recipes for step in image_steps(recipe, engine, cache)]
        ended = Workflow("image-build", steps).run(bus=bus, command="image build")
    return [
        ImageBuilt(
            image=recipe.short,
            reference=recipe.reference,
            inputs=recipe.key,
            changed=f"load-{recipe.short}" in ended.changed,
        )
        for recipe in recipes
    ]


def image_steps(recipe: Recipe, engine: Engine, cache: Cache) -> list[Step]:
    """The stages of one image in order."""
    below: list[Stage] = [BuildRootfs(recipe, cache)]
    if recipe.source.go is not None:
        below.append(BuildBinaries(recipe, cache))
    if recipe.source.python is not None and not recipe.source.python.only:
        below.append(BuildDependencies(recipe, cache))
    layer = BuildLayer(recipe, cache, below)
    return [*below, layer, LoadImage(recipe, engine, [*below, layer])]


def image_states() -> list[ImageState]:
    """How the engine's images stand against their sources."""
    engine = connect()
    return [_state(Recipe(name), engine) for name in NAMES]


def _state(recipe: Recipe, engine: Engine) -> ImageState:
    found = find_image(engine, recipe.reference)
    if found is None:
        return ImageState(image=recipe.short, reference=recipe.reference, state="missing")
    current = found.labels.get(INPUTS) == recipe.key
    return ImageState(
        image=recipe.short,
        reference=recipe.reference,
        state="up to date" if current else "outdated",
        id=found.id,
        size=found.size,
    )
