"""Archives of `image save`: complete ones give back the exported images, all others are refused."""

import hashlib
import io
import json
import tarfile

import pytest

from holdfast.errors import CorruptFileError
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


def exported(*, tags=(REFERENCE,), layer=b"layer" * 1000, manifest_first=True):
    """A Docker archive as an engine exports it: two layers, one of them a link to the other."""
    manifest = json.dumps([{"Config": "c.json", "RepoTags": list(tags), "Layers": ["a/layer.tar"]}]).encode()
    members = [("a/layer.tar", layer), ("c.json", b"{}"), ("repositories", b"{}")]
    members.insert(0 if manifest_first else 3, ("manifest.json", manifest))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        folder = tarfile.TarInfo("a")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in members:
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
    docker_archive = b"".join(reader.docker_archive())
    assert reader.index == INDEX
    assert members_of(docker_archive) == members_of(exported())
    assert set(list(members_of(docker_archive))[-2:]) == {"manifest.json", "repositories"}


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
        load(archive(tags=[REFERENCE, "postgres:16"]))


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
