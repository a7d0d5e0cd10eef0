"""Jobs on a volume: a job removes its own container, and no other container with the same name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.support.stubs import stub

from holdfast.containers import volumes
from holdfast.containers.labels import GATEWAY, HELPER
from holdfast.errors import ContainerEngineError, DiskFullError, WaitTimeoutError

JOB = volumes.VolumeJob(name="h", gateway="dev", image="", volume="v", mount_path="/p", timeout=7.0)


@pytest.mark.parametrize(
    ("labels", "removed"),
    [
        ({GATEWAY: "dev", HELPER: "volume"}, ["id"]),
        ({GATEWAY: "dev-helper"}, []),
        ({GATEWAY: "dev"}, []),
        ({GATEWAY: "other", HELPER: "volume"}, []),
        ({}, []),
        (None, []),
    ],
)
def test_only_own_container_is_removed(monkeypatch, labels, removed):
    container = None if labels is None else SimpleNamespace(labels=labels, id="id")
    calls = []
    stub(monkeypatch, volumes, "find_container", lambda *_: container)
    monkeypatch.setattr(volumes, "remove_container", lambda _, name: calls.append(name) or True)
    assert JOB.remove_leftover(None) is bool(removed)
    assert calls == removed


def fake_engine(monkeypatch, *, exits=True, code=0, output="two words\n"):
    """Replace the calls to the engine; return the list of changes they would make."""
    calls = []
    container = SimpleNamespace(labels={GATEWAY: "dev", HELPER: "volume"}, id="id", exit_code=code)
    stub(monkeypatch, volumes, "find_container", lambda *_: container)
    stub(monkeypatch, volumes, "create_container", lambda *_, **__: calls.append("create"))
    stub(monkeypatch, volumes, "start_container", lambda *_: calls.append("start"))
    stub(monkeypatch, volumes, "wait_for_exit", lambda *_, timeout: calls.append(timeout) or exits)
    stub(monkeypatch, volumes, "container_logs", lambda *_: output)
    stub(monkeypatch, volumes, "remove_container", lambda *_: calls.append("remove") or True)
    return calls


def test_container_is_removed_after_timeout(monkeypatch):
    calls = fake_engine(monkeypatch, exits=False)
    with pytest.raises(WaitTimeoutError, match=r"volume v: a job did not end within 7 s"):
        JOB.run(None, "true")
    assert calls == ["remove", "create", "start", 7.0, "remove"]


def test_output_of_successful_job_is_returned(monkeypatch):
    fake_engine(monkeypatch)
    assert JOB.run(None, "true") == "two words"


def test_failed_job_is_an_error_with_its_last_lines(monkeypatch):
    fake_engine(monkeypatch, code=3, output="one\ntwo\nthree\nfour\n")
    with pytest.raises(ContainerEngineError, match=r"failed \(exit code 3\): two\nthree\nfour"):
        JOB.run(None, "true")


def test_full_volume_has_its_own_error(monkeypatch):
    fake_engine(monkeypatch, code=1, output="cp: no space left on device")
    with pytest.raises(DiskFullError, match="volume v"):
        JOB.run(None, "true")


def test_missing_file_and_missing_container_differ(monkeypatch):
    fake_engine(monkeypatch)
    stub(monkeypatch, volumes, "read_file", lambda *_: None)
    assert JOB.read_file(None, "record") is None
    stub(monkeypatch, volumes, "find_container", lambda *_: None)
    with pytest.raises(ContainerEngineError, match="was removed while it was in use"):
        JOB.read_file(None, "record")


def test_content_is_returned_if_container_cannot_be_removed(monkeypatch):
    fake_engine(monkeypatch)
    removals = iter([True])

    def remove(*_):
        if next(removals, None) is None:
            raise ContainerEngineError("removing container h failed")
        return True

    stub(monkeypatch, volumes, "remove_container", remove)
    stub(monkeypatch, volumes, "read_file", lambda *_: b"content")
    assert JOB.read_file(None, "record") == b"content"
