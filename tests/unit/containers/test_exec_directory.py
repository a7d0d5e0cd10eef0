"""The archive that replaces a directory in a container."""

import io
import tarfile

from holdfast.containers.exec import directory_archive


def test_archive_replaces_existing_directory():
    packed = directory_archive("registries", {"a:5000/hosts.toml": b"x"})
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = [(member.name, member.isdir(), member.mode) for member in archive]
    assert members == [
        ("registries", False, 0o600),
        ("registries", True, 0o755),
        ("registries/a:5000", True, 0o755),
        ("registries/a:5000/hosts.toml", False, 0o600),
    ]
