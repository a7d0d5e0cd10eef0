"""What holdfast keeps on this machine about a gateway: metadata, kubeconfig, who may read them."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from holdfast.errors import DamagedFileError
from holdfast.gateway import kubeconfig as kubeconfigs
from holdfast.gateway.doctor.case import Unavailable
from holdfast.gateway.doctor.findings import Finding, problem, warning
from holdfast.gateway.spec import read_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.gateway.doctor.case import Case

_OTHERS = 0o077


def metadata(case: Case) -> Iterator[Finding]:
    """What is remembered of the gateway can be read."""
    path = case.work.files.metadata
    try:
        remembered = read_metadata(case.work.name)
    except DamagedFileError as error:
        yield problem(
            "metadata-damaged",
            str(path),
            f"{error.message}.",
            mend="fix",
            repair="--fix sets it aside and writes it anew from what the engine shows.",
        )
        return
    if remembered is None and case.volume is not None:
        yield warning(
            "metadata-missing",
            str(path),
            "The gateway is on the engine, but nothing is remembered of it on this machine.",
            mend="fix",
            repair="--fix writes it from what the engine shows.",
        )


def kubeconfig(case: Case) -> Iterator[Finding]:
    """The kubeconfig is there, private, and what the node would give out now."""
    path = case.work.files.kubeconfig
    rewrite = "--fix writes it from the node's own."
    if not path.exists():
        if case.work.remembered is not None or case.volume is not None:
            cause = "There is no kubeconfig of the gateway on this machine."
            yield problem("kubeconfig-missing", str(path), cause, mend="fix", repair=rewrite)
        return
    yield from _mode("kubeconfig-mode", path, 0o600)
    content = path.read_bytes()
    try:
        kubeconfigs.credentials(content)
    except DamagedFileError as error:
        yield problem("kubeconfig-damaged", str(path), f"{error.message}.", mend="fix", repair=rewrite)
        return
    if content != case.wanted_kubeconfig:
        yield problem(
            "kubeconfig-outdated",
            str(path),
            "The node has newer credentials or another address than the kubeconfig on this machine.",
            mend="fix",
            repair=rewrite,
        )


def folders(case: Case) -> Iterator[Finding]:
    """Nobody else can look into the folders of the gateway, or read its checkpoints."""
    files = case.work.files
    for folder in (files.folder, files.state.parent):
        if folder.is_dir():
            yield from _mode("folder-mode", folder, 0o700)
    if files.state.is_file():
        yield from _mode("store-mode", files.state, 0o600)


def _mode(code: str, path: Path, wanted: int) -> Iterator[Finding]:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError as gone:
        raise Unavailable(f"{path} went away meanwhile") from gone
    if mode & _OTHERS:
        secret = code == "kubeconfig-mode"
        cause = f"Other users of this machine have access to it (mode {mode:04o})."
        repair = f"--fix sets its mode to {wanted:04o}."
        if secret:
            yield problem(code, str(path), cause, mend="fix", repair=repair)
        else:
            yield warning(code, str(path), cause, mend="fix", repair=repair)
