"""The bundle lists what it could not collect and never overwrites another file."""

import json
import tarfile

import pytest

from holdfast.errors import UsageError
from holdfast.events import EventBus
from holdfast.gateway.doctor import diagnose
from holdfast.gateway.doctor.bundle import CONTENTS_MEMBER, check_bundle_path


def test_bundle_without_engine_lists_missing_parts(tmp_path):
    path = tmp_path / "b.tar.gz"
    diagnosis = diagnose("dev", EventBus(), bundle_to=path)
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        names = archive.getnames()
        contents = json.load(archive.extractfile(CONTENTS_MEMBER))
    assert names[0] == CONTENTS_MEMBER
    assert {"findings.json", "settings.json", "versions.json"} <= set(contents["files"])
    assert contents["missing"]["engine/container.json"] == "the container engine cannot be used"
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
