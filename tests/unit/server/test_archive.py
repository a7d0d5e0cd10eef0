"""What an archive may hold: everything that stays in its folder, however programs write its name."""

from __future__ import annotations

import io
import tarfile
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.server.archive import ArchiveCheck
from holdfast.server.problems import ApiError

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def entry(name, kind=tarfile.REGTYPE, content=b"", link=""):
    made = tarfile.TarInfo(name)
    made.type, made.size, made.linkname = kind, len(content), link
    return made, content


def packed(*entries, form="gnu"):
    room = io.BytesIO()
    with tarfile.open(fileobj=room, mode="w", format=FORMATS[form]) as archive:
        for made, content in entries:
            archive.addfile(made, io.BytesIO(content))
    return room.getvalue()


def check(data, piece=None):
    found = ArchiveCheck()
    for at in range(0, len(data), piece or len(data) or 1):
        found.feed(data[at : at + (piece or len(data))])
    found.end()
    return found


def refusal(data, piece=None):
    with pytest.raises(ApiError) as caught:
        check(data, piece)
    assert caught.value.status == 400
    return caught.value.problem.code


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("piece", [1, 7, 512, 513, 100_000])
def test_ordinary_archives_pass_in_pieces_of_any_size(form, piece):
    data = packed(
        entry("d", tarfile.DIRTYPE),
        entry("d/a", content=b"x" * 700),
        entry("d/b", tarfile.SYMTYPE, link="a"),
        entry("d/c", tarfile.LNKTYPE, link="d/a"),
        entry("e/" + "n" * 90, content=b"yy"),
        form=form,
    )
    found = check(data, piece)
    assert (found.entries, found.bytes) == (5, 702)


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_long_names_are_read_in_both_ways_of_writing_them(form):
    deep = "/".join(["folder"] * 60)
    assert check(packed(entry(f"{deep}/a", content=b"1"), form=form)).entries == 1
    assert refusal(packed(entry(f"../{deep}", content=b"1"), form=form)) == "unsafe-archive"
    assert refusal(packed(entry(f"/{deep}", content=b"1"), form=form)) == "unsafe-archive"
    assert refusal(packed(entry("l", tarfile.SYMTYPE, link=f"../{deep}"), form=form)) == "unsafe-archive"


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_a_name_that_no_system_opens_is_refused(form):
    longest = "a/" * 2047 + "ab"
    assert len(longest) == 4096
    link = entry("l", tarfile.SYMTYPE, link="x")
    assert check(packed(link, entry(longest), form=form)).entries == 2
    assert refusal(packed(entry(longest + "c"), form=form)) == "bad-archive"
    assert refusal(packed(entry("\u00e9" * 2049), form=form)) == "bad-archive"
    assert refusal(packed(entry("s", tarfile.SYMTYPE, link="a" * 4097), form=form)) == "bad-archive"


def test_what_is_remembered_of_links_has_a_bound():
    most = 8 * 1024 * 1024 // 4000

    def links(names):
        made = (entry(name, tarfile.SYMTYPE, link="x")[0] for name in names)
        return b"".join(each.tobuf(tarfile.GNU_FORMAT) for each in made)

    names = [f"{number:04000}" for number in range(most)]
    assert check(links(names[: most * 9 // 10])).entries == most * 9 // 10
    assert refusal(links(names)) == "bad-archive"
    assert check(links(names[:1] * most)).entries == most


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["..", "../a", "a/../../b", "a/..", "/etc/passwd", "//a", "./../a"])
def test_names_that_leave_are_refused(name, form):
    assert refusal(packed(entry(name, content=b"1"), form=form)) == "unsafe-archive"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize("link", ["/etc/passwd", "../../x", "../..", "a/../../../x"])
def test_links_that_leave_are_refused(link, kind, form):
    assert refusal(packed(entry("d/l", kind, link=link), form=form)) == "unsafe-archive"


def test_links_within_the_folder_pass():
    data = packed(
        entry("d/l", tarfile.SYMTYPE, link="../other"), entry("d/m", tarfile.SYMTYPE, link="./../d/./x")
    )
    assert check(data).entries == 2


def test_nothing_is_written_through_a_link_of_the_archive_itself():
    through = packed(entry("l", tarfile.SYMTYPE, link="."), entry("l/a", content=b"1"))
    assert refusal(through) == "unsafe-archive"
    chained = packed(entry("l", tarfile.SYMTYPE, link="x"), entry("h", tarfile.LNKTYPE, link="l/y"))
    assert refusal(chained) == "unsafe-archive"


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, b"S", b"V", b"Z"])
def test_devices_pipes_and_unknown_kinds_are_refused(kind):
    assert refusal(packed(entry("a", kind))) == "unsafe-archive"


def test_content_where_none_belongs_is_refused():
    made, _ = entry("d", tarfile.DIRTYPE)
    made.size = 512
    assert refusal(made.tobuf(tarfile.GNU_FORMAT) + bytes(512 + 1024)) == "bad-archive"


def test_a_sparse_file_and_a_name_for_all_are_refused():
    made, content = entry("a", content=b"1")
    made.pax_headers = {"GNU.sparse.name": "../../x"}
    assert refusal(packed((made, content), form="pax")) == "bad-archive"
    everything = tarfile.TarInfo.create_pax_global_header({"path": "../x"})
    assert refusal(everything + packed(entry("a"))) == "bad-archive"


def test_what_is_no_archive_is_refused():
    assert refusal(b"PK\3\4" + bytes(600)) == "bad-archive"
    assert refusal(packed(entry("a")) + b"x" * 512) == "bad-archive"
    assert refusal(b"") == "archive-cut"


def test_a_cut_archive_is_refused():
    data = packed(entry("a", content=b"x" * 2000))
    for length in (100, 512, 1000, 2000):
        assert refusal(data[:length]) == "archive-cut"


def test_a_checksum_that_is_wrong_is_refused():
    data = bytearray(packed(entry("a", content=b"1")))
    data[0] ^= 1
    assert refusal(bytes(data)) == "bad-archive"


@given(
    st.lists(
        st.tuples(st.text("ab./\u00e9", min_size=1, max_size=130), st.binary(max_size=1200)),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(sorted(FORMATS)),
    st.integers(1, 2000),
)
def test_what_passes_stays_in_the_folder_as_another_reader_sees_it(files, form, piece):
    try:
        data = packed(*(entry(name, content=content) for name, content in files), form=form)
    except ValueError:  # too long for that way of writing
        return
    try:
        found = check(data, piece)
    except ApiError:
        return
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        read = archive.getmembers()
    assert found.entries == len(read)
    assert found.bytes == sum(each.size for each in read)
    for each in read:
        assert not each.name.startswith("/")
        assert ".." not in each.name.split("/")


@given(st.binary(max_size=3000), st.integers(1, 700))
def test_rubbish_never_breaks_it(data, piece):
    with suppress(ApiError):
        check(data, piece)
