"""`holdfast sandbox …` as a process against the real server: results, JSON, refusals and exit codes."""

import json
import select

import pytest
from tests.support.hints import execute_hint
from tests.support.holdfast_cli import HoldfastCli
from tests.support.pseudo_terminal import PseudoTerminal

from holdfast.sandbox.from_request import DEFAULT_IMAGE

pytestmark = pytest.mark.apiserver


@pytest.fixture
def sandbox(source, sandboxes):
    def run(*words):
        return source.holdfast.run("sandbox", *words)

    return run


def error_body(ended):
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_lifecycle_commands_print_json(sandbox):
    made = error_body(sandbox("create", "a", "--image", "app:1", "--no-workspace", "-l", "team=x", "--json"))
    assert (made["phase"], made["image"], made["labels"]["team"]) == ("Ready", "app:1", "x")
    assert [each["name"] for each in error_body(sandbox("list", "-l", "team=x", "--json"))["sandboxes"]] == [
        "a"
    ]
    assert error_body(sandbox("get", "a", "--json"))["id"] == made["id"]
    assert error_body(sandbox("suspend", "a", "--json"))["phase"] == "Suspended"
    assert error_body(sandbox("wait", "a", "--for", "suspended", "--json"))["phase"] == "Suspended"
    assert error_body(sandbox("resume", "a", "--json"))["phase"] == "Ready"
    assert error_body(sandbox("delete", "a", "--yes", "--json")) == {
        "deleted": True,
        "workspace": "none",
        "pvc": None,
        "pvcs": [],
    }
    assert error_body(sandbox("wait", "a", "--for", "deleted", "--json")) == {"name": "a", "deleted": True}
    assert error_body(sandbox("list", "--json"))["sandboxes"] == []


def test_explicit_default_image_is_the_same_sandbox(sandbox):
    words = ("create", "same", "--no-workspace", "--no-wait", "--json")
    first = error_body(sandbox(*words))
    assert error_body(sandbox(*words, "--image", DEFAULT_IMAGE))["id"] == first["id"]
    assert "image" in sandbox(*words, "--image", "app:1").stderr
    assert error_body(sandbox("delete", "same", "--yes", "--json"))["deleted"]


def test_human_readable_output(sandbox):
    made = sandbox("create", "b", "--image", "app:1", "--no-workspace")
    assert made.stdout.splitlines()[0] == "Sandbox b is ready."
    assert "✓ Sandbox b: created" in made.stderr
    heading, row = sandbox("list").stdout.splitlines()
    assert heading.split()[:2] == ["NAME", "PHASE"]
    assert row.split()[:3] == ["b", "Ready", "app:1"]
    assert "phase      Ready" in sandbox("get", "b").stdout.splitlines()
    assert sandbox("delete", "b", "--yes").stdout == "Sandbox b is deleted. It had no workspace.\n"
    assert sandbox("list").stdout.startswith("No sandboxes yet.")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["get", "none"], 3, "sandbox none: not found"),
        (["exec", "none", "true"], 3, "sandbox none: not found"),
        (["forward", "none", "0:80"], 3, "sandbox none: not found"),
        (["wait", "none"], 3, "sandbox none: not found"),
        (["cp", "none:x", "."], 3, "sandbox none: not found"),
        (["get", "No_Name"], 2, "not a valid sandbox name"),
        (["list", "-g", "nowhere"], 2, "gateway nowhere: not found"),
    ],
)
def test_error_is_one_line_with_exit_code(sandbox, words, code, said):
    ended = sandbox(*words)
    assert ended.returncode == code
    assert any(line.startswith("x ") and said in line for line in ended.stderr.splitlines())
    assert "Traceback" not in ended.stderr


def test_json_error_has_code_hint_and_exit_code(sandbox):
    ended = sandbox("get", "none", "--json")
    said = json.loads(ended.stderr.splitlines()[-1])
    assert (ended.returncode, ended.stdout) == (3, "")
    assert (said["code"], said["exit_code"], said["error"]) == (
        "sandbox-missing",
        3,
        "sandbox none: not found on gateway source",
    )
    assert "`holdfast sandbox list --gateway source`" in said["hint"]


@pytest.mark.parametrize("by", ["option", "variable"])
def test_printed_commands_name_the_chosen_gateway(source, sandboxes, by):
    if by == "option":
        holdfast, words = source.holdfast, ("-g", "source")
    else:
        holdfast, words = HoldfastCli(source.folder, HOLDFAST_GATEWAY="source"), ()
    missing = holdfast.run("sandbox", "get", "none", *words)
    execute_hint(holdfast, missing.stderr, "Run `holdfast sandbox list` to list all sandboxes.")
    assert "`holdfast sandbox list --gateway source`" in missing.stderr
    assert "`holdfast sandbox create --gateway source work`" in holdfast("sandbox", "list", *words)
    made = holdfast("sandbox", "create", by, "--image", "app:1", "--no-workspace", *words)
    assert made.splitlines()[-1] == f"holdfast sandbox connect --gateway source {by}"


def test_variable_precedes_the_active_gateway(source):
    ended = HoldfastCli(source.folder, HOLDFAST_GATEWAY="nowhere").run("sandbox", "list")
    assert ended.returncode == 2
    assert "gateway nowhere: not found" in ended.stderr


def test_exec_in_stopped_sandbox_reports_its_phase(sandbox):
    assert sandbox("create", "c", "--image", "app:1", "--no-workspace").returncode == 0
    assert sandbox("suspend", "c").returncode == 0
    ended = sandbox("exec", "c", "true")
    assert ended.returncode == 3
    assert "sandbox c: Suspended" in ended.stderr


def test_questions_stay_visible_on_a_terminal(source, sandbox):
    """A live display is running: it must not interpret or overwrite the question."""
    assert sandbox("create", "d", "--image", "app:1", "--no-workspace").returncode == 0
    suspending = PseudoTerminal(source, "suspend", "d")
    suspending.wait_for(rb"its files are deleted\. \[y/N\]:  ?")
    assert select.select([suspending.fd], [], [], 1.0)[0] == []
    suspending.type("n\n")
    assert suspending.wait_exit_code() == 2
    deleting = PseudoTerminal(source, "delete", "d")
    deleting.wait_for(rb"It has no workspace\. \[y/N\]")
    deleting.type("y\n")
    assert deleting.wait_exit_code() == 0


def test_suspension_without_workspace_carries_a_note(sandbox):
    assert sandbox("create", "e", "--image", "app:1", "--no-workspace").returncode == 0
    assert "its files are deleted with the pod" in sandbox("suspend", "e").stdout
    (note,) = error_body(sandbox("get", "e", "--json"))["notes"]
    assert "its files are deleted with the pod" in note


def test_list_is_sorted_by_the_shown_name(sandbox, source):
    from holdfast.api import EXTENSIONS_API_VERSION
    from holdfast.kube import Objects, api_client

    for name in ("m", "z"):
        assert sandbox("create", name, "--image", "app:1", "--no-workspace", "--no-wait").returncode == 0
    claim = {
        "apiVersion": EXTENSIONS_API_VERSION,
        "kind": "SandboxClaim",
        "metadata": {"name": "f", "namespace": source.namespace},
        "spec": {"warmPoolRef": {"name": "none"}},
    }
    with api_client(source.kubeconfig) as api:
        Objects(api).create(claim)
    assert [row.split()[0] for row in sandbox("list").stdout.splitlines()] == ["NAME", "f", "m", "z"]
