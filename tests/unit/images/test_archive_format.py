"""Archives of `image save`: complete ones give back the exported images, all others are refused."""

import hashlib
import io
import json
import tarfile

import pytest

from holdfast import __version__
from holdfast.errors import CorruptFileError, ImageIncompatibleError
from holdfast.images.archive_format import (
    ArchiveIndex,
    ArchiveReader,
    SavedImage,
    compress,
    decompress,
    encode_archive,
)

REFERENCE = "holdfast/sandbox:1"
INDEX = ArchiveIndex(
    format=1,
    version="1",
    architecture="amd64",
    images=(SavedImage(image="sandbox", reference=REFERENCE, id="sha256:1", inputs="k", size=1000),),
)


MANIFEST = {"Config": "c.json", "RepoTags": [REFERENCE], "Layers": ["a/layer.tar", "b/layer.tar"]}


def exported(*, manifest=MANIFEST, layer=b"layer" * 1000, manifest_first=True, more=(), without=()):
    """A Docker archive as an engine exports it: two layers, one of them a link to the other."""
    manifest = manifest if isinstance(manifest, bytes) else json.dumps([manifest]).encode()
    members = [("a/layer.tar", layer), ("c.json", b"{}"), ("repositories", b"{}"), *more]
    members.insert(0 if manifest_first else 3, ("manifest.json", manifest))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        folder = tarfile.TarInfo("a")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in members:
            if name not in without:
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("b/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, "../a/layer.tar"
        tar.addfile(link)
    return packed.getvalue()


def chunks_of(content, size=700):
    return (content[start : start + size] for start in range(0, len(content), size))


def archive(index=INDEX, **options):
    return b"".join(compress(encode_archive(index, chunks_of(exported(**options)))))


def read(content, size=700):
    return ArchiveReader(decompress(chunks_of(content, size), "FILE"), "FILE")


def members_of(content):
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {
            entry.name: tar.extractfile(entry).read() if entry.isfile() else entry.linkname for entry in tar
        }


def load(content):
    return members_of(b"".join(read(content).docker_archive()))


@pytest.mark.parametrize("manifest_first", [True, False])
def test_members_survive_and_manifest_is_last(manifest_first):
    content = archive(manifest_first=manifest_first)
    reader = read(content)
    members = members_of(b"".join(reader.docker_archive()))
    assert reader.index == INDEX
    assert list(members)[-1] == "manifest.json"
    assert json.loads(members.pop("manifest.json")) == [MANIFEST]
    original = members_of(exported())
    assert members == {name: original[name] for name in ("a", "a/layer.tar", "b/layer.tar", "c.json")}


def test_long_names_survive():
    name = f"blobs/{'ä' * 150}"
    content = archive(manifest={**MANIFEST, "Layers": [name]}, more=[(name, b"long")])
    assert load(content)[name] == b"long"


def test_is_a_docker_archive_itself():
    with tarfile.open(fileobj=io.BytesIO(archive())) as tar:
        assert {"manifest.json", "a/layer.tar", "c.json"} <= set(tar.getnames())


def test_large_compressible_layer():
    layer = bytes(5_000_000)
    content = archive(layer=layer)
    assert len(content) < 100_000
    assert load(content)["a/layer.tar"] == layer


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.999])
def test_cut_off_archive_names_no_image(kept):
    content = archive(layer=hashlib.shake_256(b"x").digest(100_000))
    passed_on = []
    with pytest.raises(CorruptFileError, match="FILE: the archive is damaged or incomplete"):
        passed_on += read(content[: int(len(content) * kept)]).docker_archive()
    assert b"manifest.json" not in b"".join(passed_on)


def test_every_changed_byte_is_found_or_changes_nothing():
    content = archive(layer=b"x" * 50)
    complete, unnoticed = b"".join(read(content).docker_archive()), 0
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 0xFF
        passed_on = []
        try:
            passed_on += read(bytes(changed)).docker_archive()
        except CorruptFileError:
            assert b"manifest.json" not in b"".join(passed_on)
        else:
            # The time in the header of gzip, and unused bits.
            assert b"".join(passed_on) == complete
            unnoticed += 1
    assert unnoticed < 10


def recompressed(content, change):
    """The same archive with a changed tar archive: compression and its checksum are right."""
    return b"".join(compress([change(b"".join(decompress([content], "FILE")))]))


def test_changed_layer_is_found():
    content = recompressed(archive(), lambda tar: tar.replace(b"layerlayer", b"LAYERlayer", 1))
    with pytest.raises(CorruptFileError, match=r"checksum of a/layer\.tar differs"):
        load(content)


