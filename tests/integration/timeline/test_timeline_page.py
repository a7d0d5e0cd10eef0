"""The timeline of real runs in a real browser, compared with the store."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import browser
from tests.support.holdfast_cli import HoldfastCli

from holdfast.timeline import read_timeline, render_page
from holdfast.workflow import SQLiteStore

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(browser.CHROMIUM is None, reason="needs Debian's chromium"),
]

# Two concurrent steps, a step with retries, and one that fails or kills the process. A barrier makes the
# concurrent steps overlap on every machine.
PROGRAM = """
import os, signal, sys, threading
from pathlib import Path
from holdfast.errors import HoldfastError, TemporaryError
from holdfast.retry import Policy, constant
from holdfast.workflow import FileLock, SQLiteStore, Step, Workflow, absent, done

home, mode = Path(sys.argv[1]), sys.argv[2]
both = threading.Barrier(2)

def together(ctx):
    both.wait(60)
    ctx.stop.wait(0.2)
    (home / ctx.step.name).touch()
    ctx.note(f"made {ctx.step.name}")

def exists(name):
    return lambda ctx: done(f"{name} exists") if (home / name).exists() else absent()

def flaky(ctx):
    if ctx.attempt < 3:
        raise ConnectionResetError(f"reset by <peer> {ctx.attempt}")

def end(ctx):
    ctx.progress("waiting for <etcd>")
    if mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "fail":
        log = "    E1 <script>document.title = 'owned'</script>\\n    E2 \\x1b[31mno cni"
        raise TemporaryError(f"node dev: not ready\\n{log}", hint="Run `holdfast logs dev`.")

needs = ["network", "volume"]
steps = [
    Step("network", run=together, probe=exists("network"), title="Create the network"),
    Step("volume", run=together, probe=exists("volume")),
    Step("pull", needs=needs, run=flaky, repeat="safe", policy=Policy(attempts=5, backoff=constant(0.2))),
    Step("node", needs=["pull"], run=end, repeat="safe"),
    Step("record", needs=["node"], run=lambda ctx: None, repeat="safe"),
]
try:
    Workflow("up", steps, forget_on_success=True).run(
        store=SQLiteStore(home / "s.db"), lock=FileLock(home / "lock"), command="up", subject="dev",
        parameters={"image": f"node:{mode}"},
    )
    for name in needs:
        (home / name).unlink()
except HoldfastError as error:
    sys.exit(error.exit_code)
"""


def run_program(home, mode):
    command = [sys.executable, "-c", PROGRAM, str(home), mode]
    return subprocess.run(command, check=False, timeout=120).returncode


def records(home):
    store = SQLiteStore(home / "s.db", readonly=True)
    store.open()
    try:
        return store.runs()
    finally:
        store.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A successful, a failed, a killed and a continued run."""
    folder = tmp_path_factory.mktemp("runs")
    assert run_program(folder, "ok") == 0
    assert run_program(folder, "fail") == 1
    assert run_program(folder, "kill") == -signal.SIGKILL
    assert run_program(folder, "continue") == 0
    return folder


@pytest.fixture(scope="module")
def chromium():
    with browser.chromium() as started:
        yield started


@pytest.fixture
def open_page(home, chromium, tmp_path):
    """Open the page of a run; the test fails if the page reports an error or loads something."""
    contexts, problems = [], []

    def open_(number, **options):
        """Open the page of a run; number 0 is the newest."""
        run = records(home)[number]
        path = tmp_path / f"{run.id}.html"
        HoldfastCli(tmp_path)("timeline", run.id, "--store", str(home / "s.db"), "--output", str(path))
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: problems.append(request.url) if contexts_loaded(request) else None)
        page.goto(path.as_uri())
        return page, run

    def contexts_loaded(request):
        return not request.url.startswith("file://") or request.resource_type != "document"

    yield open_
    for context in contexts:
        context.close()
    assert problems == []


