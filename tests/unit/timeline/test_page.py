"""The page: complete without a script, closed to the network, and small."""

from __future__ import annotations

import base64
import hashlib
import re
import time

import msgspec
import pytest
from hypothesis import given, settings
from tests.support.timeline_records import ANY_TEXT, STARTED, HtmlRecorder, ran, run_of

from holdfast.timeline import build_timeline, render_page
from holdfast.workflow import ProbeLog, RunRecord, StepLog

FAILED = run_of(
    ran("check", 0, 1, title="Check the engine"),
    ran("pull", 1, 5, needs=("check",), retries=("503",), retry_times=((STARTED + 2, 1.0),), note="pulled"),
    ran(
        "wait", 6, 4, outcome="failed", needs=("pull",), error="node: not ready\n  E1 no network",
        code="not-ready", progress=("etcd is ready",),
    ),
    outcome="failed", step="wait", error="node: not ready\n  E1 no network", code="not-ready",
    hint="Run `holdfast logs dev`.", skipped={"exists already": ["network", "volume"]},
    probes={"network": ProbeLog(at=STARTED + 0.5, seconds=0.1)}, tool="9.9.9", platform="Python 3, Linux",
    pid=7, host="box",
    parameters={"image": "holdfast/node:1"},
)  # fmt: skip
EARLIER = run_of(ran("check", 0, 2), ran("pull", 2, 1), id="earlier-run", seconds=3.0, tool="8.8.8")


@pytest.fixture
def page():
    return render_page(build_timeline(FAILED, earlier=EARLIER))


def text_of(page):
    return HtmlRecorder(re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)).text


def test_text_of_the_page_tells_the_whole_run(page):
    text = text_of(page)
    for expected in (
        "check", "Check the engine", "pull", "wait", "503",
        "Attempt 1 failed at 2.00 s, next attempt 1.00 s later",
        "node: not ready", "not-ready", "E1 no network", "etcd is ready", "holdfast logs dev",
        "exists already", "network", "volume", "9.9.9", "Python 3, Linux", "7 on box", "holdfast/node:1",
        "earlier-run", "8.8.8", "5.00 s", "+4.00 s",
    ):  # fmt: skip
        assert expected in text, expected


def test_page_refers_to_nothing_outside(page):
    for tag, attributes in HtmlRecorder(page).tags:
        assert tag not in {"link", "iframe", "img", "object", "embed", "base", "form"}
        assert not {"src", "srcset", "style", "action", "data", "poster"} & set(attributes), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("href", "#").startswith("#")
    assert not re.search(r"url\((?!#)|@import|https?:", page)


def test_policy_allows_exactly_the_style_and_the_script_of_the_page(page):
    (policy,) = (
        attributes["content"]
        for tag, attributes in HtmlRecorder(page).tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"


def test_same_timeline_gives_the_same_page(page):
    assert render_page(build_timeline(FAILED, earlier=EARLIER)) == page


def test_ids_are_unique_and_every_reference_exists(page):
    tags = HtmlRecorder(page).tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    references = {a["aria-controls"] for _, a in tags if "aria-controls" in a}
    references |= {a["href"][1:] for _, a in tags if "href" in a}
    assert references <= set(ids)
    assert 's3"' in page


def run_with(text):
    """The same run with another text in every place that takes one."""
    return msgspec.structs.replace(
        FAILED, id=text, command=text, subject=text, tool=text, error=text, hint=text, host=text,
        platform=text,
        outcome="failed", parameters={text: text}, skipped={text: [text]},
        steps=[
            StepLog(
                step=text, outcome="failed", at=STARTED, seconds=1.0, title=text, note=text, reason=text,
                error=text, code=text, retries=(text,), retry_times=((STARTED, 1.0),), needs=(text,),
                progress=(text,),
            )
        ],
    )  # fmt: skip


@settings(max_examples=60)
@given(ANY_TEXT)
def test_no_text_changes_the_structure_of_the_page(text):
    page = render_page(build_timeline(run_with(f"x{text}")))
    page.encode()
    without = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    tags = {tag for tag, _ in HtmlRecorder(without).tags}
    assert tags <= {
        "html", "head", "meta", "title", "body", "svg", "defs", "pattern", "rect", "main", "header", "p",
        "div", "h1", "h2", "h4", "span", "code", "time", "dl", "dt", "dd", "small", "section", "a", "pre",
        "button", "input", "table", "thead", "tbody", "tr", "th", "td", "text", "circle", "ol", "ul", "li",
        "footer", "caption",
    }  # fmt: skip


@pytest.mark.parametrize("count", [1, 100])
def test_ten_thousand_attempts_stay_small_and_fast(count):
    times = tuple((STARTED + number / 10, 0.05) for number in range(10_000 // count))
    logs = [
        ran(f"s{n}", 0, 1000, retries=("connection reset by peer",) * len(times), retry_times=times)
        for n in range(count)
    ]
    run = run_of(*logs, seconds=1000.0)
    began = time.process_time()
    page = render_page(build_timeline(run))
    # Generous, because the test machine is shared: a quadratic algorithm would take minutes.
    assert time.process_time() - began < 10
    assert len(page) < (120_000 if count == 1 else 1_500_000)


def test_ten_thousand_steps_stay_small_and_keep_the_failed_and_the_slowest_ones():
    logs = [ran(f"step-{n}", n / 10, 0.1, needs=(f"step-{n - 1}",)) for n in range(10_000)]
    logs[5000] = ran("failed-one", 500, 0.0001, outcome="failed", error="broke")
    logs[7000] = ran("slow-one", 700, 50)
    page = render_page(build_timeline(run_of(*logs, seconds=1050.0, step="failed-one", error="broke")))
    assert len(page) < 2_000_000
    assert "failed-one" in page
    assert "slow-one" in page
    assert "9,000 steps without errors and retries are not in this table" in page


@pytest.mark.parametrize("outcome", ["running", "finished", "failed", "interrupted", "died"])
def test_run_without_steps_has_a_page(outcome):
    run = RunRecord(id="r", workflow="w", command="w", outcome=outcome, started=STARTED)
    page = render_page(build_timeline(run, now=STARTED + 1))
    assert "No step of this run has a recorded time." in page
    assert outcome in page
