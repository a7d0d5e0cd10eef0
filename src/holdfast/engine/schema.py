"""The tables of the SQLite store, their version, and the way up from older ones.

Rows are JSON bodies with a digest, so that a new field of a record needs no new table: the version changes
only when a table does. Not here: opening files and judging damage (`sqlite`, `salvage`).
"""

from __future__ import annotations

import os
import time
from hashlib import blake2b
from typing import TYPE_CHECKING

from holdfast.errors import StoreVersionError

if TYPE_CHECKING:
    import sqlite3

VERSION = 1
DIGEST_SIZE = 12
APPLICATION_ID = 0x686C6466  # "hldf"

TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, body TEXT NOT NULL, digest BLOB NOT NULL) WITHOUT ROWID",
    (
        "CREATE TABLE steps (scope TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL,"
        " digest BLOB NOT NULL, PRIMARY KEY (scope, name)) WITHOUT ROWID"
    ),
    (
        "CREATE TABLE runs (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, running INTEGER NOT NULL,"
        " body TEXT NOT NULL, digest BLOB NOT NULL)"
    ),
)

MIGRATIONS: dict[int, tuple[str, ...]] = {}
"""From a version to the next one: statements, run in one transaction with the new version number."""


class DamageError(Exception):
    """A store that cannot be believed; never leaves this package."""


def digest(scope: str, name: str, body: bytes) -> bytes:
    """What a row must carry to be believed."""
    return blake2b(f"{scope}\0{name}\0".encode() + body, digest_size=DIGEST_SIZE).digest()


def create(con: sqlite3.Connection, tool: str, key: bytes | None = None) -> None:
    """Lay out a new store."""
    con.execute("PRAGMA journal_mode=WAL")
    con.execute("PRAGMA synchronous=FULL")
    con.execute("BEGIN IMMEDIATE")
    for statement in TABLES:
        con.execute(statement)
    write_meta(con, "schema", str(VERSION))
    write_meta(con, "key", (key or os.urandom(32)).hex())
    write_meta(con, "tool", tool)
    write_meta(con, "created", f"{time.time():.0f}")
    con.execute(f"PRAGMA user_version={VERSION}")
    con.execute(f"PRAGMA application_id={APPLICATION_ID}")
    con.execute("COMMIT")


def write_meta(con: sqlite3.Connection, name: str, value: str) -> None:
    row = (name, value, digest("meta", name, value.encode()))
    con.execute("INSERT OR REPLACE INTO meta (name, body, digest) VALUES (?, ?, ?)", row)


def read_meta(con: sqlite3.Connection) -> dict[str, str]:
    """The meta rows whose digest holds."""
    found = {}
    for name, body, mark in con.execute("SELECT name, body, digest FROM meta"):
        if isinstance(name, bytes) and isinstance(body, bytes):
            text = name.decode(errors="replace")
            if digest("meta", text, body) == mark:
                found[text] = body.decode(errors="replace")
    return found


def check(con: sqlite3.Connection, path: str) -> dict[str, str]:
    """The meta rows of a store that this program may use; migrates an older one, refuses a newer one."""
    meta = read_meta(con)
    if not {"schema", "key"} <= meta.keys():
        raise DamageError("its first rows cannot be read")
    version = int(meta["schema"])
    header = int(con.execute("PRAGMA user_version").fetchone()[0])
    if version != header:
        raise DamageError(f"its header says version {header}, its rows say {version}")
    if version > VERSION:
        raise StoreVersionError(
            f"{path} has version {version}, written by holdfast {meta.get('tool', '?')};"
            f" this one knows versions up to {VERSION}"
        )
    return meta


def migrate(con: sqlite3.Connection, version: int, tool: str) -> None:
    """Bring an older store up, all in one transaction."""
    if version == VERSION:
        return
    con.execute("BEGIN IMMEDIATE")
    try:
        for older in range(version, VERSION):
            for statement in MIGRATIONS[older]:
                con.execute(statement)
        write_meta(con, "schema", str(VERSION))
        write_meta(con, "tool", tool)
        con.execute(f"PRAGMA user_version={VERSION}")
        con.execute("COMMIT")
    except BaseException:
        con.execute("ROLLBACK")
        raise
