"""Files over HTTP: upload, download, list and exists, and no access outside of the directory."""

import os
import urllib.parse

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from holdfast.runtime.workspace_files import WorkspaceFiles

NAMES = [
    "plain",
    "with space",
    "deep/er/still",
    'quo"te',
    "per%cent",
    "%41",
    "ümläut",
    "semi;colon",
    "back\\slash",
]


def quoted(path):
    return urllib.parse.quote(path, safe="")


def upload(sandbox, path, content, **options):
    return sandbox.session.post(
        f"{sandbox.url}/upload", files={"file": (path, content)}, timeout=30, **options
    )


def get(sandbox, word, path):
    return sandbox.session.get(f"{sandbox.url}/{word}/{quoted(path)}", timeout=30)


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(sandbox, name):
    content = os.urandom(70_000) + b"\r\n--not the end\r\n"
    answer = upload(sandbox, name, content)
    assert (answer.status_code, answer.json()) == (200, {"message": f"File '{name}' uploaded successfully."})
    assert (sandbox.root / name).read_bytes() == content
    answer = get(sandbox, "download", name)
    assert answer.content == content
    assert answer.headers["Content-Length"] == str(len(content))
    assert get(sandbox, "exists", name).json()["exists"] is True


def test_empty_file(sandbox):
    assert upload(sandbox, "none", b"").status_code == 200
    assert get(sandbox, "download", "none").content == b""


