"""The page of a timeline: one HTML file without anything from the network."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import __version__
from holdfast.timeline.chart import bar_class, legend_swatch, tick_interval
from holdfast.timeline.format import count, format_difference, format_seconds, format_time
from holdfast.timeline.markup import Content, Markup, element, fill_template, join_markup, with_commands
from holdfast.timeline.rows import MAX_ROWS, error_message, fact_list, log_lines, step_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.timeline.model import Comparison, RunSummary, Timeline

_OUTCOMES = {
    "finished": "✓ finished", "failed": "✕ failed", "interrupted": "‖ interrupted", "died": "✕ died",
    "running": "… running",
}  # fmt: skip
_MAX_NAMES = 200
_MAX_CHANGES = 12
_LEGEND = (
    ("bar finished", "ran"), ("bar finished critical", "on the critical path"), ("bar failed", "failed"),
    ("bar in-flight", "no end recorded"), ("bar skipped", "probed and skipped"),
    ("bar skipped critical", "skipped, on the critical path"),
    ("wait", "wait before a retry"), ("retry", "failed attempt"), ("queued", "ready, not started"),
    ("earlier", "earlier run"),
)  # fmt: skip


def render_page(timeline: Timeline) -> str:
    """Return the page as HTML. The same timeline gives the same page."""
    run = timeline.run
    style = Markup(f"{_asset('page.css')}\n{_grid_style(timeline.length)}")
    script = _asset("page.js")
    policy = (
        f"default-src 'none'; style-src '{_source_hash(style)}'; script-src '{_source_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    main = element(
        "main",
        _header(timeline),
        _figures(timeline),
        _failure(timeline),
        _notes(timeline),
        _chart(timeline),
        _skipped_section(timeline),
        element("div", _comparison(timeline.comparison, run), _run_details(run), class_="columns"),
    )
    title = f"{run.command} {run.subject}".strip()
    return fill_template(
        _asset("page.html"),
        policy=policy,
        version=__version__,
        title=f"{title} {run.outcome}: timeline of run {run.id}",
        style=style,
        main=main,
        run=run.id,
        script=script,
    )


@cache
def _asset(name: str) -> Markup:
    return Markup(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def _source_hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _grid_style(length: float) -> str:
    # In the style sheet: the policy of the page forbids style attributes.
    distance = 100 * tick_interval(length) / length
    return (
        f":root{{--ticks:repeating-linear-gradient(90deg,var(--grid) 0 1px,transparent 1px {distance:.6g}%)}}"
    )


def _header(timeline: Timeline) -> Markup:
    run = timeline.run
    started = element("time", format_time(run.started), datetime=_iso_time(run.started))
    subject = f" on {run.subject}" if run.subject else ""
    heading = element(
        "h1", element("span", run.command, class_="command"),
        element("span", subject, class_="subject") if subject else None,
    )  # fmt: skip
    return element(
        "header",
        element("p", "holdfast timeline", class_="product"),
        element(
            "div",
            heading,
            element("span", _OUTCOMES.get(run.outcome, run.outcome), class_=f"outcome {run.outcome}"),
            class_="title",
        ),
        element("p", "Run ", element("code", run.id), ", started ", started, class_="started"),
    )


def _iso_time(timestamp: float) -> str:
    text = format_time(timestamp).replace(" ", "T", 1).replace(" ", "")
    return f"{text[:-2]}:{text[-2:]}"


def _figures(timeline: Timeline) -> Markup:
    ran = [step for step in timeline.steps if step.state != "skipped"]
    skipped = sum(len(group.steps) for group in timeline.skipped)
    seconds = timeline.length if timeline.run.outcome == "running" else timeline.run.seconds
    figures: list[tuple[str, str, str]] = [
        ("Took", format_seconds(seconds), "so far" if timeline.run.outcome == "running" else ""),
        ("Steps", f"{len(ran):,} ran", f"{skipped:,} skipped"),
        (
            "Retries",
            f"{timeline.retries:,}",
            f"{format_seconds(timeline.waited)} waited" if timeline.retries else "",
        ),
        (
            "Concurrency",
            f"{timeline.concurrency}",
            "concurrent steps, at most" if timeline.concurrency > 1 else "",
        ),
    ]
    if timeline.critical is not None:
        part = f"{timeline.critical / timeline.length:.0%} of the run"
        figures.append(("Critical path", format_seconds(timeline.critical), part))
    if timeline.comparison is not None and timeline.run.outcome == "finished":
        earlier = timeline.comparison.run
        figures.append(
            (
                "Change",
                format_difference(timeline.comparison.seconds),
                f"from {format_seconds(earlier.seconds)}",
            )
        )
    tiles = [
        element("div", element("dt", name), element("dd", value, element("small", note) if note else None))
        for name, value, note in figures
    ]
    return element("dl", tiles, class_="figures")


def _failure(timeline: Timeline) -> Markup | None:
    if not timeline.error:
        return None
    number = next((n for n, step in enumerate(timeline.steps) if step.name == timeline.failed_step), None)
    where: Markup | None = None
    if timeline.failed_step:
        name = element("code", timeline.failed_step)
        # The rows of very long runs are selected, so their numbers are not those of the steps.
        is_linked = number is not None and len(timeline.steps) <= MAX_ROWS
        where = element("a", name, href=f"#s{number}") if is_linked else name
    heading = {"interrupted": "Interrupted", "died": "The process died"}.get(timeline.run.outcome, "Failed")
    return element(
        "section",
        element("h2", heading, " in " if where else None, where),
        error_message(timeline.error, timeline.code),
        log_lines(timeline.log) if timeline.log else None,
        element("p", with_commands(timeline.hint), class_="hint") if timeline.hint else None,
        class_="failure",
    )  # fmt: skip


def _notes(timeline: Timeline) -> Markup | None:
    return join_markup([element("p", f"{text}.", class_="damage") for text in timeline.damage])


def _chart(timeline: Timeline) -> Markup:
    if not timeline.steps:
        return element(
            "section", element("h2", "Steps"),
            element("p", "No step of this run has a recorded time.", class_="note"),
        )  # fmt: skip
    return element(
        "section",
        element("h2", "Steps"),
        _controls(timeline),
        step_table(timeline),
        _legend(timeline),
        class_="chart-section",
    )


def _controls(timeline: Timeline) -> Markup:
    """The filter, hidden until the script of the page shows it."""
    states = {step.state for step in timeline.steps}
    choices = [
        ("all", "All", True),
        ("ran", "Ran", "skipped" in states),
        ("failed", "Failed", "failed" in states),
    ]
    choices += [
        ("retried", "Retried", timeline.retries > 0),
        ("critical", "Critical path", timeline.critical is not None),
    ]
    buttons = [
        element(
            "button", label, type="button", data_filter=key, aria_pressed="true" if key == "all" else "false"
        )
        for key, label, is_useful in choices
        if is_useful
    ]
    search = element(
        "input", type="search", id="search", placeholder="Find a step", aria_label="Find a step by its name",
        autocomplete="off", spellcheck="false",
    )  # fmt: skip
    expand = element("button", "Show all details", type="button", id="expand", aria_pressed="false")
    filters = element("div", buttons, class_="filters", role="group", aria_label="Steps to show")
    status = element("span", class_="hidden", id="status", role="status")
    return element("div", filters, search, expand, status, class_="controls", hidden=True)


def _legend(timeline: Timeline) -> Markup:
    used = {f"bar {bar_class(step)}" for step in timeline.steps}
    used |= {"wait"} if timeline.waited else set()
    used |= (
        {"retry"} if any(mark.at is not None for step in timeline.steps for mark in step.retries) else set()
    )
    used |= {"queued"} if any(step.queued for step in timeline.steps) else set()
    used |= {"earlier"} if any(step.earlier is not None for step in timeline.steps) else set()
    return element(
        "ul",
        [element("li", legend_swatch(kind), text) for kind, text in _LEGEND if kind in used],
        class_="legend",
        aria_label="Legend",
    )


def _skipped_section(timeline: Timeline) -> Markup | None:
    if not timeline.skipped:
        return None
    groups = []
    for group in timeline.skipped:
        names = group.steps[:_MAX_NAMES]
        omitted = len(group.steps) - len(names)
        items = [element("li", element("code", name)) for name in names]
        items += [element("li", f"and {omitted:,} more")] if omitted else []
        reason = element("dt", group.reason or "no reason recorded")
        groups.append(element("div", reason, element("dd", element("ul", items, class_="names"))))
    total = sum(len(group.steps) for group in timeline.skipped)
    return element(
        "section", element("h2", f"Skipped: {count(total, 'step')}"), element("dl", groups, class_="groups")
    )


def _comparison(comparison: Comparison | None, run: RunSummary) -> Markup | None:
    if comparison is None:
        return None
    earlier = comparison.run
    differs = (earlier.command, earlier.subject) != (run.command, run.subject)
    what = f" ({earlier.command} {earlier.subject})" if differs else ""
    how = f"{earlier.outcome} in {format_seconds(earlier.seconds)}, started {format_time(earlier.started)}."
    intro = element("p", "Run ", element("code", earlier.id), f"{what} {how}")
    parts = [element("h2", "Compared with an earlier run"), intro]
    if comparison.steps:
        parts.append(_changes_table(comparison))
    if comparison.values:
        rows = [(each.name, each.before or "not set", each.after or "not set") for each in comparison.values]
        parts.append(
            _table(("Setting", "Earlier run", "This run"), rows, label="Changed versions and parameters")
        )
    return element("section", parts)


def _changes_table(comparison: Comparison) -> Markup:
    rows = []
    for change in comparison.steps[:_MAX_CHANGES]:
        before, after = (
            "did not run" if each is None else format_seconds(each) for each in (change.before, change.after)
        )
        is_comparable = change.before is not None and change.after is not None
        difference = (
            format_difference((change.after or 0.0) - (change.before or 0.0)) if is_comparable else ""
        )
        rows.append((change.step, before, after, difference))
    return _table(("Step", "Earlier run", "This run", "Change"), rows, label="The largest differences")


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, label: str) -> Markup:
    head = element("tr", [element("th", name, scope="col") for name in columns])
    body = [
        element("tr", element("th", row[0], scope="row"), [element("td", cell) for cell in row[1:]])
        for row in rows
    ]
    table = element("table", element("caption", label), element("thead", head), element("tbody", body))
    return element("div", table, class_="plain", tabindex=0, role="region", aria_label=label)


def _run_details(run: RunSummary) -> Markup:
    facts: list[tuple[str, Content]] = [
        ("Run", element("code", run.id)), ("Command", run.command), ("Subject", run.subject),
        ("Workflow", run.workflow), ("Outcome", run.outcome), ("Started", format_time(run.started)),
        ("Took", format_seconds(run.seconds)), ("holdfast", run.version), ("Platform", run.platform),
        ("Process", run.process),
    ]  # fmt: skip
    parts = [element("h2", "Run"), fact_list([(name, value) for name, value in facts if value])]
    if run.parameters:
        rows = sorted(run.parameters.items())
        parts.append(_table(("Parameter", "Value"), rows, label="Non-default parameters"))
    return element("section", parts)
