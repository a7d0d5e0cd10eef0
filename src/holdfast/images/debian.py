"""The Debian root filesystem of an image, made by mmdebstrap from signed package lists.

Not here: holdfast's own files; they come in a layer above.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.images.digest import key_of
from holdfast.images.tools import find_mmdebstrap, run_tool

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from holdfast.images.sources import Debian

_LEFT_OUT = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/usr/share/lintian/*",
    "/var/cache/debconf/*",
)
_PROGRESS = {
    "I: running apt-get update...": "reading package lists",
    "I: downloading packages with apt...": "downloading packages",
    "I: extracting archives...": "unpacking",
    "I: installing essential packages...": "configuring the base",
    "I: installing remaining packages inside the chroot...": "installing packages",
    "I: creating tarball...": "packing",
}
_RECIPE = 1
"""Raised when the way of making the filesystem changes, so that caches are not taken for the new way."""


def rootfs_key(debian: Debian, architecture: str) -> str:
    """What decides how the filesystem comes out. The mirror's state does not: `--refresh` asks for that."""
    key = ("debian", _RECIPE, debian.suite, sorted(debian.packages), architecture, _LEFT_OUT)
    return key_of(*key, sorted(debian.trimmed)) if debian.trimmed else key_of(*key)


def make_rootfs(
    debian: Debian,
    target: Path,
    *,
    log: Path,
    tell: Callable[[str], None],
    stop: threading.Event | None = None,
) -> None:
    """Write the root filesystem as one tar; signatures are checked by apt with Debian's own keyring."""
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    argv = [
        find_mmdebstrap(),
        "--variant=essential",
        f"--include={','.join(('base-files', 'passwd', *debian.packages))}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT),
        '--aptopt=Acquire::Retries "5"',
        "--customize-hook=rm -rf $1/var/lib/apt/lists/* $1/etc/apt/sources.list* $1/var/log/*",
        *(f"--customize-hook=rm -rf $1{pattern}" for pattern in debian.trimmed),
        *([f"--keyring={keyring}"] if keyring.exists() else []),
        debian.suite,
        str(target),
        *_mirrors(debian.suite),
    ]
    run_tool(
        argv,
        log=log,
        environment={"SOURCE_DATE_EPOCH": "0", **_roomy_tmp(target)},
        on_line=lambda line: tell(_PROGRESS[line]) if line in _PROGRESS else None,
        stop=stop,
    )


def _mirrors(suite: str) -> list[str]:
    """This machine's own package sources where it runs the same suite; else mmdebstrap's default."""
    try:
        release = Path("/etc/os-release").read_text()
    except OSError:
        return []
    if "ID=debian" not in release.split() or f"VERSION_CODENAME={suite}" not in release.split():
        return []
    sources = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*.sources"))]
    return [str(path) for path in sources if path.is_file() and path.stat().st_size > 0]


def _roomy_tmp(target: Path) -> dict[str, str]:
    """As root, unpack next to the result: /tmp is often a small memory filesystem.

    For other users mmdebstrap maps ids, and a mapped root may not pass the cache's private folders.
    """
    if os.geteuid() != 0:
        return {}
    folder = target.parent / "unpacked"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)  # the package manager's own user reads downloads from here
    return {"TMPDIR": str(folder)}
