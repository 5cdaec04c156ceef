"""A study's file opened to be read, wherever it lies, and not changed by it."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

from framework_compare.errors import StudyError
from framework_compare.store import schema

# What SQLite says of a file that it may read, but beside which it may not write what reading takes.
_NO_ROOM_BESIDE = ("unable to open database file", "attempt to write a readonly database")
_BESIDE = ("-wal", "-journal")
# SQLite's check reads every page: half a second for 80 MB. Of a larger file the bulk, its samples, is left out.
CHECKED_WHOLE_BYTES = 32 << 20
_BULK = ("sample", "energy", "profile")


def open_study(path: Path, *, checked: bool = False) -> sqlite3.Connection:
    """Return a connection to a study; checked: look for damage first. sqlite3.DatabaseError tells of any."""
    connection = connect(path)
    try:
        schema.check_version(connection, path)
        if checked:
            check(connection, path, whole_bytes=CHECKED_WHOLE_BYTES)
        lacking = [f"NULL AS {name}" for name in schema.lacking_columns(connection)]
        if lacking:  # a temporary view comes before the file's own table
            columns = ", ".join(("rowid", "*", *lacking))
            connection.execute(f"CREATE TEMP VIEW sample AS SELECT {columns} FROM main.sample")
        return connection
    except BaseException:
        connection.close()
        raise


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
            f"{path} was left by a killed writer, and cannot be read in a read-only place; "
            "copy the folder to a writable place"
        )
    return schema.connect(path, "ro&immutable=1")


def check(connection: sqlite3.Connection, path: Path, *, whole_bytes: float = math.inf) -> None:
    """sqlite3.DatabaseError where an open file shows damage: cut short, or found by SQLite's own quick check.

    Of a file of more than whole_bytes the tables of samples are not looked at.
    """
    check_length(connection, path)
    tables = [""]
    if path.stat().st_size > whole_bytes:
        tables = [name for name in schema.tables(connection) if name not in _BULK]
    for table in tables:
        schema.quick_check(connection, table)


def check_length(connection: sqlite3.Connection, path: Path) -> None:
    """sqlite3.DatabaseError where a file was cut short; a cut within its last page is nothing that SQLite objects to."""
    size = path.stat().st_size
    pages, page_bytes = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    if size < pages * page_bytes and not Path(f"{path}-wal").exists():
        raise sqlite3.DatabaseError(f"it was truncated to {size} bytes")
