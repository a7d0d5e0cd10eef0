"""Image sources: one directory per image with an `image.toml`, in a clone or in the installed package."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.errors import CorruptFileError, UsageError

# A build without names builds these; the optional images only on request.
IMAGE_NAMES = ("node", "gateway", "sandbox")
OPTIONAL_IMAGE_NAMES = ("sandbox-full",)
ALL_IMAGE_NAMES = IMAGE_NAMES + OPTIONAL_IMAGE_NAMES


class GoBinary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One program of the Go module and its path in the image; without `install`, only for embedded images."""

    package: str
    output: str
    install: str = ""


class GoVariant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same programs with another Kubernetes version, which has its own go.mod and build tags."""

    kubernetes: str
    modfile: str
    tags: tuple[str, ...] = ()


class GoModule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Programs that are compiled from the Go module of the image.

    `{kubernetes}` and `{minor}` in flags and image labels are replaced by the Kubernetes version.
    """

    kubernetes: str
    binaries: tuple[GoBinary, ...]
    ldflags: tuple[str, ...] = ()
    modfile: str = "go.mod"
    tags: tuple[str, ...] = ()
    variants: dict[str, GoVariant] = {}


class DebianRootfs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The root filesystem: a Debian suite and its packages."""

    suite: str
    packages: tuple[str, ...]
    # Paths (shell patterns) that are removed after the installation.
    removed_paths: tuple[str, ...] = ()


class PythonPackages(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """holdfast and its locked dependencies in one directory, for the Python of Debian."""

    version: str
    prefix: str
    # Patterns of installed files that nothing in the image imports; they are removed.
    excluded_files: tuple[str, ...] = ()
    # The only subpackage of holdfast to copy, without dependencies.
    only_subpackage: str = ""
    # Programs of the locked wheel of uv: paths in its installation to paths in the image.
    uv_programs: dict[str, str] = {}


class EmbeddedImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An image inside the node image; the node imports it when it boots.

    `files` maps target paths to `bin:NAME` (a Go binary) or `rootfs:PATH`. `applets` are links to
    /bin/busybox.
    """

    name: str
    archive: str
    files: dict[str, str]
    entrypoint: tuple[str, ...] = ()
    applets: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()


class ImageConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The container configuration of the image."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    labels: dict[str, str] = {}
    stop_signal: str = "SIGTERM"
    working_dir: str = "/"
    user: str = ""
    healthcheck: tuple[str, ...] = ()
    healthcheck_interval_seconds: float = 10.0


class ImageSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `image.toml`. `files` maps source paths to paths in the image."""

    name: str
    debian: DebianRootfs
    config: ImageConfig
    go: GoModule | None = None
    python: PythonPackages | None = None
    embedded_images: tuple[EmbeddedImage, ...] = ()
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    directories: tuple[str, ...] = ()


class ImageExtension(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An `image.toml` that is another image with more packages and variables."""

    extends: str
    name: str
    packages: tuple[str, ...]
    environment: dict[str, str] = {}

    def apply_to(self, base: ImageSource) -> ImageSource:
        """Return the source of the extended image."""
        debian = msgspec.structs.replace(base.debian, packages=(*base.debian.packages, *self.packages))
        environment = {**base.config.environment, **self.environment}
        config = msgspec.structs.replace(base.config, environment=environment)
        return msgspec.structs.replace(base, name=self.name, debian=debian, config=config)


def sources_dir() -> Path:
    """Return the directory of the image sources, in the installed package or in the clone."""
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "_images", package.parents[1] / "images"):
        if (candidate / "node" / "image.toml").is_file():
            return candidate
    raise CorruptFileError(
        "installation of holdfast: no image sources", hint="Reinstall holdfast, or use a clone."
    )


def load_image_source(name: str, kubernetes: str = "") -> tuple[Path, ImageSource]:
    """Return the directory and `image.toml` of an image for a Kubernetes version (for example 1.33)."""
    if name not in ALL_IMAGE_NAMES:
        raise UsageError(f"image {name!r}: unknown", hint=f"Use one of: {', '.join(ALL_IMAGE_NAMES)}.")
    folder, source = _read_image_toml(name)
    return folder, _resolve_variant(name, source, kubernetes)


def _read_image_toml(name: str) -> tuple[Path, ImageSource]:
    """Return the directory that the paths of the source start at, and the source."""
    folder = sources_dir() / name
    try:
        content = msgspec.toml.decode((folder / "image.toml").read_bytes())
        if "extends" not in content:
            return folder, msgspec.convert(content, type=ImageSource)
        extension = msgspec.convert(content, type=ImageExtension)
    except (OSError, msgspec.MsgspecError) as error:
        raise CorruptFileError(f"{folder / 'image.toml'}: cannot be read: {error}") from error
    base_folder, base = _read_image_toml(extension.extends)
    return base_folder, extension.apply_to(base)


def _resolve_variant(name: str, source: ImageSource, kubernetes: str) -> ImageSource:
    """Apply the chosen Kubernetes variant and replace the version placeholders."""
    go = source.go
    if kubernetes and (go is None or kubernetes not in go.variants):
        variants = ", ".join(go.variants) if go is not None else ""
        raise UsageError(
            f"the {name} image cannot be built with Kubernetes {kubernetes}",
            hint=f"Use one of: {variants}." if variants else "Build it without a Kubernetes version.",
        )
    if go is None:
        return source
    if kubernetes:
        variant = go.variants[kubernetes]
        go = msgspec.structs.replace(
            go, kubernetes=variant.kubernetes, modfile=variant.modfile, tags=variant.tags
        )
    placeholders = {"{kubernetes}": go.kubernetes, "{minor}": go.kubernetes.split(".")[1]}
    labels = {key: _substitute(value, placeholders) for key, value in source.config.labels.items()}
    return msgspec.structs.replace(
        source,
        go=msgspec.structs.replace(
            go, ldflags=tuple(_substitute(flag, placeholders) for flag in go.ldflags), variants={}
        ),
        config=msgspec.structs.replace(source.config, labels=labels),
    )


def _substitute(text: str, replacements: dict[str, str]) -> str:
    for placeholder, value in replacements.items():
        text = text.replace(placeholder, value)
    return text


def requirements_file(name: str) -> Path:
    """Return a lock file with hashes (`runtime` or `uv`), in the package or in the clone."""
    packaged = sources_dir() / "requirements" / f"{name}.txt"
    return packaged if packaged.is_file() else sources_dir().parent / "requirements" / f"{name}.txt"
