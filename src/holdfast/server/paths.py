"""Which paths in a sandbox may be copied from and to, and how they are handed to `tar`.

Pure. Not here: the names inside an archive (archive.py).
"""

from __future__ import annotations

import posixpath

from holdfast.server.problems import bad_request

LONGEST = 4096
PATTERN = r"^/(?!([\s\S]*/)?[.][.](/|$))[^\u0000]*$"
"""The same as `checked`, for the document."""
_UNPACK = 'tar -C "$1" -xof -; code=$?; echo "$code"; cat >/dev/null; exit "$code"'


def checked(path: str) -> str:
    """An absolute path without detours, or a refusal that says what is wrong with it."""
    if not path.startswith("/"):
        raise bad_request("bad-path", "path: it must begin with /", "Give the whole path in the sandbox.")
    if "\0" in path or len(path) > LONGEST:
        raise bad_request("bad-path", "path: it is no path")
    if ".." in path.split("/"):
        raise bad_request("bad-path", "path: it must not hold '..'", "Give the path as it is in the end.")
    normal = posixpath.normpath(path)
    return "/" + normal.lstrip("/")


def packing(path: str) -> list[str]:
    """The command that writes one file or folder as an archive to its output, under its own last name."""
    folder, name = posixpath.split(checked(path))
    return ["tar", "-C", folder, "-cf", "-", "--", name or "."]


def unpacking(path: str) -> list[str]:
    """The command that unpacks an archive from its input into a folder; files become the sandbox's own.

    Says how `tar` ended, and then reads what is left: the node's runtime may never tell the end of a command
    that ends before its input does.
    """
    return ["sh", "-c", _UNPACK, "unpack", checked(path)]
