"""A file of another program is rejected as store and never changed."""

from __future__ import annotations

import sqlite3
import stat

import pytest

from holdfast.cli.output import run_command
from holdfast.cli.runs import runs
from holdfast.errors import StoreError
from holdfast.workflow import SQLiteStore, Workflow
from holdfast.workflow.store.sqlite_file import is_store_header

from ..conftest import Make, World  # noqa: TID252


def a_text(path):
    path.write_text("Buy milk.\n" * 300)


def a_short_text(path):
    path.write_text("hi")


def a_database(path):
    con = sqlite3.connect(path)
    con.execute("CREATE TABLE cookies (name, value)")
    con.commit()
    con.close()


def an_image(path):
    path.write_bytes(b"\0" * 4096 + b"data" * 1000)


@pytest.fixture(params=[a_text, a_short_text, a_database, an_image])
def foreign_file(request, tmp_path):
    path = tmp_path / "notes.txt"
    request.param(path)
    path.chmod(0o644)
    return path


def left_alone(path, before):
    return (
        path.read_bytes() == before
        and stat.S_IMODE(path.stat().st_mode) == 0o644
        and list(path.parent.iterdir()) == [path]
    )


def test_run_leaves_foreign_file_untouched(foreign_file, world: World):
    before = foreign_file.read_bytes()
    with pytest.raises(StoreError, match="is not a store of holdfast"):
        Workflow("w", [Make(world, "a")]).run(store=SQLiteStore(foreign_file))
    assert world.made == []
    assert left_alone(foreign_file, before)


@pytest.mark.parametrize("words", [[], ["clean"], ["clean", "--damaged"], ["clean", "--keep", "0"]])
def test_command_leaves_foreign_file_untouched(foreign_file, words, capsys):
    before = foreign_file.read_bytes()
    assert run_command(runs, [*words, "--store", str(foreign_file)]) == 3
    assert "is not a store of holdfast" in capsys.readouterr().err
    assert left_alone(foreign_file, before)


def test_store_overwritten_during_run(tmp_path, world: World):
    store = SQLiteStore(tmp_path / "s.db")
    store.open()
    store.close()
    (tmp_path / "s.db").write_bytes(b"somebody else's " * 600)
    with pytest.raises(StoreError, match="is not a store"):
        store.load("w")
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


@pytest.mark.parametrize("size", [0, 1, 15, 16, 50, 71, 72])
def test_truncated_store_is_set_aside(tmp_path, size):
    path = tmp_path / "s.db"
    store = SQLiteStore(path)
    store.open()
    store.close()
    path.write_bytes(path.read_bytes()[:size])
    told = []
    store.open(told.append)
    assert len(told) == 1


def test_any_header_byte_may_be_corrupted(tmp_path):
    store = SQLiteStore(tmp_path / "s.db")
    store.open()
    store.close()
    head = (tmp_path / "s.db").read_bytes()[:72]
    assert all(is_store_header(head[:at] + bytes([head[at] ^ 0xFF]) + head[at + 1 :]) for at in range(72))
