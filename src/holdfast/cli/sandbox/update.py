"""`holdfast sandbox update`: change options of a sandbox without deleting it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.checked_type import CheckedType, ChoiceType
from holdfast.cli.click_extensions import complete_with, gateway_words
from holdfast.cli.output import print_result
from holdfast.cli.parameters import (
    IMAGE,
    LABEL,
    LABEL_KEY,
    MEMORY,
    QUANTITY,
    VARIABLE_NAME,
    WHOLE_SECONDS,
)
from holdfast.cli.sandbox.common import (
    env_option,
    open_sandbox,
    progress_step,
    sandbox_argument,
    sandbox_options,
)
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.api import SandboxUpdateOptions, SandboxUpdateResult

_NEVER = "never"


def _parse_seconds_or_never(text: str) -> int:
    """A number of seconds, or `never`, which is 0."""
    return 0 if text == _NEVER else WHOLE_SECONDS.parse(text)


_SECONDS_OR_NEVER = CheckedType(
    _parse_seconds_or_never, f"{WHOLE_SECONDS.accepted}, or {_NEVER}", example=_NEVER
)


def _seconds_option(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, type=_SECONDS_OR_NEVER, metavar="SECONDS|never", help=text)


@click.command()
@sandbox_argument
@click.option("--cpu", type=QUANTITY, metavar="QUANTITY", help="CPU limit, such as 500m or 2.")
@click.option("--memory", type=MEMORY, metavar="QUANTITY", help="Memory limit, such as 512Mi; at least 16Mi.")
@click.option("--image", type=IMAGE, help="Container image.", shell_complete=complete_with("complete_images"))
@env_option
@click.option(
    "--unset-env", type=VARIABLE_NAME, multiple=True, metavar="KEY",
    help="Remove an environment variable. Can be repeated.",
)  # fmt: skip
@click.option(
    "--label", "-l", type=LABEL, multiple=True, metavar="KEY=VALUE",
    help="Label of the sandbox; can be repeated.",
)  # fmt: skip
@click.option(
    "--unset-label", type=LABEL_KEY, multiple=True, metavar="KEY", help="Remove a label. Can be repeated."
)
@_seconds_option("--idle-suspend-after", "Suspend the sandbox when it has been unused for this time.")
@_seconds_option("--shutdown-after", "Expire the sandbox this long after now.")
@click.option(
    "--failed-pods", type=ChoiceType(lambda: ("Recreate", "Keep"), example="Keep"),
    help="Whether a failed pod is recreated or kept.",
)  # fmt: skip
@sandbox_options
def update(name: str, *, gateway: str | None, **changes: Any) -> None:
    """Change options of sandbox NAME; the others stay. The pod is not restarted.

    The result says which options are in effect, and which ones wait until the sandbox is resumed.
    """
    from holdfast.sandbox import build_update

    options = _update_options(**changes)
    if not options:
        raise UsageError(f"sandbox {name}: no changes given", hint="Name at least one option to change.")
    build_update(**options)  # report invalid options before any access to the network
    with (
        open_sandbox(name, gateway) as (sandbox, renderer),
        progress_step(renderer, "update-sandbox", f"Sandbox {name}"),
    ):
        result = sandbox.update(**options)
    print_result(result, _result_lines(name, result))


def _update_options(
    *,
    env: tuple[tuple[str, str], ...],
    unset_env: tuple[str, ...],
    label: tuple[tuple[str, str], ...],
    unset_label: tuple[str, ...],
    **given: Any,
) -> SandboxUpdateOptions:
    # 0 is `never`, for which the API has null.
    options: Any = {key: value or None for key, value in given.items() if value is not None}
    maps = (
        ("env", dict(env), unset_env, "--unset-env"),
        ("labels", dict(label), unset_label, "--unset-label"),
    )
    for field, added, removed, flag in maps:
        for key in removed:
            if key in added:
                raise UsageError(f"{flag} {key}: set and removed at once", hint="Omit one of them.")
        if changes := {**added, **dict.fromkeys(removed)}:
            options[field] = changes
    return options  # type: ignore[no-any-return]


def _result_lines(name: str, result: SandboxUpdateResult) -> list[str]:
    lines = []
    if result.applied:
        lines.append(f"Sandbox {name}: in effect: {', '.join(result.applied)}.")
    if result.pending:
        lines.append(f"Sandbox {name}: at the next resume: {', '.join(result.pending)}.")
    lines += result.notes
    if result.pending:
        target = f"{gateway_words()} {shlex.quote(name)}"
        if not result.is_suspended:
            lines.append(f"holdfast sandbox suspend{target}")
        lines.append(f"holdfast sandbox resume{target}")
    return lines