def test_chunked_upload(sandbox):
    boundary = "0123456789abcdef"
    content = os.urandom(3_000_000)

    def pieces():
        yield f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'.encode()
        yield from (content[at : at + 100_003] for at in range(0, len(content), 100_003))
        yield f"\r\n--{boundary}--\r\n".encode()

    answer = sandbox.session.post(
        f"{sandbox.url}/upload", data=pieces(), timeout=30,
        headers={"Content-Type": f"multipart/form-data; boundary={boundary}"},
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    assert (sandbox.root / "x").read_bytes() == content


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300), cut=st.integers(1, 50), other=st.booleans())
def test_content_resembling_boundaries(sandbox, content, cut, other):
    body = b"--b\r\n"
    if other:
        body += b'Content-Disposition: form-data; name="note"\r\n\r\n--b not a boundary\r\n--b\r\n'
    content = content.replace(b"\r\n--b", b"")
    body += b'Content-Disposition: form-data; name="file"; filename="x"\r\n\r\n' + content + b"\r\n--b--\r\n"
    answer = sandbox.session.post(
        f"{sandbox.url}/upload", data=(body[at : at + cut] for at in range(0, len(body), cut)), timeout=30,
        headers={"Content-Type": "multipart/form-data; boundary=b"},
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    assert (sandbox.root / "x").read_bytes() == content


def test_replaced_file_keeps_mode_and_new_file_uses_default(sandbox):
    (sandbox.root / "run").write_text("old")
    (sandbox.root / "run").chmod(0o751)
    upload(sandbox, "run", b"new")
    assert (sandbox.root / "run").stat().st_mode & 0o777 == 0o751
    upload(sandbox, "fresh", b"x")
    (sandbox.root / "other").write_text("x")
    assert (sandbox.root / "fresh").stat().st_mode == (sandbox.root / "other").stat().st_mode


def test_aborted_upload_keeps_old_file(sandbox):
    (sandbox.root / "kept").write_text("old")
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="kept"\r\n\r\nhalf of'
    answer = sandbox.session.post(
        f"{sandbox.url}/upload",
        data=body,
        headers={"Content-Type": "multipart/form-data; boundary=b"},
        timeout=30,
    )
    assert answer.status_code == 400
    assert (sandbox.root / "kept").read_text() == "old"
    assert [path.name for path in sandbox.root.iterdir()] == ["kept"]


def test_non_utf8_name_is_listed(sandbox):
    (sandbox.root / os.fsdecode(b"a\xffb")).write_text("x")
    assert [os.fsencode(entry["name"]) for entry in get(sandbox, "list", "").json()] == [b"a\xffb"]


def test_listing(sandbox):
    (sandbox.root / "b").write_text("four")
    (sandbox.root / "a").mkdir()
    (sandbox.root / "to-a").symlink_to("a")
    (sandbox.root / "broken").symlink_to("nowhere")
    os.mkfifo(sandbox.root / "pipe")
    os.utime(sandbox.root / "b", (1_000_000_000, 1_000_000_000))
    found = {entry["name"]: entry for entry in get(sandbox, "list", "").json()}
    assert list(found) == ["a", "b", "broken", "pipe", "to-a"]
    assert found["b"] == {"name": "b", "size": 4, "type": "file", "mod_time": 1_000_000_000}
    assert {name for name, entry in found.items() if entry["type"] == "directory"} == {"a", "to-a"}
    assert get(sandbox, "list", "a").json() == []


@pytest.fixture
def secret(sandbox):
    """A file and a folder outside, and links that lead there."""
    outside = sandbox.root.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (sandbox.root / "leave").symlink_to(outside)
    (sandbox.root / "file").symlink_to(outside / "secret")
    (sandbox.root / "stay").symlink_to("inside")
    (sandbox.root / "inside").write_text("in")
    (sandbox.root / "loop").symlink_to("loop")
    return outside


OUTSIDE = ["../outside/secret", "a/../../outside/secret", "leave/secret", "file", "/../outside/secret", "../"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_is_read(sandbox, secret, path):
    for word in ("download", "list", "exists"):
        answer = get(sandbox, word, path)
        assert answer.status_code == 403, (word, path, answer.text)
        assert answer.json() == {"message": "Access denied"}


@pytest.mark.parametrize("path", [*OUTSIDE, "leave/new", "../new"])
def test_nothing_outside_is_written(sandbox, secret, path):
    answer = upload(sandbox, path, b"changed")
    assert answer.status_code == 403, answer.text
    assert answer.json() == {"message": "Access denied"}
    assert (secret / "secret").read_text() == "secret"
    assert sorted(path.name for path in sandbox.root.parent.iterdir()) == ["outside", "root"]


def test_raw_path_with_dots_is_rejected(sandbox, secret):
    import http.client

    for path in (
        "/download/../outside/secret",
        "/download/%2e%2e/outside/secret",
        "/download/..%2foutside%2fsecret",
    ):
        connection = http.client.HTTPConnection("127.0.0.1", sandbox.port, timeout=30)
        connection.putrequest("GET", path, skip_host=False)
        connection.endheaders()
        assert connection.getresponse().status == 403
        connection.close()


def test_link_inside_workspace_is_followed(sandbox, secret):
    assert get(sandbox, "download", "stay").content == b"in"
    upload(sandbox, "stay", b"changed")
    assert (sandbox.root / "inside").read_text() == "changed"
    assert (sandbox.root / "stay").is_symlink()


def test_absolute_path_is_relative_to_workspace(sandbox):
    assert upload(sandbox, "/etc/passwd", b"mine").status_code == 200
    assert (sandbox.root / "etc" / "passwd").read_text() == "mine"


@pytest.fixture
def objects(sandbox):
    """One object of each kind that a path can lead to."""
    (sandbox.root / "folder").mkdir()
    (sandbox.root / "plain").write_text("x")
    (sandbox.root / "loop").symlink_to("loop")
    os.mkfifo(sandbox.root / "pipe")


NO_FILES = ["missing", "folder", "folder/below/none", "plain/below", "pipe", "loop", "x" * 300, ""]


@pytest.mark.parametrize("path", NO_FILES)
def test_download_of_no_file_is_not_found(sandbox, objects, path):
    answer = get(sandbox, "download", path)
    assert (answer.status_code, answer.json()) == (404, {"message": "File not found"})


@pytest.mark.parametrize("path", ["missing", "plain", "plain/below", "pipe", "loop", "x" * 300])
def test_list_of_no_directory_is_not_found(sandbox, objects, path):
    answer = get(sandbox, "list", path)
    assert (answer.status_code, answer.json()) == (404, {"message": "Path is not a directory"})


@pytest.mark.parametrize("path", [*NO_FILES, "plain"])
def test_exists(sandbox, objects, path):
    answer = get(sandbox, "exists", path)
    is_there = path in ("folder", "pipe", "plain", "")
    assert (answer.status_code, answer.json()) == (200, {"path": path, "exists": is_there})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("word", ["download", "list"])
def test_inaccessible_path_is_denied(sandbox, word):
    (sandbox.root / "closed").mkdir(mode=0)
    answer = get(sandbox, word, "closed/file")
    assert (answer.status_code, answer.json()) == (403, {"message": "Access denied"})


def test_other_requests_are_rejected_with_message(sandbox):
    assert get(sandbox, "other", "plain").status_code == 404
    answer = get(sandbox, "download", "a\0b")
    assert answer.status_code == 400
    assert answer.json()["message"]


@pytest.mark.parametrize("path", ["", "/", ".", "folder", "folder/", "plain/below", "a\0b"])
def test_unwritable_path_is_reported(sandbox, path):
    (sandbox.root / "folder").mkdir()
    (sandbox.root / "plain").write_text("x")
    answer = upload(sandbox, path, b"content" * 100_000)
    assert answer.status_code == 400, answer.text
    assert sorted(path.name for path in sandbox.root.rglob("*")) == ["folder", "plain"]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/plain", b"x"),
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=b", b""),
        ("multipart/form-data; boundary=b", b"--b--\r\n"),
        ("multipart/form-data; boundary=b", b"--bxx\r\n\r\n--b--"),
        ("multipart/form-data; boundary=b", b"--b\r\n" + b"x" * 40_000),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--',
        ),
    ],
)
def test_invalid_form_is_rejected(sandbox, kind, body):
    answer = sandbox.session.post(
        f"{sandbox.url}/upload", data=body, headers={"Content-Type": kind}, timeout=30
    )
    assert 400 <= answer.status_code < 500
    assert answer.json()["message"]
    assert list(sandbox.root.iterdir()) == []


