"""The bundle lists what it could not collect and never overwrites another file."""

import base64
import json
import tarfile

import pytest
import yaml

from holdfast.errors import UsageError
from holdfast.events import EventBus
from holdfast.gateway.cluster import kubeconfig
from holdfast.gateway.doctor import diagnose
from holdfast.gateway.doctor.bundle import COLLECTORS, CONTENTS_MEMBER, check_bundle_path, write_bundle
from holdfast.gateway.doctor.facts import GatewayFacts, load_facts
from holdfast.gateway.doctor.findings import note
from holdfast.gateway.registry import GatewayFiles


def test_bundle_without_engine_lists_missing_parts(tmp_path):
    path = tmp_path / "b.tar.gz"
    diagnosis = diagnose("dev", EventBus(), bundle_to=path)
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        names = archive.getnames()
        contents = json.load(archive.extractfile(CONTENTS_MEMBER))
    assert names[0] == CONTENTS_MEMBER
    assert {"findings.json", "settings.json", "versions.json"} <= set(contents["files"])
    assert contents["created_at"].endswith("Z")
    assert contents["missing"]["engine/container.json"] == "the container engine cannot be used"
    assert "cluster/persistentvolumeclaims.json" in contents["missing"]
    assert set(diagnosis.bundled) == set(contents["files"])


def test_earlier_bundle_is_overwritten(tmp_path):
    path = tmp_path / "b.tar.gz"
    for _ in range(2):
        diagnose("dev", EventBus(), bundle_to=path)


def test_bundle_does_not_overwrite_foreign_file(tmp_path):
    path = tmp_path / "thesis.tar.gz"
    path.write_text("ten years of work")
    for wrong in (path, tmp_path, tmp_path / "no" / "such" / "directory.tar.gz"):
        with pytest.raises(UsageError):
            check_bundle_path(wrong)
    assert path.read_text() == "ten years of work"


@pytest.fixture
def bundled_cause(tmp_path, report):
    """A function that writes a bundle with a finding, and returns how the bundle quotes its cause."""

    def write(cause):
        path = tmp_path / "b.tar.gz"
        write_bundle(path, load_facts("dev"), report(note("code", "s", cause)), EventBus())
        with tarfile.open(path) as archive:
            findings = json.load(archive.extractfile("holdfast-bundle/findings.json"))
        return findings["findings"][0]["cause"]

    return write


def test_key_of_the_kubeconfig_is_hidden_and_its_structure_is_not(bundled_cause):
    pem = b"-----BEGIN KEY-----\nqwertzuiopasdfgh\n-----END KEY-----\n"
    user = {"client-key-data": base64.b64encode(pem).decode()}
    node = yaml.safe_dump({"clusters": [{"cluster": {}}], "users": [{"user": user}]}).encode()
    files = GatewayFiles("dev")
    files.directory.mkdir(parents=True)
    files.kubeconfig.write_bytes(kubeconfig.build_host_kubeconfig(node, name="dev", server="https://h:1"))
    cause = bundled_cause("Found clusters: users: contexts: qwertzuiopasdfgh")
    assert cause.startswith("Found clusters: users: contexts: ")
    assert "qwertz" not in cause


def test_login_in_a_file_with_wrong_mode_is_hidden(tmp_path, bundled_cause):
    login = tmp_path / "login"
    login.write_text("me:horsestaple\n")
    login.chmod(0o644)
    settings = f'[registries.credentials]\n"registry.example" = "file:{login}"\n'
    (tmp_path / "holdfast.toml").write_text(settings)
    assert "horsestaple" not in bundled_cause("the registry rejects horsestaple")


def test_newest_events_are_collected(monkeypatch):
    def event(reason, **times):
        return {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "reason": reason, **times}

    series = {"count": 7, "lastObservedTime": "2026-01-09T00:00:00.000000Z"}
    events = [
        event("series", eventTime="2026-01-01T00:00:00.000000Z", series=series),
        event("last", lastTimestamp="2026-01-08T00:00:00Z"),
        event("time", eventTime="2026-01-07T00:00:00.000000Z", lastTimestamp=None),
        *(event("old") for _ in range(600)),
    ]
    facts = GatewayFacts("dev")
    monkeypatch.setattr(facts, "list_objects", {"/api/v1/events": events}.__getitem__)
    collected = COLLECTORS["cluster/events.json"](facts)
    assert len(collected) == 500
    assert [each["reason"] for each in collected[-4:]] == ["old", "time", "last", "series"]
    assert collected[-1]["series"] == series
