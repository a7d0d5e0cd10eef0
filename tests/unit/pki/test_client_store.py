"""Client certificate files: private, switched atomically, and kept until the new ones are confirmed."""

import errno
import os
import shutil
import stat

import pytest

from holdfast import home
from holdfast.errors import DiskFullError, PermanentError
from holdfast.pki import ClientCertificateStore, validate_client_identity

from .conftest import NOW


@pytest.fixture
def files(tmp_path):
    return ClientCertificateStore(tmp_path / "gateways" / "dev" / "mtls")


def codes(files):
    return validate_client_identity(files.read(), at=NOW).codes


def generations(files):
    return sorted(path.name for path in files.folder.glob("generation-*"))


def test_written_bundle_is_read_back_and_valid(files, bundle):
    assert codes(files) == {"absent"}
    assert files.write(bundle.client_identity)
    assert files.read().value == bundle.client_identity
    assert codes(files) == set()
    assert files.certificate.read_bytes() == bundle.client.certificate


def test_files_are_private_regardless_of_umask(files, bundle):
    before = os.umask(0)
    try:
        files.write(bundle.client_identity)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files.current.iterdir()} == {0o600}
    assert stat.S_IMODE(files.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(files.current.stat().st_mode) == 0o700


def test_valid_bundle_is_not_replaced(files, bundle):
    files.write(bundle.client_identity)
    inode = files.key.stat().st_ino
    assert not files.write(bundle.client_identity)
    assert files.key.stat().st_ino == inode
    assert generations(files) == ["generation-1"]


def test_old_bundle_is_kept_until_new_one_is_confirmed(files, bundle, other_bundle):
    files.write(bundle.client_identity)
    files.write(other_bundle.client_identity)
    assert files.read().value == other_bundle.client_identity
    assert files.is_unconfirmed
    assert generations(files) == ["generation-1", "generation-2"]
    assert files.confirm() == 1
    assert not files.is_unconfirmed
    assert files.confirm() == 0
    assert files.read().value == other_bundle.client_identity


def test_unused_generations_are_removed(files, bundle, other_bundle):
    files.write(bundle.client_identity)
    files.confirm()
    for identity in [other_bundle.client_identity, bundle.client_identity] * 3:
        files.write(identity)
        assert len(generations(files)) <= 3
        assert generations(files)[0] == "generation-1"  # the last confirmed one
    assert files.read().value == bundle.client_identity


@pytest.mark.parametrize("name", ["ca.crt", "tls.crt", "tls.key"])
class TestEachFile:
    def test_missing(self, files, bundle, name):
        files.write(bundle.client_identity)
        (files.current / name).unlink()
        assert codes(files) == {"incomplete"}
        assert name in str(validate_client_identity(files.read(), at=NOW))
        self._is_put_right(files, bundle)

    def test_empty(self, files, bundle, name):
        files.write(bundle.client_identity)
        (files.current / name).write_bytes(b"")
        assert codes(files) == {"incomplete"}
        self._is_put_right(files, bundle)

    def test_partially_written(self, files, bundle, name):
        files.write(bundle.client_identity)
        path = files.current / name
        path.write_bytes(path.read_bytes()[:-40])
        assert codes(files) == {"unreadable"}
        self._is_put_right(files, bundle)

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o610])
    def test_readable_by_others(self, files, bundle, name, mode):
        files.write(bundle.client_identity)
        (files.current / name).chmod(mode)
        found = validate_client_identity(files.read(), at=NOW)
        assert found.codes == {"too-open"}
        assert f"{name} (mode {mode:04o} instead of 0600)" in str(found)
        self._is_put_right(files, bundle)

    @pytest.mark.parametrize("kind", ["directory", "link", "pipe", "huge"])
    def test_not_a_regular_file(self, files, bundle, name, kind, tmp_path):
        files.write(bundle.client_identity)
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
        assert files.write(bundle.client_identity)
        assert codes(files) == set()
        files.confirm()
        assert generations(files) == ["generation-2"]


def test_directory_writable_by_others_is_detected_and_fixed(files, bundle):
    files.write(bundle.client_identity)
    files.folder.chmod(0o777)
    assert codes(files) == {"too-open"}
    files.write(bundle.client_identity)
    assert codes(files) == set()
    files.current.resolve().chmod(0o770)
    assert codes(files) == {"too-open"}


def test_symlink_to_other_location_is_not_followed(files, bundle, other_bundle, tmp_path):
    files.write(bundle.client_identity)
    foreign = ClientCertificateStore(tmp_path / "foreign")
    foreign.write(other_bundle.client_identity)
    files.current.unlink()
    files.current.symlink_to(foreign.folder / "generation-1")
    assert codes(files) == {"unreadable"}
    files.write(bundle.client_identity)
    assert codes(files) == set()
    assert foreign.read().value == other_bundle.client_identity


def test_dangling_symlink_is_repaired(files, bundle):
    files.write(bundle.client_identity)
    shutil.rmtree(files.current.resolve())
    assert codes(files) == {"incomplete"}
    files.write(bundle.client_identity)
    assert codes(files) == set()


def test_unexpected_file_at_symlink_path_is_kept(files, bundle):
    files.current.mkdir(parents=True)
    (files.current / "notes.txt").write_text("mine")
    assert codes(files) == {"unreadable"}
    with pytest.raises(PermanentError, match="not a symbolic link"):
        files.write(bundle.client_identity)
    assert (files.current / "notes.txt").read_text() == "mine"


class Crash(BaseException):
    """The process ends here."""


LATEST_SURE_CRASH = 19
CALLS = ("mkdir", "fsync", "replace", "symlink", "rmdir", "unlink")


@pytest.mark.parametrize("moment", range(26))
def test_crash_at_any_point_leaves_old_or_new_bundle(files, bundle, other_bundle, monkeypatch, moment):
    files.write(bundle.client_identity)
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
            files.write(other_bundle.client_identity)
            files.confirm()
            crashed = False
        except Crash:
            crashed = True
    assert crashed or moment > LATEST_SURE_CRASH
    assert files.read().value in (bundle.client_identity, other_bundle.client_identity)
    assert codes(files) == set()
    files.write(other_bundle.client_identity)
    files.confirm()
    assert files.read().value == other_bundle.client_identity
    assert len(generations(files)) == 1


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFullError), (errno.EACCES, PermanentError)])
def test_full_disk_keeps_old_bundle(files, bundle, other_bundle, monkeypatch, number, kind):
    files.write(bundle.client_identity)

    def full(path, content, *, mode=0o600):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(home, "write_atomic", full)
    with pytest.raises(kind) as caught:
        files.write(other_bundle.client_identity)
    assert str(files.folder) in caught.value.message
    assert files.read().value == bundle.client_identity


def test_remove_is_complete_and_idempotent(files, bundle):
    files.write(bundle.client_identity)
    files.remove()
    assert not files.folder.exists()
    files.remove()
    assert codes(files) == {"absent"}
