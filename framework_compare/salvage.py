"""What can still be read of a damaged study, table by table; the file is only ever read."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from framework_compare import reading, schema
from framework_compare.store import FILE

TABLES = ("meta", "machine", "environment", "cell", "run", "phase", "epoch", "sample", "energy", "profile")
CACHE = "figures"
HEADER_BYTES = 100
MAGIC = b"SQLite format 3\0"
MAX_GAP = 500_000  # rows of a gap that are tried one by one
Rows = Dict[int, Tuple[Any, ...]]


@dataclasses.dataclass(frozen=True)
class Salvaged:
    """Rows of a table in their order; `complete` where the file shows no damage in it."""

    table: str
    columns: List[str]
    rows: List[Tuple[Any, ...]]
    complete: bool


def is_whole(folder: Path) -> bool:
    """Whether the study's file shows no damage, its samples included."""
    try:
        with contextlib.closing(reading.connect(folder / FILE)) as connection:
            reading.check(connection, folder / FILE)
            return True
    except (*schema.UNREADABLE, OSError):
        return False


def salvage(folder: Path) -> Iterator[Salvaged]:
    """Every table that has anything left to read; StudyError where not even the list of tables can be."""
    path = folder / FILE
    nothing = "nothing of it can be read"
    with schema.told(path, nothing), _padded(path) as whole, _connected(whole) as connection:
        for table in _tables(connection):
            with contextlib.suppress(*schema.UNREADABLE):
                columns = [row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(table)})")]
                if columns:
                    yield _read(connection, table, columns)


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(reading.connect(path, lenient=True)) as connection:
        connection.text_factory = lambda text: text.decode(errors="replace")
        yield connection


def _tables(connection: sqlite3.Connection) -> List[str]:
    """TABLES, then what else is there: a table of which the name is damaged."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    there = [str(name) for (name,) in connection.execute(query)]
    return [*TABLES, *(name for name in there if name not in (*TABLES, CACHE))]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextlib.contextmanager
def _padded(path: Path) -> Iterator[Path]:
    """The file, or a copy that SQLite reads: with zeros for what was cut off, and a header that is one."""
    with open(path, "rb") as file:
        found = file.read(HEADER_BYTES)
    header = _mended(found)
    page = int.from_bytes(header[16:18], "big")
    size = (65536 if page == 1 else page) * int.from_bytes(header[28:32], "big")
    cut_short = header == found and path.stat().st_size < size
    if header == found and not cut_short:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(path, folder))
        with open(copy, "r+b") as file:
            file.write(header)
            if cut_short:
                file.truncate(size)
        yield copy


def _mended(header: bytes) -> bytes:
    """A file's header with what is the same in every SQLite file: a bit of it that is wrong hides the whole file."""
    if len(header) < HEADER_BYTES:
        return header
    modes = bytes(mode if mode in (1, 2) else 1 for mode in header[18:20])
    schema_format = header[44:48] if int.from_bytes(header[44:48], "big") in (1, 2, 3, 4) else bytes((0, 0, 0, 4))
    start = MAGIC + header[16:18] + modes + header[20:21] + bytes((64, 32, 32))
    return start + header[24:44] + schema_format + header[48:]


def _read(connection: sqlite3.Connection, table: str, columns: List[str]) -> Salvaged:
    """Forward to the damage, backward to it from the end, then what lies between, row by row."""
    rows, whole = _scan(connection, table, "ASC", {})
    if not whole:
        backward, _ = _scan(connection, table, "DESC", rows)
        low, high = max(rows, default=0), min(backward, default=0)
        rows.update(backward)
        for rowid in range(low + 1, min(high, low + MAX_GAP)):
            with contextlib.suppress(*schema.UNREADABLE):
                found = connection.execute(f"SELECT * FROM {_quoted(table)} WHERE rowid = ?", (rowid,)).fetchone()
                if found:
                    rows[rowid] = found
    return Salvaged(table, columns, [rows[rowid] for rowid in sorted(rows)], whole)


def _scan(connection: sqlite3.Connection, table: str, order: str, known: Rows) -> Tuple[Rows, bool]:
    """Rows by rowid until the damage or one that is known; whether the end was reached."""
    rows: Rows = {}
    try:
        for rowid, *values in connection.execute(f"SELECT rowid, * FROM {_quoted(table)} ORDER BY rowid {order}"):
            if rowid in known:
                break
            rows[rowid] = tuple(values)
    except schema.UNREADABLE:
        return rows, False
    return rows, True
