"""Records of pax headers: what is written comes back, and what could be read in two ways is refused."""

import tarfile

import pytest

from holdfast.images import tar_reader


def test_standard_library_headers_are_parsed():
    written = tarfile.TarInfo._create_pax_generic_header(
        {"path": "a/ü", "comment": "b=c"}, tarfile.XHDTYPE, "utf-8"
    )
    size = int(written[124:135], 8)
    assert tar_reader.parse_pax_records(written[512 : 512 + size]) == {"path": "a/ü", "comment": "b=c"}


@pytest.mark.parametrize(
    "content",
    [
        b"999999 path=x\n",
        b"0 path=x\n",
        b"9 path=x",
        b"8 pathx\n",
        b"10 pa\0th=x\n",
        b"x path=x\n",
        b"1" * 60,
    ],
)
def test_ambiguous_headers_are_rejected(content):
    with pytest.raises(ValueError, match="malformed"):
        tar_reader.parse_pax_records(content)
