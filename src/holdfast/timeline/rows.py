"""The table of a timeline: one row for each step, followed by a row with its details."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.timeline.chart import axis, lanes, step_bar
from holdfast.timeline.format import count, format_difference, format_seconds
from holdfast.timeline.markup import Content, Markup, element, join_markup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.timeline.model import RetryMark, Timeline, TimelineStep

MAX_ROWS = 1000
MAX_LOG_LINES = 200
_MAX_SHOWN_RETRIES = 20
_MARKS = {"finished": "✓", "failed": "✕", "in flight": "?", "skipped": "○"}
_MIN_CHANGE_SECONDS = 0.05
_MIN_CHANGE_PART = 0.1


def step_table(timeline: Timeline) -> Markup:
    """Return the table of the steps that ran or were probed; of very many, the most important ones."""
    has_earlier = timeline.comparison is not None
    columns = ["Step", "Timeline", "Start", "Took", *(["Change"] if has_earlier else [])]
    cells = [
        element(
            "th", axis(timeline.length) if name == "Timeline" else None,
            element("span", name, class_="hidden") if name == "Timeline" else name,
            class_=f"c-{name.lower()}", scope="col", role="columnheader",
        )
        for name in columns
    ]  # fmt: skip
    shown = _select_rows(timeline.steps)
    body = [_lanes_row(timeline, len(columns))] if timeline.lanes > 1 else []
    body += [
        row
        for number, step in enumerate(shown)
        for row in _step_rows(step, number, timeline.length, len(columns), has_earlier=has_earlier)
    ]
    table = element(
        "table",
        element("thead", element("tr", cells, role="row"), role="rowgroup"),
        element("tbody", body, role="rowgroup"),
        class_="steps",
        role="table",
        aria_label="Steps in the order of their start",
    )
    board = element("div", table, class_="board", data_length=timeline.length)
    return join_markup([board, *_omission(timeline.steps, shown)])


def _lanes_row(timeline: Timeline, columns: int) -> Markup:
    text = f"All steps, up to {timeline.concurrency} concurrently"
    cells = [
        element("td", text, class_="c-step", role="cell"),
        element("td", lanes(timeline), class_="c-timeline", role="cell"),
    ]
    cells += [
        element("td", class_=name, role="cell") for name in ("c-start", "c-took", "c-change")[: columns - 2]
    ]
    return element("tr", cells, class_="all", role="row")


def _select_rows(steps: Sequence[TimelineStep]) -> Sequence[TimelineStep]:
    if len(steps) <= MAX_ROWS:
        return steps
    ranked = sorted(
        steps,
        key=lambda step: (step.state not in {"failed", "in flight"}, not step.retries, -step.seconds),
    )
    names = {step.name for step in ranked[:MAX_ROWS]}
    return [step for step in steps if step.name in names]


def _omission(steps: Sequence[TimelineStep], shown: Sequence[TimelineStep]) -> list[Markup]:
    if len(shown) == len(steps):
        return []
    names = {step.name for step in shown}
    omitted = [step.seconds for step in steps if step.name not in names]
    text = (
        f"{count(len(omitted), 'step')} without errors and retries are not in this table: each took at most "
        f"{format_seconds(max(omitted))}, all together {format_seconds(sum(omitted))}. "
        "The lanes above and the JSON output contain all of them."
    )
    return [element("p", text, class_="note")]


def _step_rows(
    step: TimelineStep, number: int, length: float, columns: int, *, has_earlier: bool
) -> list[Markup]:
    details = _details(step)
    row_id, details_id = f"s{number}", f"d{number}"
    label: list[Content] = [
        element("span", _MARKS[step.state], class_="mark", aria_hidden="true"),
        element("span", step.name, class_="name"),
    ]
    badges = _badges(step)
    path = ", on the critical path" if step.is_critical else ""
    state_text = element("span", f", {step.state}{path}", class_="hidden")
    name_cell = element(
        "td",
        element(
            "button", *label, state_text, type="button",
            aria_expanded="true", aria_controls=details_id,
        )
        if details
        else element("span", *label, state_text, class_="label"),
        element("span", badges, class_="badges") if badges else None,
        class_="c-step", role="cell",
    )  # fmt: skip
    cells = [
        name_cell,
        element("td", step_bar(step, length), class_="c-timeline", role="cell"),
        element("td", format_seconds(step.start) if step.start else "0", class_="c-start", role="cell"),
        element("td", format_seconds(step.seconds), class_="c-took", role="cell"),
    ]
    if has_earlier:
        cells.append(_change_cell(step))
    state = step.state.replace(" ", "-")
    rows = [
        element(
            "tr", cells, id=row_id, class_=f"step {state}", role="row", data_state=state,
            data_retried="1" if step.retries else None, data_critical="1" if step.is_critical else None,
        )
    ]  # fmt: skip
    if details:
        cell = element("td", details, colspan=columns, role="cell")
        rows.append(element("tr", cell, id=details_id, class_="details", role="row"))
    return rows


def _badges(step: TimelineStep) -> list[Markup]:
    badges = []
    if step.retries:
        badges.append(element("span", count(len(step.retries), "retry"), class_="badge retried"))
    return badges


def _change_cell(step: TimelineStep) -> Markup:
    if step.earlier is None:
        text, kind = ("new", "new") if step.state != "skipped" else ("", "")
    elif step.state == "skipped":
        text, kind = "skipped", ""
    else:
        difference = step.seconds - step.earlier
        is_relevant = abs(difference) >= max(_MIN_CHANGE_SECONDS, _MIN_CHANGE_PART * step.earlier)
        is_comparable = is_relevant and step.state == "finished"
        kind = ("slower" if difference > 0 else "faster") if is_comparable else ""
        text = format_difference(difference)
    return element("td", text, class_=f"c-change {kind}".rstrip(), role="cell")


def _details(step: TimelineStep) -> list[Markup]:
    parts = []
    if step.error:
        parts.append(error_message(step.error, step.code))
    facts = _facts(step)
    if [name for name, _ in facts] not in ([], ["Compared run"]):
        parts.append(fact_list(facts))
    if step.retries:
        parts.append(_retry_list(step.retries))
    if step.log:
        parts.append(log_lines(step.log))
    if step.progress:
        parts += [element("h4", "Last progress"), log_lines(step.progress)]
    return parts


def _facts(step: TimelineStep) -> list[tuple[str, Content]]:
    repetition = ""
    if step.at_least_once:
        is_repeated = step.attempts > 1 or step.begun_before
        repetition = "may have happened twice" if is_repeated else "at least once"
    facts = [
        ("Step", step.title if step.title != step.name else ""),
        ("Effect" if step.state == "finished" else "Note", step.note),
        ("Reason", step.reason if step.reason != step.note else ""),
        ("Attempts", str(step.attempts) if step.attempts > 1 else ""),
        ("Repetition", repetition),
        ("Earlier run", "started this step and did not finish it" if step.begun_before else ""),
        ("Needs", ", ".join(step.needs)),
        ("Ready", f"{format_seconds(step.queued)} before it started" if step.queued else ""),
        ("Compared run", "" if step.earlier is None else format_seconds(step.earlier)),
    ]
    return [(name, value) for name, value in facts if value]


def error_message(error: str, code: str) -> Markup:
    """Return the message of an error with its code."""
    label = element("span", code, class_="code") if code else None
    return element("p", error, " " if code else None, label, class_="error")


def fact_list(facts: Sequence[tuple[str, Content]]) -> Markup:
    """Return names and values as a description list."""
    return element(
        "dl",
        [element("div", element("dt", name), element("dd", value)) for name, value in facts],
        class_="facts",
    )


def log_lines(lines: Sequence[str]) -> Markup:
    """Return lines of a log; of very many, the last ones."""
    shown = lines[-MAX_LOG_LINES:]
    omitted = len(lines) - len(shown)
    text = "\n".join([*([f"… {omitted} lines before"] if omitted else []), *shown])
    return element("pre", text, class_="log", tabindex=0)


def _retry_list(retries: Sequence[RetryMark]) -> Markup:
    omitted = len(retries) - _MAX_SHOWN_RETRIES
    half = _MAX_SHOWN_RETRIES // 2
    items = [_retry_item(mark) for mark in (retries if omitted <= 0 else retries[:half])]
    if omitted > 0:
        reasons = Counter(mark.reason for mark in retries[half:-half])
        most = "; ".join(f"{number:,} times {reason}" for reason, number in reasons.most_common(3))
        items.append(element("li", f"… {count(omitted, 'more retry')}: {most}", class_="omitted"))
        items += [_retry_item(mark) for mark in retries[-half:]]
    return element("ol", items, class_="retries")


def _retry_item(mark: RetryMark) -> Markup:
    when = "" if mark.at is None else f"at {format_seconds(mark.at)}"
    wait = "" if mark.delay is None else f", next attempt {format_seconds(mark.delay)} later"
    if mark.delay == 0:
        wait = ", next attempt immediately"
    return element(
        "li",
        element("span", f"Attempt {mark.attempt} failed {when}{wait}".replace(" ,", ","), class_="when"),
        element("span", mark.reason, class_="reason"),
    )
