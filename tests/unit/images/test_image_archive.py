"""Archives and layers are reproducible and have the format that container engines expect."""

import io
import json
import tarfile

import pytest

from holdfast.images.image_archive import ImageArchive, LayerWriter, read_tar_member
from holdfast.images.image_toml import ImageConfig


def make_layer(folder, name="layer.tar"):
    folder.mkdir(exist_ok=True)
    program = folder / "program"
    program.write_bytes(b"#!/bin/sh\n")
    program.chmod(0o755)
    with LayerWriter(folder / name) as layer:
        layer.add_file("/usr/local/bin/program", program)
        layer.add_bytes("/etc/thing", b"text")
        layer.add_symlink("/usr/local/bin/alias", "program")
        layer.add_directory("/sandbox")
    return folder / name


def make_archive(layer, **changes):
    config = ImageConfig(entrypoint=("/usr/local/bin/program",), environment={"A": "1"}, healthcheck=("ok",))
    return ImageArchive("holdfast/x:1", [layer], config, architecture="amd64", labels={"k": "v", **changes})


def test_same_content_gives_same_digest(tmp_path):
    first = make_archive(make_layer(tmp_path / "a"))
    second = make_archive(make_layer(tmp_path / "b"))
    assert first.config_digest == second.config_digest
    assert b"".join(first.stream()) == b"".join(second.stream())


def test_other_label_gives_other_digest(tmp_path):
    layer = make_layer(tmp_path / "a")
    assert make_archive(layer).config_digest != make_archive(layer, k="w").config_digest


def test_archive_has_docker_load_format(tmp_path):
    layer = make_layer(tmp_path)
    packed = io.BytesIO(b"".join(make_archive(layer).stream()))
    with tarfile.open(fileobj=packed) as archive:
        manifest = json.load(archive.extractfile("manifest.json"))[0]
        config = json.load(archive.extractfile(manifest["Config"]))
        packed_layer = archive.extractfile(manifest["Layers"][0]).read()
    assert manifest["RepoTags"] == ["holdfast/x:1"]
    assert packed_layer == layer.read_bytes()
    assert config["config"]["Healthcheck"]["Test"] == ["CMD", "ok"]
    assert config["config"]["Labels"] == {"k": "v"}
    assert len(config["rootfs"]["diff_ids"]) == len(manifest["Layers"]) == 1


def test_layer_files_are_owned_by_root_without_mtime(tmp_path):
    with tarfile.open(make_layer(tmp_path)) as tar:
        members = {member.name: member for member in tar}
    assert {(member.uid, member.gid, member.mtime) for member in members.values()} == {(0, 0, 0)}
    assert members["usr/local/bin/program"].mode == 0o755
    assert members["usr/local/bin/alias"].linkname == "program"
    assert members["sandbox"].isdir()
    assert members["usr/local"].mode == 0o755


def test_rootfs_member_can_be_read(tmp_path):
    tar = make_layer(tmp_path)
    assert read_tar_member(tar, "/etc/thing") == b"text"
    with pytest.raises(FileNotFoundError):
        read_tar_member(tar, "/etc/other")
