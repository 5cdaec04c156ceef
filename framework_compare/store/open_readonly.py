"""A study's file opened to be read: wherever it lies, of whatever older schema, and not changed by it."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from typing import Tuple

from framework_compare.errors import StudyError
from framework_compare.store import schema

# What SQLite says of a file that it may read, but beside which it may not write what reading takes.
_NO_ROOM_BESIDE = ("unable to open database file", "attempt to write a readonly database")
_BESIDE = ("-wal", "-journal")
# SQLite's check reads every page: half a second for 80 MB. Of a larger file the bulk, its samples, is left out.
CHECKED_WHOLE_BYTES = 32 << 20
_BULK = ("sample", "energy", "profile")


def open_study(path: Path, *, checked: bool = False) -> sqlite3.Connection:
    """A connection to a study of a schema known here; of an older one, to a copy of it that is brought up to date.

    checked: look for damage first. sqlite3.DatabaseError tells of any.
    """
    connection = connect(path)
    try:
        version = schema.version(connection, path)
        if checked:
            check(connection, path, whole_bytes=CHECKED_WHOLE_BYTES)
        if version == len(schema.MIGRATIONS) and not schema.lacking_columns(connection):
            return connection
        copy = _copy(connection)
    except BaseException:
        connection.close()
        raise
    connection.close()
    schema.migrate(copy, version)
    return copy


def connect(path: Path) -> sqlite3.Connection:
    """A connection that reads, also where nothing can be written beside the file."""
    connection = schema.connect(path, "ro")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return connection
    except sqlite3.OperationalError as error:
        connection.close()
        if str(error) not in _NO_ROOM_BESIDE:
            raise
    except BaseException:
        connection.close()
        raise
    beside = [Path(f"{path}{ending}") for ending in _BESIDE]
    if any(file.is_file() and file.stat().st_size for file in beside):
        raise StudyError(
            f"{path} was left by a killed writer, and cannot be read where nothing can be written; "
            "copy the folder to a place that can be written"
        )
    return schema.connect(path, "ro&immutable=1")


def _copy(connection: sqlite3.Connection) -> sqlite3.Connection:
    """A private copy, gone when closed: in memory, and beyond SQLite's cache in a temporary file without a name."""
    copy = sqlite3.connect("", isolation_level=None)
    try:
        connection.backup(copy)
    except BaseException:
        copy.close()
        raise
    return copy


def check(connection: sqlite3.Connection, path: Path, *, whole_bytes: float = math.inf) -> None:
    """sqlite3.DatabaseError where an open file shows damage: cut short, or found by SQLite's own quick check.

    Of a file of more than whole_bytes the tables of samples are not looked at.
    """
    check_length(connection, path)
    for table in ("",) if path.stat().st_size <= whole_bytes else _tables(connection):
        schema.quick_check(connection, table)


def check_length(connection: sqlite3.Connection, path: Path) -> None:
    """sqlite3.DatabaseError where a file was cut short; a cut within its last page is nothing that SQLite objects to."""
    size = path.stat().st_size
    if size < _stated_bytes(connection) and not Path(f"{path}-wal").exists():
        raise sqlite3.DatabaseError(f"it was cut short to {size} bytes")


def _stated_bytes(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA page_count").fetchone()[0] * connection.execute("PRAGMA page_size").fetchone()[0]


def _tables(connection: sqlite3.Connection) -> Tuple[str, ...]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return tuple(name for (name,) in rows if name not in _BULK)
