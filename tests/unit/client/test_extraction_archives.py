"""Archives as honest programs make them, and those that are made to hurt who reads them."""

import io
import os
import subprocess
import tarfile
import tempfile
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from holdfast.client.extraction import invalid_archive_error, unpack
from holdfast.errors import ApiRequestRejectedError, HoldfastError, TemporaryError
from holdfast.images import TarEntryKind, TarReader

END = b"\0" * 1024


def header(name="x", kind=tarfile.REGTYPE, size=0, **more):
    entry = tarfile.TarInfo(name)
    entry.type, entry.size, entry.mode = kind, size, 0o644
    for key, value in more.items():
        setattr(entry, key, value)
    return entry.tobuf(tarfile.GNU_FORMAT, errors="surrogateescape")


def padded(data):
    return data + b"\0" * (-len(data) % 512)


def pax(content, kind=tarfile.XHDTYPE):
    return header("pax", kind, len(content)) + padded(content)


def record(key, value):
    rest = b" " + key.encode() + b"=" + value + b"\n"
    length = len(rest) + 1
    while len(str(length)) + len(rest) != length:
        length = len(str(length)) + len(rest)
    return str(length).encode() + rest


def summed(block):
    """A header with the sum that belongs to it."""
    block = bytearray(block)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def read(data):
    return list(TarReader([data], invalid_archive_error).entries())


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_common_tools_are_read(form):
    long = "/".join(["folder" * 8] * (4 if form == tarfile.USTAR_FORMAT else 12))
    wanted = [
        ("d/", tarfile.DIRTYPE, "", b""),
        (f"d/{long}", tarfile.REGTYPE, "", os.urandom(1_500_000)),
        ("d/ünï", tarfile.REGTYPE, "", b"x" * 512),
        (os.fsdecode(b"d/\xff"), tarfile.REGTYPE, "", b""),
        ("d/link", tarfile.SYMTYPE, long[:90], b""),
        ("d/hard", tarfile.LNKTYPE, "d/ünï", b""),
        ("d/pipe", tarfile.FIFOTYPE, "", b""),
    ]
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form, errors="surrogateescape") as writer:
        for name, kind, link, content in wanted:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size, entry.mtime = kind, link, len(content), 1_700_000_000
            writer.addfile(entry, io.BytesIO(content))
    tape = TarReader([made.getvalue()], invalid_archive_error)
    found = [(entry, b"".join(tape.content())) for entry in tape.entries()]
    assert [(each.name, each.link_target, content) for each, content in found] == [
        (name, link, content) for name, _, link, content in wanted
    ]
    kinds = [each.kind for each, _ in found]
    assert kinds == [
        TarEntryKind.DIRECTORY,
        *[TarEntryKind.FILE] * 3,
        TarEntryKind.SYMLINK,
        TarEntryKind.HARD_LINK,
        TarEntryKind.DEVICE,
    ]
    assert {each.mtime for each, _ in found} == {1_700_000_000}


def test_times_are_kept_and_out_of_range_times_clamped(tmp_path):
    for given_time, kept in [(b"1700000000.25", 1_700_000_000.25), (b"-5", -5), (b"9" * 20, 1 << 34)]:
        assert read(pax(record("mtime", given_time)) + header() + END)[0].mtime == kept
    assert read(header(mtime=-7) + END)[0].mtime == -7
    assert read(header(mtime=1 << 80) + END)[0].mtime == 1 << 34
    unpack(io.BytesIO(header(mtime=1 << 80) + END), tmp_path)
    assert (tmp_path / "x").stat().st_mtime > time.time()