def test_large_file_uses_constant_memory(sandbox):
    import tracemalloc

    size = 64 * 1024 * 1024

    def pieces():
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="big"\r\n\r\n'
        for _ in range(size // (1024 * 1024)):
            yield b"\0" * 1024 * 1024
        yield b"\r\n--b--\r\n"

    tracemalloc.start()
    try:
        sandbox.session.post(
            f"{sandbox.url}/upload", data=pieces(), timeout=60,
            headers={"Content-Type": "multipart/form-data; boundary=b"},
        )  # fmt: skip
        with sandbox.session.get(f"{sandbox.url}/download/big", stream=True, timeout=60) as answer:
            read = sum(len(piece) for piece in answer.iter_content(64 * 1024))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read == size
    assert most < size // 4


def test_health_endpoint(sandbox):
    assert sandbox.session.get(sandbox.url, timeout=30).json() == {
        "status": "ok",
        "message": "Sandbox Runtime is active.",
    }


def test_cross_origin_request_is_rejected(sandbox):
    (sandbox.root / "plain").write_text("content")
    origin = {"Origin": "https://example.org"}
    assert upload(sandbox, "new", b"x", headers=origin).status_code == 403
    answer = sandbox.session.get(f"{sandbox.url}/download/plain", headers=origin, timeout=30)
    assert (answer.status_code, b"content" in answer.content) == (403, False)
    assert [path.name for path in sandbox.root.iterdir()] == ["plain"]


def test_upload_leaves_umask_of_process_alone(tmp_path, monkeypatch):
    """Requests run in threads, and the umask belongs to the process."""
    previous = os.umask(0o027)
    try:
        files = WorkspaceFiles(tmp_path)
        monkeypatch.setattr(os, "umask", lambda mask: pytest.fail(f"umask set to {mask:o}"))
        files.write("new", [b"x"])
    finally:
        monkeypatch.undo()
        os.umask(previous)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640
