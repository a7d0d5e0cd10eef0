"""When a packed archive counts as complete."""

from __future__ import annotations

import pytest

from holdfast.server.streams.files import _is_complete

CHANGED = "tar: a: file changed as we read it"
REMOVED = "tar: b: File removed before we read it"
DENIED = "tar: c: Cannot open: Permission denied\ntar: Exiting with failure status due to previous errors"


@pytest.mark.parametrize("said", ["", CHANGED, DENIED, "tar: s: socket ignored"])
def test_successful_tar_is_complete(said):
    assert _is_complete(0, said)


@pytest.mark.parametrize("said", [CHANGED, REMOVED, f"{CHANGED}\n{REMOVED}"])
def test_files_changing_during_read_are_not_a_failure(said):
    assert _is_complete(1, said)


@pytest.mark.parametrize("code", [2, 137, 143, None])
@pytest.mark.parametrize("said", ["", CHANGED, f"{CHANGED}\n{DENIED}"])
def test_changed_file_does_not_hide_failure_or_kill(code, said):
    assert not _is_complete(code, said)


@pytest.mark.parametrize("said", ["", DENIED, "tar: s: socket ignored\ntar: short read"])
def test_other_cause_of_same_exit_code_is_a_failure(said):
    assert not _is_complete(1, said)