def test_missing_checksums_are_found():
    content = recompressed(archive(), lambda tar: tar.replace(b"holdfast-checksums", b"holdfast-checkSUMS"))
    with pytest.raises(CorruptFileError, match="damaged"):
        load(content)


def test_image_outside_the_index_is_refused():
    with pytest.raises(CorruptFileError, match="its images differ from its index"):
        load(archive(manifest={**MANIFEST, "RepoTags": [REFERENCE, "postgres:16"]}))


OTHER_NAMES = json.dumps(
    {"manifests": [{"annotations": {"io.containerd.image.name": "postgres:16"}}]}
).encode()


@pytest.mark.parametrize("name", ["index.json", "./index.json", "a/../index.json", "repositories"])
def test_only_the_verified_manifest_names_images(name):
    """containerd takes the names from index.json if there is a file oci-layout."""
    layout = [("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'), (name, OTHER_NAMES)]
    content = archive(more=layout, without=("repositories",) if name == "repositories" else ())
    members = load(content)
    assert not {"index.json", "oci-layout", "repositories", name} & members.keys()
    assert not any(b"postgres" in part for part in members.values() if isinstance(part, bytes))


def test_other_spelling_of_a_field_is_not_passed_on():
    """Go reads fields in any case, so that the last of two spellings would win."""
    manifest = json.dumps([MANIFEST | {"repotags": ["postgres:16"]}]).encode()
    assert b"postgres" not in load(archive(manifest=manifest))["manifest.json"]


@pytest.mark.parametrize("name", ["manifest.json", "./manifest.json"])
def test_second_manifest_is_refused(name):
    with pytest.raises(CorruptFileError, match="occurs twice"):
        load(archive(more=[(name, json.dumps([MANIFEST]).encode())]))


@pytest.mark.parametrize("missing", ["a/layer.tar", "c.json"])
def test_export_without_a_layer_is_an_error(missing):
    with pytest.raises(
        CorruptFileError, match=rf"export of the container engine.*{missing} is missing"
    ) as caught:
        archive(without=(missing,))
    assert caught.value.hint == "Run the same command again."


def test_many_members_are_refused():
    headers = (tarfile.TarInfo(f"{number}").tobuf() for number in range(20_000))
    with pytest.raises(CorruptFileError, match="too many members"):
        b"".join(encode_archive(INDEX, headers))


def test_data_after_the_end_is_refused():
    with pytest.raises(CorruptFileError, match="data after its end"):
        load(archive() + b"more")
    with pytest.raises(CorruptFileError, match="data after its end"):
        b"".join(decompress([archive(), archive()], "FILE"))


@pytest.mark.parametrize("content", [b"", b"text", b"".join(compress([b"text" * 300])), exported()])
def test_other_file_is_refused(content):
    with pytest.raises(CorruptFileError) as caught:
        load(content)
    assert "Traceback" not in caught.value.message


def test_docker_archive_without_index_is_refused():
    with pytest.raises(CorruptFileError, match="not an archive of `holdfast image save`"):
        read(b"".join(compress([exported()])))


def test_incomplete_export_is_an_error():
    with pytest.raises(CorruptFileError, match="export of the container engine"):
        b"".join(encode_archive(INDEX, [exported()[:3000]]))


def test_invalid_index_is_refused():
    content = recompressed(archive(), lambda tar: tar.replace(b'"version":"1"', b'"version":111'))
    with pytest.raises(CorruptFileError, match="its index is invalid"):
        read(content)


def test_other_format_names_both_formats():
    content = recompressed(archive(), lambda tar: tar.replace(b'"format":1,', b'"format":2,'))
    with pytest.raises(ImageIncompatibleError) as caught:
        read(content)
    assert caught.value.message == f"FILE: its format is 2, but holdfast {__version__} reads format 1"
    assert caught.value.hint == f"Create the archive again with holdfast {__version__}."


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_SPARSE, tarfile.FIFOTYPE, tarfile.CHRTYPE, b"Z"])
def test_export_with_other_types_of_members_is_refused(kind):
    entry = tarfile.TarInfo("x")
    entry.type = kind
    with pytest.raises(CorruptFileError, match=r"type of x is not supported|sparse|not a file"):
        list(encode_archive(INDEX, [entry.tobuf()]))


def test_export_with_a_name_that_is_not_utf8_is_refused():
    entry = tarfile.TarInfo("x\udcff")
    with pytest.raises(CorruptFileError, match="a name is not UTF-8"):
        list(encode_archive(INDEX, [entry.tobuf(tarfile.GNU_FORMAT, errors="surrogateescape")]))
