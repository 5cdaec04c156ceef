"""A study's SQLite file: its tables, and how it is opened.

Columns of run, phase, epoch, slice, sample and energy carry the field names of `records`; times are CLOCK_MONOTONIC
nanoseconds. VERSION rises with any change but a new column of a sampler, which a study gets when it is opened.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from framework_compare.errors import StudyError
from framework_compare.samplers.samplers import COLUMNS

VERSION = 1  # in SQLite's user_version; 0 in files from before the first release


def _declared(reading: str) -> str:
    return f"{reading} {'INTEGER' if COLUMNS[reading].whole else 'REAL'}"


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
    status TEXT NOT NULL DEFAULT 'planned',
    reason TEXT NOT NULL DEFAULT '',
    started_at TEXT NOT NULL DEFAULT '',
    wall_s REAL,
    exit_code INTEGER,
    signal TEXT,
    died_in TEXT,
    log_path TEXT,
    traceback TEXT,
    framework_version TEXT,
    interpreter TEXT,
    settings TEXT NOT NULL DEFAULT '{{}}',
    parameters INTEGER,
    peak_rss_bytes INTEGER,
    warnings TEXT NOT NULL DEFAULT '[]',
    limits TEXT NOT NULL DEFAULT '{{}}',
    log_tail TEXT,
    gauges TEXT NOT NULL DEFAULT '{{}}',
    trace_path TEXT,
    retry_of INTEGER REFERENCES run,
    disturbed_epochs INTEGER,
    disturbed_s REAL,
    disturbed_share REAL,
    settled INTEGER,
    part_id INTEGER REFERENCES part,
    node_id INTEGER REFERENCES node,
    duel INTEGER,
    alone_why TEXT,
    UNIQUE (cell_id, repeat)
);
CREATE TABLE phase (
    run_id INTEGER NOT NULL REFERENCES run,
    name TEXT NOT NULL,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    pss_bytes INTEGER
);
CREATE TABLE epoch (
    run_id INTEGER NOT NULL REFERENCES run,
    number INTEGER NOT NULL,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    data_wait_s REAL,
    images INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    loss REAL,
    step_s_median REAL,
    step_s_p05 REAL,
    step_s_p95 REAL,
    copy_s REAL,
    compute_s REAL,
    disturbed_share REAL,
    steal_share REAL,
    parent_share REAL,
    swap_in_bytes INTEGER,
    cpu_throttles INTEGER,
    disturbed INTEGER,
    whole_images INTEGER,
    pipeline_s REAL,
    estimate_s REAL,
    waited_s REAL,
    PRIMARY KEY (run_id, number)
);
CREATE TABLE slice (
    run_id INTEGER NOT NULL REFERENCES run,
    round INTEGER NOT NULL,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    samples INTEGER NOT NULL,
    measured_s REAL NOT NULL,
    cpu_s REAL NOT NULL,
    major_faults INTEGER NOT NULL,
    void TEXT NOT NULL,
    PRIMARY KEY (run_id, round)
);
CREATE TABLE quality (
    run_id INTEGER NOT NULL REFERENCES run,
    epoch INTEGER NOT NULL,
    split TEXT NOT NULL,
    name TEXT NOT NULL,
    value REAL,
    PRIMARY KEY (run_id, epoch, split, name)
);
CREATE TABLE sample (run_id INTEGER NOT NULL REFERENCES run, t_ns INTEGER NOT NULL, {", ".join(map(_declared, COLUMNS))});
CREATE TABLE {_FIGURES};
CREATE TABLE energy (
    run_id INTEGER NOT NULL REFERENCES run,
    device TEXT NOT NULL,
    t_ns INTEGER NOT NULL,
    energy_j REAL NOT NULL,
    source TEXT NOT NULL
);
CREATE TABLE profile (
    run_id INTEGER NOT NULL REFERENCES run,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    calls INTEGER NOT NULL,
    self_s REAL NOT NULL
);
CREATE INDEX phase_run ON phase (run_id);
CREATE INDEX sample_run ON sample (run_id);
CREATE INDEX energy_run ON energy (run_id);
CREATE INDEX profile_run ON profile (run_id);
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
_PLACE = "name a place that can be written"
# What SQLite says of the place that a file is in, and not of the file. All our queries fit a whole study.
_OF_THE_PLACE = ("disk is full", "readonly", "unable to open", "locked", "disk I/O", "interrupted")
_REMEDIES = {errno.ENOSPC: _FULL, errno.EDQUOT: _FULL, errno.EROFS: _PLACE, errno.EACCES: _PLACE}


# What reading a damaged file raises.
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)


class DamagedStudy(StudyError):
    """A study's file that is not a whole SQLite file any more."""


@contextlib.contextmanager
def study_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite and the system say of a file into a StudyError that names it and what to do."""
    try:
        yield
    except (*UNREADABLE, OSError) as error:
        if _is_damage(error):
            raise damaged(path, error) from error
        full = "disk is full" in str(error)
        advice = _FULL if full else _REMEDIES.get(getattr(error, "errno", None) or 0, "")
        why = getattr(error, "strerror", None) or error
        raise StudyError(f"{path} cannot be used: {why}" + (f"; {advice}" if advice else "")) from error


def _is_damage(error: Exception) -> bool:
    if isinstance(error, sqlite3.OperationalError):  # of a table or a column that is not there, say
        return not any(text in str(error) for text in _OF_THE_PLACE)
    # SQLite keeps the base class for a file that it cannot make sense of; its words may hold bytes of that file.
    return type(error) in (sqlite3.DatabaseError, sqlite3.DataError, UnicodeDecodeError)


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
    check_version(connection, path)
    quick_check(connection)
    connection.execute(f"CREATE TABLE IF NOT EXISTS {_FIGURES}")  # one that is lost is filled again
    for name in lacking_columns(connection):
        connection.execute(f"ALTER TABLE sample ADD COLUMN {_declared(name)}")
    connection.execute("PRAGMA journal_mode = WAL")


def quick_check(connection: sqlite3.Connection, table: str = "") -> None:
    """sqlite3.DatabaseError where SQLite's own check finds damage, in all of the file or in one table."""
    of = f"('{table}')" if table else "(1)"
    if connection.execute(f"PRAGMA quick_check{of}").fetchone()[0] != "ok":
        raise sqlite3.DatabaseError("quick_check found damage")


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """StudyError for a study of another schema, or what is not a study."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if not {"run", "cell"} <= tables(connection):
        raise StudyError(f"{path} is not a study of framework_compare; it was not changed")
    added = connection.execute(_ADDED).fetchone()
    if added:
        raise StudyError(
            f"{path} has the {added[0]} {added[1]!r}, which no study has, and which could run without end when it is read;"
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


def lacking_columns(connection: sqlite3.Connection) -> list[str]:
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
