"""When a packed archive counts as whole."""

from __future__ import annotations

import pytest

from holdfast.server.files import _is_whole

CHANGED = "tar: a: file changed as we read it"
REMOVED = "tar: b: File removed before we read it"
DENIED = "tar: c: Cannot open: Permission denied\ntar: Exiting with failure status due to previous errors"


@pytest.mark.parametrize("said", ["", CHANGED, DENIED, "tar: s: socket ignored"])
def test_what_ended_well_is_whole(said):
    assert _is_whole(0, said)


@pytest.mark.parametrize("said", [CHANGED, REMOVED, f"{CHANGED}\n{REMOVED}"])
def test_files_that_change_meanwhile_are_no_failure(said):
    assert _is_whole(1, said)


@pytest.mark.parametrize("code", [2, 137, 143, None])
@pytest.mark.parametrize("said", ["", CHANGED, f"{CHANGED}\n{DENIED}"])
def test_a_changed_file_does_not_excuse_a_failure_or_a_kill(code, said):
    assert not _is_whole(code, said)


@pytest.mark.parametrize("said", ["", DENIED, "tar: s: socket ignored\ntar: short read"])
def test_another_reason_for_the_same_code_is_a_failure(said):
    assert not _is_whole(1, said)
