"""`--fix` repairs files, deletes nothing, and runs `up` only if that is known to be a repair."""

import pytest
from tests.support.stubs import stub

from holdfast.errors import TemporaryError
from holdfast.events import EventBus
from holdfast.gateway import commands
from holdfast.gateway.doctor import diagnose
from holdfast.gateway.doctor.facts import GatewayFacts
from holdfast.gateway.doctor.findings import problem
from holdfast.gateway.doctor.runner import CHECKS, apply_fixes, run_checks, unchecked_blockers


def test_fix_without_engine_repairs_local_files_and_deletes_nothing(damaged_gateway):
    files = damaged_gateway
    before = files.state.read_bytes()
    diagnosis = diagnose("dev", EventBus(), fix=True)
    repaired = {repair.code for repair in diagnosis.repairs if repair.repaired}
    assert {"kubeconfig-mode", "store-damaged", "metadata-damaged"} <= repaired
    actions = {repair.code: repair.how for repair in diagnosis.repairs}
    assert "was damaged" in actions["store-damaged"]
    assert "the checkpoints of earlier runs are lost" in actions["store-damaged"]
    assert actions["metadata-damaged"].startswith("renamed the damaged file; `up` was not run because")
    assert files.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert [path.read_text() for path in files.directory.glob("metadata.json.damaged-*")] == ["{half"]
    assert before in [path.read_bytes() for path in files.state.parent.glob("state.db.damaged-*")]
    assert "engine-unreachable" not in repaired
    assert diagnosis.report.exit_code == 3


@pytest.mark.parametrize(
    "code", ["volume-missing", "image-differs", "upgrade-unfinished", "settings-bad", "port-taken"]
)
def test_up_is_not_run_when_it_would_do_more_than_repair(monkeypatch, report, fixable, code):
    stub(monkeypatch, commands, "up", lambda *_, **__: pytest.fail("up was run"))
    blocker = problem(code, "s", "c", fixed_by="person", repair="r")
    actions = apply_fixes(GatewayFacts("dev"), report(fixable, blocker), EventBus())
    assert actions[fixable] == f"`up` was not run because of {code}"
    assert actions[blocker] == "not repaired by --fix; see its repair"


@pytest.fixture(params=["skipped", "failed"])
def report_without(request, report, fixable):
    """A function that returns a report in which one check was skipped or failed."""

    def fail(facts):
        raise TemporaryError("connection lost")

    def create(check):
        if request.param == "skipped":
            return report(fixable, skipped={check: "no engine"})
        return report(fixable, *run_checks(GatewayFacts("dev"), EventBus(), checks={check: fail}).findings)

    return create


@pytest.mark.parametrize(
    "check", ["volume", "image", "settings", "upgrade", "ports", "foreign objects", "lock"]
)
def test_up_is_not_run_when_blocking_checks_did_not_run(monkeypatch, report_without, fixable, check):
    stub(monkeypatch, commands, "up", lambda *_, **__: pytest.fail("up was run"))
    assert check in CHECKS
    actions = apply_fixes(GatewayFacts("dev"), report_without(check), EventBus())
    assert actions[fixable] == f"`up` was not run because these checks did not run: {check}"


def test_other_failed_checks_do_not_prevent_up(report_without):
    assert unchecked_blockers(report_without("clocks")) == []
