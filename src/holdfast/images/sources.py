"""Where the image sources are (a clone's `images/`, or inside the installed package) and what they say.

Each image has a folder with an `image.toml`; the models below are its whole vocabulary.
Not here: building anything.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.errors import DamagedFileError, UsageError

NAMES = ("node", "gateway", "sandbox")


class GoBinary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One program of the Go module, and where it goes in the image (nowhere: only into a baked image)."""

    package: str
    output: str
    install: str = ""


class GoVariant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same programs with another Kubernetes: its requirements and the build tags that tell it apart."""

    kubernetes: str
    modfile: str
    tags: tuple[str, ...] = ()


class GoModule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Programs that are compiled from the image's own Go module.

    `{kubernetes}` and `{minor}` in flags, and in the image's labels, stand for the version that is built.
    """

    kubernetes: str
    binaries: tuple[GoBinary, ...]
    ldflags: tuple[str, ...] = ()
    modfile: str = "go.mod"
    tags: tuple[str, ...] = ()
    variants: dict[str, GoVariant] = {}


class Debian(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The root filesystem: a Debian suite and the packages in it."""

    suite: str
    packages: tuple[str, ...]
    trimmed: tuple[str, ...] = ()
    """paths (shell patterns) that are removed when all is installed: nothing in the image uses them"""


class Python(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """holdfast and its locked dependencies, put under one directory for Debian's own Python."""

    version: str
    prefix: str
    left_out: tuple[str, ...] = ()
    """patterns of packages and files that others ask for and that nothing in the image imports"""
    only: str = ""
    """one part of holdfast that needs nothing else: it alone is put there, without dependencies"""


class Baked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An image inside the image, imported by the node when it boots.

    `files` maps where a file goes to where it comes from: `bin:NAME` (a Go binary) or `rootfs:PATH`.
    `applets` are names under which its /bin/busybox answers.
    """

    name: str
    archive: str
    files: dict[str, str]
    entrypoint: tuple[str, ...] = ()
    applets: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a container of this image starts."""

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
    """Everything that `image.toml` says. `files` maps paths of the sources to paths in the image."""

    name: str
    debian: Debian
    config: Config
    go: GoModule | None = None
    python: Python | None = None
    baked: tuple[Baked, ...] = ()
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    directories: tuple[str, ...] = ()


def sources_root() -> Path:
    """The folder with one folder per image: inside the installed package, or beside a clone's `src`."""
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "_images", package.parents[1] / "images"):
        if (candidate / "node" / "image.toml").is_file():
            return candidate
    raise DamagedFileError(
        "this installation of holdfast has no image sources", hint="Install holdfast again, or use a clone."
    )


def load_source(name: str, kubernetes: str = "") -> tuple[Path, ImageSource]:
    """The folder and the `image.toml` of one image, settled on one version of Kubernetes (1.33, say)."""
    if name not in NAMES:
        raise UsageError(f"there is no image {name!r}", hint=f"Images: {', '.join(NAMES)}.")
    folder = sources_root() / name
    try:
        source = msgspec.toml.decode((folder / "image.toml").read_bytes(), type=ImageSource)
    except (OSError, msgspec.MsgspecError) as error:
        raise DamagedFileError(f"{folder / 'image.toml'} cannot be read: {error}") from error
    return folder, _settled(name, source, kubernetes)


def _settled(name: str, source: ImageSource, kubernetes: str) -> ImageSource:
    """Put the chosen variant in place of the usual version, and versions in place of their marks."""
    go = source.go
    if kubernetes and (go is None or kubernetes not in go.variants):
        others = ", ".join(go.variants) if go is not None else ""
        raise UsageError(
            f"the {name} image cannot be built with Kubernetes {kubernetes}",
            hint=f"Besides its usual one there is: {others}." if others else "It has no Kubernetes in it.",
        )
    if go is None:
        return source
    if kubernetes:
        variant = go.variants[kubernetes]
        go = msgspec.structs.replace(
            go, kubernetes=variant.kubernetes, modfile=variant.modfile, tags=variant.tags
        )
    marks = {"{kubernetes}": go.kubernetes, "{minor}": go.kubernetes.split(".")[1]}
    labels = {key: _marked(value, marks) for key, value in source.config.labels.items()}
    return msgspec.structs.replace(
        source,
        go=msgspec.structs.replace(
            go, ldflags=tuple(_marked(flag, marks) for flag in go.ldflags), variants={}
        ),
        config=msgspec.structs.replace(source.config, labels=labels),
    )


def _marked(text: str, marks: dict[str, str]) -> str:
    for mark, value in marks.items():
        text = text.replace(mark, value)
    return text


def requirements_file() -> Path:
    """The hashed lock of holdfast's own dependencies, in the package or in the clone."""
    packaged = sources_root() / "requirements.txt"
    return packaged if packaged.is_file() else sources_root().parent / "requirements" / "runtime.txt"
