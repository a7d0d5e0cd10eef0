"""Bodies in chunks: only what RFC 9112 allows."""

import io

import pytest

from holdfast.runtime.http_request import HTTPError, RequestBody


def read_chunked(raw):
    return RequestBody(io.BytesIO(raw), {"Transfer-Encoding": "chunked"}).read_all(1000)


def test_chunks_are_joined():
    assert (
        read_chunked(b"3;name=value\r\nabc\r\n0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n")
        == b"abc0123456789"
    )


@pytest.mark.parametrize("size", [b"", b"0x3", b"+3", b"-3", b"0_3", b"3 3", b"g", "\u0663".encode()])
def test_chunk_size_is_a_plain_hexadecimal_number(size):
    with pytest.raises(HTTPError, match="does not start with its size") as refused:
        read_chunked(size + b"\r\nabc\r\n0\r\n\r\n")
    assert refused.value.status == 400


def test_chunk_longer_than_its_size_is_rejected():
    with pytest.raises(HTTPError, match="does not end with a line break"):
        read_chunked(b"3\r\nabcdef\r\n0\r\n\r\n")
