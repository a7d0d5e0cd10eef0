"""`holdfast sandbox create | suspend | resume | wait | delete`: change a sandbox or wait for a change."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.click_extensions import complete_with, flag_option, gateway_words
from holdfast.cli.output import print_result, progress_renderer
from holdfast.cli.sandbox.common import (
    ensure_gateway_up,
    open_sandbox,
    progress_step,
    sandbox_argument,
    sandbox_options,
    timeout_option,
)
from holdfast.errors import SandboxNotFoundError, UsageError, WaitFailedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.api import DeletionResult, SandboxView
    from holdfast.cli.output import ProgressRenderer
    from holdfast.client import Sandbox

_DELETED = "deleted"
_PHASES = ["Ready", "Suspended", "Finished", "Failed", "Expired", "Deleted"]
# How long a program other than holdfast's own must keep running: it may exit right after its start.
_MIN_READY_SECONDS = 3.0


def _wait_option(condition: str) -> Callable[[Any], Any]:
    text = f"Whether to wait until {condition}; default: wait."
    return click.option("--wait/--no-wait", default=True, help=text)


def _seconds_option(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, type=click.IntRange(min=1), metavar="SECONDS", help=text)


def _check_memory(_ctx: click.Context, _param: click.Parameter, limit: str | None) -> str | None:
    from holdfast.sandbox import memory_problem

    if limit is not None and (problem := memory_problem(limit)):
        raise UsageError(f"--memory {problem}")
    return limit


@click.command()
@sandbox_argument
@click.option(
    "--image", help="Container image; default: holdfast's own sandbox image.",
    shell_complete=complete_with("complete_images"),
)  # fmt: skip
@click.option("--template", metavar="TEMPLATE", help="Create it from a warm pool of this SandboxTemplate.")
@click.option("--command", metavar="COMMAND", help="Command to run instead of the image's default command.")
@click.option(
    "--env",
    "-e",
    multiple=True,
    metavar="KEY=VALUE",
    help="Environment variable; KEY alone copies its local value. Can be repeated.",
)
@click.option("--cpu", metavar="QUANTITY", help="CPU limit, such as 500m or 2.")
@click.option(
    "--memory", metavar="QUANTITY", callback=_check_memory, help="Memory limit, such as 512Mi; at least 16Mi."
)
@click.option("--workspace-size", metavar="QUANTITY", help="Size of /sandbox, such as 10Gi; default: 2Gi.")
@click.option("--workspace-class", metavar="CLASS", help="Storage class of /sandbox.")
@flag_option("--no-seed", text="Start with an empty /sandbox; required for images without a shell.")
@flag_option("--no-workspace", text="Create no workspace; the files are deleted with the pod.")
@click.option(
    "--label", "-l", multiple=True, metavar="KEY=VALUE", help="Label of the sandbox; can be repeated."
)
@_seconds_option("--idle-suspend-after", "Suspend the sandbox when it has been unused for this time.")
@_seconds_option(
    "--shutdown-after",
    "Expire the sandbox this long after its creation; its data is kept, except with --template.",
)
@flag_option("--keep-failed", text="Keep a failed pod instead of recreating it.")
@_wait_option("the sandbox is ready")
@flag_option("--no-bootstrap", text="Fail if the gateway is not up, instead of bringing it up.")
@timeout_option
@sandbox_options
def create(  # noqa: PLR0913 (one for each option)
    name: str,
    *,
    image: str | None,
    command: str | None,
    env: tuple[str, ...],
    label: tuple[str, ...],
    keep_failed: bool,
    wait: bool,
    no_bootstrap: bool,
    timeout: float,
    gateway: str | None,
    **more: Any,
) -> None:
    """Create sandbox NAME and wait until it is ready.

    If the sandbox exists with the same options, the command changes nothing, or resumes a suspended sandbox.
    If it exists with other options, the command fails. The gateway is brought up first if necessary.
    """
    from holdfast.sandbox import build_request

    if image is not None and more["template"] is not None:
        raise UsageError("--image: cannot be combined with --template", hint="Omit one of them.")
    workspace = {
        "size": more.pop("workspace_size"),
        "storage_class": more.pop("workspace_class"),
        "seed": False if more.pop("no_seed") else None,
    }
    workspace = {key: value for key, value in workspace.items() if value is not None}
    if (no_workspace := more.pop("no_workspace")) and workspace:
        raise UsageError("--no-workspace: cannot be combined with other workspace options")
    options = {
        **more,
        "command": _split_command(command),
        "env": _parse_env(env) or None,
        "labels": _parse_pairs(label, "--label") or None,
        "workspace": False if no_workspace else workspace or None,
        "failed_pods": "Keep" if keep_failed else None,
    }
    build_request(name, image=image, **options)  # report invalid options before a gateway is brought up
    with (
        progress_renderer() as renderer,
        ensure_gateway_up(gateway, renderer, bootstrap=not no_bootstrap).sandbox(name) as sandbox,
    ):
        with progress_step(renderer, "create-sandbox", f"Sandbox {name}") as step:
            view = sandbox.create(image, **options)
            step.note = "created" if sandbox.is_new else "exists with the same options"
        min_ready_seconds = _MIN_READY_SECONDS if sandbox.is_new and (image or command) else 0.0
        if wait:
            view = _wait_until_ready(renderer, sandbox, timeout, min_ready_seconds)
    state = str(view.phase).lower() if wait else "created"
    next_command = f"holdfast sandbox connect{gateway_words()} {name}"
    print_result(view, [f"Sandbox {name} is {state}.", *view.notes, next_command])


@click.command()
@sandbox_argument
@_wait_option("the pod has stopped")
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
            view = _wait_for_phase(renderer, sandbox, "Suspended", timeout)
    print_result(view, [f"Sandbox {name} is {'suspended' if wait else 'being suspended'}.", *view.notes])


@click.command()
@sandbox_argument
@_wait_option("the sandbox is ready")
@timeout_option
@sandbox_options
def resume(name: str, wait: bool, timeout: float, gateway: str | None) -> None:
    """Start a new pod for sandbox NAME with its workspace and its current image."""
    with open_sandbox(name, gateway) as (sandbox, renderer):
        view = sandbox.resume()
        if wait:
            view = _wait_for_phase(renderer, sandbox, "Ready", timeout)
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
        view = _wait_for_phase(renderer, sandbox, phase, timeout)
    print_result(view, [f"Sandbox {name} is {view.phase}."])


@click.command()
@sandbox_argument
@flag_option("--keep-workspace", text="Keep the PersistentVolumeClaim with the data.")
@flag_option("--ignore-missing", text="Exit with 0 if the sandbox does not exist.")
@_wait_option("the sandbox is deleted")
@flag_option("--yes", "-y", text="Do not ask for confirmation.")
@timeout_option
@sandbox_options
def delete(
    name: str,
    *,
    keep_workspace: bool,
    ignore_missing: bool,
    wait: bool,
    yes: bool,
    timeout: float,
    gateway: str | None,
) -> None:
    """Delete sandbox NAME and all data in its workspace, unless --keep-workspace is given."""
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
            _confirm_deletion(renderer, name, view, keep=keep_workspace)
        # `get` found the sandbox: if another client deletes it meanwhile, that is the requested result too.
        deletion = sandbox.delete(keep_workspace=keep_workspace, ignore_missing=True)
        if wait:
            with progress_step(renderer, "delete-sandbox", f"Sandbox {name} deleted"):
                sandbox.wait_gone(timeout=timeout)
    print_result(deletion, [_deletion_summary(name, deletion)])


def _wait_until_ready(
    renderer: ProgressRenderer, sandbox: Sandbox, timeout: float, min_ready_seconds: float
) -> SandboxView:
    """Wait for Ready; resume a sandbox that already existed and is suspended.

    A `create` that was killed while it replaced the pod leaves the sandbox suspended.
    """
    try:
        return _wait_for_phase(renderer, sandbox, "Ready", timeout, min_ready_seconds)
    except WaitFailedError:
        if sandbox.is_new or sandbox.get().phase != "Suspended":
            raise
    sandbox.resume()
    return _wait_for_phase(renderer, sandbox, "Ready", timeout, min_ready_seconds)


def _wait_for_phase(
    renderer: ProgressRenderer, sandbox: Sandbox, phase: str, timeout: float, min_ready_seconds: float = 0.0
) -> SandboxView:
    from holdfast.client import summarize

    with progress_step(renderer, "wait-sandbox", phase) as step:
        return sandbox.wait(
            phase,
            timeout=timeout,
            min_ready_seconds=min_ready_seconds,
            on_change=lambda view: step.progress(summarize(view)),
        )


def _confirm_suspension(renderer: ProgressRenderer, sandbox: Sandbox) -> None:
    view = sandbox.get()
    if view.workspace is not None or view.phase == "Suspended":
        return
    question = f"Suspend sandbox {sandbox.name}? It has no workspace: its files are deleted."
    if not _ask(renderer, question):
        raise UsageError(f"sandbox {sandbox.name}: suspension not confirmed; nothing was changed")


def _ask(renderer: ProgressRenderer, question: str) -> bool:
    with renderer.pause():
        return click.confirm(question, default=False, err=True)


def _confirm_deletion(renderer: ProgressRenderer, name: str, view: SandboxView, *, keep: bool) -> None:
    outcome = _planned_data_outcome(view, keep=keep)
    if not sys.stdin.isatty():
        raise UsageError(
            f"deleting sandbox {name}: has to be confirmed ({outcome}); nothing was changed",
            hint="Pass --yes to confirm.",
        )
    question = f"Delete sandbox {name}? {outcome[:1].upper()}{outcome[1:]}."
    if not _ask(renderer, question):
        raise UsageError(f"sandbox {name}: deletion not confirmed; nothing was changed")


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


def _split_command(command: str | None) -> list[str] | None:
    if command is None:
        return None
    try:
        return shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--command: {error}") from error


def _parse_env(values: tuple[str, ...]) -> dict[str, str]:
    variables = {}
    for text in values:
        # KEY alone keeps a secret out of the command line, which other users of this machine can read.
        key, equals, value = text.partition("=")
        if not equals and key not in os.environ:
            raise UsageError(
                f"--env {key}: the variable is not set on this machine", hint=f"Pass --env {key}=VALUE."
            )
        variables[key] = value if equals else os.environ[key]
    return variables


def _parse_pairs(values: tuple[str, ...], option: str) -> dict[str, str]:
    for text in values:
        if "=" not in text:
            raise UsageError(f"{option} {text}: value missing", hint=f"Pass {option} {text}=VALUE.")
    return dict(text.split("=", 1) for text in values)
