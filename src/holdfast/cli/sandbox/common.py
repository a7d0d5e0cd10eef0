"""Options and helpers of the sandbox commands: select a gateway, bring it up, report progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.click_extensions import (
    complete_with,
    gateway_option,
    is_json_requested,
    is_quiet_requested,
    json_option,
)
from holdfast.cli.parameters import OBJECT, SANDBOX, SECONDS, VARIABLE
from holdfast.errors import ApiRefusedError, ApiUnreachableError, GatewayNotFoundError, HoldfastError
from holdfast.events import StepFailed, StepFinished, StepProgress, StepStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.api import SandboxView
    from holdfast.cli.output import ProgressRenderer
    from holdfast.client import Sandbox, Sandboxes
    from holdfast.events import Event, EventBus
    from holdfast.gateway import Gateway

F = TypeVar("F", bound=Callable[..., Any])

container_option = click.option(
    "--container",
    "-c",
    type=OBJECT,
    metavar="CONTAINER",
    help="Name of the container, if the pod has several.",
)
sandbox_argument = click.argument(
    "name", type=SANDBOX, metavar="NAME", shell_complete=complete_with("complete_sandboxes")
)
env_option = click.option(
    "--env",
    "-e",
    type=VARIABLE,
    multiple=True,
    metavar="KEY=VALUE",
    help="Environment variable; KEY alone copies its local value. Can be repeated.",
)
timeout_option = click.option(
    "--timeout",
    type=SECONDS,
    default=180.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for waiting; the wait ends earlier if the sandbox cannot reach the phase.",
)


def wait_option(condition: str) -> Callable[[Any], Any]:
    """`--wait/--no-wait`; the command waits by default."""
    text = f"Whether to wait until {condition}; default: wait."
    return click.option("--wait/--no-wait", default=True, help=text)


def sandbox_options(command: F) -> F:
    """The options of every sandbox command: `--gateway` and `--json`."""
    return gateway_option(json_option(command))


_API_CHECK_TIMEOUT = 3.0
_REPORT_INTERVAL = 0.25


def open_gateway(gateway: str | None, listener: Callable[[Event], None]) -> Gateway:
    """Return the named gateway, or the active one; it must exist and is not started."""
    from holdfast.gateway import Gateway, resolve_gateway_name

    return Gateway(resolve_gateway_name(gateway), listener=listener)


def event_printer() -> Callable[[Event], None]:
    """Print retries as lines, without a live display, and load the renderers with the first event."""
    # Read now: the thread of the client, which reports events, has no click context.
    as_json = is_json_requested()
    if is_quiet_requested():
        return lambda _event: None

    def print_event(event: Event) -> None:
        from holdfast.cli.output import JsonRenderer, PlainRenderer

        (JsonRenderer() if as_json else PlainRenderer())(event)

    return print_event


@contextmanager
def open_sandbox(name: str, gateway: str | None) -> Iterator[tuple[Sandbox, ProgressRenderer]]:
    """Yield a sandbox of an existing gateway, and the renderer of its events."""
    from holdfast.cli.output import progress_renderer

    with progress_renderer() as renderer, open_gateway(gateway, renderer.bus.emit).sandbox(name) as sandbox:
        yield sandbox, renderer


@contextmanager
def open_sandboxes(gateway: str | None) -> Iterator[tuple[Sandboxes, ProgressRenderer]]:
    """Yield the sandboxes of an existing gateway, and the renderer of their events."""
    from holdfast.cli.output import progress_renderer

    with progress_renderer() as renderer, open_gateway(gateway, renderer.bus.emit).sandboxes() as sandboxes:
        yield sandboxes, renderer


def ensure_gateway_up(gateway: str | None, renderer: ProgressRenderer, *, bootstrap: bool) -> Gateway:
    """Return a gateway whose API answers; resume or repair it first if `bootstrap` is set.

    A gateway is created only if this machine has none: a mistyped name must not create another one.

    Raises:
        GatewayNotFoundError: other gateways are recorded, but not this one, or the API does not answer and
            `bootstrap` is not set.
    """
    from holdfast.gateway import (
        Gateway,
        check_recorded,
        commands,
        known_gateway_names,
        resolve_gateway_name,
    )

    name = resolve_gateway_name(gateway, for_up=True)
    if known_gateway_names():
        check_recorded(name)
    if not _is_gateway_api_reachable(name):
        if not bootstrap:
            raise GatewayNotFoundError(
                f"gateway {name}: not up", hint=f"Run `holdfast up {name}`, or omit --no-bootstrap."
            )
        commands.up(name, renderer.bus)
    return Gateway(name, listener=renderer.bus.emit)


def _is_gateway_api_reachable(name: str) -> bool:
    from holdfast.gateway import api_access
    from holdfast.kube import https_get

    try:
        endpoint = api_access(name)
        https_get(
            endpoint.url, "/v1/gateway", ca=endpoint.ca, certificate=endpoint.certificate, key=endpoint.key,
            timeout=_API_CHECK_TIMEOUT,
        )  # fmt: skip
    except (GatewayNotFoundError, ApiUnreachableError, ApiRefusedError):
        # Rejected certificates count as well: `up` issues and writes new ones.
        return False
    return True


class ProgressStep:
    """One running operation of a command; `note` is printed with its result."""

    def __init__(self, bus: EventBus, name: str) -> None:
        self._bus = bus
        self._step = name
        self._last_report_at = 0.0
        self.note = ""

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Report progress, at most four times per second."""
        # The client calls this on its own threads; the event bus serializes the events.
        now = time.monotonic()
        if now - self._last_report_at >= _REPORT_INTERVAL:
            self._last_report_at = now
            self._bus.emit(StepProgress(step=self._step, message=message, fraction=fraction))


@contextmanager
def progress_step(renderer: ProgressRenderer, name: str, title: str) -> Iterator[ProgressStep]:
    """Report start, end and duration of an operation with the events of workflow steps."""
    bus = renderer.bus
    started = time.monotonic()
    bus.emit(StepStarted(step=name, title=title))
    step = ProgressStep(bus, name)
    try:
        yield step
    except BaseException as error:
        # For Ctrl-C too: without an end event, the live display would keep the step.
        code, message = "interrupted", type(error).__name__
        if isinstance(error, HoldfastError):
            code, message = error.code, error.message
        seconds = time.monotonic() - started
        if not is_json_requested():
            title = ""  # no line: the error of the command names the object
        bus.emit(StepFailed(step=name, title=title, seconds=seconds, code=code, error=message))
        raise
    bus.emit(StepFinished(step=name, title=title, seconds=time.monotonic() - started, note=step.note))


def wait_for_phase(
    renderer: ProgressRenderer, sandbox: Sandbox, phase: str, timeout: float, min_ready_seconds: float = 0.0
) -> SandboxView:
    """Wait until a sandbox reaches a phase, and report each new state as progress."""
    from holdfast.client import summarize

    with progress_step(renderer, "wait-sandbox", phase) as step:
        return sandbox.wait(
            phase,
            timeout=timeout,
            min_ready_seconds=min_ready_seconds,
            on_change=lambda view: step.progress(summarize(view)),
        )


def confirm(renderer: ProgressRenderer, question: str) -> bool:
    """Ask a question with the default No; the live display pauses meanwhile."""
    with renderer.pause():
        return click.confirm(question, default=False, err=True)
