"""The engine's frames around a command's output."""

from holdfast.containers.archives import packed_folder
from holdfast.containers.transfer import unframed


def frame(stream, words):
    return bytes([stream, 0, 0, 0]) + len(words).to_bytes(4, "big") + words


def test_both_outputs_in_their_order_and_a_cut_last_frame():
    whole = frame(1, b"unpacking ") + frame(2, b"ctr: no\n")
    assert unframed(whole) == "unpacking ctr: no\n"
    assert unframed(whole[:-3]) == "unpacking ctr: "
    assert unframed(b"") == unframed(b"\x01\x00") == ""


def test_a_folder_is_replaced_by_a_file_and_begun_anew():
    import io
    import tarfile

    packed = packed_folder("registries", {"a:5000/hosts.toml": b"x"})
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = [(member.name, member.isdir(), member.mode) for member in archive]
    assert members == [
        ("registries", False, 0o600),
        ("registries", True, 0o755),
        ("registries/a:5000", True, 0o755),
        ("registries/a:5000/hosts.toml", False, 0o600),
    ]
