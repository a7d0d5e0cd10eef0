"""Several sandboxes in one command: select them, report progress and each outcome, fail if some failed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
import msgspec

from holdfast.cli.click_extensions import complete_with, is_json_requested
from holdfast.cli.output import escape_control_characters, print_error_line, print_result
from holdfast.cli.parameters import SANDBOX, SELECTOR
from holdfast.cli.sandbox.common import confirm, progress_step
from holdfast.errors import HoldfastError, OperationCancelledError, TemporaryError, UsageError
from holdfast.events import StepProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.cli.output import ProgressRenderer
    from holdfast.client import BulkOutcome, BulkResult, Sandboxes

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
OutcomeListener: TypeAlias = "Callable[[BulkOutcome[T]], None]"

_STEP = "sandboxes"


class OutcomeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints about one of several sandboxes: either `result`, or the fields of the error.

    Attributes:
        name: name of the sandbox.
        result: what the command prints for a single sandbox; None if it failed.
        code: code of the error.
        error: message of the error.
        hint: next command or action.
    """

    name: str
    result: Any = None
    code: str | None = None
    error: str | None = None
    hint: str | None = None


class BulkReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints about several sandboxes; `failed` has the names of those with an error."""

    outcomes: list[OutcomeReport] = []
    failed: list[str] = []


@dataclass(frozen=True, slots=True)
class SandboxSelection:
    """The sandboxes that a command is about: names, or those that `--all` or `--selector` selects."""

    names: tuple[str, ...]
    selector: str | None = None

    @property
    def single_name(self) -> str:
        """The name if the user named exactly one sandbox; empty otherwise."""
        return self.names[0] if len(self.names) == 1 else ""

    @property
    def is_query(self) -> bool:
        """Whether the gateway knows which sandboxes are meant."""
        return not self.names

    def find_names(self, sandboxes: Sandboxes) -> list[str]:
        """Return the names of the sandboxes; those of a query are sorted."""
        if self.names:
            return list(self.names)
        return sorted(view.name for view in sandboxes.list(selector=self.selector))


def selector_option(text: str) -> Callable[[F], F]:
    """`--selector`: a label selector with the syntax of kubectl."""
    return click.option("--selector", "-l", type=SELECTOR, metavar="SELECTOR", help=text)


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """NAME..., `--all` and `--selector`, passed as `selection`; exactly one of them is required."""

    @click.argument(
        "names",
        type=SANDBOX,
        metavar="[NAME]...",
        nargs=-1,
        shell_complete=complete_with("complete_more_sandboxes"),
    )
    @click.option("--all", is_flag=True, help="Select all sandboxes of the gateway.")
    @selector_option("Select sandboxes by labels, as in kubectl: 'a=b,c in (d, e),!f'.")
    @functools.wraps(command)
    def call(*args: Any, names: tuple[str, ...], selector: str | None, **options: Any) -> Any:
        selection = _parse_selection(names, selector, is_all=options.pop("all"))
        return command(*args, selection=selection, **options)

    return call


def _parse_selection(names: tuple[str, ...], selector: str | None, *, is_all: bool) -> SandboxSelection:
    given = {"NAME": bool(names), "--all": is_all, "--selector": selector is not None}
    selected = [option for option, is_given in given.items() if is_given]
    if len(selected) > 1:
        raise UsageError(f"{' and '.join(selected)}: cannot be combined; nothing was changed")
    if not selected:
        raise UsageError(
            "NAME: missing; nothing was changed", hint="Name the sandboxes, or pass --all or --selector."
        )
    return SandboxSelection(tuple(dict.fromkeys(names)), selector)


def confirm_for_all(
    renderer: ProgressRenderer, action: str, names: Sequence[str], lines: Iterable[str]
) -> None:
    """List what will happen to the sandboxes on stderr, then ask with the default No.

    Args:
        renderer: prints the progress.
        action: what happens, such as "delete".
        names: names of all sandboxes.
        lines: what the user has to know about them.

    Raises:
        UsageError: the user did not confirm.
    """
    for line in lines:
        click.echo(f"  {escape_control_characters(line)}", err=True)
    question = f"{action} {count_sandboxes(names)}"
    if not confirm(renderer, f"{question[:1].upper()}{question[1:]}?"):
        raise UsageError(f"{question}: not confirmed; nothing was changed")


def count_sandboxes(names: Sequence[str]) -> str:
    """The number of sandboxes as a text."""
    return "1 sandbox" if len(names) == 1 else f"{len(names)} sandboxes"


def run_for_all(
    renderer: ProgressRenderer,
    selection: SandboxSelection,
    names: Sequence[str],
    *,
    title: str,
    operate: Callable[[OutcomeListener[T]], BulkResult[T]],
    describe: Callable[[str, T], str],
    as_result: Callable[[str, T], Any] = lambda _name, result: result,
) -> None:
    """Run an operation on several sandboxes, and print each outcome and the failures.

    Args:
        renderer: prints the progress.
        selection: which sandboxes the user selected.
        names: their names.
        title: what the operation has done, such as "Deleted".
        operate: runs the operation; calls its argument with each outcome.
        describe: returns the line for a successful outcome.
        as_result: returns what `--json` prints for a successful outcome.

    Raises:
        TemporaryError: some failed; the message has their names.
        HoldfastError: all failed with the same error, such as a gateway that does not answer.
        OperationCancelledError: the user interrupted the command; the known outcomes are printed.
    """
    if not names:
        suffix = "" if selection.selector is None else f" match the selector {selection.selector}"
        print_result(BulkReport(), [f"No sandboxes{suffix or ' found'}."])
        return
    known: dict[str, BulkOutcome[T]] = {}

    def report(outcome: BulkOutcome[T] | None = None) -> None:
        # Called on the client's thread. Unlike other progress, every event counts: the last outcomes can
        # take much longer than the first ones.
        if outcome is not None:
            known[outcome.name] = outcome
        fraction = len(known) / len(names)
        renderer.bus.emit(StepProgress(step=_STEP, message=_count_text(known, names), fraction=fraction))

    try:
        with progress_step(renderer, _STEP, title) as step:
            report()
            result = operate(report)
            step.note = _count_text(known, names)
            _raise_for_failures(result)
    except KeyboardInterrupt:
        _print_outcomes(known, names, describe, as_result)
        raise OperationCancelledError(f"interrupted after {_count_text(known, names)}") from None
    except HoldfastError:
        _print_outcomes(known, names, describe, as_result)
        raise
    _print_outcomes(known, names, describe, as_result)


def _count_text(known: Mapping[str, BulkOutcome[T]], names: Sequence[str]) -> str:
    failed = sum(outcome.error is not None for outcome in list(known.values()))
    return f"{len(known)} of {count_sandboxes(names)}" + (f", {failed} failed" if failed else "")


def _raise_for_failures(result: BulkResult[T]) -> None:
    if common := _common_error(result.outcomes):
        raise common
    try:
        result.raise_for_failures()
    except HoldfastError as error:
        hints = {failed.error.hint for failed in result.failed if failed.error}
        hint = hints.pop() if len(hints) == 1 else error.hint
        # Exit code 1 also if all failures are permanent: other sandboxes have succeeded, or failed otherwise.
        raise TemporaryError(error.message, hint=hint, cause=error.cause) from error.cause


def _common_error(outcomes: Sequence[BulkOutcome[T]]) -> HoldfastError | None:
    """The error of a gateway that failed the operation on every one of several sandboxes."""
    messages = {outcome.error.message if outcome.error else "" for outcome in outcomes}
    return outcomes[0].error if len(outcomes) > 1 and len(messages) == 1 else None


def _print_outcomes(
    known: Mapping[str, BulkOutcome[T]],
    names: Sequence[str],
    describe: Callable[[str, T], str],
    as_result: Callable[[str, T], Any],
) -> None:
    outcomes = [known[name] for name in names if name in known]
    if is_json_requested():
        reports = [_report_outcome(outcome, as_result) for outcome in outcomes]
        failed = [report.name for report in reports if report.error is not None]
        print_result(BulkReport(outcomes=reports, failed=failed), [])
        return
    common = _common_error(outcomes)
    for outcome in outcomes:
        if outcome.error is None:
            click.echo(escape_control_characters(describe(outcome.name, outcome.result)))  # type: ignore[arg-type]
        elif common is None:
            _print_failure(outcome.name, outcome.error)


def _report_outcome(outcome: BulkOutcome[T], as_result: Callable[[str, T], Any]) -> OutcomeReport:
    error = outcome.error
    if error is None:
        return OutcomeReport(name=outcome.name, result=as_result(outcome.name, outcome.result))  # type: ignore[arg-type]
    return OutcomeReport(name=outcome.name, code=error.code, error=error.message, hint=error.hint)


def _print_failure(name: str, error: HoldfastError) -> None:
    subject = "" if error.message.startswith(f"sandbox {name}:") else f"sandbox {name}: "
    print_error_line(escape_control_characters(f"{subject}{error.message} [{error.code}]"))
