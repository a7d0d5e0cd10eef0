"""A client's files: private, switched at once, the old ones kept until the new ones work."""

import errno
import os
import shutil
import stat
from pathlib import Path

import pytest

from holdfast import home
from holdfast.errors import DiskFullError, PermanentError
from holdfast.pki import ClientFiles, judge_client

from .conftest import NOW


@pytest.fixture
def files(tmp_path):
    return ClientFiles(tmp_path / "gateways" / "dev" / "mtls")


def codes(files):
    return judge_client(files.read(), at=NOW).codes


def generations(files):
    return sorted(path.name for path in files.folder.glob("generation-*"))


def test_what_was_written_is_read_back_and_good(files, bundle):
    assert codes(files) == {"absent"}
    assert files.write(bundle.identity)
    assert files.read().bundle == bundle.identity
    assert codes(files) == set()
    assert files.certificate.read_bytes() == bundle.client.certificate


def test_files_are_private_whatever_the_umask(files, bundle):
    before = os.umask(0)
    try:
        files.write(bundle.identity)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files.current.iterdir()} == {0o600}
    assert stat.S_IMODE(files.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(files.current.stat().st_mode) == 0o700


def test_a_good_one_is_never_replaced(files, bundle):
    files.write(bundle.identity)
    inode = files.key.stat().st_ino
    assert not files.write(bundle.identity)
    assert files.key.stat().st_ino == inode
    assert generations(files) == ["generation-1"]


def test_the_old_one_is_kept_until_the_new_one_is_confirmed(files, bundle, other_bundle):
    files.write(bundle.identity)
    files.write(other_bundle.identity)
    assert files.read().bundle == other_bundle.identity
    assert files.unconfirmed
    assert generations(files) == ["generation-1", "generation-2"]
    assert files.confirm() == 1
    assert not files.unconfirmed
    assert files.confirm() == 0
    assert files.read().bundle == other_bundle.identity
    assert not files.roll_back()


def test_rolling_back_brings_the_last_confirmed_one(files, bundle, other_bundle, workshop):
    files.write(bundle.identity)
    files.confirm()
    files.write(other_bundle.identity)
    files.write(workshop.bundle().identity)
    assert files.roll_back()
    assert files.read().bundle == bundle.identity
    assert codes(files) == set()
    assert not files.roll_back()


def test_generations_that_nobody_needs_do_not_pile_up(files, bundle, other_bundle):
    files.write(bundle.identity)
    files.confirm()
    for identity in [other_bundle.identity, bundle.identity] * 3:
        files.write(identity)
        assert len(generations(files)) <= 3
    assert files.roll_back()
    assert files.current.readlink() == Path("generation-1")
    assert files.write(other_bundle.identity)
    assert files.read().bundle == other_bundle.identity


@pytest.mark.parametrize("name", ["ca.crt", "tls.crt", "tls.key"])
class TestEachFile:
    def test_missing(self, files, bundle, name):
        files.write(bundle.identity)
        (files.current / name).unlink()
        assert codes(files) == {"incomplete"}
        assert name in str(judge_client(files.read(), at=NOW))
        self._is_put_right(files, bundle)

    def test_empty(self, files, bundle, name):
        files.write(bundle.identity)
        (files.current / name).write_bytes(b"")
        assert codes(files) == {"incomplete"}
        self._is_put_right(files, bundle)

    def test_half_written(self, files, bundle, name):
        files.write(bundle.identity)
        path = files.current / name
        path.write_bytes(path.read_bytes()[:-40])
        assert codes(files) == {"unreadable"}
        self._is_put_right(files, bundle)

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o610])
    def test_open_to_others(self, files, bundle, name, mode):
        files.write(bundle.identity)
        (files.current / name).chmod(mode)
        found = judge_client(files.read(), at=NOW)
        assert found.codes == {"too-open"}
        assert f"{name} is open to others (mode {mode:04o} instead of 0600)" in str(found)
        self._is_put_right(files, bundle)

    @pytest.mark.parametrize("kind", ["directory", "link", "pipe", "huge"])
    def test_no_plain_file(self, files, bundle, name, kind, tmp_path):
        files.write(bundle.identity)
        path = files.current / name
        shutil.copy(path, tmp_path / "elsewhere")
        path.unlink()
        if kind == "directory":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(tmp_path / "elsewhere")
        elif kind == "pipe":
            os.mkfifo(path, 0o600)
        else:
            path.write_bytes(b"x" * 100_000)
        assert codes(files) == {"unreadable"}
        self._is_put_right(files, bundle)

    def _is_put_right(self, files, bundle):
        assert files.write(bundle.identity)
        assert codes(files) == set()
        files.confirm()
        assert generations(files) == ["generation-2"]


