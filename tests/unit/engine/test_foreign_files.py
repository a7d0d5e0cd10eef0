"""A file that something else wrote is refused and left alone, whoever is told to use it as a store."""

from __future__ import annotations

import sqlite3
import stat

import pytest

from holdfast.cli.ending import exit_code_of
from holdfast.cli.runs import runs
from holdfast.engine import SQLiteStore, Workflow
from holdfast.engine.files import is_marked
from holdfast.errors import StoreError

from .conftest import Make, World


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
def foreign(request, tmp_path):
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


def test_by_a_run(foreign, world: World):
    before = foreign.read_bytes()
    with pytest.raises(StoreError, match="is not a store of holdfast"):
        Workflow("w", [Make(world, "a")]).run(store=SQLiteStore(foreign))
    assert world.made == []
    assert left_alone(foreign, before)


@pytest.mark.parametrize("words", [[], ["clean"], ["clean", "--damaged"], ["clean", "--keep", "0"]])
def test_by_the_command(foreign, words, capsys):
    before = foreign.read_bytes()
    assert exit_code_of(runs, [*words, "--store", str(foreign)]) == 3
    assert "is not a store of holdfast" in capsys.readouterr().err
    assert left_alone(foreign, before)


def test_one_that_is_overwritten_during_a_run(tmp_path, world: World):
    store = SQLiteStore(tmp_path / "s.db")
    store.open()
    store.close()
    (tmp_path / "s.db").write_bytes(b"somebody else's " * 600)
    with pytest.raises(StoreError, match="is not a store"):
        store.load("w")
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


@pytest.mark.parametrize("size", [0, 1, 15, 16, 50, 71, 72])
def test_one_of_ours_cut_short_is_set_aside(tmp_path, size):
    path = tmp_path / "s.db"
    store = SQLiteStore(path)
    store.open()
    store.close()
    path.write_bytes(path.read_bytes()[:size])
    told = []
    store.open(told.append)
    assert len(told) == 1


def test_any_byte_of_the_header_may_be_damaged(tmp_path):
    store = SQLiteStore(tmp_path / "s.db")
    store.open()
    store.close()
    head = (tmp_path / "s.db").read_bytes()[:72]
    assert all(is_marked(head[:at] + bytes([head[at] ^ 0xFF]) + head[at + 1 :]) for at in range(72))
