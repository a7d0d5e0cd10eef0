"""How checks are run: failures and timeouts become findings, and repairs are verified."""

import threading
import time

from holdfast.errors import TemporaryError
from holdfast.events import EventBus, StepFinished
from holdfast.gateway.doctor import diagnose
from holdfast.gateway.doctor.facts import FactUnavailable, GatewayFacts
from holdfast.gateway.doctor.findings import note, problem
from holdfast.gateway.doctor.runner import CHECKS, run_checks, verify_repairs


def test_repair_counts_only_if_finding_is_gone(report):
    fixed = problem("a", "s", "c", fixed_by="fix", repair="r")
    remaining = problem("b", "s", "c", fixed_by="command", repair="r")
    actions = {fixed: "done", remaining: "see its repair"}
    one, two = verify_repairs(report(fixed, remaining), report(remaining), actions)
    assert (one.code, one.repaired, one.how) == ("a", True, "done")
    assert (two.code, two.repaired) == ("b", False)


def test_failing_check_becomes_finding():
    def broken(facts):
        yield note("before", "s", "c")
        raise RuntimeError("unexpected")

    def refused(facts):
        raise TemporaryError("request refused")

    def without_object(facts):
        raise FactUnavailable("there is none")

    events = []
    checks = {"broken": broken, "refused": refused, "none": without_object}
    report = run_checks(GatewayFacts(None), EventBus(events.append), checks=checks)
    assert report.codes == {"before", "check-failed"}
    assert any("RuntimeError: unexpected" in finding.cause for finding in report.findings)
    assert report.skipped == {"none": "there is none"}
    assert isinstance(events[-1], StepFinished)
    assert {event.step for event in events} == {"checks"}


def test_hanging_check_is_abandoned():
    released = threading.Event()
    started = time.monotonic()
    checks = {"hanging": lambda facts: released.wait() and []}
    report = run_checks(GatewayFacts(None), EventBus(), checks=checks, timeout=0.2)
    assert time.monotonic() - started < 10
    assert [finding.code for finding in report.findings] == ["check-failed"]
    released.set()


def test_report_without_gateway_and_engine():
    report = diagnose(None, EventBus()).report
    assert {"engine-unreachable", "no-gateway"} <= report.codes
    assert "check-failed" not in report.codes
    assert report.exit_code == 3
    assert len(report.skipped) > 20


def test_corrupted_files_are_found_without_engine(damaged_gateway):
    report = diagnose("dev", EventBus()).report
    expected = {
        "engine-unreachable",
        "metadata-damaged",
        "kubeconfig-mode",
        "kubeconfig-damaged",
        "store-damaged",
    }
    assert expected <= report.codes
    assert "check-failed" not in report.codes


def test_every_check_has_a_description():
    assert len(CHECKS) > 25
    assert all(check.__doc__ for check in CHECKS.values())
