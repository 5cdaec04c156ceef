"""A study's SQLite file: its tables, and how it is opened and brought up to date.

A change of schema is a script appended to MIGRATIONS, never an edit of one above it; only columns of samplers that
came later are added without one. Columns of run, phase, epoch, sample and energy carry the field names of `records`;
times are CLOCK_MONOTONIC nanoseconds.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from pathlib import Path
from typing import Iterator, List, Mapping, Optional, Set, Tuple

from framework_compare.errors import StudyError
from framework_compare.samplers.samplers import COLUMNS

_FIRST = """
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
    settings TEXT NOT NULL DEFAULT '{}',
    parameters INTEGER,
    peak_rss_bytes INTEGER,
    warnings TEXT NOT NULL DEFAULT '[]',
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
    PRIMARY KEY (run_id, number)
);
CREATE TABLE sample (
    run_id INTEGER NOT NULL REFERENCES run,
    t_ns INTEGER NOT NULL,
    cpu_percent REAL,
    rss_bytes INTEGER,
    threads INTEGER,
    processes INTEGER,
    machine_cpu_percent REAL,
    machine_ram_percent REAL,
    gpu_percent REAL,
    gpu_memory_bytes INTEGER,
    gpu_power_w REAL
);
CREATE INDEX phase_run ON phase (run_id);
CREATE INDEX sample_run ON sample (run_id);
INSERT INTO meta VALUES ('schema_version', '0');
"""
_EVIDENCE = """
ALTER TABLE run ADD COLUMN limits TEXT NOT NULL DEFAULT '{}';
ALTER TABLE run ADD COLUMN log_tail TEXT;
"""
# What readers would have to compute from all samples again each time; whoever changes a run drops its cell's.
_FIGURES_TABLE = "figures (cell_id INTEGER PRIMARY KEY REFERENCES cell, version TEXT NOT NULL, document TEXT NOT NULL)"
_FIGURES_SINCE = 3
_FIGURES = f"CREATE TABLE {_FIGURES_TABLE};"
_GAUGES = """
ALTER TABLE run ADD COLUMN gauges TEXT NOT NULL DEFAULT '{}';
ALTER TABLE epoch ADD COLUMN copy_s REAL;
ALTER TABLE epoch ADD COLUMN compute_s REAL;
ALTER TABLE sample ADD COLUMN gpu_process_memory_bytes INTEGER;
ALTER TABLE sample ADD COLUMN gpu_temperature_c REAL;
ALTER TABLE sample ADD COLUMN gpu_sm_clock_mhz REAL;
ALTER TABLE sample ADD COLUMN gpu_throttle INTEGER;
CREATE TABLE energy (
    run_id INTEGER NOT NULL REFERENCES run,
    device TEXT NOT NULL,
    t_ns INTEGER NOT NULL,
    energy_j REAL NOT NULL,
    source TEXT NOT NULL
);
CREATE INDEX energy_run ON energy (run_id);
"""
_PROFILE = """
ALTER TABLE run ADD COLUMN trace_path TEXT;
CREATE TABLE profile (
    run_id INTEGER NOT NULL REFERENCES run,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    calls INTEGER NOT NULL,
    self_s REAL NOT NULL
);
CREATE INDEX profile_run ON profile (run_id);
"""
# retry_of: the run that this one repeats, as others took too much of the CPU then.
_DISTURBANCES = """
ALTER TABLE run ADD COLUMN retry_of INTEGER REFERENCES run;
ALTER TABLE run ADD COLUMN disturbed_epochs INTEGER;
ALTER TABLE run ADD COLUMN disturbed_s REAL;
ALTER TABLE run ADD COLUMN disturbed_share REAL;
ALTER TABLE epoch ADD COLUMN disturbed_share REAL;
ALTER TABLE epoch ADD COLUMN steal_share REAL;
ALTER TABLE epoch ADD COLUMN parent_share REAL;
ALTER TABLE epoch ADD COLUMN swap_in_bytes INTEGER;
ALTER TABLE epoch ADD COLUMN cpu_throttles INTEGER;
ALTER TABLE epoch ADD COLUMN disturbed INTEGER;
"""
_QUALITY = """
CREATE TABLE quality (
    run_id INTEGER NOT NULL REFERENCES run,
    epoch INTEGER NOT NULL,
    split TEXT NOT NULL,
    name TEXT NOT NULL,
    value REAL,
    PRIMARY KEY (run_id, epoch, split, name)
);
"""
_STEADINESS = """
ALTER TABLE epoch ADD COLUMN steady INTEGER;
ALTER TABLE run ADD COLUMN warming_epochs INTEGER;
ALTER TABLE run ADD COLUMN settled INTEGER;
"""
_SAMPLED_EPOCHS = """
ALTER TABLE epoch ADD COLUMN whole_images INTEGER;
ALTER TABLE epoch ADD COLUMN pipeline_s REAL;
ALTER TABLE epoch ADD COLUMN estimate_s REAL;
"""
# Runs that parts of the study measured on other nodes; NULL for those of the machine of the study itself.
_PARTS = """
CREATE TABLE node (node_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, machine TEXT NOT NULL);
CREATE TABLE part (part_id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL REFERENCES node, absorbed_at TEXT NOT NULL);
ALTER TABLE run ADD COLUMN part_id INTEGER REFERENCES part;
ALTER TABLE run ADD COLUMN node_id INTEGER REFERENCES node;
"""
# Turns of workers that were live together.
_TURNS = """
ALTER TABLE epoch DROP COLUMN steady;
ALTER TABLE run DROP COLUMN warming_epochs;
ALTER TABLE epoch ADD COLUMN waited_s REAL;
ALTER TABLE run ADD COLUMN duel INTEGER;
ALTER TABLE run ADD COLUMN alone_why TEXT;
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
"""
MIGRATIONS = [
    *(_FIRST, _EVIDENCE, _FIGURES, _GAUGES, _PROFILE, _DISTURBANCES, _QUALITY, _STEADINESS),
    *(_SAMPLED_EPOCHS, _PARTS, _TURNS),
]


# What to do about an error of the system or, which gives no number, of SQLite.
_FULL = "free some space there and repeat the command; recorded runs stay"
_PLACE = "name a place that can be written"
# What SQLite says of the place that a file is in, and not of the file. All our queries fit a whole study.
_OF_THE_PLACE = ("disk is full", "readonly", "unable to open", "locked", "disk I/O", "interrupted")
_REMEDIES = {errno.ENOSPC: _FULL, errno.EDQUOT: _FULL, errno.EROFS: _PLACE, errno.EACCES: _PLACE}


# What reading a damaged file raises.
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)


class DamagedStudy(StudyError):
    """A study's file that is no whole SQLite file any more."""


