"""Commands for several sandboxes, formats of `list` and `list --watch`, against the real server."""

import json
import signal
import uuid

import msgspec
import pytest
import yaml
from tests.support.hints import execute_hint
from tests.support.pseudo_terminal import ProgramOnTerminal, PseudoTerminal

from holdfast.api import API_VERSION, DeletionResult, SandboxChange
from holdfast.cli.sandbox.bulk import BulkReport
from holdfast.kube import Objects, api_client

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]


@pytest.fixture
def sandbox(source, sandboxes):
    """Run `holdfast sandbox` with these arguments."""
    return lambda *words: source.holdfast.run("sandbox", *words)


@pytest.fixture
def boxes(sandboxes):
    """Four sandboxes that are ready, with labels; returns their names in order."""
    # New names for each test: no garbage collector removes the pods of deleted sandboxes here.
    prefix = f"m-{uuid.uuid4().hex[:6]}"
    labels = {
        f"{prefix}-a": {"team": "blue", "tier": "web"},
        f"{prefix}-b": {"team": "blue", "tier": "db"},
        f"{prefix}-c": {"team": "red"},
        f"{prefix}-d": {},
    }
    for name, each in labels.items():
        sandboxes.create(name, "app:1", workspace=False, labels=each)
    sandboxes.wait(labels, timeout=60).raise_for_failures()
    return list(labels)


SELECTORS = {
    "team=blue": "ab",
    "team==blue,tier!=web": "b",
    "team in (blue, red)": "abc",
    "team notin (blue)": "cd",
    "tier": "ab",
    "!tier,team": "c",
    "team=green": "",
}


def test_selectors_of_kubectl(source, boxes):
    def select(selector):
        return source.holdfast("sandbox", "list", "-o", "name", "-l", selector).split()

    assert {each: "".join(name[-1] for name in select(each)) for each in SELECTORS} == SELECTORS


def test_several_sandboxes_are_suspended_resumed_awaited_and_deleted(sandbox, boxes):
    a, b, c, d = boxes
    suspended = sandbox("suspend", a, c, "--yes")
    assert suspended.returncode == 0, suspended.stderr
    assert [line.split(";")[0] for line in suspended.stdout.splitlines()] == [
        f"Sandbox {a} is suspended", f"Sandbox {c} is suspended",
    ]  # fmt: skip
    assert "✓ Suspended: 2 of 2 sandboxes" in suspended.stderr
    waited = sandbox("wait", "-l", "team in (red),!tier", "--for", "suspended", "--json")
    report = msgspec.json.decode(waited.stdout, type=BulkReport)
    assert [(each.name, each.result["phase"]) for each in report.outcomes] == [(c, "Suspended")]
    assert sandbox("resume", "--all").stdout.splitlines() == [f"Sandbox {name} is ready." for name in boxes]
    deleted = sandbox("delete", d, "ghost", c, "--yes", "--json")
    assert deleted.returncode == 1
    report = msgspec.json.decode(deleted.stdout, type=BulkReport)
    assert report.failed == ["ghost"]
    assert [each.code for each in report.outcomes] == [None, "sandbox-missing", None]
    assert msgspec.convert(report.outcomes[0].result, DeletionResult).deleted
    assert sandbox("delete", "ghost", a, "--yes", "--ignore-missing").stdout.splitlines() == [
        "Sandbox ghost does not exist.", f"Sandbox {a} is deleted. It had no workspace.",
    ]  # fmt: skip
    assert sandbox("delete", "--all", "--yes").stdout == f"Sandbox {b} is deleted. It had no workspace.\n"
    assert sandbox("delete", "--all", "--yes").stdout == "No sandboxes found.\n"
    assert sandbox("wait", *boxes, "--for", "deleted").returncode == 0


def test_hint_of_a_single_failure_is_the_hint_of_that_sandbox(source, sandbox, boxes):
    a, b, *_ = boxes
    sandbox("suspend", a, "--yes")
    waited = sandbox("wait", a, b)
    assert waited.returncode == 1
    assert waited.stdout == f"Sandbox {b} is Ready.\n"
    execute_hint(source.holdfast, waited.stderr, "Run `holdfast sandbox resume {}`.")
    assert sandbox("wait", a, b).returncode == 0


def test_gateway_that_does_not_exist_is_reported_once(sandbox):
    ended = sandbox("delete", "a", "b", "--yes", "-g", "ghost")
    assert ended.returncode == 2
    assert ended.stderr.count("gateway ghost: not found") == 1


