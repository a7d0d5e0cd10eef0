"""Output of the file scripts: any name, any time, and output of programs that are not trusted."""

from pathlib import PurePosixPath

import pytest

from holdfast.client.file_entries import parse_entries

DIRECTORY = PurePosixPath("/sandbox")


def test_names_may_contain_everything_but_slashes():
    output = b"s81a4 3 7 a b\n/\ns41ed 0 8 s\xff 1/\nsa1ff 1 9 l/\nll/x/\ny\0"
    first, second, link = parse_entries(output, DIRECTORY, is_listing=True)
    assert (first.name, first.type, first.size, oct(first.mode)) == ("a b\n", "file", 3, "0o644")
    assert (second.path, second.type) == ("/sandbox/s\udcff 1", "directory")
    assert (link.type, link.link_target) == ("symlink", "x/\ny")


def test_times_out_of_range_are_clipped():
    for time, year in ((10**15, 9999), (-(10**15), 1)):
        (entry,) = parse_entries(b"s81a4 0 %d /\n" % time, DIRECTORY)
        assert entry.mtime.year == year


@pytest.mark.parametrize("output", [b"x", b"s/", b"s1 2 /\n", b"sz 1 1 /\n", b"s1 1 1 n/\nln/target", b"/"])
def test_other_output_is_an_error(output):
    with pytest.raises(ValueError):
        parse_entries(output, DIRECTORY)