@contextlib.contextmanager
def study_errors(path: Path, remedy: str = "") -> Iterator[None]:
    """Turn what SQLite and the system say of a file into a StudyError that names it and what to do.

    remedy: for a damaged file; by default the export of what can be read of it.
    """
    try:
        yield
    except (*UNREADABLE, OSError) as error:
        if _is_damage(error):
            raise damaged(path, error, remedy) from error
        full = "disk is full" in str(error)
        advice = _FULL if full else _REMEDIES.get(getattr(error, "errno", None) or 0, "")
        raise StudyError(f"{path} cannot be used: {error}" + (f"; {advice}" if advice else "")) from error


def _is_damage(error: Exception) -> bool:
    if isinstance(error, sqlite3.OperationalError):  # of a table or a column that is not there, say
        return not any(text in str(error) for text in _OF_THE_PLACE)
    # SQLite keeps the base class for a file that it cannot make sense of; its words may hold bytes of that file.
    return type(error) in (sqlite3.DatabaseError, sqlite3.DataError, UnicodeDecodeError)


def damaged(path: Path, found: object, remedy: str = "") -> DamagedStudy:
    """The error for a damaged study file, with the way to save its readable part."""
    remedy = remedy or f"`sqlite3 {path} .recover` prints what SQLite can still read of it"
    return DamagedStudy(f"{path} is damaged or no SQLite file ({found}); it was not changed; {remedy}")


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open an absolute path as "ro", "rw", or "rwc" (made if absent); transactions are the caller's."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=30)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make an open file ready for a writer: a whole study of a schema known here, brought up to date."""
    stored_version = version(connection, path)
    quick_check(connection)
    migrate(connection, stored_version)
    if stored_version >= _FIGURES_SINCE:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {_FIGURES_TABLE}")  # one that is lost is filled again
    connection.execute("PRAGMA journal_mode = WAL")


def quick_check(connection: sqlite3.Connection, table: str = "") -> None:
    """sqlite3.DatabaseError where SQLite's own check finds damage, in all of the file or in one table."""
    of = f"('{table}')" if table else "(1)"
    if connection.execute(f"PRAGMA quick_check{of}").fetchone()[0] != "ok":
        raise sqlite3.DatabaseError("quick_check found damage")


def version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version of a study; StudyError for a newer one, or what is no study."""
    stamp = _stamp(connection)
    if stamp is None and {"run", "cell"} <= _tables(connection):
        raise sqlite3.DatabaseError("it has no schema version")
    if stamp is None:
        raise StudyError(f"{path} is no study of framework_compare; it was not changed")
    if stamp > len(MIGRATIONS):
        raise StudyError(
            f"{path} has schema version {stamp}, this framework_compare knows versions up to {len(MIGRATIONS)}; "
            "upgrade framework_compare or name another folder"
        )
    return stamp


def _stamp(connection: sqlite3.Connection) -> Optional[int]:
    try:
        query = "SELECT value FROM meta WHERE key = 'schema_version'"
        return int(connection.execute(query).fetchone()[0]) if "meta" in _tables(connection) else None
    except (TypeError, ValueError, sqlite3.OperationalError):
        return None


def _tables(connection: sqlite3.Connection) -> Set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def migrate(connection: sqlite3.Connection, found: int) -> None:
    """Run every script after version `found` (0: an empty file), each in its own transaction."""
    for number, script in enumerate(MIGRATIONS[found:], start=found + 1):
        stamp = f"UPDATE meta SET value = '{number}' WHERE key = 'schema_version';"
        try:
            connection.executescript(f"BEGIN IMMEDIATE; {script} {stamp} COMMIT;")
        except sqlite3.Error:
            connection.rollback()
            raise
    for name in lacking_columns(connection):
        kind = "INTEGER" if COLUMNS[name].whole else "REAL"
        connection.execute(f"ALTER TABLE sample ADD COLUMN {name} {kind}")


def lacking_columns(connection: sqlite3.Connection) -> List[str]:
    """Columns of SAMPLERS that the table of samples does not have yet: the study is older than they are."""
    known = {row[1] for row in connection.execute("PRAGMA table_info(sample)")}
    return [name for name in COLUMNS if name not in known] if known else []


def damage_sentences(folder: Path, damage: Mapping[str, Tuple[int, str]]) -> List[str]:
    """One sentence per table of which rows were left out; `damage` is a Store's: rows and the first fault by table."""
    return [
        f"{folder} is damaged: of table {table} {rows} {'row is' if rows == 1 else 'rows are'} left out ({fault}); "
        f"`framework-compare export {folder} --out FOLDER` writes the others"
        for table, (rows, fault) in damage.items()
    ]
