"""Checks of holdfast's files about a gateway on this machine: metadata, kubeconfig, checkpoints, lock."""

from __future__ import annotations

import os
import stat
from contextlib import closing
from typing import TYPE_CHECKING

from holdfast.errors import CorruptFileError, StoreError, StoreVersionError
from holdfast.gateway.cluster import kubeconfig
from holdfast.gateway.doctor.facts import FactUnavailable
from holdfast.gateway.doctor.findings import Finding, Severity, new_finding, note, problem, warning
from holdfast.gateway.registry import read_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.events import Event
    from holdfast.gateway.doctor.facts import GatewayFacts
    from holdfast.workflow import RunRecord

_GROUP_AND_OTHERS = 0o077
# The commands that write checkpoints; scopes found in the store are read too.
_CHECKPOINT_SCOPES = ("up", "start", "stop", "upgrade", "destroy")


def check_metadata(facts: GatewayFacts) -> Iterator[Finding]:
    """The gateway's metadata file exists and is valid."""
    path = str(facts.gateway.files.metadata)
    try:
        metadata = read_metadata(facts.gateway.name)
    except CorruptFileError as error:
        repair = "--fix renames it and writes a new one from the engine's objects."
        yield problem("metadata-damaged", path, f"{error.message}.", fixed_by="fix", repair=repair)
        return
    if metadata is None and facts.volume is not None:
        cause = "The gateway exists on the container engine, but this machine has no metadata of it."
        repair = "--fix writes it from the engine's objects."
        yield warning("metadata-missing", path, cause, fixed_by="fix", repair=repair)


def check_kubeconfig(facts: GatewayFacts) -> Iterator[Finding]:
    """The kubeconfig exists, is private, and matches the node's."""
    path = facts.gateway.files.kubeconfig
    repair = "--fix writes it from the node's kubeconfig."
    if not path.exists():
        if facts.gateway.metadata is not None or facts.volume is not None:
            cause = "This machine has no kubeconfig of the gateway."
            yield problem("kubeconfig-missing", str(path), cause, fixed_by="fix", repair=repair)
        return
    yield from _check_mode("kubeconfig-mode", path, 0o600, "problem")
    content = path.read_bytes()
    try:
        kubeconfig.parse_credentials(content, facts.gateway.name)
    except CorruptFileError as error:
        yield problem("kubeconfig-damaged", str(path), f"{error.message}.", fixed_by="fix", repair=repair)
        return
    if content != facts.expected_kubeconfig:
        cause = "The node has newer credentials or another address than this kubeconfig."
        yield problem("kubeconfig-outdated", str(path), cause, fixed_by="fix", repair=repair)


def check_folders(facts: GatewayFacts) -> Iterator[Finding]:
    """Other users cannot read the gateway's directories and checkpoints."""
    files = facts.gateway.files
    for directory in (files.directory, files.state.parent):
        if directory.is_dir():
            yield from _check_mode("folder-mode", directory, 0o700, "warning")
    if files.state.is_file():
        yield from _check_mode("store-mode", files.state, 0o600, "warning")


def _check_mode(code: str, path: Path, expected: int, severity: Severity) -> Iterator[Finding]:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError as error:
        raise FactUnavailable(f"{path} was deleted during the check") from error
    if mode & _GROUP_AND_OTHERS:
        cause = f"Other users of this machine have access to it (mode {mode:04o})."
        repair = f"--fix sets its mode to {expected:04o}."
        yield new_finding(severity, code, str(path), cause, fixed_by="fix", repair=repair)


def check_store(facts: GatewayFacts) -> Iterator[Finding]:
    """Every checkpoint and run record in the store can be read."""
    from holdfast.workflow.store import CorruptStoreError

    path = facts.gateway.files.state
    if not path.exists():
        return
    try:
        _runs, unreadable = read_store(facts)
    except StoreVersionError as error:
        yield problem("store-newer", str(path), f"{error.message}.", fixed_by="person", repair=error.hint)
    except StoreError as error:
        cause = f"{error.message}."
        if isinstance(error.__cause__, CorruptStoreError):
            repair = "--fix renames it; the next command probes every step again."
            yield problem("store-damaged", str(path), cause, fixed_by="fix", repair=repair)
        else:
            yield problem("store-unusable", str(path), cause, fixed_by="person", repair=error.hint)
    else:
        if unreadable:
            cause = f"{unreadable} run records cannot be read; checkpoints are not affected."
            repair = f"Run `holdfast runs clean -g {facts.name}` to delete old runs."
            yield warning("runs-unreadable", str(path), cause, repair=repair)


def check_lock(facts: GatewayFacts) -> Iterator[Finding]:
    """Report another command that holds the gateway's lock."""
    if facts.gateway.host.remote:
        _ = facts.engine  # the lock of a remote gateway is on its host
    # Read the holder only: acquiring the lock, even briefly, could make another command fail.
    holder = facts.gateway.host.lock_holder(facts.gateway.name)
    if holder is None or holder.pid == os.getpid() or not holder.is_alive():
        return
    cause = f"Another command is running: {holder.describe()}. Other findings may be temporary."
    repair = "Wait until it has finished, then run the same command again."
    yield note("lock-held", f"gateway {facts.name}", cause, repair=repair)


def read_store(
    facts: GatewayFacts, repair_listener: Callable[[Event], None] | None = None
) -> tuple[list[RunRecord], int]:
    """Read all checkpoints and runs of the store.

    Args:
        facts: The gateway.
        repair_listener: If given, a damaged store is replaced, and this function receives the event.

    Returns:
        The runs, newest first, and the number of unreadable ones.
    """
    from holdfast.workflow import SQLiteStore, list_runs

    # A check opens the store read-only: otherwise it could migrate or replace the file of a running command.
    with closing(SQLiteStore(facts.gateway.files.state, readonly=repair_listener is None)) as store:
        store.open(repair_listener)
        runs = list_runs(store)
        for scope in dict.fromkeys((*_CHECKPOINT_SCOPES, *(run.workflow for run in runs))):
            store.load(scope)
        return runs, store.unreadable_runs
