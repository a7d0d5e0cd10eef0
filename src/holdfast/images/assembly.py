"""Puts finished stages together: the layer of holdfast's own files, the images baked into it, the archive.

Not here: where the stages come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.containers.labels import INPUTS
from holdfast.images import python_layer
from holdfast.images.archive import Archive
from holdfast.images.digest import files_below
from holdfast.images.layers import Layer, read_member
from holdfast.images.sources import Config

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.images.recipe import Recipe
    from holdfast.images.sources import Baked, GoModule

BAKED_FOLDER = "/usr/share/holdfast/images"
LAYER, ROOTFS = "layer.tar", "rootfs.tar"


def write_layer(recipe: Recipe, target: Path, *, rootfs: Path, binaries: Path | None) -> None:
    """Write the layer of our own files into a folder; it comes last, for it changes most."""
    source = recipe.source
    with Layer(target / LAYER) as layer:
        for folder in source.directories:
            layer.folder(folder, owner=_owner(source.config.user))
        if binaries is not None and source.go is not None:
            _add_binaries(layer, source.go, binaries)
        for path, place in source.files.items():
            _add_files(layer, recipe.folder / path, place)
        for place, destination in source.links.items():
            layer.link(place, destination)
        for baked in source.baked:
            archive = _bake(baked, recipe, target, rootfs=rootfs, binaries=binaries)
            layer.file(f"{BAKED_FOLDER}/{baked.archive}", archive, mode=0o644)
            archive.unlink()
        if source.python is not None:
            python_layer.add_package(layer, source.python)


def image_archive(recipe: Recipe, *, rootfs: Path, layer: Path, dependencies: Path | None = None) -> Archive:
    """The image as an archive that an engine can load: what seldom changes first."""
    between = [] if dependencies is None else [dependencies / python_layer.LAYER]
    return Archive(
        recipe.reference,
        [rootfs / ROOTFS, *between, layer / LAYER],
        recipe.source.config,
        architecture=recipe.architecture,
        labels={INPUTS: recipe.key},
    )


def _owner(user: str) -> tuple[int, int]:
    """An image's own folders belong to whom it runs as."""
    number, _, group = user.partition(":")
    return (int(number), int(group or number)) if number.isdigit() else (0, 0)


def _add_binaries(layer: Layer, module: GoModule, binaries: Path) -> None:
    for binary in module.binaries:
        if binary.install:
            layer.file(binary.install, binaries / binary.output, mode=0o755)


def _add_files(layer: Layer, source: Path, place: str) -> None:
    if source.is_dir():
        for path in files_below(source):
            layer.file(f"{place}/{path.relative_to(source)}", path)
    else:
        layer.file(place, source)


def _bake(baked: Baked, recipe: Recipe, target: Path, *, rootfs: Path, binaries: Path | None) -> Path:
    """One small image as an archive of its own."""
    layer_path = target / f"{baked.archive}.layer.tar"
    with Layer(layer_path) as layer:
        for folder in baked.directories:
            layer.folder(folder)
        for place, origin in baked.files.items():
            kind, _, where = origin.partition(":")
            if kind == "bin" and binaries is not None:
                layer.file(place, binaries / where, mode=0o755)
            else:
                layer.content(place, read_member(rootfs / ROOTFS, where), mode=0o755)
        for applet in baked.applets:
            layer.link(f"/bin/{applet}", "busybox")
    config = Config(entrypoint=baked.entrypoint, environment={"PATH": "/bin"})
    archive = Archive(baked.name, [layer_path], config, architecture=recipe.architecture, labels={})
    path = target / baked.archive
    archive.write(path)
    layer_path.unlink()
    layer_path.with_suffix(".sha256").unlink()
    return path
