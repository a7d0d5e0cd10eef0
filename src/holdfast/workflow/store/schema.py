"""Tables of the SQLite store, their version, and migrations.

Rows are JSON bodies with a digest, so a new field of a record needs no new table; the version changes only
when a table does.
"""

from __future__ import annotations

import os
import time
from hashlib import blake2b
from typing import TYPE_CHECKING

from holdfast.errors import StoreVersionError

if TYPE_CHECKING:
    import sqlite3

SCHEMA_VERSION = 1
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

# Statements that migrate from a version to the next one; one transaction with the new version number.
MIGRATIONS: dict[int, tuple[str, ...]] = {}


class CorruptStoreError(Exception):
    """The store is corrupt. Callers of the store get a `StoreError` with this error as its cause."""


def row_digest(scope: str, name: str, body: bytes) -> bytes:
    """Return the digest that a row must carry to be valid."""
    # Scope and name are included: a body under another key is invalid.
    return blake2b(f"{scope}\0{name}\0".encode() + body, digest_size=DIGEST_SIZE).digest()


def create_schema(con: sqlite3.Connection, tool: str, key: bytes | None = None) -> None:
    """Create the tables of a new store."""
    con.execute("PRAGMA journal_mode=WAL")
    con.execute("PRAGMA synchronous=FULL")
    con.execute("BEGIN IMMEDIATE")
    for statement in TABLES:
        con.execute(statement)
    _write_meta(con, "schema", str(SCHEMA_VERSION))
    _write_meta(con, "key", (key or os.urandom(32)).hex())
    _write_meta(con, "tool", tool)
    _write_meta(con, "created", f"{time.time():.0f}")
    # The file header repeats the version of the rows: `check_schema` detects a file that mixes two stores.
    con.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    con.execute(f"PRAGMA application_id={APPLICATION_ID}")
    con.execute("COMMIT")


def _write_meta(con: sqlite3.Connection, name: str, value: str) -> None:
    row = (name, value, row_digest("meta", name, value.encode()))
    con.execute("INSERT OR REPLACE INTO meta (name, body, digest) VALUES (?, ?, ?)", row)


def _read_meta(con: sqlite3.Connection) -> dict[str, str]:
    """Return the meta rows whose digest is correct."""
    meta = {}
    for name, body, digest in con.execute("SELECT name, body, digest FROM meta"):
        # SQLite does not enforce column types: a damaged row can contain any type.
        if isinstance(name, bytes) and isinstance(body, bytes):
            text = name.decode(errors="replace")
            if row_digest("meta", text, body) == digest:
                meta[text] = body.decode(errors="replace")
    return meta


def check_schema(con: sqlite3.Connection, path: str) -> dict[str, str]:
    """Return the meta rows of a store.

    Raises:
        CorruptStoreError: the meta rows are missing or contradict the file header.
        StoreVersionError: a newer version of holdfast wrote the store.
    """
    meta = _read_meta(con)
    if not {"schema", "key"} <= meta.keys():
        raise CorruptStoreError("its first rows cannot be read")
    version = int(meta["schema"])
    header = int(con.execute("PRAGMA user_version").fetchone()[0])
    if version != header:
        raise CorruptStoreError(f"its header has version {header}, its rows have version {version}")
    if version > SCHEMA_VERSION:
        raise StoreVersionError(
            f"{path} has version {version}, written by holdfast {meta.get('tool', '?')};"
            f" this holdfast supports versions up to {SCHEMA_VERSION}"
        )
    return meta


def migrate_schema(con: sqlite3.Connection, version: int, tool: str) -> None:
    """Migrate an older store to the current version in one transaction."""
    if version == SCHEMA_VERSION:
        return
    con.execute("BEGIN IMMEDIATE")
    try:
        for older in range(version, SCHEMA_VERSION):
            for statement in MIGRATIONS[older]:
                con.execute(statement)
        _write_meta(con, "schema", str(SCHEMA_VERSION))
        _write_meta(con, "tool", tool)
        con.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        con.execute("COMMIT")
    except BaseException:
        con.execute("ROLLBACK")
        raise