def save_screenshot(page, name):
    """Keep a picture for a look, in the directory of HOLDFAST_SCREENSHOTS."""
    folder = os.environ.get("HOLDFAST_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"timeline-{name}.png", full_page=True)


def rows_of(page):
    return {
        row.locator(".name").inner_text(): row for row in page.locator("tr.step").all() if row.is_visible()
    }


def bar_of(row, kind=".bar"):
    return row.locator(f"svg {kind}").first.bounding_box()


def test_rows_match_the_steps_of_the_store(open_page):
    page, run = open_page(3)
    rows = rows_of(page)
    assert set(rows) == {log.step for log in run.steps} == {"network", "volume", "pull", "node", "record"}
    plot = page.locator("td.c-timeline").last.bounding_box()
    length = read_length(page)
    for log in run.steps:
        bar = bar_of(rows[log.step])
        start, width = (plot["width"] * each / length for each in (log.at - run.started, log.seconds))
        # A bar is at least 0.3 % of the width.
        assert bar["x"] - plot["x"] == pytest.approx(start, abs=0.004 * plot["width"])
        assert bar["width"] == pytest.approx(width, abs=0.004 * plot["width"])


def read_length(page):
    return float(page.locator(".board").get_attribute("data-length"))


def test_concurrent_steps_overlap_and_have_two_lanes(open_page):
    page, _ = open_page(3)
    rows = rows_of(page)
    network, volume = bar_of(rows["network"]), bar_of(rows["volume"])
    overlap = min(each["x"] + each["width"] for each in (network, volume)) - max(network["x"], volume["x"])
    assert overlap > 0
    heights = {round(box.bounding_box()["y"]) for box in page.locator("tr.all svg .bar").all()}
    assert len(heights) == 2
    assert "up to 2 concurrently" in page.locator("tr.all").inner_text()


def test_retries_are_marks_at_their_times_with_reason_and_delay(open_page):
    page, run = open_page(3)
    row = rows_of(page)["pull"]
    log = next(log for log in run.steps if log.step == "pull")
    assert len(log.retry_times) == 2
    marks = row.locator("svg circle")
    assert marks.count() == 2
    plot = row.locator("td.c-timeline").bounding_box()
    for number, (at, _) in enumerate(log.retry_times):
        box = marks.nth(number).bounding_box()
        expected = plot["width"] * (at - run.started) / read_length(page)
        assert box["x"] + box["width"] / 2 - plot["x"] == pytest.approx(expected, abs=2)
    assert row.locator("svg .wait").count() == 2
    row.locator("button").click()
    items = page.locator("tr.details:visible .retries li").all_inner_texts()
    assert len(items) == 2
    for text, reason, (_, delay) in zip(items, log.retries, log.retry_times, strict=True):
        assert reason in text
        assert f"next attempt {delay * 1000:.0f} ms later" in text


def test_failed_run_shows_error_log_lines_hint_and_links_to_its_step(open_page):
    page, run = open_page(2)
    assert run.outcome == "failed"
    failure = page.locator(".failure").inner_text()
    assert "Failed in node" in failure
    assert "node dev: not ready" in failure
    assert "E1 <script>document.title = 'owned'</script>" in failure
    assert "E2 no cni" in failure
    assert page.locator(".failure .hint code").inner_text() == "holdfast logs dev"
    assert "owned" not in page.title()
    page.locator(".failure a").click()
    target = page.locator("tr.step:target")
    assert target.locator(".name").inner_text() == "node"
    details = page.locator("tr.step:target + tr.details")
    assert details.is_visible()
    assert "waiting for <etcd>" in details.inner_text()
    save_screenshot(page, "failed")


def test_killed_run_shows_the_step_in_flight_to_the_end_of_the_axis(open_page):
    page, run = open_page(1)
    assert run.outcome == "died"
    assert page.locator(".outcome").inner_text() == "✕ died"
    row = rows_of(page)["node"]
    plot = row.locator("td.c-timeline").bounding_box()
    bar = bar_of(row, ".in-flight")
    assert bar["x"] + bar["width"] == pytest.approx(plot["x"] + plot["width"], abs=2)
    # The process could not record the end, so the next run did.
    assert "The process died in node" in page.locator(".failure").inner_text()


def test_continued_run_shows_skipped_steps_with_reasons_and_the_comparison(open_page, home):
    page, run = open_page(0)
    assert run.outcome == "finished"
    skipped = page.locator("dl.groups").inner_text()
    for reason, names in run.skipped.items():
        assert reason in skipped
        assert all(name in skipped for name in names)
    rows = rows_of(page)
    assert set(run.probes) == {"network", "volume"}
    assert all("skipped" in rows[name].get_attribute("class") for name in run.probes)
    details = page.locator("section", has=page.get_by_role("heading", name="Compared with an earlier run"))
    assert records(home)[3].id in details.inner_text()
    assert re.search(r"image\s+node:ok\s+node:continue", details.inner_text())
    earlier = next(log for log in records(home)[3].steps if log.step == "node").seconds
    now = next(log for log in run.steps if log.step == "node").seconds
    shown = rows["node"].locator(".c-change").inner_text()
    assert shown == "±0" or (shown[0] == "+") == (now > earlier)
    save_screenshot(page, "continued")


def test_hovering_a_bar_shows_what_the_step_did(open_page):
    page, _ = open_page(3)
    tip = page.locator("#tip")
    assert tip.is_hidden()
    rows_of(page)["network"].locator("td.c-timeline").hover()
    assert "network" in tip.inner_text()
    assert "Create the network" in tip.inner_text()
    assert "made network" in tip.inner_text()
    assert re.fullmatch(r"[\d.]+ (ms|s|µs)", page.locator("#cross").inner_text())
    page.locator("h1").hover()
    assert tip.is_hidden()


def test_keyboard_reaches_the_details(open_page):
    page, _ = open_page(3)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "expand"
    page.keyboard.press("Tab")
    first = page.evaluate("document.activeElement.textContent")
    assert page.locator("#tip").is_visible()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") != first
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    assert page.locator("tr.details:visible").count() == 1
    page.keyboard.press("Enter")
    assert page.locator("tr.details:visible").count() == 0
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


def test_filters_and_search_select_rows(open_page):
    page, _ = open_page(0)
    assert set(rows_of(page)) == {"network", "volume", "node", "record"}
    page.get_by_role("button", name="Ran", exact=True).click()
    assert set(rows_of(page)) == {"node", "record"}
    page.get_by_role("button", name="All", exact=True).click()
    page.locator("#search").fill("NO")
    assert set(rows_of(page)) == {"node"}
    assert "1 of 4 steps" in page.locator("#status").inner_text()
    page.locator("#search").fill("")
    page.get_by_role("button", name="Show all details").click()
    assert page.locator("tr.details:visible").count() == 4
    retried, _ = open_page(3)
    retried.get_by_role("button", name="Retried").click()
    assert set(rows_of(retried)) == {"pull"}


def test_page_without_javascript_shows_everything(open_page):
    page, run = open_page(2, java_script_enabled=False)
    assert set(rows_of(page)) == {log.step for log in run.steps} | set(run.probes)
    text = page.locator("body").inner_text()
    for log in run.steps:
        assert all(reason in text for reason in log.retries)
    assert "E2 no cni" in text
    assert page.locator(".controls").is_hidden()
    assert page.locator("tr.details").first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_page_is_accessible_and_fits_the_screen(open_page, scheme, width):
    for number, name in ((0, "continued"), (2, "failed")):
        page, _ = open_page(number, viewport={"width": width, "height": 800}, color_scheme=scheme)
        assert browser.serious_findings(page) == []
        page.locator("#expand").click()
        assert browser.serious_findings(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        save_screenshot(page, f"{name}-{width}-{scheme}")


def test_policy_stops_a_script_that_gets_into_the_page(home, chromium, tmp_path):
    path = tmp_path / "injected.html"
    page_text = render_page(read_timeline(home / "s.db"))
    attack = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"></main>"
    path.write_text(page_text.replace("</main>", attack))
    context = chromium.new_context()
    page = context.new_page()
    refused = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto(path.as_uri())
    assert "owned" not in page.title()
    assert any("Content Security Policy" in text for text in refused)
    context.close()
