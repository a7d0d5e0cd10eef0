"""The commands in hints about sandboxes work as printed, on a real API server."""

import uuid

import pytest
from tests.support.hints import execute_hint

pytestmark = pytest.mark.apiserver


@pytest.fixture
def failed(source, sandboxes):
    """Run `holdfast sandbox …`, which must fail; return its error output."""

    def run(*words):
        ended = source.holdfast.run("sandbox", *words)
        assert ended.returncode, ended.stdout
        return ended.stderr

    return run


@pytest.fixture
def box(source, sandboxes):
    # A new name for each test: no garbage collector removes the pods of deleted sandboxes here.
    name = f"box-{uuid.uuid4().hex[:6]}"
    source.holdfast("sandbox", "create", name, "--image", "app:1", "--no-workspace")
    return name


def phase(source, name):
    return source.holdfast.json("sandbox", "get", name)["phase"]


def test_unknown_sandbox(source, failed, box):
    found = execute_hint(
        source.holdfast, failed("get", "ghost"), "Run `holdfast sandbox list` to list all sandboxes."
    )
    assert box in found


def test_exec_in_suspended_sandbox(source, failed, box):
    source.holdfast("sandbox", "suspend", box)
    printed = failed("exec", box, "true")
    execute_hint(source.holdfast, printed, "Run `holdfast sandbox resume {}`; its files are kept.")
    assert phase(source, box) == "Ready"


def test_wait_for_suspended_sandbox(source, failed, box):
    source.holdfast("sandbox", "suspend", box)
    execute_hint(source.holdfast, failed("wait", box), "Run `holdfast sandbox resume {}`.")
    assert phase(source, box) == "Ready"


def test_forward_to_suspended_sandbox(source, failed, box):
    source.holdfast("sandbox", "suspend", box)
    printed = failed("forward", box, "0:80")
    assert f"sandbox {box}: Suspended" in printed
    execute_hint(source.holdfast, printed, "Run `holdfast sandbox resume {}`.")
    assert phase(source, box) == "Ready"


def test_wait_that_takes_too_long(source, failed, box):
    execute_hint(
        source.holdfast,
        failed("wait", box, "--for", "suspended", "--timeout", "1"),
        "Run `holdfast sandbox get {}` to see its state, or `holdfast sandbox wait {}` to keep waiting.",
    )


def test_exec_in_expired_sandbox(source, failed, sandboxes):
    words = ("create", "b", "--image", "app:1", "--no-workspace", "--shutdown-after", "1", "--no-wait")
    source.holdfast("sandbox", *words)
    source.holdfast("sandbox", "wait", "b", "--for", "expired")
    found = execute_hint(source.holdfast, failed("exec", "b", "true"), "Run `holdfast sandbox get {}`.")
    assert "Expired" in found
    execute_hint(source.holdfast, failed("forward", "b", "0:80"), "Run `holdfast sandbox get {}`.")


def delete_templates_pools_and_secrets(gateway):
    with gateway.pools() as pools, gateway.templates() as templates:
        for kind in (pools, templates):
            for view in list(kind):
                kind.delete(view.name)
    with gateway.secrets() as secrets:
        for view in secrets.list():
            secrets.delete(view.name)


@pytest.fixture
def command(source, sandboxes):
    """The command line on a gateway without objects; what the test creates is deleted."""
    delete_templates_pools_and_secrets(source.gateway)
    yield source.holdfast.with_environment(TOKEN="t")
    delete_templates_pools_and_secrets(source.gateway)


def test_empty_list_of_sandboxes(command):
    printed = command("sandbox", "list")
    assert printed.strip() in command("top")
    execute_hint(command, printed, "No sandboxes yet. Create one with `holdfast sandbox create work`.")
    assert "work" in command("sandbox", "list", "-o", "name")


def test_empty_lists_of_templates_and_pools(command):
    no_pools, no_templates = command("pool", "list"), command("template", "list")
    execute_hint(command, no_templates, "No templates yet. Create one with `holdfast template create work`.")
    execute_hint(command, no_pools, "No pools yet. Create a template, then `holdfast pool create work`.")
    assert "work" in command("pool", "list")


def test_empty_list_of_secrets(command):
    execute_hint(
        command,
        command("secret", "list"),
        "No secrets yet. Create one with `holdfast secret create work --from-env TOKEN`.",
    )
    assert "work" in command("secret", "list")
