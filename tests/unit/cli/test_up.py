"""Commands that run steps print those that change something, and every step with `--verbose`."""

import pytest
from click.testing import CliRunner

from holdfast.cli.output.live import LiveRenderer
from holdfast.cli.sandbox.create import create
from holdfast.cli.start_stop import restart, start, stop
from holdfast.cli.up import up, upgrade
from holdfast.errors import TemporaryError
from holdfast.events import RunFinished, RunStarted, StepFinished, StepSkipped, StepStarted
from holdfast.gateway import commands
from holdfast.gateway.commands import GatewayResult

READ_ONLY = StepFinished(step="check", title="Container engine", seconds=0.1, note="27.0", changed=False)
SKIPPED = StepSkipped(step="network", title="Network", reason="it exists")
CHANGED = StepFinished(step="start", title="Start", seconds=0.5, note="API on 26443")


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run `up` or `upgrade` with these events; return what it prints on stderr."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))

    def run_command(command, *options, events=(READ_ONLY, SKIPPED)):
        changed = tuple(event.step for event in events if event is CHANGED)

        def run_events(name, bus, **_):
            bus.emit(RunStarted(run="r", command="up", subject=name, steps=("check", "network", "start")))
            for event in events:
                bus.emit(event)
            bus.emit(RunFinished(run="r", seconds=1.25, changed=len(changed)))
            return GatewayResult(name=name, run="r", changed=changed)

        monkeypatch.setattr(commands, command.name, run_events)
        ended = CliRunner().invoke(command, ["dev", *options])
        assert ended.exit_code == 0, ended.output
        run_command.stdout = ended.stdout.splitlines()
        return ended.stderr.splitlines()

    return run_command


@pytest.mark.parametrize("command", [up, upgrade, start, stop, restart])
def test_command_without_changes_prints_one_line(run, command):
    assert run(command) == []
    assert len(run.stdout) == 1
    assert run.stdout[0].startswith("Gateway dev ")


def test_only_changes_are_printed(run):
    assert run(up, events=(READ_ONLY, SKIPPED, CHANGED)) == [
        "✓ Start: API on 26443 (0.5 s)",
        "✓ 3 steps: 1 changed something (1.2 s)",
    ]


@pytest.mark.parametrize("option", ["-v", "--verbose"])
@pytest.mark.parametrize("command", [up, start, stop, restart])
def test_verbose_prints_every_step(run, command, option):
    assert run(command, option) == [
        "✓ Container engine: 27.0 (0.1 s)",
        "✓ Network: skipped: it exists",
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["✓ Start: API on 26443 (0.5 s)"]),
        (["-v"], ["✓ Network: skipped: it exists", "✓ Start: API on 26443 (0.5 s)"]),
    ],
)
def test_first_sandbox_prints_the_same_steps_as_up(monkeypatch, tmp_path, options, expected):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))

    def fail(_name, bus):
        bus.emit(SKIPPED)
        bus.emit(CHANGED)
        raise TemporaryError("the node stopped")

    monkeypatch.setattr(commands, "up", fail)
    ended = CliRunner().invoke(create, ["box", *options])
    assert str(ended.exception) == "the node stopped"
    assert ended.stderr.splitlines() == expected


def test_json_contains_every_step(run):
    *_, skipped, _finished = run(up, "--json")
    assert '"step.skipped"' in skipped
    assert '"title":"Network"' in skipped


def test_quiet_prints_the_result_only(run):
    assert run(up, "-q", events=(READ_ONLY, CHANGED)) == []


def test_live_display_prints_the_same_lines_as_a_pipe(run, monkeypatch):
    monkeypatch.setattr("holdfast.cli.output.plain.supports_escapes", lambda _stream: True)
    started = StepStarted(step="network", title="Network")
    assert run(up, events=(started, READ_ONLY, SKIPPED, CHANGED)) == [
        "✓ Start: API on 26443 (0.5 s)",
        "✓ 3 steps: 1 changed something (1.2 s)",
    ]


def test_hidden_step_leaves_no_line_and_no_task(capsys):
    """`up` hides steps that change nothing: their events have no title."""
    with LiveRenderer() as renderer:
        renderer(StepStarted(step="a", title="Network"))
        renderer(StepFinished(step="a", title="", seconds=1.0, changed=False))
    assert "✓" not in capsys.readouterr().err
