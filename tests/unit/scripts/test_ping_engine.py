"""`scripts/ping-engine` when no container engine answers."""

import runpy
from pathlib import Path

from holdfast.retry import testing_mode

SCRIPT = Path(__file__).parents[3] / "scripts" / "ping-engine"
main = runpy.run_path(str(SCRIPT))["main"]


def test_absent_engine_fails_with_its_address(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    assert main([]) == 3
    assert f"{tmp_path}/docker.sock" in capsys.readouterr().err


def test_wait_retries_until_its_time_is_over(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with testing_mode() as clock:
        assert main(["--wait", "5"]) == 3
    assert 4 < sum(clock.sleeps) <= 5
