"""Entries and bytes of an uploaded archive are counted while it passes through."""

from __future__ import annotations

import io
import subprocess
import tarfile

import pytest

from holdfast.server.streams.files import EntryCounter


def archive(tar_format, *entries):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as writer:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            if content is None:
                entry.type = tarfile.DIRTYPE
            else:
                entry.size = len(content)
            writer.addfile(entry, io.BytesIO(content or b""))
    return buffer.getvalue()


ENTRIES = ("folder", None), ("folder/" + "n" * 150, b"x" * 1300), ("empty", b""), ("last", b"y" * 512)


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("piece_size", [1, 511, 512, 700, 1 << 20])
def test_entries_and_content_bytes_are_counted(tar_format, piece_size):
    entries = ENTRIES if tar_format != tarfile.USTAR_FORMAT else (("folder", None), *ENTRIES[2:])
    data, counter = archive(tar_format, *entries), EntryCounter()
    for start in range(0, len(data), piece_size):
        counter.feed(data[start : start + piece_size])
    assert counter.entries == len(entries)
    assert counter.bytes == sum(len(content or b"") for _, content in entries)


def test_size_in_pax_header_replaces_size_in_header():
    entry = tarfile.TarInfo("huge")
    entry.size = 1 << 34
    counter = EntryCounter()
    counter.feed(entry.tobuf(tarfile.PAX_FORMAT))
    inner = archive(tarfile.PAX_FORMAT, ("inner", b"content of the huge file"))
    counter.feed(inner)
    assert (counter.entries, counter.bytes) == (1, 1 << 34)


def test_other_data_counts_as_no_entry():
    counter = EntryCounter()
    counter.feed(b"not a tar archive" * 100)
    assert (counter.entries, counter.bytes) == (0, 0)


@pytest.mark.parametrize("tar_format", ["gnu", "posix"])
@pytest.mark.parametrize("piece_size", [1, 512, 700, 1 << 20])
def test_sparse_files_are_counted_and_passed_on_unchanged(tmp_path, tar_format, piece_size):
    with (tmp_path / "sparse").open("wb") as file:
        for number in range(60):  # more parts than one header describes
            file.seek(number << 20)
            file.write(b"x" * 4096)
    (tmp_path / "after").write_bytes(b"y" * 700)
    data = subprocess.check_output(
        ["tar", "-C", tmp_path, f"--format={tar_format}", "-Scf", "-", "sparse", "after"]
    )
    counter = EntryCounter()
    passed = b"".join(
        counter.feed(data[start : start + piece_size]) for start in range(0, len(data), piece_size)
    )
    assert (counter.entries, counter.is_complete) == (2, True)
    assert data.startswith(passed)
    assert not data[len(passed) :].strip(b"\0")