def test_question_lists_what_will_be_deleted(source, sandbox, boxes):
    a, b, c, d = boxes
    terminal = PseudoTerminal(source, "delete", "-l", "team=blue")
    terminal.wait_for(
        rf"{a}: it has no workspace\r\n +{b}: it has no workspace\r\nDelete 2 sandboxes\? \[y/N\]".encode()
    )
    terminal.type("\r")
    terminal.wait_for(rb"delete 2 sandboxes: not confirmed; nothing was changed")
    assert terminal.wait_exit_code() == 2
    terminal = PseudoTerminal(source, "delete", "-l", "team=blue")
    terminal.wait_for(rb"\[y/N\]")
    terminal.type("y\r")
    terminal.wait_for(rf"Sandbox {b} is deleted".encode())
    assert terminal.wait_exit_code() == 0
    assert sandbox("list", "-o", "name").stdout.split() == [c, d]


def test_names_of_the_list_are_arguments_and_formats_agree(sandbox, boxes):
    *_, c, d = boxes
    as_json = json.loads(sandbox("list", "-o", "json").stdout)
    assert yaml.safe_load(sandbox("list", "-o", "yaml").stdout) == as_json
    wide = sandbox("list", "-o", "wide", "-l", "team=red").stdout.splitlines()
    assert wide[0].split()[-6:] == ["POD", "NODE", "CPU", "MEMORY", "WORKSPACE", "TEMPLATE"]
    assert wide[1].split()[:2] == [c, "Ready"]
    assert yaml.safe_load(sandbox("get", c, "-o", "yaml").stdout)["labels"]["team"] == "red"
    names = sandbox("list", "-l", "team", "-o", "name").stdout.split()
    assert sandbox("delete", *names, "--yes").returncode == 0
    assert sandbox("list", "-o", "name").stdout == f"{d}\n"


def read_until(stream, *words):
    """Read lines until one starts with these words; return it."""
    for line in stream:
        if line.split()[: len(words)] == list(words):
            return line
    raise AssertionError(f"the output ended before {words}")


def test_watch_follows_changes_across_a_lost_connection_until_interrupted(source, sandbox, boxes):
    a, b, c, _ = boxes
    table = source.holdfast.start("sandbox", "list", "--watch", "-l", "team=blue")
    lines = source.holdfast.start("sandbox", "list", "-w", "--json")
    try:
        assert table.stdout.readline().split() == ["NAME", "PHASE", "REASON", "IMAGE", "POD", "IP", "AGE"]
        assert [table.stdout.readline().split()[:2] for _ in range(2)] == [[a, "Ready"], [b, "Ready"]]
        first = [msgspec.json.decode(lines.stdout.readline(), type=SandboxChange) for _ in boxes]
        assert [(each.type, each.sandbox.name) for each in first] == [("added", name) for name in boxes]
        source.kill()
        source.start()
        sandbox("delete", a, c, "--yes")
        sandbox("suspend", b, "--yes")
        read_until(table.stdout, a, "Deleted")
        read_until(table.stdout, b, "Suspended")
        for process in (table, lines):
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
        assert c not in table.stdout.read()
        assert "connection lost" in table.stderr.read()
        changes = [msgspec.json.decode(line, type=SandboxChange) for line in lines.stdout]
        deleted = {each.sandbox.name for each in changes if each.type == "deleted"}
        assert deleted == {a, c}
        assert "added" not in {each.type for each in changes}
    finally:
        for process in (table, lines):
            process.kill()
            process.communicate()


@pytest.fixture
def undeletable(source, boxes):
    """A sandbox with a finalizer, so that its deletion does not end."""
    place = {"namespace": source.namespace, "api_version": API_VERSION}
    with api_client(source.kubeconfig) as api:
        objects = Objects(api)
        waiting = {"metadata": {"finalizers": ["test.holdfast.dev/wait"]}}
        objects.patch("Sandbox", boxes[0], waiting, **place)
        yield boxes[0]
        objects.patch("Sandbox", boxes[0], {"metadata": {"finalizers": None}}, **place)


@pytest.mark.parametrize("keys", ["\x03", "\x03\x03"], ids=["once", "twice"])
def test_deletion_that_waits_is_interrupted(source, boxes, undeletable, keys):
    hidden = {"NO_COLOR", "CI"}
    environment = {key: value for key, value in source.holdfast.environment.items() if key not in hidden}
    argv = source.holdfast.argv("sandbox", "delete", undeletable, boxes[-1], "--yes")
    terminal = ProgramOnTerminal(argv, environment | {"TERM": "xterm-256color"}, columns=80)
    terminal.wait_for(rb"1 of 2 sandboxes")
    terminal.type(keys)
    output = terminal.read_rest()
    assert b"interrupted" in output
    assert output.rfind(b"\x1b[?25h") > output.rfind(b"\x1b[?25l")  # the cursor is visible again
    assert terminal.wait_exit_code() == 130
