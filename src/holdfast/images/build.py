"""Builds images: one workflow for all stages of all images, with independent stages in parallel.

Each stage is a step that probes the cache, so a killed build continues. The cache and the container engine
are the only state between builds.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial as bind
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.containers import (
    INPUTS,
    ContainerEngine,
    TransferProgress,
    find_image,
    load_image,
    remove_unused_image,
)
from holdfast.images import python_layer
from holdfast.images.build_cache import BuildCache, list_files
from holdfast.images.build_tools import ToolRunner
from holdfast.images.debian_rootfs import ROOTFS_FILE, build_rootfs
from holdfast.images.go_build import build_binaries
from holdfast.images.image_archive import ImageArchive, LayerWriter, read_tar_member
from holdfast.images.image_toml import ALL_IMAGE_NAMES, IMAGE_NAMES, OPTIONAL_IMAGE_NAMES, ImageConfig
from holdfast.images.recipe import Recipe
from holdfast.remote import connect
from holdfast.workflow import ProbeResult, Step, Workflow, absent, done, partial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from holdfast.events import EventBus
    from holdfast.images.image_toml import EmbeddedImage
    from holdfast.workflow import Secret, StepContext


EMBEDDED_IMAGES_DIR = "/usr/share/holdfast/images"
LAYER_FILE = "layer.tar"


class BuildStage(Step):
    """A stage of a build, whose output is a directory in the cache.

    Args:
        cache: keeps the output.
        name: name of the step, and of the stage in the cache.
        title: name for users.
        key: key of the output in the cache.
        build: writes the output into a directory.
        needs: the stages that must be done first.
        proxy: proxy variables for programs that download.
        secrets: values that the output of programs must not show.
    """

    def __init__(
        self,
        cache: BuildCache,
        name: str,
        title: str,
        key: str,
        build: Callable[[Path, ToolRunner], None],
        needs: Sequence[str] = (),
        proxy: Mapping[str, str] | None = None,
        secrets: Sequence[Secret] = (),
    ) -> None:
        super().__init__(name, title=title, needs=needs)
        self._cache = cache
        self._key = key
        self._build = build
        self._proxy = proxy
        self._secrets = secrets

    def probe(self, ctx: StepContext) -> ProbeResult:
        del ctx
        return done("cached") if self._cache.find(self.name, self._key) else absent("not built yet")

    def run(self, ctx: StepContext) -> None:
        log = self._cache.log_path(self.name)
        tools = ToolRunner(log, ctx.progress, ctx.stop, proxy=self._proxy, secrets=self._secrets)
        with self._cache.build_stage(self.name, self._key) as target:
            self._build(target, tools)
            ctx.note(f"{sum(path.stat().st_size for path in list_files(target)) / 1e6:.0f} MB")

    def output_dir(self) -> Path:
        """Return the output of the finished stage."""
        output = self._cache.find(self.name, self._key)
        if output is None:
            raise FileNotFoundError(f"stage {self.name} is not in the cache")
        return output


class LoadImage(Step):
    """The image, loaded into the container engine."""

    def __init__(
        self, recipe: Recipe, engine: ContainerEngine, layers: Sequence[tuple[BuildStage, str]]
    ) -> None:
        title = f"{recipe.variant_name.capitalize()}: {recipe.reference}"
        super().__init__(f"load-{recipe.variant_name}", title=title, needs=[layers[-1][0].name])
        self._recipe = recipe
        self._engine = engine
        self._layers = layers

    def probe(self, ctx: StepContext) -> ProbeResult:
        del ctx
        state = _image_state(self._recipe, self._engine).state
        if state in ("missing", "not built"):
            return absent("not loaded")
        return done("up to date") if state == "up to date" else partial("an older image is loaded")

    def run(self, ctx: StepContext) -> None:
        layers = [stage.output_dir() / file for stage, file in self._layers]
        archive = create_image_archive(self._recipe, layers)
        # Before the load, which moves the tag to the new image.
        replaced = find_image(self._engine, self._recipe.reference)
        load_image(self._engine, TransferProgress(archive.size(), ctx.progress).track(archive.stream()))
        if replaced is not None:
            remove_unused_image(self._engine, replaced.id)
        ctx.note("loaded into the container engine")


class BuiltImage(msgspec.Struct, frozen=True, kw_only=True):
    """One image after a build."""

    image: str
    reference: str
    inputs: str
    changed: bool


class ImageState(msgspec.Struct, frozen=True, kw_only=True):
    """One image in the container engine."""

    image: str
    reference: str
    state: Literal["up to date", "outdated", "missing", "not built"]
    """`not built`: an optional image that the container engine does not have"""
    optional: bool = False
    """whether `holdfast image build` builds the image only on request"""
    id: str = ""
    size: int = 0


def build_images(
    names: Sequence[str] = (),
    *,
    refresh: bool = False,
    kubernetes: str = "",
    proxy: Mapping[str, str] | None = None,
    secrets: Sequence[Secret] = (),
    bus: EventBus | None = None,
) -> list[BuiltImage]:
    """Build images that are not up to date.

    Args:
        names: the images; by default node, gateway and sandbox, or only node if `kubernetes` is set.
        refresh: download current Debian packages.
        kubernetes: another Kubernetes version of the node image, for example 1.33.
        proxy: proxy variables such as `https_proxy` for the downloads, besides those of the environment.
        secrets: the logins in `proxy`, which logs and errors must not show.
        bus: receives the events of the build.

    Returns:
        The images in the order of `names`.

    Raises:
        UsageError: an image or a Kubernetes version is unknown.
        ToolNotFoundError: a program that the build needs is not installed.
        LockedError: another build is in progress.
        ImageBuildError: a stage failed; run the same command again to continue.
    """
    names = names or (("node",) if kubernetes else IMAGE_NAMES)
    engine, cache = connect(timeout=600), BuildCache()
    # The mark of the refresh is part of the keys that the recipes compute.
    with cache.lock(), cache.refresh() if refresh else nullcontext():
        recipes = [Recipe(name, kubernetes, cache) for name in dict.fromkeys(names)]
        steps = [step for recipe in recipes for step in image_steps(recipe, engine, proxy, secrets)]
        result = Workflow("image-build", steps).run(bus=bus, command="image build")
    return [
        BuiltImage(
            image=recipe.variant_name,
            reference=recipe.reference,
            inputs=recipe.key,
            changed=f"load-{recipe.variant_name}" in result.changed,
        )
        for recipe in recipes
    ]


def image_steps(
    recipe: Recipe,
    engine: ContainerEngine,
    proxy: Mapping[str, str] | None = None,
    secrets: Sequence[Secret] = (),
) -> list[Step]:
    """Return the build steps of one image in order; variants of an image share its root filesystem."""
    source, variant = recipe.source, recipe.variant_name

    def add_stage(
        kind: str, title: str, key: str, build: Callable[[Path, ToolRunner], None], image: str = variant
    ) -> BuildStage:
        title = f"{variant.capitalize()}: {title}"
        needs = [stage.name for stage in stages] if kind == "layer" else []
        name = f"build-{kind}-{image}"
        stages.append(BuildStage(recipe.cache, name, title, key, build, needs, proxy, secrets))
        return stages[-1]

    def build_layer(target: Path, _tools: ToolRunner) -> None:
        programs = binaries.output_dir() if binaries else None
        write_layer(recipe, target, rootfs=rootfs.output_dir(), binaries=programs)

    stages: list[BuildStage] = []
    binaries = None
    build = bind(build_rootfs, source.debian)
    rootfs = add_stage("rootfs", "Debian packages", recipe.rootfs_key, build, recipe.image)
    # In the order of the image: layers that rarely change come first.
    layers = [(rootfs, ROOTFS_FILE)]
    if source.go is not None:
        build = bind(build_binaries, recipe.folder, source.go)
        binaries = add_stage("binaries", "Kubernetes programs", recipe.binaries_key, build)
    if source.python is not None and not source.python.only_subpackage:
        build = bind(python_layer.install_dependencies, source.python, recipe.architecture)
        dependencies = add_stage("dependencies", "Python packages", recipe.dependencies_key, build)
        layers.append((dependencies, python_layer.DEPENDENCIES_LAYER_FILE))
    if source.python is not None and source.python.uv_programs:
        build = bind(python_layer.install_uv, source.python, recipe.architecture)
        layers.append((add_stage("uv", "uv", recipe.uv_key, build), python_layer.UV_LAYER_FILE))
    layers.append((add_stage("layer", "own files", recipe.layer_key, build_layer), LAYER_FILE))
    return [*stages, LoadImage(recipe, engine, layers)]


def image_states() -> list[ImageState]:
    """Compare the images in the container engine with their sources."""
    engine = connect()
    return [_image_state(Recipe(name), engine) for name in ALL_IMAGE_NAMES]


def _image_state(recipe: Recipe, engine: ContainerEngine) -> ImageState:
    image, is_optional = find_image(engine, recipe.reference), recipe.image in OPTIONAL_IMAGE_NAMES
    if image is None:
        return ImageState(
            image=recipe.variant_name,
            reference=recipe.reference,
            state="not built" if is_optional else "missing",
            optional=is_optional,
        )
    return ImageState(
        image=recipe.variant_name,
        reference=recipe.reference,
        optional=is_optional,
        state="up to date" if image.labels.get(INPUTS) == recipe.key else "outdated",
        id=image.id,
        size=image.size,
    )


def write_layer(recipe: Recipe, target: Path, *, rootfs: Path, binaries: Path | None) -> None:
    """Write the layer with holdfast's own files; it is the last layer, because it changes most often."""
    source = recipe.source
    with LayerWriter(target / LAYER_FILE) as layer:
        for folder in source.directories:
            layer.add_directory(folder, owner=_parse_owner(source.config.user))
        if binaries is not None and source.go is not None:
            for binary in source.go.binaries:
                if binary.install:
                    layer.add_file(binary.install, binaries / binary.output, mode=0o755)
        for path, file_target in source.files.items():
            _add_files(layer, recipe.folder / path, file_target)
        for link, destination in source.links.items():
            layer.add_symlink(link, destination)
        for image in source.embedded_images:
            archive = _write_embedded_image(image, recipe, target, rootfs=rootfs, binaries=binaries)
            layer.add_file(f"{EMBEDDED_IMAGES_DIR}/{image.archive}", archive, mode=0o644)
            archive.unlink()
        if source.python is not None:
            python_layer.add_package(layer, source.python)


