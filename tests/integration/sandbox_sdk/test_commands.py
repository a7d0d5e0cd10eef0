"""`holdfast sandbox …` as a process against the real server: results, JSON, refusals and exit codes."""

import json

import pytest

pytestmark = pytest.mark.apiserver


@pytest.fixture
def sandbox(source, boxes):
    def run(*words):
        return source.holdfast.run("sandbox", *words)

    return run


def body(ended):
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_create_list_get_wait_suspend_resume_delete_in_json(sandbox):
    made = body(sandbox("create", "a", "--image", "app:1", "--no-workspace", "-l", "team=x", "--json"))
    assert (made["phase"], made["image"], made["labels"]["team"]) == ("Ready", "app:1", "x")
    assert [each["name"] for each in body(sandbox("list", "-l", "team=x", "--json"))["sandboxes"]] == ["a"]
    assert body(sandbox("get", "a", "--json"))["id"] == made["id"]
    assert body(sandbox("suspend", "a", "--json"))["phase"] == "Suspended"
    assert body(sandbox("wait", "a", "--for", "suspended", "--json"))["phase"] == "Suspended"
    assert body(sandbox("resume", "a", "--json"))["phase"] == "Ready"
    assert body(sandbox("delete", "a", "--yes", "--json")) == {
        "deleted": True,
        "workspace": "none",
        "claim": None,
        "claims": [],
    }
    assert body(sandbox("wait", "a", "--for", "deleted", "--json")) == {"name": "a", "deleted": True}
    assert body(sandbox("list", "--json"))["sandboxes"] == []


def test_lines_for_people(sandbox):
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
        (["get", "none"], 3, "there is no sandbox none"),
        (["exec", "none", "true"], 3, "there is no sandbox none"),
        (["forward", "none", "0:80"], 3, "there is no sandbox none"),
        (["wait", "none"], 3, "there is no sandbox none"),
        (["cp", "none:x", "."], 3, "there is no sandbox none"),
        (["get", "No_Name"], 2, "no name for a sandbox"),
        (["list", "-g", "nowhere"], 2, "there is no gateway nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(sandbox, words, code, said):
    ended = sandbox(*words)
    assert ended.returncode == code
    assert any(line.startswith("x ") and said in line for line in ended.stderr.splitlines())
    assert "Traceback" not in ended.stderr


def test_a_mistake_in_json_has_code_hint_and_exit_code(sandbox):
    ended = sandbox("get", "none", "--json")
    said = json.loads(ended.stderr.splitlines()[-1])
    assert (ended.returncode, ended.stdout) == (3, "")
    assert (said["code"], said["exit_code"], said["error"]) == (
        "sandbox-missing",
        3,
        "there is no sandbox none",
    )
    assert "holdfast sandbox list" in said["hint"]


def test_a_sandbox_that_is_not_running_refuses_commands_with_its_state(sandbox):
    assert sandbox("create", "c", "--image", "app:1", "--no-workspace").returncode == 0
    assert sandbox("suspend", "c").returncode == 0
    ended = sandbox("exec", "c", "true")
    assert ended.returncode == 3
    assert "the sandbox c is Suspended" in ended.stderr
