"""A real gateway, broken one way after another: the right code is found, `--fix` mends it, data stays."""

import json
import stat
import tarfile

import pytest
from tests.support.commands import Holdfast
from tests.support.gateways import claim, pod

from holdfast.containers.engine import connect

TOKEN = "planted-Token-0f1e2d3c4b5a"
PASSWORD = "planted, with a space: 77"


@pytest.fixture(scope="module")
def patient(new_gateway, tmp_path_factory):
    """A gateway without workloads of holdfast's own, with a file on a volume and secrets in many places."""
    holdfast = Holdfast(tmp_path_factory.mktemp("doctor"), HOLDFAST_WORKLOADS="false")
    made = new_gateway("doctor", holdfast=holdfast)
    made.up()
    keeper = pod("keeper", claim="work")
    keeper["spec"]["containers"][0]["env"] = [{"name": "API_TOKEN", "value": TOKEN}]
    keeper["metadata"]["annotations"] = {"note": f"password={PASSWORD}"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"x": TOKEN}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"x": PASSWORD}}
    made.apply(claim("work"), keeper, secret, config)
    made.wait_ready("keeper")
    made.execute("keeper", "sh", "-c", "echo kept > /data/file && sync")
    return made


def files(patient):
    return patient.holdfast.home / "config" / "gateways" / patient.name


def examined(patient, *options):
    ended = patient.holdfast.run("doctor", patient.name, *options, "--json")
    assert "Traceback" not in ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def codes(report, *severities):
    wanted = severities or ("problem",)
    return {each["code"] for each in report["findings"] if each["severity"] in wanted}


def assert_mended(patient, code, *, exit_code=1):
    """Found, mended, gone; and the file is still there."""
    before, found = examined(patient)
    assert before == exit_code, found
    assert code in codes(found["report"], "problem", "warning")
    after, told = examined(patient, "--fix")
    assert after == 0, told
    assert {each["code"]: each["repaired"] for each in told["repairs"]}[code], told["repairs"]
    patient.wait_ready("keeper")
    assert patient.execute("keeper", "cat", "/data/file").strip() == "kept"


@pytest.mark.engine
def test_a_healthy_gateway_has_no_problems(patient):
    code, found = examined(patient)
    assert (code, codes(found["report"])) == (0, set()), found
    assert "check-failed" not in codes(found["report"], "warning")
    assert found["report"]["seconds"] < 20
    before = patient.inspect()
    assert examined(patient, "--fix")[0] == 0
    assert patient.inspect()["State"]["StartedAt"] == before["State"]["StartedAt"]


@pytest.mark.engine
def test_a_kubeconfig_that_others_can_read(patient):
    path = files(patient) / "kubeconfig"
    path.chmod(0o644)
    assert_mended(patient, "kubeconfig-mode")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.engine
def test_a_kubeconfig_and_metadata_that_are_no_good(patient):
    path = files(patient) / "kubeconfig"
    good = path.read_text()
    path.write_text(good.replace("https://127.0.0.1:", "https://127.0.0.1:1"))
    assert_mended(patient, "kubeconfig-outdated")
    assert path.read_text() == good
    (files(patient) / "metadata.json").write_text("{half")
    assert_mended(patient, "metadata-damaged")


@pytest.mark.engine
def test_a_node_that_is_no_member(patient):
    patient.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "left-behind"}})
    assert_mended(patient, "stale-nodes")
    (node,) = patient.get("nodes")["items"]
    assert node["metadata"]["name"] == f"holdfast-{patient.name}"


@pytest.mark.engine
def test_a_damaged_store(patient):
    store = patient.holdfast.home / "state" / "gateways" / patient.name / "state.db"
    for companion in ("-wal", "-shm"):
        store.with_name(store.name + companion).unlink(missing_ok=True)
    content = bytearray(store.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    store.write_bytes(content)
    assert_mended(patient, "store-damaged")
    assert list(store.parent.glob("state.db.damaged-*"))


@pytest.mark.engine
def test_a_bundle_has_everything_but_secrets(patient, tmp_path):
    target = tmp_path / "report.tar.gz"
    patient.holdfast("doctor", patient.name, "--bundle", str(target))
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    key = (files(patient) / "kubeconfig").read_text().partition("client-key-data: ")[2].split()[0]
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
def test_a_container_that_was_stopped_and_one_that_was_removed(patient):
    """The last one: the gateway stays stopped."""
    connect().client.stop(patient.container)
    assert_mended(patient, "container-stopped")
    connect().client.remove_container(patient.container, force=True)
    assert_mended(patient, "container-missing")
    patient.holdfast("stop", patient.name)
    code, found = examined(patient, "--fix")
    assert (code, codes(found["report"], "warning")) == (0, {"container-stopped"})
    assert patient.inspect()["State"]["Status"] == "exited"


def test_without_any_engine_it_reports(tmp_path):
    holdfast = Holdfast(tmp_path / "home", DOCKER_HOST="unix:///nowhere/at/all.sock")
    ended = holdfast.run("doctor", "--bundle", str(tmp_path / "b.tar.gz"))
    assert ended.returncode == 3, ended.stdout
    assert "engine-unreachable" in ended.stdout
    assert "Traceback" not in ended.stderr
    assert (tmp_path / "b.tar.gz").stat().st_size > 0
    assert holdfast.run("doctor", "../x").returncode == 2