HOSTILE = {
    "digits without end": pax(b"1" * 60_000),
    "a record of many digits": pax(b"0" * 30 + b"9 path=x\n"),
    "a record longer than its header": pax(b"999999 path=x\n"),
    "a record of no length": pax(b"0 path=x\n"),
    "a long header": header("pax", tarfile.XHDTYPE, 1 << 40),
    "a long name": header("name", tarfile.GNUTYPE_LONGNAME, 5000) + padded(b"a/" * 2500) + header(),
    "headers without end": pax(record("comment", b"x")) * 20 + header(),
    "a header without an entry": pax(record("path", b"x")),
    "a name for all": pax(record("path", b"x"), tarfile.XGLTYPE) + header(),
    "a sparse file of old": summed(header(kind=tarfile.GNUTYPE_SPARSE)),
    "a sparse file": pax(record("GNU.sparse.size", b"9" * 15)) + header(),
    "a sparse map": pax(record("GNU.sparse.map", b"0,1")) + header(),
    "time that is none": pax(record("mtime", b"nan")) + header(),
    "time without end": pax(record("mtime", b"1e300")) + header(),
    "time of many digits": pax(record("mtime", b"1" * 5000)) + header(),
    "a size below nothing": pax(record("size", b"-512")) + header(),
    "a size of many digits": pax(record("size", b"1" * 5000)) + header(),
    "a size in the header below nothing": summed(header()[:124] + b"\xff" * 12 + header()[136:]),
    "a folder with content": header("d", tarfile.DIRTYPE, 512) + b"x" * 512,
    "a zero byte in a name": pax(record("path", b"a\0b")) + header(),
    "a zero byte in a link": pax(record("linkpath", b"a\0b")) + header(kind=tarfile.SYMTYPE),
    "a link to nothing": header(kind=tarfile.LNKTYPE, linkname="."),
    "an unknown entry type": header(kind=b"Z"),
    "not an archive": b"x" * 2048,
    "data after the end": END + header(),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_malicious_archives_are_rejected_immediately(tmp_path, data):
    began = time.monotonic()
    with pytest.raises(ApiRequestRejectedError, match=r"^(invalid )?archive from the sandbox: "):
        unpack(io.BytesIO(data + END), tmp_path)
    assert time.monotonic() - began < 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [b"", header(), header(size=5) + b"abc", header() + b"\0" * 100])
def test_archive_without_end_marker_is_truncated(data):
    with pytest.raises(TemporaryError, match="archive is incomplete"):
        read(data)


class Pieces:
    """A file that is never in memory as a whole; whatever breaks in making it breaks its reader."""

    def __init__(self, pieces):
        self._pieces = iter(pieces)

    def read(self, _size):
        return next(self._pieces, b"")


def test_stream_error_after_archive_is_reported(tmp_path):
    def pieces():
        yield header() + END
        raise TemporaryError("the answer was broken off")

    with pytest.raises(TemporaryError, match="broken off"):
        unpack(Pieces(pieces()), tmp_path)


@pytest.mark.parametrize("kind", [tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.SYMTYPE])
def test_many_entries_use_constant_memory(tmp_path, kind):
    def pieces():
        for number in range(60):
            name = f"{number % 5}" + "x" * 80
            yield header(name, kind, linkname="/out" if kind == tarfile.SYMTYPE else "") * 100
        yield END

    tracemalloc.start()
    done = unpack(Pieces(pieces()), tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    if kind == tarfile.DIRTYPE:
        assert (done.entries, done.skipped) == (6000, [])
    else:
        assert (done.entries, len(done.skipped), done.skipped[-1]) == (0, 1001, "and 5000 more")


def test_long_multibyte_name_is_read(tmp_path):
    name = "語" * 85
    unpack(io.BytesIO(header(name) + END), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


HONEST = pax(record("path", b"x/y") + record("mtime", b"5.5")) + header(size=3) + padded(b"abc")
HONEST += header("x/l", tarfile.SYMTYPE, linkname="y") + header("x/h", tarfile.LNKTYPE, linkname="x/y") + END


@settings(max_examples=300, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, len(HONEST) - 1), st.integers(0, 255)), max_size=6))
def test_any_input_gives_copy_or_holdfast_error(changes):
    data = bytearray(HONEST)
    for at, value in changes:
        data[at] = value
    for at in (0, 1024, 2048, 2560):
        data[at : at + 512] = summed(data[at : at + 512])
    with tempfile.TemporaryDirectory() as folder:
        goal = Path(folder, "goal")
        goal.mkdir()
        with suppress(HoldfastError):
            unpack(io.BytesIO(bytes(data)), goal, rename=("x", "mine"))
        assert [path.name for path in goal.parent.iterdir()] == ["goal"]
        assert {path.name for path in goal.iterdir()} <= {"mine"}


@pytest.mark.parametrize("tar_format", ["gnu", "posix"])
def test_sparse_file_is_refused_without_an_accusation(tmp_path, tar_format):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 24)
        file.write(b"x")
    data = subprocess.check_output(
        ["tar", "-C", tmp_path, f"--format={tar_format}", "-Scf", "-", "sparse"],
    )
    with pytest.raises(ApiRequestRejectedError, match="contains a file in sparse format") as caught:
        unpack(io.BytesIO(data), tmp_path)
    assert "--sparse" in caught.value.hint
    assert "trust" not in caught.value.hint
