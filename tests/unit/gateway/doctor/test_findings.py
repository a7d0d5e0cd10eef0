"""Findings without an engine: what is judged how, what a failing check becomes, which exit code follows."""

import datetime as dt
import json
import tarfile
import threading
import time

import msgspec
import pytest

from holdfast.engine import SQLiteStore
from holdfast.engine.record import Record, RunRecord, StepLog
from holdfast.errors import TemporaryError, UsageError
from holdfast.events import Bus, StepFinished
from holdfast.gateway.clocks import skew
from holdfast.gateway.doctor import bundle, repair
from holdfast.gateway.doctor.case import Case, Unavailable
from holdfast.gateway.doctor.checks.pods import trouble_of
from holdfast.gateway.doctor.diagnosis import diagnose, judged
from holdfast.gateway.doctor.examination import CHECKS, examine
from holdfast.gateway.doctor.findings import Report, note, ordered, problem, warning
from holdfast.gateway.doctor.opening import open_case
from holdfast.gateway.doctor.repair import blind_spots, mend
from holdfast.gateway.spec import GatewayFiles

NOW = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """A home of its own, and an engine that is nowhere."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nowhere.sock")
    monkeypatch.chdir(tmp_path)


def report(*findings):
    return Report(gateway="dev", findings=ordered(list(findings)), checks=1, seconds=0.0)


FIXABLE = problem("a", "s", "c", mend="fix", repair="r")
NAMED = problem("b", "s", "c", mend="command", repair="r")
HARD = problem("c", "s", "c", mend="person", repair="r")


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ((), 0),
        ((note("n", "s", "c"), warning("w", "s", "c", mend="person")), 0),
        ((FIXABLE,), 1),
        ((FIXABLE, NAMED), 1),
        ((FIXABLE, HARD), 3),
    ],
)
def test_the_exit_code_says_who_is_needed(findings, code):
    assert report(*findings).exit_code == code


def test_problems_come_first_and_the_order_is_always_the_same():
    found = [note("n", "s", "c"), HARD, warning("w", "s", "c"), FIXABLE]
    assert [each.code for each in ordered(found)] == ["a", "c", "w", "n"]
    assert ordered(found) == ordered(found[::-1])


def test_a_repair_counts_only_if_the_finding_is_gone():
    told = {FIXABLE: "done", NAMED: "not for --fix"}
    one, two = judged(report(FIXABLE, NAMED), report(NAMED), told)
    assert (one.code, one.repaired, one.how) == ("a", True, "done")
    assert (two.code, two.repaired) == ("b", False)


def test_a_check_that_fails_is_a_finding_and_never_a_traceback():
    def broken(case):
        yield note("before", "s", "c")
        raise RuntimeError("out of nowhere")

    def refused(case):
        raise TemporaryError("it said no")

    def nothing_there(case):
        raise Unavailable("there is none")

    events = []
    checks = {"broken": broken, "refused": refused, "none": nothing_there}
    found = examine(Case(None), Bus(events.append), checks=checks)
    assert found.codes == {"before", "check-failed"}
    assert any("RuntimeError: out of nowhere" in each.cause for each in found.findings)
    assert found.skipped == {"none": "there is none"}
    assert isinstance(events[-1], StepFinished)


def test_a_check_that_hangs_is_left_behind():
    forever = threading.Event()
    began = time.monotonic()
    found = examine(Case(None), Bus(), checks={"deaf": lambda case: forever.wait() and []}, longest=0.2)
    assert time.monotonic() - began < 10
    assert [each.code for each in found.findings] == ["check-failed"]
    forever.set()


def test_a_fact_is_found_out_once_whoever_asks():
    case, asked, gate = Case(None), [], threading.Barrier(5)

    def make():
        asked.append(1)
        return "fact"

    def ask():
        gate.wait()
        assert case._once("key", make) == "fact"

    threads = [threading.Thread(target=ask) for _ in range(5)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert asked == [1]


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("Mon, 16 Nov 2026 12:00:00 GMT", 0),
        ("Mon, 16 Nov 2026 12:00:01 GMT", 0),
        ("Mon, 16 Nov 2026 12:10:02 GMT", 600),
        ("Mon, 16 Nov 2026 11:50:00 GMT", -600),
        ("2026-11-16T12:10:02.123456789Z", 600),
        ("2026-11-16T13:10:02.123456789+01:00", 600),
        ("", 0),
        ("yesterday, more or less", 0),
    ],
)
def test_clocks_are_compared_with_the_time_an_answer_took_in_mind(said, seconds):
    before = NOW.timestamp()
    assert skew(said, before, before + 2) == pytest.approx(seconds, abs=0.2)


def pod(**status):
    return {"metadata": {"creationTimestamp": "2026-11-16T11:00:00Z"}, "status": status}


def waits(reason):
    return {"name": "m", "state": {"waiting": {"reason": reason}}}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (pod(phase="Running"), ""),
        (pod(phase="Succeeded"), ""),
        (pod(phase="Failed", reason="Evicted"), "Evicted"),
        (pod(containerStatuses=[waits("CrashLoopBackOff")]), "m: CrashLoopBackOff"),
        (pod(containerStatuses=[waits("ContainerCreating")]), ""),
        (pod(phase="Pending", conditions=[{"status": "False", "message": "no room."}]), "no room"),
        ({"metadata": {"deletionTimestamp": "2026-11-16T11:59:30Z"}, "status": {}}, ""),
        ({"metadata": {"deletionTimestamp": "2026-11-16T11:00:00Z"}, "status": {}}, "does not end"),
    ],
)  # fmt: skip
def test_which_pods_are_in_trouble(found, words):
    said = trouble_of(found, NOW)
    assert words in said
    assert bool(words) == bool(said)


def test_no_gateway_and_no_engine_is_a_report():
    found = diagnose(None, Bus()).report
    assert {"engine-unreachable", "no-gateway"} <= found.codes
    assert "check-failed" not in found.codes
    assert found.exit_code == 3
    assert len(found.skipped) > 20


def damaged_gateway():
    files = GatewayFiles("dev")
    files.folder.mkdir(parents=True)
    files.metadata.write_text("{half")
    files.kubeconfig.write_text("rubbish")
    files.kubeconfig.chmod(0o644)
    store = SQLiteStore(files.state)
    store.open()
    steps = [StepLog(step=f"s{n}", outcome="finished") for n in range(60)]
    store.begin(RunRecord(id="r", workflow="up", command="up", outcome="finished", steps=steps))
    store.commit("up", {f"s{n}": Record(state="done", run="r", note="x" * 400) for n in range(60)})
    store.close()
    content = bytearray(files.state.read_bytes())
    content[5000:9000] = b"\xff" * 4000
    files.state.write_bytes(content)
    return files


def test_damaged_files_are_found_without_an_engine():
    damaged_gateway()
    found = diagnose("dev", Bus()).report
    expected = {
        "engine-unreachable",
        "metadata-damaged",
        "kubeconfig-mode",
        "kubeconfig-damaged",
        "store-damaged",
    }
    assert expected <= found.codes
    assert "check-failed" not in found.codes


def test_fix_without_an_engine_mends_what_is_on_this_machine_and_deletes_nothing():
    files = damaged_gateway()
    before = files.state.read_bytes()
    found = diagnose("dev", Bus(), fix=True)
    mended = {each.code for each in found.repairs if each.repaired}
    assert {"kubeconfig-mode", "store-damaged", "metadata-damaged"} <= mended
    (how,) = [each.how for each in found.repairs if each.code == "store-damaged"]
    assert "was damaged" in how
    assert "lost: s0, s1" in how
    (how,) = [each.how for each in found.repairs if each.code == "metadata-damaged"]
    assert how.startswith("set aside; left alone because")
    assert files.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert [path.read_text() for path in files.folder.glob("metadata.json.damaged-*")] == ["{half"]
    assert before in [path.read_bytes() for path in files.state.parent.glob("state.db.damaged-*")]
    assert not any(each.repaired for each in found.repairs if each.code == "engine-unreachable")
    assert found.report.exit_code == 3


def test_nothing_is_brought_up_where_up_would_do_more_than_mend(monkeypatch):
    monkeypatch.setattr("holdfast.gateway.commands.up", lambda *_, **__: pytest.fail("up was run"))
    stopped = problem("container-stopped", "s", "c", mend="fix", repair="r")
    for code in ("volume-missing", "image-differs", "upgrade-unfinished", "settings-bad", "port-taken"):
        told = mend(Case("dev"), report(stopped, problem(code, "s", "c", mend="person", repair="r")), Bus())
        assert told[stopped] == f"left alone because of {code}"


def test_bad_settings_and_a_bad_active_file_are_findings(monkeypatch):
    monkeypatch.setenv("HOLDFAST_PORT", "many")
    folder = GatewayFiles("dev").folder
    folder.mkdir(parents=True)
    (folder.parent.parent / "active").write_bytes(b"\xff\xfe/../x")
    case = open_case(None)
    assert {each.code for each in case.known} == {"settings-bad", "active-damaged"}
    assert case.name == "dev"


def test_a_name_that_cannot_be_one_is_a_slip_of_the_pen():
    with pytest.raises(UsageError):
        open_case("../etc")


def test_a_bundle_without_an_engine_says_what_is_missing(tmp_path):
    target = tmp_path / "b.tar.gz"
    found = diagnose("dev", Bus(), bundle_to=target)
    assert target.stat().st_mode & 0o777 == 0o600
    with tarfile.open(target) as archive:
        names = archive.getnames()
        contents = json.load(archive.extractfile(bundle.MARK))
    assert names[0] == bundle.MARK
    assert {"findings.json", "settings.json", "versions.json"} <= set(contents["files"])
    assert contents["missing"]["engine/container.json"] == "the container engine cannot be used"
    assert set(found.bundled) == set(contents["files"])
    diagnose("dev", Bus(), bundle_to=target)  # one of ours may be written over


def test_a_bundle_is_never_written_over_a_foreign_file(tmp_path):
    target = tmp_path / "thesis.tar.gz"
    target.write_text("ten years of work")
    for wrong in (target, tmp_path, tmp_path / "no" / "such" / "folder.tar.gz"):
        with pytest.raises(UsageError):
            bundle.check_target(wrong)
    assert target.read_text() == "ten years of work"


def test_every_check_has_a_name_for_people():
    assert len(CHECKS) > 25
    assert all(check.__doc__ for check in CHECKS.values())


def _unlooked(how, check):
    """An examination in which one check could not look."""
    if how == "skipped":
        return Report(gateway="dev", findings=(FIXABLE,), checks=2, seconds=0.0, skipped={check: "no engine"})

    def fails(case):
        del case
        raise TemporaryError("cut off")

    found = examine(Case("dev"), Bus(), checks={check: fails})
    return msgspec.structs.replace(found, findings=(*found.findings, FIXABLE))


@pytest.mark.parametrize("how", ["skipped", "failed"])
@pytest.mark.parametrize(
    "check", ["volume", "image", "settings", "upgrade", "ports", "foreign objects", "lock"]
)
def test_up_is_not_run_where_nobody_could_look_for_what_forbids_it(monkeypatch, how, check):
    ran = []
    monkeypatch.setattr(repair.commands, "up", lambda *args, **options: ran.append(args))
    assert check in CHECKS
    told = mend(Case("dev"), _unlooked(how, check), Bus())
    assert told[FIXABLE] == f"left alone because these could not be looked at: {check}"
    assert ran == []


def test_other_checks_that_could_not_look_do_not_keep_up_from_mending():
    assert blind_spots(_unlooked("skipped", "clocks")) == []
    assert blind_spots(_unlooked("failed", "clocks")) == []


@pytest.mark.parametrize("content", [None, b"{", b"\xff"])
def test_a_gateway_whose_metadata_cannot_be_read_was_here_all_the_same(content):
    path = GatewayFiles("dev").metadata
    if content is not None:
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    case = Case("dev")
    case._once("engine", object)
    case._once("container", lambda: None)
    case._once("volume", lambda: None)
    assert [finding.code for finding in CHECKS["volume"](case)] == (["volume-missing"] if content else [])
