"""One archive for a bug report: findings, versions, settings, logs, objects and runs, all redacted.

Written as a whole, for its owner alone. A file that is there already is replaced only if it is a bundle of
ours. Not here: what is collected (collection.py) and what counts as a secret (redaction.py).
"""

from __future__ import annotations

import io
import os
import tarfile
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import home
from holdfast.errors import HoldfastError, PermanentError, UsageError
from holdfast.events import StepFinished, StepProgress, StepStarted
from holdfast.gateway.doctor.case import Unavailable
from holdfast.gateway.doctor.collection import PARTS, component_logs
from holdfast.gateway.doctor.redaction import Redactor
from holdfast.gateway.settings_logins import read_login

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.events import Bus
    from holdfast.gateway.doctor.case import Case
    from holdfast.gateway.doctor.findings import Report

FOLDER = "holdfast-bundle"
MARK = f"{FOLDER}/contents.json"
"""The first member of every bundle: by it we know our own."""

_STEP, _TITLE = "bundle", "Bundle"


def check_target(path: Path) -> None:
    """Refuse a place where a bundle cannot or must not be written, before anything is collected."""
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}", hint="Make it first, or name another file.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"the folder {path.parent} cannot be written to", hint="Name another file.")
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint=f"Name a file: {path / 'bundle.tar.gz'}")
    if (path.exists() or path.is_symlink()) and not _is_ours(path):
        raise UsageError(
            f"{path} is there already and is no bundle of holdfast's; it was not changed",
            hint="Name another file. Only an earlier bundle is written over.",
        )


def write(path: Path, case: Case, report: Report, bus: Bus) -> tuple[str, ...]:
    """Collect, redact and write; return the names of the files inside."""
    began = time.monotonic()
    bus.emit(StepStarted(step=_STEP, title=_TITLE))
    redactor = Redactor(_known_secrets(case))
    parts: dict[str, bytes] = {"findings.json": _encoded(report, redactor)}
    missing: dict[str, str] = {}
    wanted = {**PARTS, **component_logs(case)}
    for done, (name, collect) in enumerate(wanted.items()):
        bus.emit(StepProgress(step=_STEP, message=name, fraction=done / len(wanted)))
        try:
            parts[name] = _encoded(collect(case), redactor)
        except (HoldfastError, Unavailable) as error:
            missing[name] = redactor.text(str(error))
        except Exception as error:  # noqa: BLE001 (what cannot be had is named in the bundle, and it goes on)
            missing[name] = redactor.text(f"{type(error).__name__}: {error}")
    contents = {
        "gateway": case.name, "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "files": sorted(parts), "missing": missing,
    }  # fmt: skip
    packed = _archive({"contents.json": _encoded(contents, redactor), **parts})
    try:
        home.write_atomic(path, packed)
    except OSError as error:
        raise PermanentError(
            f"{path} cannot be written: {error.strerror}", hint="Name another file."
        ) from error
    note = f"{len(parts)} files in {path}"
    bus.emit(StepFinished(step=_STEP, title=_TITLE, seconds=time.monotonic() - began, note=note))
    return tuple(sorted(parts))


def _encoded(value: Any, redactor: Redactor) -> bytes:
    if isinstance(value, str):
        return redactor.text(value).encode()
    clean = redactor.value(msgspec.to_builtins(value))
    return msgspec.json.format(msgspec.json.encode(clean), indent=2)


def _archive(parts: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in parts.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _is_ours(path: Path) -> bool:
    try:
        with tarfile.open(path, mode="r:gz") as archive:
            first = archive.next()
    except (OSError, tarfile.TarError, EOFError):
        return False
    return first is not None and first.name == MARK


def _known_secrets(case: Case) -> Iterator[str]:
    """What is known to be secret on this machine: it is struck out wherever it turns up."""
    logins = case.resolved.settings.registries
    for host in logins.credentials:
        with suppress(HoldfastError):
            login = read_login(logins, host)
            if login is not None:
                text = login.text()
                yield from (text, text.partition(":")[2])
    if case.name is None:
        return
    files = case.work.files
    for path in (files.kubeconfig, *files.mtls.glob("*/*.key")):
        with suppress(OSError):
            yield from _secrets_in(path.read_text(errors="replace"))


def _secrets_in(text: str) -> Iterator[str]:
    """Every long word of a key file, and what a kubeconfig has under names that give secrets away."""
    import base64

    for line in text.splitlines():
        name, colon, value = line.strip().partition(": ")
        if not colon:
            if not line.startswith("-----"):
                yield line.strip()
        elif name in ("client-key-data", "token", "password"):
            yield value
            with suppress(ValueError):
                decoded = base64.b64decode(value, validate=True).decode(errors="replace")
                yield from (each for each in decoded.splitlines() if not each.startswith("-----"))
