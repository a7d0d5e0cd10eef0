"""Which process it was: a pid is given to another process sooner or later, its birth and boot are not.

Not here: who holds a lock, which the kernel knows (`lock`).
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

_BORN = 19
"""the field of /proc/PID/stat that says when a process began, counted from behind its name"""


def boot_id() -> str:
    """Another one after every start of the machine; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def born(pid: int) -> int:
    """When a process began, in ticks since the machine did; 0 where that cannot be told."""
    try:
        # The name may hold anything, a closing bracket too.
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[_BORN])
    except (OSError, ValueError, IndexError):
        return 0


def lives(pid: int, host: str, boot: str = "", began: int = 0) -> bool:
    """Whether a process is still there, as far as this host can tell; of other hosts nobody here knows."""
    if host != socket.gethostname():
        return True
    if boot and boot_id() not in {boot, ""}:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # there, and another user's
    return not began or born(pid) in {began, 0}
