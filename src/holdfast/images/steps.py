"""The stages of an image build as steps: each looks into the cache first, so a killed build goes on.

Root filesystems, Go programs and Python packages do not wait for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.containers.images import find_image, load_image, remove_unused_image
from holdfast.containers.labels import INPUTS
from holdfast.engine import Step, Verdict, absent, done, partial
from holdfast.images.assembly import ROOTFS, image_archive, write_layer
from holdfast.images.debian import make_rootfs
from holdfast.images.digest import files_below
from holdfast.images.golang import build_binaries
from holdfast.images.python_layer import install_dependencies

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.containers.engine import Engine
    from holdfast.engine import Context
    from holdfast.images.archive import Archive
    from holdfast.images.cache import Cache
    from holdfast.images.recipe import Recipe


class Stage(Step):
    """A stage whose result is a folder in the cache."""

    def __init__(
        self, recipe: Recipe, cache: Cache, *, kind: str, title: str, key: str, of: str = ""
    ) -> None:
        super().__init__(f"build-{kind}-{of or recipe.short}", title=title)
        self.recipe = recipe
        self.cache = cache
        self.key = key

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        return done("cached") if self.cache.find(self.name, self.key) else absent("not built yet")

    def run(self, ctx: Context) -> None:
        with self.cache.building(self.name, self.key) as target:
            self.build(ctx, target)
            ctx.note(f"{sum(path.stat().st_size for path in files_below(target)) / 1e6:.0f} MB")

    def build(self, ctx: Context, target: Path) -> None:
        """Write the stage's files into the folder."""
        raise NotImplementedError

    def folder(self) -> Path:
        """The finished stage."""
        found = self.cache.find(self.name, self.key)
        if found is None:
            raise FileNotFoundError(f"stage {self.name} is not in the cache")
        return found


class BuildRootfs(Stage):
    """Debian's packages, unpacked and configured."""

    def __init__(self, recipe: Recipe, cache: Cache) -> None:
        title = f"{recipe.short.capitalize()}: Debian packages"
        super().__init__(recipe, cache, kind="rootfs", title=title, key=recipe.rootfs_key, of=recipe.image)

    def build(self, ctx: Context, target: Path) -> None:
        make_rootfs(
            self.recipe.source.debian,
            target / ROOTFS,
            log=self.cache.log_path(self.name),
            tell=ctx.progress,
            stop=ctx.stop,
        )


class BuildBinaries(Stage):
    """The Go programs; by far the longest stage of a first build."""

    def __init__(self, recipe: Recipe, cache: Cache) -> None:
        title = f"{recipe.short.capitalize()}: Kubernetes programs"
        super().__init__(recipe, cache, kind="binaries", title=title, key=recipe.binaries_key)

    def build(self, ctx: Context, target: Path) -> None:
        assert self.recipe.source.go is not None  # noqa: S101 (only made for images with a Go module)
        build_binaries(
            self.recipe.folder,
            self.recipe.source.go,
            target,
            log=self.cache.log_path(self.name),
            tell=ctx.progress,
            stop=ctx.stop,
        )


class BuildDependencies(Stage):
    """The locked Python packages."""

    def __init__(self, recipe: Recipe, cache: Cache) -> None:
        title = f"{recipe.short.capitalize()}: Python packages"
        super().__init__(recipe, cache, kind="dependencies", title=title, key=recipe.dependencies_key)

    def build(self, ctx: Context, target: Path) -> None:
        assert self.recipe.source.python is not None  # noqa: S101 (only made for images with Python)
        install_dependencies(
            self.recipe.source.python,
            target,
            architecture=self.recipe.architecture,
            log=self.cache.log_path(self.name),
            stop=ctx.stop,
        )


class BuildLayer(Stage):
    """holdfast's own files, in one layer above the root filesystem."""

    def __init__(self, recipe: Recipe, cache: Cache, below: list[Stage]) -> None:
        title = f"{recipe.short.capitalize()}: own files"
        super().__init__(recipe, cache, kind="layer", title=title, key=recipe.layer_key)
        self.needs = tuple(stage.name for stage in below)
        self._below = below

    def build(self, ctx: Context, target: Path) -> None:
        del ctx
        write_layer(
            self.recipe,
            target,
            rootfs=self._folder_of(BuildRootfs) or target,
            binaries=self._folder_of(BuildBinaries),
        )

    def _folder_of(self, kind: type[Stage]) -> Path | None:
        return next((stage.folder() for stage in self._below if isinstance(stage, kind)), None)


class LoadImage(Step):
    """The finished image, on the engine under its name."""

    def __init__(self, recipe: Recipe, engine: Engine, stages: list[Stage]) -> None:
        title = f"{recipe.short.capitalize()}: {recipe.reference}"
        super().__init__(f"load-{recipe.short}", title=title, needs=tuple(stage.name for stage in stages))
        self._recipe = recipe
        self._engine = engine
        self._stages = stages

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        found = find_image(self._engine, self._recipe.reference)
        if found is None:
            return absent("not on the engine")
        if found.labels.get(INPUTS) != self._recipe.key:
            return partial("the engine has an older one")
        return done("up to date")

    def run(self, ctx: Context) -> None:
        folders = {type(stage): stage.folder() for stage in self._stages}
        archive = image_archive(
            self._recipe,
            rootfs=folders[BuildRootfs],
            layer=folders[BuildLayer],
            dependencies=folders.get(BuildDependencies),
        )
        replaced = find_image(self._engine, self._recipe.reference)
        load_image(self._engine, _counted(archive, ctx))
        if replaced is not None:
            remove_unused_image(self._engine, replaced.id)
        ctx.note("loaded into the engine")


def _counted(archive: Archive, ctx: Context) -> Iterator[bytes]:
    total, sent, told = archive.size(), 0, 0.0
    for chunk in archive.stream():
        yield chunk
        sent += len(chunk)
        fraction = min(sent / total, 1.0)
        if fraction - told >= 0.01:  # noqa: PLR2004 (a hundred updates are enough for a bar)
            told = fraction
            ctx.progress(f"{sent / 1e6:.0f} of {total / 1e6:.0f} MB", fraction)
