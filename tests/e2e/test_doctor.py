"""A real gateway with one fault after another: doctor finds it, `--fix` repairs it, data is kept."""

import json
import stat
import tarfile

import pytest
from tests.support.gateway import own_ports, pod_manifest, pvc_manifest
from tests.support.hints import execute_hint
from tests.support.holdfast_cli import HoldfastCli

from holdfast.remote import connect

TOKEN = "planted-Token-0f1e2d3c4b5a"
PASSWORD = "planted, with a space: 77"


@pytest.fixture(scope="module")
def gateway(new_gateway, tmp_path_factory):
    """A gateway without holdfast's workloads, with a file on a volume and secrets in many places."""
    holdfast = HoldfastCli(tmp_path_factory.mktemp("doctor"), HOLDFAST_WORKLOADS="false", **own_ports())
    gateway = new_gateway("doctor", holdfast=holdfast)
    gateway.up()
    keeper = pod_manifest("keeper", claim="work")
    keeper["spec"]["containers"][0]["env"] = [{"name": "API_TOKEN", "value": TOKEN}]
    keeper["metadata"]["annotations"] = {"note": f"password={PASSWORD}"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"x": TOKEN}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"x": PASSWORD}}
    gateway.apply(pvc_manifest("work"), keeper, secret, config)
    gateway.wait_ready("keeper")
    gateway.exec_in_pod("keeper", "sh", "-c", "echo kept > /data/file && sync")
    return gateway


def files(gateway):
    return gateway.holdfast.home / "config" / "gateways" / gateway.name


def doctor_report(gateway, *options):
    result = gateway.holdfast.run("doctor", gateway.name, *options, "--json")
    assert "Traceback" not in result.stderr
    return result.returncode, json.loads(result.stdout)


def finding_codes(report, *severities):
    wanted = severities or ("problem",)
    return {finding["code"] for finding in report["findings"] if finding["severity"] in wanted}


def assert_fixed(gateway, code, *, exit_code=1):
    """Doctor finds the fault, `--fix` repairs it, and the file is still on the volume."""
    before, diagnosis = doctor_report(gateway)
    assert before == exit_code, diagnosis
    assert code in finding_codes(diagnosis["report"], "problem", "warning")
    after, diagnosis = doctor_report(gateway, "--fix")
    assert after == 0, diagnosis
    assert {repair["code"]: repair["repaired"] for repair in diagnosis["repairs"]}[code], diagnosis
    gateway.wait_ready("keeper")
    assert gateway.exec_in_pod("keeper", "cat", "/data/file").strip() == "kept"


@pytest.mark.engine
def test_healthy_gateway_has_no_findings(gateway):
    code, diagnosis = doctor_report(gateway)
    assert (code, finding_codes(diagnosis["report"])) == (0, set()), diagnosis
    assert "check-failed" not in finding_codes(diagnosis["report"], "warning")
    assert diagnosis["report"]["seconds"] < 20
    before = gateway.inspect()
    assert doctor_report(gateway, "--fix")[0] == 0
    assert gateway.inspect()["State"]["StartedAt"] == before["State"]["StartedAt"]


@pytest.mark.engine
def test_kubeconfig_readable_by_others(gateway):
    path = files(gateway) / "kubeconfig"
    path.chmod(0o644)
    assert_fixed(gateway, "kubeconfig-mode")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.engine
def test_invalid_kubeconfig_and_metadata(gateway):
    path = files(gateway) / "kubeconfig"
    good = path.read_text()
    path.write_text(good.replace("https://127.0.0.1:", "https://127.0.0.1:1"))
    assert_fixed(gateway, "kubeconfig-outdated")
    assert path.read_text() == good
    (files(gateway) / "metadata.json").write_text("{half")
    assert_fixed(gateway, "metadata-damaged")


@pytest.mark.engine
def test_stale_node(gateway):
    gateway.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "left-behind"}})
    assert_fixed(gateway, "stale-nodes")
    (node,) = gateway.get("nodes")["items"]
    assert node["metadata"]["name"] == f"holdfast-{gateway.name}"


@pytest.mark.engine
def test_command_for_cordoned_node(gateway):
    gateway.kubectl("cordon", f"holdfast-{gateway.name}")
    printed = gateway.holdfast.run("doctor", gateway.name).stdout
    execute_hint(gateway.holdfast, printed, "Run `kubectl --kubeconfig {} uncordon {}`.")
    (node,) = gateway.get("nodes")["items"]
    assert "unschedulable" not in node["spec"]


@pytest.mark.engine
def test_corrupted_store(gateway):
    store = gateway.holdfast.home / "state" / "gateways" / gateway.name / "state.db"
    for companion in ("-wal", "-shm"):
        store.with_name(store.name + companion).unlink(missing_ok=True)
    content = bytearray(store.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    store.write_bytes(content)
    assert_fixed(gateway, "store-damaged")
    assert list(store.parent.glob("state.db.damaged-*"))


@pytest.mark.engine
def test_bundle_contains_everything_except_secrets(gateway, tmp_path):
    target = tmp_path / "report.tar.gz"
    gateway.holdfast("doctor", gateway.name, "--bundle", str(target))
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    key = (files(gateway) / "kubeconfig").read_text().partition("client-key-data: ")[2].split()[0]
    with tarfile.open(target) as archive:
        inside = {member.name: archive.extractfile(member).read() for member in archive.getmembers()}
    for part in (
        "findings.json",
        "cluster/pods.json",
        "engine/container.json",
        "logs/kubelet.log",
        "runs.json",
    ):
        assert inside[f"holdfast-bundle/{part}"].strip()
    assert json.loads(inside["holdfast-bundle/contents.json"])["missing"] == {}
    assert b'"keeper"' in inside["holdfast-bundle/cluster/pods.json"]
    everything = b"\n".join(inside.values()).decode()
    for planted in (TOKEN, PASSWORD, key, key[100:160], "PRIVATE KEY", "client-key-data: LS0"):
        assert planted not in everything


@pytest.mark.engine
def test_stopped_container_and_removed_container(gateway):
    """The last test of the module: the gateway stays stopped."""
    connect().client.stop(gateway.container)
    assert_fixed(gateway, "container-stopped")
    connect().client.remove_container(gateway.container, force=True)
    assert_fixed(gateway, "container-missing")
    gateway.holdfast("stop", gateway.name)
    code, diagnosis = doctor_report(gateway, "--fix")
    assert (code, finding_codes(diagnosis["report"], "warning")) == (0, {"container-stopped"})
    assert gateway.inspect()["State"]["Status"] == "exited"


def test_reports_without_container_engine(tmp_path):
    holdfast = HoldfastCli(tmp_path / "home", DOCKER_HOST="unix:///nowhere/at/all.sock")
    result = holdfast.run("doctor", "--bundle", str(tmp_path / "b.tar.gz"))
    assert result.returncode == 3, result.stdout
    assert "engine-unreachable" in result.stdout
    assert "Traceback" not in result.stderr
    assert (tmp_path / "b.tar.gz").stat().st_size > 0
    assert holdfast.run("doctor", "../x").returncode == 2
