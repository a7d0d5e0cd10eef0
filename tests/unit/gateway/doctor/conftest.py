"""Fixtures for doctor tests without a container engine."""

import pytest

from holdfast.gateway.doctor import DoctorReport
from holdfast.gateway.doctor.findings import problem, sort_findings
from holdfast.gateway.registry import GatewayFiles
from holdfast.workflow import SQLiteStore
from holdfast.workflow.store import RunRecord, StepLog, StepRecord


@pytest.fixture(autouse=True)
def isolated_home(tmp_path, monkeypatch):
    """An empty HOLDFAST_HOME, and a container engine address where no engine listens."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nowhere.sock")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def report():
    def create(*findings, **fields):
        return DoctorReport(
            gateway="dev", findings=sort_findings(list(findings)), checks=1, seconds=0.0, **fields
        )

    return create


@pytest.fixture
def fixable():
    """A finding that `--fix` leaves to `up`."""
    return problem("container-stopped", "s", "c", fixed_by="fix", repair="r")


@pytest.fixture
def damaged_gateway():
    """The files of a gateway with corrupt metadata, kubeconfig and store."""
    files = GatewayFiles("dev")
    files.directory.mkdir(parents=True)
    files.metadata.write_text("{half")
    files.kubeconfig.write_text("rubbish")
    files.kubeconfig.chmod(0o644)
    store = SQLiteStore(files.state)
    store.open()
    steps = [StepLog(step=f"s{n}", outcome="finished") for n in range(60)]
    store.begin(RunRecord(id="r", workflow="up", command="up", outcome="finished", steps=steps))
    store.commit("up", {f"s{n}": StepRecord(state="done", run="r", note="x" * 400) for n in range(60)})
    store.close()
    content = bytearray(files.state.read_bytes())
    content[5000:9000] = b"\xff" * 4000
    files.state.write_bytes(content)
    return files
