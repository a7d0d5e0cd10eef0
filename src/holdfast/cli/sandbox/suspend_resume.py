"""`holdfast sandbox suspend | resume | wait`: change the phase of a sandbox or wait for a phase."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.click_extensions import flag_option
from holdfast.cli.output import print_result
from holdfast.cli.sandbox.common import (
    confirm,
    open_sandbox,
    progress_step,
    sandbox_argument,
    sandbox_options,
    timeout_option,
    wait_for_phase,
    wait_option,
)
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.cli.output import ProgressRenderer
    from holdfast.client import Sandbox

_DELETED = "deleted"
_PHASES = ["Ready", "Suspended", "Finished", "Failed", "Expired", "Deleted"]


@click.command()
@sandbox_argument
@wait_option("the pod has stopped")
@flag_option("--yes", "-y", text="Do not ask for confirmation.")
@timeout_option
@sandbox_options
def suspend(name: str, *, wait: bool, yes: bool, timeout: float, gateway: str | None) -> None:
    """Stop the pod of sandbox NAME and keep its workspace; `resume` starts it.

    The files of a sandbox without a workspace are deleted: on a terminal, the command asks first.
    """
    with open_sandbox(name, gateway) as (sandbox, renderer):
        if not yes and sys.stdin.isatty():
            _confirm_suspension(renderer, sandbox)
        view = sandbox.suspend()
        if wait:
            view = wait_for_phase(renderer, sandbox, "Suspended", timeout)
    print_result(view, [f"Sandbox {name} is {'suspended' if wait else 'being suspended'}.", *view.notes])


@click.command()
@sandbox_argument
@wait_option("the sandbox is ready")
@timeout_option
@sandbox_options
def resume(name: str, wait: bool, timeout: float, gateway: str | None) -> None:
    """Start a new pod for sandbox NAME with its workspace and its current image."""
    with open_sandbox(name, gateway) as (sandbox, renderer):
        view = sandbox.resume()
        if wait:
            view = wait_for_phase(renderer, sandbox, "Ready", timeout)
    print_result(view, [f"Sandbox {name} is {'ready' if wait else 'being resumed'}."])


@click.command()
@sandbox_argument
@click.option(
    "--for", "phase", type=click.Choice(_PHASES, case_sensitive=False), default="Ready", show_default=True,
    help="Phase to wait for.",
)  # fmt: skip
@timeout_option
@sandbox_options
def wait(name: str, phase: str, timeout: float, gateway: str | None) -> None:
    """Wait until sandbox NAME reaches a phase; fail as soon as it can no longer reach it."""
    with open_sandbox(name, gateway) as (sandbox, renderer):
        if phase.lower() == _DELETED:
            with progress_step(renderer, "wait-sandbox", "Deleted"):
                sandbox.wait_gone(timeout=timeout)
            print_result({"name": name, "deleted": True}, [f"Sandbox {name} is deleted."])
            return
        view = wait_for_phase(renderer, sandbox, phase, timeout)
    print_result(view, [f"Sandbox {name} is {view.phase}."])


def _confirm_suspension(renderer: ProgressRenderer, sandbox: Sandbox) -> None:
    view = sandbox.get()
    if view.workspace is not None or view.phase == "Suspended":
        return
    question = f"Suspend sandbox {sandbox.name}? It has no workspace: its files are deleted."
    if not confirm(renderer, question):
        raise UsageError(f"sandbox {sandbox.name}: suspension not confirmed; nothing was changed")