def test_a_folder_that_others_may_change_is_noticed_and_closed(files, bundle):
    files.write(bundle.identity)
    files.folder.chmod(0o777)
    assert codes(files) == {"too-open"}
    files.write(bundle.identity)
    assert codes(files) == set()
    files.current.resolve().chmod(0o770)
    assert codes(files) == {"too-open"}


def test_a_link_that_leads_elsewhere_is_not_followed(files, bundle, other_bundle, tmp_path):
    files.write(bundle.identity)
    foreign = ClientFiles(tmp_path / "foreign")
    foreign.write(other_bundle.identity)
    files.current.unlink()
    files.current.symlink_to(foreign.folder / "generation-1")
    assert codes(files) == {"unreadable"}
    files.write(bundle.identity)
    assert codes(files) == set()
    assert foreign.read().bundle == other_bundle.identity


def test_a_link_to_nothing_is_put_right(files, bundle):
    files.write(bundle.identity)
    shutil.rmtree(files.current.resolve())
    assert codes(files) == {"incomplete"}
    files.write(bundle.identity)
    assert codes(files) == set()


def test_something_else_in_the_place_of_the_link_is_not_thrown_away(files, bundle):
    files.current.mkdir(parents=True)
    (files.current / "notes.txt").write_text("mine")
    assert codes(files) == {"unreadable"}
    with pytest.raises(PermanentError, match="in the way"):
        files.write(bundle.identity)
    assert (files.current / "notes.txt").read_text() == "mine"


class Crash(BaseException):
    """The process ends here."""


LATEST_SURE_CRASH = 19
CALLS = ("mkdir", "fsync", "replace", "symlink", "rmdir", "unlink")


@pytest.mark.parametrize("moment", range(26))
def test_a_crash_at_any_moment_leaves_the_old_one_or_the_new_one(
    files, bundle, other_bundle, monkeypatch, moment
):
    files.write(bundle.identity)
    left = [moment]

    def dying(real):
        def call(*args, **kwargs):
            if left[0] == 0:
                raise Crash
            left[0] -= 1
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, dying(getattr(os, name)))
        try:
            files.write(other_bundle.identity)
            files.confirm()
            crashed = False
        except Crash:
            crashed = True
    assert crashed or moment > LATEST_SURE_CRASH
    assert files.read().bundle in (bundle.identity, other_bundle.identity)
    assert codes(files) == set()
    files.write(other_bundle.identity)
    files.confirm()
    assert files.read().bundle == other_bundle.identity
    assert len(generations(files)) == 1


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFullError), (errno.EACCES, PermanentError)])
def test_a_disk_that_takes_no_more_leaves_the_old_one(files, bundle, other_bundle, monkeypatch, number, kind):
    files.write(bundle.identity)

    def full(path, content, *, mode=0o600):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(home, "write_atomic", full)
    with pytest.raises(kind) as caught:
        files.write(other_bundle.identity)
    assert str(files.folder) in caught.value.message
    assert files.read().bundle == bundle.identity


def test_removing_leaves_nothing_and_does_not_mind_nothing(files, bundle):
    files.write(bundle.identity)
    files.remove()
    assert not files.folder.exists()
    files.remove()
    assert codes(files) == {"absent"}
