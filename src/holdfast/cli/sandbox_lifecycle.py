"""`holdfast sandbox create | suspend | resume | wait | delete`: what changes one."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option
from holdfast.cli.progress import progress
from holdfast.cli.results import show
from holdfast.cli.sandbox_common import (
    brought_up,
    gateway_option,
    opened,
    sandbox_argument,
    stage,
    timeout_option,
)
from holdfast.cli.sandbox_image import with_own_image
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.cli.progress import Progress
    from holdfast.cli.sandbox_common import Stage
    from holdfast.sandbox.sdk import Sandbox
    from holdfast.sandbox.wire import Deletion, SandboxView

_GONE = "deleted"
_STEADY_SECONDS = 3.0


@click.command()
@sandbox_argument
@click.option("--image", help="Its image; by default holdfast's own sandbox image.")
@click.option("--template", metavar="TEMPLATE", help="Take it from a pool of this SandboxTemplate instead.")
@click.option("--command", metavar="WORDS", help="What to run instead of the image's own command.")
@click.option(
    "--env", "-e", multiple=True, metavar="KEY=VALUE", help="A variable; KEY alone takes it from here."
)
@click.option("--cpu", metavar="AMOUNT", help="CPU limit, such as 500m or 2.")
@click.option("--memory", metavar="AMOUNT", help="Memory limit, such as 512Mi.")
@click.option("--workspace-size", metavar="AMOUNT", help="Size of /sandbox, such as 10Gi; 2Gi by default.")
@click.option("--workspace-class", metavar="CLASS", help="Storage class of /sandbox.")
@click.option("--no-seed", is_flag=True, help="Begin with an empty /sandbox; for images without a shell.")
@click.option("--no-workspace", is_flag=True, help="Without a workspace: nothing in it outlives its pod.")
@click.option("--label", "-l", multiple=True, metavar="KEY=VALUE", help="A label to find it by.")
@click.option(
    "--idle-suspend-after", type=click.IntRange(min=1), metavar="SECONDS", help="Suspend it when unused."
)
@click.option(
    "--shutdown-after",
    type=click.IntRange(min=1),
    metavar="SECONDS",
    help="End it so long after it is made; with --template its data goes then, else it stays.",
)
@click.option("--keep-failed", is_flag=True, help="Leave a pod that failed as it is, instead of a new one.")
@click.option("--wait/--no-wait", default=True, help="Wait until it is ready (the default), or do not.")
@click.option(
    "--no-bootstrap", is_flag=True, help="Refuse if the gateway is not up, instead of bringing it up."
)
@timeout_option
@gateway_option
@json_option
def create(  # noqa: PLR0913 (one for each option)
    name: str,
    *,
    image: str | None,
    command: str | None,
    env: tuple[str, ...],
    workspace_size: str | None,
    workspace_class: str | None,
    no_seed: bool,
    no_workspace: bool,
    label: tuple[str, ...],
    keep_failed: bool,
    wait: bool,
    no_bootstrap: bool,
    timeout: float,
    gateway: str | None,
    as_json: bool,
    **more: Any,
) -> None:
    """Make sandbox NAME. If it is there already and the same, nothing happens; if it differs, that is said.

    Where no gateway is up yet, one is brought up first. A sandbox of holdfast's own image that is there and
    sleeps is woken up.
    """
    from holdfast.sandbox.sdk.requests import request_for, workspace_for

    if image is not None and more["template"] is not None:
        raise UsageError("--image and --template exclude each other")
    options = {
        **more,
        "command": _words(command),
        "env": _variables(env) or None,
        "labels": _pairs(label, "--label") or None,
        "workspace": workspace_for(
            size=workspace_size, storage_class=workspace_class, seed=not no_seed, without=no_workspace
        ),
        "failed_pods": "Keep" if keep_failed else None,
    }
    request_for(name, image=image, **options)  # what is off is said before a gateway is brought up
    with progress(as_json=as_json) as shown:
        found = brought_up(gateway, shown, bootstrap=not no_bootstrap)
        with found.sandbox(name) as box:
            with stage(shown, "create-sandbox", f"Sandbox {name}") as at:
                view = box.create(image, **options)
                at.note = "created" if box.made else "was there, and is the same"
            # Our own program stays; one that somebody brings may end at once, and is ready for a moment.
            steady = _STEADY_SECONDS if box.made and (image or command) else 0.0
            if wait and image is None and more["template"] is None:
                view = with_own_image(
                    found.name,
                    box,
                    shown,
                    lambda heard: _waited(shown, box, "Ready", timeout, steady, heard),
                    timeout=timeout,
                )
            elif wait:
                view = _waited(shown, box, "Ready", timeout, steady)
    state = f"is {str(view.phase).lower()}" if wait else "is made"
    lines = [f"Sandbox {name} {state}.", *view.notes, f"holdfast sandbox connect {name}"]
    show(view, lines, as_json=as_json)


@click.command()
@sandbox_argument
@click.option("--wait/--no-wait", default=True, help="Wait until its pod is gone (the default), or do not.")
@timeout_option
@gateway_option
@json_option
def suspend(name: str, wait: bool, timeout: float, gateway: str | None, as_json: bool) -> None:
    """Suspend sandbox NAME: its pod goes, its workspace stays. `resume` brings it back."""
    with progress(as_json=as_json) as shown, opened(gateway, shown).sandbox(name) as box:
        view = box.suspend()
        if wait:
            view = _waited(shown, box, "Suspended", timeout)
    show(view, [f"Sandbox {name} is {'suspended' if wait else 'being suspended'}."], as_json=as_json)


@click.command()
@sandbox_argument
@click.option("--wait/--no-wait", default=True, help="Wait until it is ready (the default), or do not.")
@timeout_option
@gateway_option
@json_option
def resume(name: str, wait: bool, timeout: float, gateway: str | None, as_json: bool) -> None:
    """Resume sandbox NAME: a fresh pod on the same workspace, with the image that is asked for by now."""
    with progress(as_json=as_json) as shown, opened(gateway, shown).sandbox(name) as box:
        view = box.resume()
        if wait:
            view = _waited(shown, box, "Ready", timeout)
    show(view, [f"Sandbox {name} is {'ready' if wait else 'being resumed'}."], as_json=as_json)


@click.command()
@sandbox_argument
@click.option(
    "--for",
    "phase",
    type=click.Choice(
        ["Ready", "Suspended", "Finished", "Failed", "Expired", "Deleted"], case_sensitive=False
    ),
    default="Ready",
    show_default=True,
    help="What to wait for.",
)
@timeout_option
@gateway_option
@json_option
def wait(name: str, phase: str, timeout: float, gateway: str | None, as_json: bool) -> None:
    """Wait until sandbox NAME is in a phase. What can no longer come true ends the wait, with the reason."""
    with progress(as_json=as_json) as shown, opened(gateway, shown).sandbox(name) as box:
        if phase.lower() == _GONE:
            with stage(shown, "wait-sandbox", "Deleted"):
                box.wait_gone(timeout=timeout)
            show({"name": name, "deleted": True}, [f"Sandbox {name} is gone."], as_json=as_json)
            return
        view = _waited(shown, box, phase, timeout)
    show(view, [f"Sandbox {name} is {view.phase}."], as_json=as_json)


@click.command()
@sandbox_argument
@click.option("--keep-workspace", is_flag=True, help="Keep the claim with its data.")
@click.option("--ignore-missing", is_flag=True, help="If there is none of that name, say so and exit with 0.")
@click.option("--wait/--no-wait", default=True, help="Wait until it is gone (the default), or do not.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@timeout_option
@gateway_option
@json_option
def delete(
    name: str,
    *,
    keep_workspace: bool,
    ignore_missing: bool,
    wait: bool,
    yes: bool,
    timeout: float,
    gateway: str | None,
    as_json: bool,
) -> None:
    """Delete sandbox NAME, and all in its workspace unless --keep-workspace is said. There is no way back."""
    from holdfast.errors import SandboxMissingError

    with progress(as_json=as_json) as shown, opened(gateway, shown).sandbox(name) as box:
        try:
            view = box.get()
        except SandboxMissingError:
            if not ignore_missing:
                raise
            gone = {"deleted": False, "workspace": "none", "claim": None}
            show(gone, [f"There is no sandbox {name}; nothing was changed."], as_json=as_json)
            return
        if not yes:
            _confirm(name, view, keep=keep_workspace)
        done = box.delete(keep_workspace=keep_workspace, ignore_missing=True)
        if wait:
            with stage(shown, "delete-sandbox", f"Sandbox {name} gone"):
                box.wait_gone(timeout=timeout)
    show(done, [_fate(name, done)], as_json=as_json)


def _waited(
    shown: Progress,
    box: Sandbox,
    phase: str,
    timeout: float,
    steady: float = 0.0,
    heard: Callable[[SandboxView, Stage], None] = lambda _view, _at: None,
) -> SandboxView:
    from holdfast.sandbox.sdk.waiting import words

    with stage(shown, "wait-sandbox", phase) as at:

        def told(view: SandboxView) -> None:
            at.progress(words(view))
            heard(view, at)

        return box.wait(phase, timeout=timeout, steady=steady, told=told)


def _confirm(name: str, view: SandboxView, *, keep: bool) -> None:
    fate = _prospect(view, keep=keep)
    if not sys.stdin.isatty():
        raise UsageError(
            f"deleting sandbox {name} has to be confirmed ({fate}); nothing was changed", hint="Write --yes."
        )
    if not click.confirm(f"Delete sandbox {name}? {fate[:1].upper()}{fate[1:]}.", default=False, err=True):
        raise UsageError("not confirmed; nothing was changed")


def _prospect(view: SandboxView, *, keep: bool) -> str:
    """What will happen to the data, before it happens."""
    if view.workspace is None:
        return "it has no workspace"
    if keep or view.workspace.kept:
        return f"its data stays in the claim {view.workspace.claim}"
    return f"all data in its workspace (claim {view.workspace.claim}) is removed with it"


def _fate(name: str, done: Deletion) -> str:
    if not done.deleted:
        return f"There was no sandbox {name} any more."
    claims = done.claims or [str(done.claim)]
    kept = f"Its data is kept in the claim{'s' if len(claims) > 1 else ''} {', '.join(claims)}."
    ends = {"kept": kept, "deleted": "Its workspace is deleted with it.", "none": "It had no workspace."}
    return f"Sandbox {name} is deleted. {ends[done.workspace]}"


def _words(command: str | None) -> list[str] | None:
    if command is None:
        return None
    try:
        return shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--command cannot be read: {error}") from error


def _variables(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals and key not in os.environ:
            raise UsageError(f"--env {key}: there is no such variable here", hint="Write KEY=VALUE.")
        found[key] = value if equals else os.environ[key]
    return found


def _pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    for each in given:
        if "=" not in each:
            raise UsageError(f"{option} {each}: write KEY=VALUE")
    return dict(each.split("=", 1) for each in given)
