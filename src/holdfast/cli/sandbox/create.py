"""`holdfast sandbox create`: create a sandbox and wait until it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.click_extensions import complete_with, flag_option, gateway_words, verbose_option
from holdfast.cli.output import print_result, steps_renderer
from holdfast.cli.parameters import (
    COMMAND,
    IMAGE,
    LABEL,
    MEMORY,
    OBJECT,
    QUANTITY,
    SECRET_USE,
    SIZE,
    WHOLE_SECONDS,
)
from holdfast.cli.sandbox.common import (
    ensure_gateway_up,
    env_option,
    progress_step,
    sandbox_argument,
    sandbox_options,
    timeout_option,
    wait_for_phase,
    wait_option,
)
from holdfast.errors import UsageError, WaitFailedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.api import SandboxView
    from holdfast.cli.output import ProgressRenderer
    from holdfast.client import Sandbox

# How long a program other than holdfast's own must keep running: it may exit right after its start.
_MIN_READY_SECONDS = 3.0


def _seconds_option(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, type=WHOLE_SECONDS, metavar="SECONDS", help=text)


@click.command()
@sandbox_argument
@click.option(
    "--image", type=IMAGE, help="Container image; default: holdfast's own sandbox image.",
    shell_complete=complete_with("complete_images"),
)  # fmt: skip
@click.option(
    "--template", type=OBJECT, metavar="TEMPLATE", help="Create it from a warm pool of this SandboxTemplate.",
    shell_complete=complete_with("complete_templates"),
)  # fmt: skip
@click.option(
    "--command",
    type=COMMAND,
    metavar="COMMAND",
    help="Command to run instead of the image's default command.",
)
@env_option
@click.option("--cpu", type=QUANTITY, metavar="QUANTITY", help="CPU limit, such as 500m or 2.")
@click.option("--memory", type=MEMORY, metavar="QUANTITY", help="Memory limit, such as 512Mi; at least 16Mi.")
@click.option(
    "--workspace-size", type=SIZE, metavar="QUANTITY", help="Size of /sandbox, such as 10Gi; default: 2Gi."
)
@click.option("--workspace-class", type=OBJECT, metavar="CLASS", help="Storage class of /sandbox.")
@flag_option("--no-seed", text="Start with an empty /sandbox; required for images without a shell.")
@flag_option("--no-workspace", text="Create no workspace; the files are deleted with the pod.")
@click.option(
    "--label",
    "-l",
    type=LABEL,
    multiple=True,
    metavar="KEY=VALUE",
    help="Label of the sandbox; can be repeated.",
)
@_seconds_option("--idle-suspend-after", "Suspend the sandbox when it has been unused for this time.")
@_seconds_option(
    "--shutdown-after",
    "Expire the sandbox this long after its creation; its data is kept, except with --template.",
)
@flag_option("--keep-failed", text="Keep a failed pod instead of recreating it.")
@click.option(
    "--secret", "secrets", type=SECRET_USE, multiple=True, metavar="NAME[:/PATH]",
    shell_complete=complete_with("complete_secrets"),
    help="Secret whose keys are environment variables, or read-only files in PATH. Can be repeated.",
)  # fmt: skip
@wait_option("the sandbox is ready")
@flag_option("--no-bootstrap", text="Fail if the gateway is not up, instead of bringing it up.")
@timeout_option
@verbose_option
@sandbox_options
def create(  # noqa: PLR0913 (one for each option)
    name: str,
    *,
    image: str | None,
    keep_failed: bool,
    secrets: tuple[str, ...],
    wait: bool,
    no_bootstrap: bool,
    timeout: float,
    verbose: bool,
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
    options = {
        **pod_options(more),
        "failed_pods": "Keep" if keep_failed else None,
        "secrets": secrets or None,
    }
    build_request(name, image=image, **options)  # report invalid options before a gateway is brought up
    with (
        steps_renderer(verbose=verbose) as renderer,
        ensure_gateway_up(gateway, renderer, bootstrap=not no_bootstrap).sandbox(name) as sandbox,
    ):
        with progress_step(renderer, "create-sandbox", f"Sandbox {name}") as step:
            view = sandbox.create(image, **options)
            step.note = "created" if sandbox.is_new else "exists with the same options"
        min_ready_seconds = _MIN_READY_SECONDS if sandbox.is_new and (image or options["command"]) else 0.0
        if wait:
            view = _wait_until_ready(renderer, sandbox, timeout, min_ready_seconds)
    state = str(view.phase).lower() if wait else "created"
    next_command = f"holdfast sandbox connect{gateway_words()} {name}"
    print_result(view, [f"Sandbox {name} is {state}.", *view.notes, next_command])


POD_PARAMETERS = (
    "image", "command", "env", "cpu", "memory", "workspace_size", "workspace_class", "no_seed",
    "no_workspace", "label",
)  # fmt: skip
"""Parameters of `sandbox create` that describe a pod; `template create` has them too."""


def pod_options(values: dict[str, Any]) -> dict[str, Any]:
    """Convert the values of the parameters that describe a pod to options of a request; others stay."""
    others = dict(values)
    workspace = {
        "size": others.pop("workspace_size"),
        "storage_class": others.pop("workspace_class"),
        "seed": False if others.pop("no_seed") else None,
    }
    workspace = {key: value for key, value in workspace.items() if value is not None}
    if (no_workspace := others.pop("no_workspace")) and workspace:
        raise UsageError("--no-workspace: cannot be combined with other workspace options")
    return {
        "command": others.pop("command"),
        "env": dict(others.pop("env")) or None,
        "labels": dict(others.pop("label")) or None,
        "workspace": False if no_workspace else workspace or None,
        **others,
    }


def _wait_until_ready(
    renderer: ProgressRenderer, sandbox: Sandbox, timeout: float, min_ready_seconds: float
) -> SandboxView:
    """Wait for Ready; resume a sandbox that already existed and is suspended.

    A `create` that was killed while it replaced the pod leaves the sandbox suspended.
    """
    try:
        return wait_for_phase(renderer, sandbox, "Ready", timeout, min_ready_seconds)
    except WaitFailedError:
        if sandbox.is_new or sandbox.get().phase != "Suspended":
            raise
    sandbox.resume()
    return wait_for_phase(renderer, sandbox, "Ready", timeout, min_ready_seconds)
