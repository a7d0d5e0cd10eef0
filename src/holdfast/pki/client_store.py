"""Client certificates on disk: generations that are written completely, then switched to atomically."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast import home
from holdfast.errors import DiskFullError, PermanentError
from holdfast.pki.bundle import CertificateProblem, ClientIdentity, KeyPair, StoredCredentials

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


_MAX_FILE_BYTES = 64 * 1024
_OTHERS_ANY_ACCESS = 0o077
_OTHERS_WRITE_ACCESS = 0o022
# A link or a named pipe at the path is reported as a problem; it is not followed and does not block.
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_private_file(path: Path) -> tuple[bytes | None, list[CertificateProblem]]:
    """Return the content of a file and its problems; no content if the file is unusable."""
    try:
        content, status = _read_regular_file(path)
    except FileNotFoundError:
        return None, [CertificateProblem("incomplete", f"{path} is missing")]
    except OSError as error:
        return None, [CertificateProblem("unreadable", f"{path} cannot be read: {_error_text(error)}")]
    if not content.strip():
        return None, [CertificateProblem("incomplete", f"{path} is empty")]
    return content, _file_access_problems(path, status)


def replace_symlink(link: Path, target: str) -> None:
    """Change the target of a symbolic link atomically."""
    new = link.with_name(f".{link.name}.next")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    if link.exists() and not link.is_symlink():
        raise PermanentError(
            f"{link} exists and is not a symbolic link", hint="Move it, then run the same command again."
        )
    new.replace(link)
    home.fsync_path(link.parent)


@contextmanager
def translate_os_errors(folder: Path) -> Iterator[None]:
    """Raise OS errors as holdfast errors."""
    try:
        yield
    except OSError as error:
        if error.errno in home.NO_SPACE_ERRNOS:
            raise DiskFullError(f"{folder}: no space left for the certificates") from error
        raise PermanentError(
            f"{folder}: the certificates cannot be written: {_error_text(error)}",
            hint="Make the directory writable for your user, then run the same command again.",
        ) from error


def _read_regular_file(path: Path) -> tuple[bytes, os.stat_result]:
    handle = os.open(path, _OPEN_FLAGS)
    try:
        # Of the open file: a check by path could see another file than the one that is read.
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if status.st_size > _MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, "too large")
        return os.read(handle, _MAX_FILE_BYTES), status
    finally:
        os.close(handle)


def _file_access_problems(path: Path, status: os.stat_result) -> list[CertificateProblem]:
    mode = stat.S_IMODE(status.st_mode)
    messages = []
    if mode & _OTHERS_ANY_ACCESS:
        messages.append(f"other users can access {path} (mode {mode:04o} instead of 0600)")
    if os.geteuid() not in (0, status.st_uid):
        messages.append(f"{path} belongs to another user")
    return [CertificateProblem("too-open", message) for message in messages]


def directory_access_problems(folder: Path) -> list[CertificateProblem]:
    """Return the problems of a directory with trusted files; none if it does not exist."""
    try:
        mode = stat.S_IMODE(folder.stat().st_mode)
    except OSError:
        return []
    if not mode & _OTHERS_WRITE_ACCESS:
        return []
    return [CertificateProblem("too-open", f"other users can change files in {folder} (mode {mode:04o})")]


def _error_text(error: OSError) -> str:
    return error.strerror or type(error).__name__


CA_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.crt", "tls.crt", "tls.key"
_FILES = (CA_FILE, CERTIFICATE_FILE, KEY_FILE)
_CURRENT_LINK = "current"
_GENERATION_PATTERN = re.compile(r"generation-([1-9][0-9]{0,8})")


class ClientCertificateStore:
    """The directory with the client certificates of one gateway.

        mtls/current        → generation-2          in use; an atomic rename of the link switches it
        mtls/generation-1/  ca.crt tls.crt tls.key  kept until `confirm()`: the new one may not work
        mtls/generation-2/  ca.crt tls.crt tls.key

    After a crash, the old generation is in use or the new one, never a mixture; the next `write()` or
    `confirm()` removes leftovers. Callers hold the gateway's lock: there is one writer at a time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.current = folder / _CURRENT_LINK
        self.ca = self.current / CA_FILE
        self.certificate = self.current / CERTIFICATE_FILE
        self.key = self.current / KEY_FILE

    def read(self) -> StoredCredentials[ClientIdentity]:
        """Return the current identity, with the problems of its files."""
        number = self._current_generation()
        if number is not None:
            return self._read_generation(self._generation_path(number))
        if self.current.is_symlink():
            problem = CertificateProblem("unreadable", f"{self.current} does not point to a generation")
        elif self.current.exists():
            problem = CertificateProblem("unreadable", f"{self.current} is not a symbolic link")
        else:
            problem = CertificateProblem("absent", "no client certificates yet")
        return StoredCredentials(None, (problem,))

    def write(self, identity: ClientIdentity) -> bool:
        """Switch to a new generation and keep the old one; return False if it is already in use."""
        stored = self.read()
        if stored.value == identity and not stored.problems:
            return False
        with translate_os_errors(self.folder):
            home.ensure_private_dir(self.folder).chmod(0o700)
            # Leftovers of crashes, and of earlier writes that `confirm()` did not follow.
            self._remove_generations(self._unused_generations())
            # A new number each time: files that are in use are never overwritten.
            number = max([*self._generations(), self._current_generation() or 0]) + 1
            generation = self._generation_path(number)
            home.write_atomic(generation / CA_FILE, identity.ca)
            home.write_atomic(generation / CERTIFICATE_FILE, identity.client.certificate)
            home.write_atomic(generation / KEY_FILE, identity.client.key)
            # The link changes last: a crash before leaves the old generation in use, never a partial one.
            home.fsync_path(self.folder)
            replace_symlink(self.current, generation.name)
        return True

    @property
    def is_unconfirmed(self) -> bool:
        """Whether an older generation still exists."""
        return any(number != self._current_generation() for number in self._generations())

    def confirm(self) -> int:
        """Remove all generations except the current one, which works; return how many were removed."""
        current = self._current_generation()
        if current is None:
            return 0
        with translate_os_errors(self.folder):
            return self._remove_generations(number for number in self._generations() if number != current)

    def remove(self) -> None:
        """Remove the directory with all generations, if it exists."""
        with translate_os_errors(self.folder):
            # The link first: after a crash in `rmtree`, `read` reports absent certificates, not damaged ones.
            self.current.unlink(missing_ok=True)
            if self.folder.exists():
                shutil.rmtree(self.folder)

    def _read_generation(self, generation: Path) -> StoredCredentials[ClientIdentity]:
        parts: dict[str, bytes] = {}
        problems = [*directory_access_problems(self.folder), *directory_access_problems(generation)]
        for name in _FILES:
            content, file_problems = read_private_file(generation / name)
            problems.extend(file_problems)
            if content is not None:
                parts[name] = content
        if len(parts) < len(_FILES):
            return StoredCredentials(None, tuple(problems))
        identity = ClientIdentity(parts[CA_FILE], KeyPair(parts[CERTIFICATE_FILE], parts[KEY_FILE]))
        return StoredCredentials(identity, tuple(problems))

    def _unused_generations(self) -> list[int]:
        """Return all generations except the current one and the oldest, which was confirmed last."""
        numbers, current = self._generations(), self._current_generation()
        kept = {current, min(numbers, default=0)} if current is not None else set()
        return [number for number in numbers if number not in kept]

    def _generation_path(self, number: int) -> Path:
        return self.folder / f"generation-{number}"

    def _current_generation(self) -> int | None:
        try:
            target = self.current.readlink()
        except OSError:
            return None
        match = _GENERATION_PATTERN.fullmatch(str(target))
        return int(match[1]) if match else None

    def _generations(self) -> list[int]:
        try:
            names = [path.name for path in self.folder.iterdir()]
        except OSError:
            return []
        return sorted(int(match[1]) for name in names if (match := _GENERATION_PATTERN.fullmatch(name)))

    def _remove_generations(self, numbers: Iterable[int]) -> int:
        removed = list(numbers)
        for number in removed:
            shutil.rmtree(self._generation_path(number))
        if removed:
            home.fsync_path(self.folder)
        return len(removed)