def create_image_archive(recipe: Recipe, layers: Sequence[Path]) -> ImageArchive:
    """Return the image as an archive for the container engine."""
    return ImageArchive(
        recipe.reference,
        layers,
        recipe.source.config,
        architecture=recipe.architecture,
        labels={INPUTS: recipe.key},
    )


def _parse_owner(user: str) -> tuple[int, int]:
    """Return uid and gid of the image's user, which owns the image's directories."""
    number, _, group = user.partition(":")
    return (int(number), int(group or number)) if number.isdigit() else (0, 0)


def _add_files(layer: LayerWriter, source: Path, target: str) -> None:
    if source.is_dir():
        for path in list_files(source):
            layer.add_file(f"{target}/{path.relative_to(source)}", path)
    else:
        layer.add_file(target, source)


def _write_embedded_image(
    image: EmbeddedImage, recipe: Recipe, target: Path, *, rootfs: Path, binaries: Path | None
) -> Path:
    """Write a small image as an archive and return its path."""
    layer_path = target / f"{image.archive}.layer.tar"
    with LayerWriter(layer_path) as layer:
        for folder in image.directories:
            layer.add_directory(folder)
        for path, origin in image.files.items():
            kind, _, name = origin.partition(":")
            if kind == "bin" and binaries is not None:
                layer.add_file(path, binaries / name, mode=0o755)
            else:
                layer.add_bytes(path, read_tar_member(rootfs / ROOTFS_FILE, name), mode=0o755)
        for applet in image.applets:
            layer.add_symlink(f"/bin/{applet}", "busybox")
    config = ImageConfig(entrypoint=image.entrypoint, environment={"PATH": "/bin"})
    archive = ImageArchive(image.name, [layer_path], config, architecture=recipe.architecture, labels={})
    archive_path = target / image.archive
    archive.write(archive_path)
    layer_path.unlink()
    layer_path.with_suffix(".sha256").unlink()
    return archive_path
