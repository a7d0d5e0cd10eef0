"""A client's certificate files: written beside the old ones, switched to at once, the old ones kept for now.

    mtls/current        → generation-2          the one that is used; a rename switches it
    mtls/generation-1/  ca.crt tls.crt tls.key  kept until `confirm()`, for `roll_back()`
    mtls/generation-2/  ca.crt tls.crt tls.key

A crash leaves the old generation in use, or the new one, never a mixture; what it leaves lying about goes
with the next `write()` or `confirm()`. One writer at a time: whoever writes holds the gateway's lock.
Not here: whether the certificates are good (judgement.py), and whether they work (only a call can tell).
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from holdfast import home
from holdfast.pki.file_access import folder_openness, link_atomic, read_private, sync_directory, translated
from holdfast.pki.material import Identity, Pair, Stored
from holdfast.pki.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CA_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.crt", "tls.crt", "tls.key"
_FILES = (CA_FILE, CERTIFICATE_FILE, KEY_FILE)
_CURRENT = "current"
_GENERATION = re.compile(r"generation-([1-9][0-9]{0,8})")


class ClientFiles:
    """The folder with the client certificates of one gateway."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.current = folder / _CURRENT
        self.ca = self.current / CA_FILE
        self.certificate = self.current / CERTIFICATE_FILE
        self.key = self.current / KEY_FILE

    def read(self) -> Stored[Identity]:
        """What is in use now, with all that is wrong with its files."""
        if not self.current.is_symlink():
            if self.current.exists():
                return Stored(None, (Reason("unreadable", f"{self.current} is no link to a generation"),))
            return Stored(None, (Reason("absent", "there are no client files yet"),))
        number = self._current_number()
        if number is None:
            return Stored(None, (Reason("unreadable", f"{self.current} leads somewhere else"),))
        return self._read(self._generation(number))

    def write(self, identity: Identity) -> bool:
        """Put a new generation in use and keep the old one; False when this very one is in use already."""
        found = self.read()
        if found.bundle == identity and not found.reasons:
            return False
        with translated(self.folder):
            home.private_dir(self.folder).chmod(0o700)
            self._remove(self._numbers_without_use())
            number = max([*self._numbers(), self._current_number() or 0]) + 1
            generation = self._generation(number)
            home.write_atomic(generation / CA_FILE, identity.ca)
            home.write_atomic(generation / CERTIFICATE_FILE, identity.client.certificate)
            home.write_atomic(generation / KEY_FILE, identity.client.key)
            sync_directory(self.folder)
            self._switch_to(number)
        return True

    @property
    def unconfirmed(self) -> bool:
        """Whether an older generation is still kept."""
        return any(number != self._current_number() for number in self._numbers())

    def confirm(self) -> int:
        """The current generation works: remove all others, and say how many those were."""
        current = self._current_number()
        if current is None:
            return 0
        with translated(self.folder):
            return self._remove(number for number in self._numbers() if number != current)

    def roll_back(self) -> bool:
        """The current generation does not work: use the last confirmed one again, if it is kept."""
        current = self._current_number()
        older = [number for number in self._numbers() if current is None or number < current]
        whole = [number for number in older if self._read(self._generation(number)).bundle is not None]
        if not whole:
            return False
        with translated(self.folder):
            self._switch_to(min(whole))
        return True

    def remove(self) -> None:
        """Remove all generations and the folder; nothing happens where there is none."""
        with translated(self.folder):
            self.current.unlink(missing_ok=True)
            if self.folder.exists():
                shutil.rmtree(self.folder)

    def _switch_to(self, number: int) -> None:
        link_atomic(self.current, f"generation-{number}")

    def _read(self, generation: Path) -> Stored[Identity]:
        parts: dict[str, bytes] = {}
        reasons = [*folder_openness(self.folder), *folder_openness(generation)]
        for name in _FILES:
            content, trouble = read_private(generation / name)
            reasons.extend(trouble)
            if content is not None:
                parts[name] = content
        if len(parts) < len(_FILES):
            return Stored(None, tuple(reasons))
        identity = Identity(parts[CA_FILE], Pair(parts[CERTIFICATE_FILE], parts[KEY_FILE]))
        return Stored(identity, tuple(reasons))

    def _numbers_without_use(self) -> list[int]:
        """All but the current generation and the oldest: that one is what was confirmed last."""
        numbers, current = self._numbers(), self._current_number()
        kept = {current, min(numbers, default=0)} if current is not None else set()
        return [number for number in numbers if number not in kept]

    def _generation(self, number: int) -> Path:
        return self.folder / f"generation-{number}"

    def _current_number(self) -> int | None:
        try:
            target = self.current.readlink()
        except OSError:
            return None
        match = _GENERATION.fullmatch(str(target))
        return int(match[1]) if match else None

    def _numbers(self) -> list[int]:
        try:
            names = [path.name for path in self.folder.iterdir()]
        except OSError:
            return []
        return sorted(int(match[1]) for name in names if (match := _GENERATION.fullmatch(name)))

    def _remove(self, numbers: Iterable[int]) -> int:
        gone = list(numbers)
        for number in gone:
            shutil.rmtree(self._generation(number))
        if gone:
            sync_directory(self.folder)
        return len(gone)
