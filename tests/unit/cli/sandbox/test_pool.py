"""Arguments of `holdfast template` and `holdfast pool`, checked before any request."""

import pytest

from holdfast.api import PoolDeletionResult, PoolView, TemplateView, Workspace
from holdfast.cli import cli
from holdfast.cli.output import run_command
from holdfast.cli.sandbox import pool, template
from holdfast.cli.sandbox.create import POD_PARAMETERS, create as create_sandbox


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["template", "create", "Bad_Name"], "NAME Bad_Name: not a valid name"),
        (["template", "create", "t", "--memory", "512MB"], "--memory 512MB: not an amount of memory"),
        (["template", "create", "t", "--no-workspace", "--workspace-size", "1Gi"], "cannot be combined"),
        (["template", "create", "t", "--label", "x"], "=VALUE"),
        (["template", "create", "t", "--cpu", "lots"], "cpu"),
        (["template", "create", "t", "--shutdown-after", "5"], "--shutdown-after"),
        (["template", "create", ""], "NAME '': not a valid name"),
        (["pool", "create", "p" * 57, "--template", "t"], "not a valid pool name"),
        (["pool", "create", "p", "--template", "ünicode"], "--template ünicode: not a valid name"),
        (["pool", "create", "p", "--template", "t", "--size", "-1"], "--size"),
        (["pool", "create", "p", "--template", "t", "--size", "many"], "--size"),
        (["pool", "create", "p", "--template", "t", "--size", "1001"], "--size"),
        (["pool", "create", "p", "--template", "t", "--update-strategy", "Never"], "--update-strategy"),
        (["pool", "create", "p", "--template", "t", "--timeout", "0"], "--timeout"),
        (["pool", "scale", "p", "many"], "SIZE"),
        (["pool", "scale", "p", "1001"], "SIZE"),
        (["pool", "scale", "p"], "SIZE"),
        (["pool", "vanish"], "vanish"),
    ],
)
def test_invalid_arguments_are_rejected(capsys, args, message):
    assert run_command(cli, args) == 2
    output = capsys.readouterr().err
    assert message in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    "args",
    [
        ["template", "create", "t"], ["template", "list"], ["template", "get", "t"],
        ["pool", "create", "p", "--template", "t"], ["pool", "list"], ["pool", "wait", "p"],
    ],
)  # fmt: skip
def test_missing_gateway_is_reported_with_hint(capsys, args):
    assert run_command(cli, args) == 2
    assert "holdfast up" in capsys.readouterr().err


def test_template_has_the_options_of_a_sandbox_that_describe_its_pod():
    shared = {parameter.name: parameter for parameter in create_sandbox.params}
    own = {parameter.name: parameter for parameter in template.create.params}
    assert all(own[name] is shared[name] for name in POD_PARAMETERS)


def test_pool_that_cannot_start_shows_reason_and_message():
    view = PoolView(
        name="p", template="t", phase="Pending", reason="ErrImagePull", message="0 of 2 are ready", size=2,
        sandboxes=["a", "b"],
    )  # fmt: skip
    lines = pool._detail_lines(view)
    assert "phase:     Pending (ErrImagePull)" in lines
    assert "message:   0 of 2 are ready" in lines
    assert "sandboxes: a, b" in lines
    assert any("the template does not exist" in line for line in lines)


def test_template_details_name_variables_pools_and_workspace():
    view = TemplateView(
        name="t", image="app:1", command=["run", "a b"], env=["A"], pools=["p"],
        workspace=Workspace(size="5Gi", storage_class="fast", seed=False),
    )  # fmt: skip
    lines = template._detail_lines(view)
    assert "command:   run 'a b'" in lines
    assert "workspace: 5Gi, class fast, empty at the start" in lines
    assert {"env:       A", "pools:     p", "network:   not restricted"} <= set(lines)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (PoolDeletionResult(deleted=True), "Pool p and its waiting sandboxes are deleted."),
        (PoolDeletionResult(deleted=False), "Pool p does not exist."),
    ],
)
def test_deletion_is_summarized(result, text):
    assert pool._deletion_summary("p", result) == text
