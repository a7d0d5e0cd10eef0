"""Headers of tar archives that only describe the next entry: they cannot fill the memory."""

import tarfile
import tracemalloc

import pytest

from holdfast.errors import CorruptFileError
from holdfast.images import TarReader


def unlimited_header(kind, size):
    """A tar archive whose first header only describes the next member, with much content."""
    entry = tarfile.TarInfo("long")
    entry.type, entry.size = kind, size
    yield entry.tobuf(tarfile.GNU_FORMAT)
    yield from (bytes(1 << 20) for _ in range(size >> 20))


@pytest.mark.parametrize(
    "kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE]
)
def test_long_header_uses_little_memory(kind):
    tracemalloc.start()
    with pytest.raises(CorruptFileError):
        list(TarReader(unlimited_header(kind, 64 << 20), CorruptFileError).entries())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("kind", [tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_many_headers_of_one_member_are_refused(kind):
    entry = tarfile.TarInfo("long")
    entry.type, entry.size = kind, 512
    content = (
        b"20 path=long-enough\n".ljust(512, b"\0") if kind == tarfile.GNUTYPE_LONGNAME else b"9 a=bcde\n"
    )
    header = entry.tobuf(tarfile.GNU_FORMAT) + content.ljust(512, b"\0")
    with pytest.raises(CorruptFileError):
        list(TarReader((header for _ in range(100_000)), CorruptFileError).entries())
