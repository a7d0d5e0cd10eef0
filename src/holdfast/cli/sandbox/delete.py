"""`holdfast sandbox delete`: delete sandboxes, and their workspaces by default."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.click_extensions import flag_option
from holdfast.cli.output import print_result
from holdfast.cli.sandbox.bulk import confirm_for_all, run_for_all, selection_options
from holdfast.cli.sandbox.common import (
    confirm,
    open_sandbox,
    open_sandboxes,
    progress_step,
    sandbox_options,
    timeout_option,
    wait_option,
)
from holdfast.errors import SandboxNotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.api import DeletionResult, SandboxView
    from holdfast.cli.output import ProgressRenderer
    from holdfast.cli.sandbox.bulk import SandboxSelection
    from holdfast.client import BulkResult


@click.command()
@selection_options
@flag_option("--keep-workspace", text="Keep the PersistentVolumeClaim with the data.")
@flag_option("--ignore-missing", text="Exit with 0 if a sandbox does not exist.")
@wait_option("the sandboxes are deleted")
@flag_option("--yes", "-y", text="Do not ask for confirmation.")
@timeout_option
@sandbox_options
def delete(
    selection: SandboxSelection,
    *,
    keep_workspace: bool,
    ignore_missing: bool,
    wait: bool,
    yes: bool,
    timeout: float,
    gateway: str | None,
) -> None:
    """Delete each sandbox NAME and all data in its workspace, unless --keep-workspace is given.

    A failure of one sandbox does not stop the others.
    """
    if selection.single_name:
        _delete_one(
            selection.single_name, gateway, timeout=timeout,
            keep=keep_workspace, ignore_missing=ignore_missing, wait=wait, yes=yes,
        )  # fmt: skip
        return
    if not yes and not sys.stdin.isatty():
        raise UsageError(
            "deleting several sandboxes: has to be confirmed; nothing was changed",
            hint="Pass --yes to confirm.",
        )
    with open_sandboxes(gateway) as (sandboxes, renderer):
        names = selection.find_names(sandboxes)
        if names and not yes:
            lines = list(_planned_deletions(sandboxes.get(names), keep=keep_workspace))
            confirm_for_all(renderer, "delete", names, lines)
        run_for_all(
            renderer, selection, names, title="Deleted",
            operate=lambda on_outcome: sandboxes.delete(
                names,
                keep_workspace=keep_workspace,
                # The gateway has listed them: if another client deletes one meanwhile, that is the result.
                ignore_missing=ignore_missing or selection.is_query,
                wait=wait, timeout=timeout, on_outcome=on_outcome,
            ),
            describe=_deletion_summary,
        )  # fmt: skip


def _delete_one(
    name: str, gateway: str | None, *, timeout: float, keep: bool, ignore_missing: bool, wait: bool, yes: bool
) -> None:
    from holdfast.api import DeletionResult

    with open_sandbox(name, gateway) as (sandbox, renderer):
        try:
            view = sandbox.get()
        except SandboxNotFoundError:
            if not ignore_missing:
                raise
            result = DeletionResult(deleted=False, workspace="none")
            print_result(result, [f"Sandbox {name} does not exist; nothing was changed."])
            return
        if not yes:
            _confirm_deletion(renderer, name, view, keep=keep)
        # `get` found the sandbox: if another client deletes it meanwhile, that is the requested result too.
        deletion = sandbox.delete(keep_workspace=keep, ignore_missing=True)
        if wait:
            with progress_step(renderer, "delete-sandbox", f"Sandbox {name} deleted"):
                sandbox.wait_gone(timeout=timeout)
    print_result(deletion, [_deletion_summary(name, deletion)])


def _confirm_deletion(renderer: ProgressRenderer, name: str, view: SandboxView, *, keep: bool) -> None:
    outcome = _planned_data_outcome(view, keep=keep)
    if not sys.stdin.isatty():
        raise UsageError(
            f"deleting sandbox {name}: has to be confirmed ({outcome}); nothing was changed",
            hint="Pass --yes to confirm.",
        )
    question = f"Delete sandbox {name}? {outcome[:1].upper()}{outcome[1:]}."
    if not confirm(renderer, question):
        raise UsageError(f"sandbox {name}: deletion not confirmed; nothing was changed")


def _planned_deletions(found: BulkResult[SandboxView], *, keep: bool) -> Iterator[str]:
    for outcome in found:
        if outcome.result is not None:
            yield f"{outcome.name}: {_planned_data_outcome(outcome.result, keep=keep)}"
        elif isinstance(outcome.error, SandboxNotFoundError):
            yield f"{outcome.name}: does not exist"
        elif outcome.error is not None:
            raise outcome.error


def _planned_data_outcome(view: SandboxView, *, keep: bool) -> str:
    """What the deletion will do with the data."""
    if view.workspace is None:
        return "it has no workspace"
    if keep or view.workspace.kept:
        return f"its data is kept in PVC {view.workspace.pvc}"
    return f"all data in its workspace (PVC {view.workspace.pvc}) is deleted"


def _deletion_summary(name: str, deletion: DeletionResult) -> str:
    if not deletion.deleted:
        return f"Sandbox {name} does not exist."
    pvcs = deletion.pvcs or [str(deletion.pvc)]
    outcomes = {
        "kept": f"Its data is kept in PVC {', '.join(pvcs)}.",
        "deleted": "Its workspace is deleted.",
        "none": "It had no workspace.",
        "unknown": "The response was lost; its workspace may still exist.",
    }
    return f"Sandbox {name} is deleted. {outcomes[deletion.workspace]}"
