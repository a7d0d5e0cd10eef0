"""Names that the shell completes: gateways, sandboxes, templates, pools, runs, images.

The user waits for each of these functions at the Tab key. They import what they need when they are called,
ask an API once with a short timeout, and complete nothing if that fails.
"""

from __future__ import annotations

import io
import signal
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING, TypeAlias

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Completer: TypeAlias = "Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]"

# Seconds to wait for an API or an engine.
RESPONSE_TIMEOUT = 0.1
# Seconds for all of a lookup, such as a request to an ssh process that hangs. It leaves a busy machine three
# times the 0.15 s that bench/cli.py allows for a completion; users take a longer wait for a hang.
COMPLETION_TIMEOUT = 0.5
_MAX_SANDBOXES = 500
_MAX_RUNS = 50
_MAX_RESPONSE_BYTES = 8 << 20
_UNIX_SCHEME = "unix://"


def _completer(find: Callable[[click.Context], Iterable[CompletionItem[str]]]) -> Completer:
    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        # A message on stderr would appear in the command line that the user types.
        with redirect_stderr(io.StringIO()):
            try:
                with _time_limit(COMPLETION_TIMEOUT):
                    items = list(find(ctx))
            except Exception:  # noqa: BLE001 (no error of a completion may disturb the shell)
                return []
        return [item for item in items if item.value.startswith(incomplete)]

    return complete


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after some time, also during system calls. Main thread only."""

    def raise_timeout(_number: int, _frame: object) -> None:
        raise TimeoutError("the completion took too long")

    previous = signal.signal(signal.SIGALRM, raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _find_gateways(_ctx: click.Context) -> list[CompletionItem[str]]:
    from holdfast.gateway import known_gateway_names

    return [CompletionItem(name) for name in known_gateway_names()]


def _find_sandboxes(ctx: click.Context) -> list[CompletionItem[str]]:
    import msgspec

    views = msgspec.json.decode(_get_from_gateway(ctx, f"/v1/sandboxes?limit={_MAX_SANDBOXES}"))["items"]
    return [CompletionItem(view["name"], help=view["phase"]) for view in views]


def _get_from_gateway(ctx: click.Context, path: str) -> bytes:
    """Return the response of the API of the gateway that the user chose, or of the active one."""
    from holdfast.gateway import api_access, resolve_gateway_name
    from holdfast.kube import https_get

    endpoint = api_access(resolve_gateway_name(ctx.params.get("gateway")), open_tunnel=False)
    response = https_get(
        endpoint.url, path, ca=endpoint.ca, certificate=endpoint.certificate, key=endpoint.key,
        timeout=RESPONSE_TIMEOUT, max_bytes=_MAX_RESPONSE_BYTES,
    )  # fmt: skip
    return response.body


def _find_templates(ctx: click.Context) -> list[CompletionItem[str]]:
    import msgspec

    views = msgspec.json.decode(_get_from_gateway(ctx, f"/v1/templates?limit={_MAX_SANDBOXES}"))["items"]
    return [CompletionItem(view["name"], help=view["image"]) for view in views]


def _find_pools(ctx: click.Context) -> list[CompletionItem[str]]:
    import msgspec

    views = msgspec.json.decode(_get_from_gateway(ctx, f"/v1/pools?limit={_MAX_SANDBOXES}"))["items"]
    return [CompletionItem(view["name"], help=f"{view['ready']}/{view['size']} ready") for view in views]


def _find_more_sandboxes(ctx: click.Context) -> list[CompletionItem[str]]:
    given = ctx.params.get("names") or ()
    return [item for item in _find_sandboxes(ctx) if item.value not in given]


def _find_secrets(ctx: click.Context) -> list[CompletionItem[str]]:
    import msgspec

    views = msgspec.json.decode(_get_from_gateway(ctx, "/v1/secrets"))["items"]
    return [CompletionItem(view["name"], help=", ".join(view["keys"])) for view in views]


def _find_copy_paths(ctx: click.Context) -> list[CompletionItem[str]]:
    return [CompletionItem(f"{item.value}:", help=item.help) for item in _find_sandboxes(ctx)]


def _find_runs(ctx: click.Context) -> list[CompletionItem[str]]:
    from holdfast.cli.runs import load_runs

    with ctx.scope(cleanup=False):  # the options that select the stores
        runs = load_runs()[:_MAX_RUNS]
    newest = [CompletionItem("last", help="the newest run")] if runs else []
    return newest + [
        CompletionItem(run.id, help=f"{run.command} {run.subject}: {run.outcome}") for run, _ in runs
    ]


def _find_images(_ctx: click.Context) -> list[CompletionItem[str]]:
    import http.client
    import json
    import socket

    from holdfast.containers import engine_address

    address = engine_address()
    if not address.startswith(_UNIX_SCHEME):
        return []
    # One request without the Docker SDK, whose import takes longer than the user wants to wait.
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(RESPONSE_TIMEOUT)
    try:
        connection.sock.connect(address.removeprefix(_UNIX_SCHEME))
        connection.request("GET", "/images/json")
        images = json.loads(connection.getresponse().read(_MAX_RESPONSE_BYTES))
    finally:
        connection.close()
    names = {name for image in images for name in image.get("RepoTags") or ()}
    return [CompletionItem(name) for name in sorted(names - {"<none>:<none>"})]


def _find_commands(ctx: click.Context) -> list[CompletionItem[str]]:
    from holdfast.cli import cli

    command: click.Command | None = cli
    for word in ctx.params.get("words") or ():
        command = getattr(command, "get_command", lambda *_: None)(ctx, word)
    names = command.list_commands(ctx) if isinstance(command, click.Group) else []
    return [CompletionItem(name) for name in names]


complete_gateways = _completer(_find_gateways)
complete_sandboxes = _completer(_find_sandboxes)
complete_templates = _completer(_find_templates)
complete_pools = _completer(_find_pools)
complete_more_sandboxes = _completer(_find_more_sandboxes)
complete_secrets = _completer(_find_secrets)
complete_runs = _completer(_find_runs)
complete_images = _completer(_find_images)
complete_commands = _completer(_find_commands)
complete_sandbox_paths = _completer(_find_copy_paths)


def complete_copy_paths(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Complete `NAME:` for each sandbox, and the names of local files."""
    return [*complete_sandbox_paths(ctx, param, incomplete), CompletionItem(incomplete, type="file")]
