"""The Debian root filesystem of an image, built by mmdebstrap from signed package lists."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.images.build_cache import cache_key
from holdfast.images.build_tools import ToolRunner, find_mmdebstrap

if TYPE_CHECKING:
    from holdfast.images.image_toml import DebianRootfs

ROOTFS_FILE = "rootfs.tar"
_EXCLUDED_PATHS = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/usr/share/lintian/*",
    "/var/cache/debconf/*",
)
_REMOVED_PATHS = ("/var/lib/apt/lists/*", "/etc/apt/sources.list*", "/var/log/*")
_PROGRESS_MESSAGES = {
    "I: running apt-get update...": "reading package lists",
    "I: downloading packages with apt...": "downloading packages",
    "I: extracting archives...": "unpacking",
    "I: installing essential packages...": "configuring the base",
    "I: installing remaining packages inside the chroot...": "installing packages",
    "I: creating tarball...": "packing",
}
# Increase it when the root filesystem is built differently: cached ones are then rebuilt.
_ROOTFS_BUILD_VERSION = 1


def rootfs_key(debian: DebianRootfs, architecture: str) -> str:
    """Return the cache key of a root filesystem; the state of the mirror is not part of it."""
    key = (
        "debian",
        _ROOTFS_BUILD_VERSION,
        debian.suite,
        sorted(debian.packages),
        architecture,
        _EXCLUDED_PATHS,
    )
    return cache_key(*key, sorted(debian.removed_paths)) if debian.removed_paths else cache_key(*key)


def build_rootfs(debian: DebianRootfs, folder: Path, tools: ToolRunner) -> None:
    """Write the root filesystem as `ROOTFS_FILE` into a directory.

    apt verifies signatures with the keyring of Debian.
    """
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    argv = [
        find_mmdebstrap(),
        "--variant=essential",
        f"--include={','.join(('base-files', 'passwd', *debian.packages))}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _EXCLUDED_PATHS),
        '--aptopt=Acquire::Retries "5"',
        # Without this, apt 2.6 waits forever if the disk fills up while it reads the package lists.
        '--aptopt=Acquire::Retries::Delay "false"',
        # Quoted: `$1` is the new root, as root below the cache directory, whose path may contain spaces.
        *(f'--customize-hook=rm -rf "$1"{pattern}' for pattern in (*_REMOVED_PATHS, *debian.removed_paths)),
        *([f"--keyring={keyring}"] if keyring.exists() else []),
        debian.suite,
        str(folder / ROOTFS_FILE),
        *_local_apt_sources(debian.suite),
    ]

    def report(line: str) -> None:
        if line in _PROGRESS_MESSAGES:
            tools.on_progress(_PROGRESS_MESSAGES[line], None)

    # Fixed timestamps: the same packages give the same layer digest.
    tools.run(argv, environment={"SOURCE_DATE_EPOCH": "0", **_tmpdir_environment(folder)}, on_line=report)


def _local_apt_sources(suite: str) -> list[str]:
    """Return the package sources of this machine if it runs the same suite; empty for the default mirror."""
    try:
        release = Path("/etc/os-release").read_text()
    except OSError:
        return []
    if "ID=debian" not in release.split() or f"VERSION_CODENAME={suite}" not in release.split():
        return []
    sources = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*.sources"))]
    return [str(path) for path in sources if path.is_file() and path.stat().st_size > 0]


def _tmpdir_environment(folder: Path) -> dict[str, str]:
    """As root, unpack in the directory of the stage, because /tmp is often a small memory filesystem.

    For other users, mmdebstrap maps user ids, and its mapped root cannot enter the private cache directory.
    """
    if os.geteuid() != 0:
        return {}
    unpacked = folder / "unpacked"
    unpacked.mkdir(exist_ok=True)
    unpacked.chmod(0o755)  # the user _apt reads downloads from here
    return {"TMPDIR": str(unpacked)}
