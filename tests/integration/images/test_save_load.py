"""`image save` and `image load` with small images on the machine's container engine."""

from __future__ import annotations

import io
import json
import subprocess
import uuid

import pytest
from tests.support.small_images import SmallImages

from holdfast.errors import (
    CorruptFileError,
    ImageIncompatibleError,
    ImageNotFoundError,
    PermanentError,
    UsageError,
)
from holdfast.events import EventBus
from holdfast.images import load_images, save_images, save_load
from holdfast.images.archive_format import decompress
from holdfast.remote import connect

pytestmark = pytest.mark.engine

NAMES = ("node", "gateway", "sandbox")


class SavedSet:
    """Small images under the names of a version of holdfast that does not exist."""

    def __init__(self, images: SmallImages, version: str) -> None:
        self.engine, self._images, self.version = images.engine, images, version
        self.references = [f"holdfast/{name}:{version}" for name in NAMES]

    def build(self, content=b"1", **options):
        for number, reference in enumerate(self.references):
            layer = {"file": content * 300_000, f"own-{number}": reference.encode()}
            labels = {"dev.holdfast.inputs": f"key-{number}"}
            self._images.build([layer], name=reference, labels=labels, **options)

    def ids(self):
        found = [save_load.find_image(self.engine, reference) for reference in self.references]
        return [image and image.id for image in found]

    def remove(self):
        for reference in self.references:
            if save_load.find_image(self.engine, reference):
                self.engine.client.remove_image(reference)


@pytest.fixture
def saved_set(monkeypatch):
    version = f"0.0.0-{uuid.uuid4().hex[:8]}"
    for module in ("recipe", "save_load"):
        monkeypatch.setattr(f"holdfast.images.{module}.__version__", version)
    made = SavedSet(SmallImages(connect()), version)
    yield made
    made.remove()


def test_images_move_through_an_archive(saved_set, tmp_path):
    saved_set.build()
    before = saved_set.ids()
    archive = tmp_path / "images.tar.gz"
    saved = save_images(archive)
    assert saved.size == archive.stat().st_size
    assert [image.reference for image in saved.images] == saved_set.references
    saved_set.remove()
    loaded = load_images(archive)
    assert [image.changed for image in loaded] == [True, True, True]
    assert saved_set.ids() == before
    assert [image.id for image in loaded] == before
    assert [image.changed for image in load_images(archive)] == [False, False, False]


def test_images_move_through_a_pipe(saved_set):
    saved_set.build()
    stream = io.BytesIO()
    save_images(stream, ["sandbox"])
    saved_set.remove()
    stream.seek(0)
    (loaded,) = load_images(stream)
    assert loaded.changed
    stream.seek(0)
    (loaded,) = load_images(stream)
    assert not loaded.changed
    # The writer of the pipe could write everything.
    assert stream.read() == b""


def test_older_images_are_replaced_and_removed(saved_set, tmp_path):
    saved_set.build(b"2")
    newer = saved_set.ids()
    save_images(tmp_path / "a")
    saved_set.remove()
    saved_set.build(b"1")
    older = saved_set.ids()
    load_images(tmp_path / "a")
    assert saved_set.ids() == newer
    assert not set(older) & set(newer)
    assert [save_load.find_image(saved_set.engine, image) for image in older] == [None, None, None]


def test_docker_loads_the_archive_too(saved_set, tmp_path):
    saved_set.build()
    before = saved_set.ids()
    save_images(tmp_path / "a")
    saved_set.remove()
    subprocess.run(
        ["docker", "load", "--quiet", "--input", tmp_path / "a"], check=True, stdout=subprocess.PIPE
    )
    assert saved_set.ids() == before


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_archive_loads_nothing(saved_set, tmp_path, damage):
    saved_set.build()
    archive = tmp_path / "a"
    save_images(archive)
    saved_set.remove()
    content = bytearray(archive.read_bytes())
    if damage == "cut":
        del content[-200:]
    else:
        content[len(content) // 2] ^= 0xFF
    archive.write_bytes(content)
    with pytest.raises(CorruptFileError, match="damaged or incomplete"):
        load_images(archive)
    assert saved_set.ids() == [None, None, None]


def test_other_architecture_is_refused(saved_set, tmp_path):
    other = "arm64" if saved_set.engine.architecture == "amd64" else "amd64"
    saved_set.build(architecture=other)
    save_images(tmp_path / "a")
    saved_set.remove()
    with pytest.raises(ImageIncompatibleError, match=f"for {other}, but the container engine runs"):
        load_images(tmp_path / "a")
    assert saved_set.ids() == [None, None, None]


def test_other_version_is_refused(saved_set, tmp_path, monkeypatch):
    saved_set.build()
    save_images(tmp_path / "a")
    monkeypatch.setattr("holdfast.images.save_load.__version__", "9.9")
    with pytest.raises(ImageIncompatibleError, match=f"belong to holdfast {saved_set.version}"):
        load_images(tmp_path / "a")


def test_missing_image_names_the_build_command(saved_set, tmp_path):
    with pytest.raises(ImageNotFoundError) as caught:
        save_images(tmp_path / "a", ["sandbox-full"])
    assert caught.value.hint == "Run `holdfast image build sandbox-full`."
    assert list(tmp_path.iterdir()) == []


def test_failed_save_keeps_the_old_file(saved_set, tmp_path, monkeypatch):
    saved_set.build()
    archive = tmp_path / "a"
    archive.write_text("old")

    def fail(index, exported):
        yield next(iter(exported))
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(save_load, "encode_archive", fail)
    with pytest.raises(PermanentError, match="Input/output error"):
        save_images(archive)
    assert archive.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_only_regular_files_are_replaced(tmp_path):
    for target in (tmp_path, tmp_path / "missing" / "a"):
        with pytest.raises(UsageError):
            save_images(target)


def test_archive_replaces_the_target_of_a_link(saved_set, tmp_path):
    saved_set.build()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    save_images(tmp_path / "link", ["sandbox"])
    assert (tmp_path / "link").is_symlink()
    index = b"".join(decompress([(tmp_path / "file").read_bytes()], "file"))[512:2000].split(b"\0")[0]
    assert [image["image"] for image in json.loads(index)["images"]] == ["sandbox"]


def test_progress_has_bytes_and_events(saved_set, tmp_path):
    saved_set.build()
    events = []
    save_images(tmp_path / "a", bus=EventBus(events.append))
    messages = [event.message for event in events if type(event).__name__ == "StepProgress"]
    assert any(" MB" in message for message in messages), events
