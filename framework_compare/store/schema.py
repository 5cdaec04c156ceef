"""A study's SQLite file: its tables, how records become rows of them, and how it is opened.

Tables of runs have the fields of `records` as columns; times are CLOCK_MONOTONIC nanoseconds. VERSION rises with any
change but a new column of a sampler, which a study gets when it is opened.
"""

import contextlib
import dataclasses
import datetime
import errno
import json
import operator
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any

from framework_compare.errors import StudyError
from framework_compare.records import Epoch, Phase, ProfileRow, Quality, Run, Slice, types_of
from framework_compare.samplers.energy import Energy
from framework_compare.samplers.samplers import COLUMNS, Sample

VERSION = 1  # in SQLite's user_version; 0 in files from before the first release

# field of a Run -> its table, and the record that each row of it is
_TABLE_OF: dict[str, tuple[str, type]] = {
    "phases": ("phase", Phase),
    "epochs": ("epoch", Epoch),
    "slices": ("slice", Slice),
    "quality": ("quality", Quality),
    "samples": ("sample", Sample),
    "energy": ("energy", Energy),
    "profile": ("profile", ProfileRow),
}
LISTS = {field: table for field, (table, _) in _TABLE_OF.items()}
CHILDREN = dict(_TABLE_OF.values())
RUN_FIELDS = [field.name for field in dataclasses.fields(Run) if field.name not in LISTS]
# What tells the rows of a run apart, of tables where anything does.
_KEYS = {"epoch": "number", "slice": "round", "quality": "epoch, split, name"}
_TYPES = {"str": "TEXT", "int": "INTEGER", "float": "REAL"}  # others are documents


def _column(field: dataclasses.Field[Any], record: type) -> str:
    """Declare the column of a field: it may lack what the record may, and times of an epoch, as SQLite has no NaN."""
    kind, _, optional = types_of(record)[field.name].partition(" | ")
    declared = f"{field.name} {_TYPES.get(kind, 'TEXT')}"
    if optional or (record is Epoch and kind == "float"):
        return declared
    if record is not Run:
        return f"{declared} NOT NULL"
    made = field.default_factory() if callable(field.default_factory) else field.default
    default = "planned" if field.name == "status" else as_json(made) if kind not in _TYPES else made
    return f"{declared} NOT NULL DEFAULT '{default}'"


def _columns(record: type, names: Collection[str]) -> str:
    return ", ".join(_column(field, record) for field in dataclasses.fields(record) if field.name in names)


def _table(name: str, record: type) -> str:
    """Declare the table of a record, with what finds the rows of a run."""
    columns = f"run_id INTEGER NOT NULL REFERENCES run, {_columns(record, fields_of(name))}"
    if name in _KEYS:
        return f"CREATE TABLE {name} ({columns}, PRIMARY KEY (run_id, {_KEYS[name]}));"
    return f"CREATE TABLE {name} ({columns}); CREATE INDEX {name}_run ON {name} (run_id);"


def fields_of(table: str) -> list[str]:
    """Return the fields of a table of CHILDREN, without run_id."""
    return [field.name for field in dataclasses.fields(CHILDREN[table])]


def insert(connection: sqlite3.Connection, table: str, run_id: int, items: Iterable[object]) -> None:
    """Add records to a table of CHILDREN; the transaction is the caller's."""
    names = fields_of(table)
    fields = operator.attrgetter(*names)
    query = f"INSERT INTO {table} (run_id, {', '.join(names)}) VALUES (?, {marks(names)})"
    connection.executemany(query, ((run_id, *fields(item)) for item in items))


def marks(values: Sized) -> str:
    """Return the placeholders of values in a query: "?, ?" for two."""
    return ", ".join("?" * len(values))


