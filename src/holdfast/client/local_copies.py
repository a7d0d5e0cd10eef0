"""Records which local directories are copies of directories in sandboxes.

A sandbox is not trusted, and decides what a copy contains. A download is merged with an existing directory
only if that is empty, or if an earlier download of the same path created it: a repeated command completes its
own copy, but `cp box:out ~` never replaces `~/.bashrc`.

A record is an empty file below `HOLDFAST_HOME`, where no sandbox can write. Its name is a digest of the
source and of the identity of the directory. A moved directory keeps its record; another one in its place has
none.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast import home

if TYPE_CHECKING:
    from pathlib import Path

_MAX_RECORDS = 1000
# FS_IOC_GETVERSION of linux/fs.h: file systems that reuse the number of an inode give it another generation.
_GET_GENERATION = 0x80087601


class LocalCopies:
    """Records of the local copies of one path in a sandbox.

    Args:
        gateway: name of the gateway.
        sandbox: name of the sandbox.
        source: absolute path in the sandbox.
    """

    def __init__(self, gateway: str, sandbox: str, source: str) -> None:
        self._source = (gateway, sandbox, source)

    def is_mergeable(self, directory: int) -> bool:
        """Whether the source may be merged with an open directory."""
        return self._record(directory).exists() or not os.listdir(directory)

    def add(self, directory: int) -> None:
        """Record an open directory before the first entry is written to it, or before it gets its name.

        After a kill, a repeated command would not recognize its own copy otherwise. Without a writable
        `HOLDFAST_HOME` nothing is recorded: a repeated command then finds a directory of the user.
        """
        record = self._record(directory)
        with suppress(OSError):
            home.ensure_private_dir(record.parent)
            record.touch(mode=0o600)
            by_age = sorted(record.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns)
            for old in by_age[:-_MAX_RECORDS]:
                old.unlink(missing_ok=True)

    def _record(self, directory: int) -> Path:
        status = os.fstat(directory)
        generation = b""
        with suppress(OSError):  # a file system without generations
            generation = fcntl.ioctl(directory, _GET_GENERATION, bytes(8))
        identity = repr((*self._source, status.st_dev, status.st_ino, generation))
        return home.state_dir() / "copies" / hashlib.sha256(identity.encode()).hexdigest()
