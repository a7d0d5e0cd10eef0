"""`holdfast sandbox suspend | resume | wait`: change the phase of sandboxes or wait for a phase."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.checked_type import ChoiceType
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
    wait_for_phase,
    wait_option,
)
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.api import SandboxView
    from holdfast.cli.output import ProgressRenderer
    from holdfast.cli.sandbox.bulk import SandboxSelection
    from holdfast.client import Sandbox, Sandboxes

_DELETED = "deleted"
_PHASES = ["Ready", "Suspended", "Finished", "Failed", "Expired", "Deleted"]


@click.command()
@selection_options
@wait_option("the pods have stopped")
@flag_option("--yes", "-y", text="Do not ask for confirmation.")
@timeout_option
@sandbox_options
def suspend(
    selection: SandboxSelection, *, wait: bool, yes: bool, timeout: float, gateway: str | None
) -> None:
    """Stop the pod of each sandbox NAME and keep its workspace; `resume` starts it.

    The files of a sandbox without a workspace are deleted: on a terminal, the command asks first.
    A failure of one sandbox does not stop the others.
    """
    asks = not yes and sys.stdin.isatty()
    state = "suspended" if wait else "being suspended"
    if selection.single_name:
        with open_sandbox(selection.single_name, gateway) as (sandbox, renderer):
            if asks:
                _confirm_suspension(renderer, sandbox)
            view = sandbox.suspend()
            if wait:
                view = wait_for_phase(renderer, sandbox, "Suspended", timeout)
        print_result(view, [f"Sandbox {sandbox.name} is {state}.", *view.notes])
        return
    with open_sandboxes(gateway) as (sandboxes, renderer):
        names = selection.find_names(sandboxes)
        if asks:
            _confirm_suspensions(renderer, sandboxes, names)
        run_for_all(
            renderer, selection, names, title=state.capitalize(),
            operate=lambda on_outcome: sandboxes.suspend(
                names, wait=wait, timeout=timeout, on_outcome=on_outcome
            ),
            describe=lambda name, view: "; ".join([f"Sandbox {name} is {state}", *view.notes]) + ".",
        )  # fmt: skip


@click.command()
@selection_options
@wait_option("the sandboxes are ready")
@timeout_option
@sandbox_options
def resume(selection: SandboxSelection, *, wait: bool, timeout: float, gateway: str | None) -> None:
    """Start a new pod for each sandbox NAME with its workspace and its current image.

    A failure of one sandbox does not stop the others.
    """
    state = "ready" if wait else "being resumed"
    if selection.single_name:
        with open_sandbox(selection.single_name, gateway) as (sandbox, renderer):
            view = sandbox.resume()
            if wait:
                view = wait_for_phase(renderer, sandbox, "Ready", timeout)
        print_result(view, [f"Sandbox {sandbox.name} is {state}."])
        return
    with open_sandboxes(gateway) as (sandboxes, renderer):
        names = selection.find_names(sandboxes)
        run_for_all(
            renderer, selection, names, title=state.capitalize(),
            operate=lambda on_outcome: sandboxes.resume(
                names, wait=wait, timeout=timeout, on_outcome=on_outcome
            ),
            describe=lambda name, _view: f"Sandbox {name} is {state}.",
        )  # fmt: skip


@click.command()
@selection_options
@click.option(
    "--for", "phase", type=ChoiceType(lambda: _PHASES, example="Ready"), default="Ready", show_default=True,
    help="Phase to wait for.",
)  # fmt: skip
@timeout_option
@sandbox_options
def wait(selection: SandboxSelection, phase: str, timeout: float, gateway: str | None) -> None:
    """Wait until each sandbox NAME reaches a phase; fail if one can no longer reach it.

    --all and --selector select among the sandboxes that exist when the command starts.
    """
    if selection.single_name:
        _wait_for_one(selection.single_name, gateway, phase, timeout)
        return
    with open_sandboxes(gateway) as (sandboxes, renderer):
        names = selection.find_names(sandboxes)
        if phase.lower() == _DELETED:
            run_for_all(
                renderer, selection, names, title="Deleted",
                operate=lambda on_outcome: sandboxes.wait_gone(names, timeout=timeout, on_outcome=on_outcome),
                describe=lambda name, _result: f"Sandbox {name} is deleted.",
                as_result=lambda name, _result: {"name": name, "deleted": True},
            )  # fmt: skip
            return
        run_for_all(
            renderer, selection, names, title=phase,
            operate=lambda on_outcome: sandboxes.wait(names, phase, timeout=timeout, on_outcome=on_outcome),
            describe=lambda name, view: f"Sandbox {name} is {view.phase}.",
        )  # fmt: skip


def _wait_for_one(name: str, gateway: str | None, phase: str, timeout: float) -> None:
    with open_sandbox(name, gateway) as (sandbox, renderer):
        if phase.lower() == _DELETED:
            with progress_step(renderer, "wait-sandbox", "Deleted"):
                sandbox.wait_gone(timeout=timeout)
            print_result({"name": name, "deleted": True}, [f"Sandbox {name} is deleted."])
            return
        view = wait_for_phase(renderer, sandbox, phase, timeout)
    print_result(view, [f"Sandbox {name} is {view.phase}."])


def _loses_files(view: SandboxView) -> bool:
    return view.workspace is None and view.phase != "Suspended"


def _confirm_suspension(renderer: ProgressRenderer, sandbox: Sandbox) -> None:
    if not _loses_files(sandbox.get()):
        return
    question = f"Suspend sandbox {sandbox.name}? It has no workspace: its files are deleted."
    if not confirm(renderer, question):
        raise UsageError(f"sandbox {sandbox.name}: suspension not confirmed; nothing was changed")


def _confirm_suspensions(renderer: ProgressRenderer, sandboxes: Sandboxes, names: list[str]) -> None:
    views = [outcome.result for outcome in sandboxes.get(names)]
    losing = [view.name for view in views if view is not None and _loses_files(view)]
    if losing:
        lines = [f"{name}: it has no workspace: its files are deleted" for name in losing]
        confirm_for_all(renderer, "suspend", names, lines)