def now() -> str:
    """Return the time in UTC, ISO 8601 to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def column(value: object) -> object:
    """A field of a Run as SQLite takes it; text of a worker may hold halves of surrogate pairs, which it does not."""
    if isinstance(value, (dict, list, tuple)):
        return as_json(value)
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def as_json(value: object) -> str:
    """A document of the file; what JSON does not know is stored as text."""
    return json.dumps(value, default=str)


# What readers would have to compute from all samples again each time; whoever changes a run drops its cell's.
_FIGURES = "figures (cell_id INTEGER PRIMARY KEY REFERENCES cell, version TEXT NOT NULL, document TEXT NOT NULL)"
# run.retry_of: the run that this one repeats, as others took too much of the CPU then. run.part_id, run.node_id: of runs
# that parts of the study measured on other nodes; NULL for those of the machine of the study itself. run.duel: of runs
# whose workers took turns, the first one's run_id; slice: these turns.
_TABLES = f"""
BEGIN;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE machine (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE environment (framework TEXT PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE cell (
    cell_id INTEGER PRIMARY KEY,
    framework TEXT NOT NULL,
    model TEXT NOT NULL,
    dataset TEXT NOT NULL,
    device TEXT NOT NULL,
    config TEXT NOT NULL,
    UNIQUE (framework, model, dataset, device, config)
);
CREATE TABLE node (node_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, machine TEXT NOT NULL);
CREATE TABLE part (part_id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL REFERENCES node, absorbed_at TEXT NOT NULL);
CREATE TABLE run (
    run_id INTEGER PRIMARY KEY,
    cell_id INTEGER NOT NULL REFERENCES cell,
    repeat INTEGER NOT NULL,
    retry_of INTEGER REFERENCES run,
    part_id INTEGER REFERENCES part,
    node_id INTEGER REFERENCES node,
    {_columns(Run, RUN_FIELDS)},
    UNIQUE (cell_id, repeat)
);
{"".join(_table(*one) for one in CHILDREN.items())}
CREATE TABLE {_FIGURES};
PRAGMA user_version = {VERSION};
COMMIT;
"""

# What a stranger may have put into a file: code that SQLite runs where a table is read or written.
_ADDED = """
SELECT type, name FROM sqlite_master WHERE type IN ('view', 'trigger') OR sql LIKE 'CREATE VIRTUAL%'
UNION ALL SELECT 'generated column', one.name
FROM sqlite_master AS tables JOIN pragma_table_xinfo(tables.name) AS one WHERE tables.type = 'table' AND one.hidden > 1
"""

# What to do about an error of the system or, which gives no number, of SQLite.
_FULL = "free some space there and repeat the command; recorded runs are kept"
_PLACE = "name a writable folder"
# What SQLite says of the place that a file is in, and not of the file. All our queries fit a whole study.
_OF_THE_PLACE = ("disk is full", "readonly", "unable to open", "locked", "disk I/O", "interrupted")
# What SQLite says of a file that it may read, but beside which it may not write what reading takes.
_NO_ROOM_BESIDE = ("unable to open database file", "attempt to write a readonly database")
# SQLite's check reads every page: half a second for 80 MB. Of a larger file the bulk, its samples, is left out.
CHECKED_WHOLE_BYTES = 32 << 20
_BULK = {"sample", "energy", "profile"}
_REMEDIES = {errno.ENOSPC: _FULL, errno.EDQUOT: _FULL, errno.EROFS: _PLACE, errno.EACCES: _PLACE}


class DamagedStudy(StudyError):
    """A study's file that is not a whole SQLite file any more."""


@contextlib.contextmanager
def study_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite and the system say of a file into a StudyError that names it and what to do."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
        # SQLite keeps the base class for a file that it cannot make sense of; its words may hold bytes of that file.
        is_damage = type(error) in (sqlite3.DatabaseError, sqlite3.DataError, UnicodeDecodeError)
        if isinstance(error, sqlite3.OperationalError):  # of a table or a column that is not there, say
            is_damage = not any(text in str(error) for text in _OF_THE_PLACE)
        if is_damage:
            raise damaged(path, error) from error
        remedy = _REMEDIES.get(getattr(error, "errno", None) or 0, "")
        advice = _FULL if "disk is full" in str(error) else remedy
        why = getattr(error, "strerror", None) or error
        raise StudyError(f"{path} cannot be used: {why}" + (f"; {advice}" if advice else "")) from error


def damaged(path: Path, found: object) -> DamagedStudy:
    """The error for a damaged study file, with the way to save its readable part."""
    return DamagedStudy(
        f"{path} is damaged or not an SQLite file ({found}); it was not changed; "
        f"`sqlite3 {path} .recover` prints what SQLite can still read of it"
    )


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open an absolute path as "ro", "rw", or "rwc" (made if absent); transactions are the caller's."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=30)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def create(connection: sqlite3.Connection) -> None:
    """Make the tables of a study in an empty file."""
    connection.executescript(_TABLES)


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make an open file ready for a writer: a whole study of the schema known here."""
    _check_version(connection, path)
    _quick_check(connection)
    connection.execute(f"CREATE TABLE IF NOT EXISTS {_FIGURES}")  # one that is lost is filled again
    for name in _lacking_columns(connection):
        connection.execute(f"ALTER TABLE sample ADD COLUMN {name} {'INTEGER' if COLUMNS[name].whole else 'REAL'}")
    connection.execute("PRAGMA journal_mode = WAL")


def _quick_check(connection: sqlite3.Connection, table: str = "") -> None:
    """sqlite3.DatabaseError where SQLite's own check finds damage, in all of the file or in one table."""
    of = f"('{table}')" if table else "(1)"
    if connection.execute(f"PRAGMA quick_check{of}").fetchone()[0] != "ok":
        raise sqlite3.DatabaseError("quick_check found damage")


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    """StudyError for a study of another schema, or what is not a study."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if not {"run", "cell"} <= tables(connection):
        raise StudyError(f"{path} is not a study of framework_compare; it was not changed")
    added = connection.execute(_ADDED).fetchone()
    if added:
        raise StudyError(
            f"{path} has the {added[0]} {added[1]!r}, which no study has, and which could run forever when read;"
            " it was not changed"
        )
    if version != VERSION:
        found = f"schema version {version}" if version else "a schema from before the first release"
        remedy = "upgrade framework_compare" if version > VERSION else "export it with the version that wrote it"
        raise StudyError(
            f"{path} has {found}; allowed: schema version {VERSION}; {remedy}, or run the study again in another folder"
        )


def tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _lacking_columns(connection: sqlite3.Connection) -> list[str]:
    """Return the columns of SAMPLERS that the table of samples does not have: the study is older than they are."""
    known = {row[1] for row in connection.execute("PRAGMA table_info(sample)")}
    return [name for name in COLUMNS if name not in known] if known else []


def damage_sentences(folder: Path, damage: Mapping[str, tuple[int, str]]) -> list[str]:
    """One sentence per table of which rows were left out; `damage` is a Store's: rows and the first fault by table."""
    return [
        f"{folder} is damaged: {rows} {'row' if rows == 1 else 'rows'} of table {table} left out ({fault}); "
        f"`framework-compare export {folder} --out FOLDER` writes the others"
        for table, (rows, fault) in damage.items()
    ]


def open_study(path: Path, *, checked: bool = False) -> sqlite3.Connection:
    """Return a connection to a study; checked: look for damage first. sqlite3.DatabaseError tells of any."""
    connection = _connect_for_reading(path)
    try:
        _check_version(connection, path)
        if checked:
            check_length(connection, path)
            large = path.stat().st_size > CHECKED_WHOLE_BYTES
            for table in sorted(tables(connection) - _BULK) if large else [""]:
                _quick_check(connection, table)
        lacking = [f"NULL AS {name}" for name in _lacking_columns(connection)]
        if lacking:  # a temporary view comes before the file's own table
            columns = ", ".join(("rowid", "*", *lacking))
            connection.execute(f"CREATE TEMP VIEW sample AS SELECT {columns} FROM main.sample")
        return connection
    except BaseException:
        connection.close()
        raise


def _connect_for_reading(path: Path) -> sqlite3.Connection:
    """A connection that reads, also where nothing can be written beside the file."""
    connection = connect(path, "ro")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return connection
    except BaseException as error:
        connection.close()
        if not isinstance(error, sqlite3.OperationalError) or str(error) not in _NO_ROOM_BESIDE:
            raise
    beside = [Path(f"{path}{ending}") for ending in ("-wal", "-journal")]
    if any(file.is_file() and file.stat().st_size for file in beside):
        raise StudyError(
            f"{path} was left by a killed writer, and cannot be read on a read-only medium; "
            "copy the folder to a writable disk"
        )
    return connect(path, "ro&immutable=1")


def check_length(connection: sqlite3.Connection, path: Path) -> None:
    """sqlite3.DatabaseError where a file was cut short; a cut within its last page is nothing that SQLite objects to."""
    size = path.stat().st_size
    pages, page_bytes = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    if size < pages * page_bytes and not Path(f"{path}-wal").exists():
        raise sqlite3.DatabaseError(f"it was truncated to {size} bytes")
