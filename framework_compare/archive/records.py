"""The records of a study as one document, and a study made of it again: every figure can be recomputed from it."""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from framework_compare.archive.documents import Refused, shown
from framework_compare.errors import StudyError
from framework_compare.json_types import JSON
from framework_compare.protocol import Document, Fields, TrainConfig
from framework_compare.results.columns import grouped
from framework_compare.results.parity import write_verdicts
from framework_compare.store import row_checks, schema
from framework_compare.store.folder import FILE
from framework_compare.store.schema import CHILDREN, as_json
from framework_compare.store.study_file import REQUEST, Store

VERSION = 1  # of the document; rises when a table or column changes its meaning
# Columns that hold documents themselves.
_DOCUMENTS = {"cell": ("config",), "run": ("settings", "warnings", "limits", "gauges"), "node": ("machine",)}
# Where files lie and what programs printed: of no use elsewhere, and never meant to be passed on.
_LEFT_OUT = {"run": ("log_path", "trace_path", "log_tail", "traceback", "interpreter")}
_ORDER = {"cell": "cell_id", "node": "node_id", "part": "part_id", "run": "run_id"}
TABLES = (*_ORDER, *CHILDREN)
_PRIVATE = (REQUEST, "python")  # of the settings: paths; the request is a file of its own


def of_study(folder: Path) -> Fields:
    """Every table of a study by column; columns without a value are left out. StudyError for a damaged study."""
    with Store.open(folder, checked=True) as store:
        return {
            "schema_version": VERSION,
            "settings": {name: value for name, value in store.settings().items() if name not in _PRIVATE},
            "machine": store.machine(),
            "environments": store.environments(),
            "tables": {name: _table(store, name) for name in TABLES},
        }


def _table(store: Store, name: str) -> dict[str, list[JSON]]:
    names, rows = store.table(f"SELECT * FROM {name} ORDER BY {_ORDER.get(name, 'rowid')}")
    columns = {column: list(values) for column, values in zip(names, zip(*rows))}
    for column in _DOCUMENTS.get(name, ()):
        if column in columns:
            columns[column] = [row_checks.document(text, object, column) for text in columns[column]]
    kept = {column: values for column, values in columns.items() if column not in _LEFT_OUT.get(name, ())}
    return {column: values for column, values in kept.items() if any(value is not None for value in values)}


def restore(document: Document, parity: Document, folder: Path) -> Path:
    """Write a study of these records into a new folder; Refused where they are no records of a study."""
    if document.get("schema_version") != VERSION:
        raise Refused(f"records.json has schema_version {shown(document.get('schema_version'))}; allowed: {VERSION}")
    parts = {name: document.get(name) for name in ("settings", "machine", "environments", "tables")}
    wrong = [name for name, part in parts.items() if not isinstance(part, dict)]
    if wrong or set(document) != {"schema_version", *parts}:
        raise Refused(f"records.json must have settings, machine, environments and tables; wrong: {', '.join(wrong)}")
    folder.mkdir()
    try:
        with contextlib.closing(sqlite3.connect(folder / FILE, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = MEMORY")
            schema.create(connection)
            connection.execute("BEGIN")
            _fill(connection, parts)
            connection.execute("COMMIT")
    except (sqlite3.Error, OverflowError, TypeError) as error:
        raise Refused(f"records.json contains no study: {error}") from None
    write_verdicts(folder, parity)
    _check_sound(folder)
    return folder


def _fill(connection: sqlite3.Connection, parts: Document) -> None:
    connection.execute("INSERT INTO meta VALUES ('settings', ?)", (as_json(parts["settings"]),))
    for table in ("machine", "environments"):
        rows = [(key, as_json(value)) for key, value in parts[table].items()]
        connection.executemany(f"INSERT INTO {table.removesuffix('s')} VALUES (?, ?)", rows)
    unknown = set(parts["tables"]) - set(TABLES)
    if unknown:
        raise Refused(f"records.json has a table {shown(min(unknown))}; allowed: {', '.join(TABLES)}")
    for name in TABLES:
        _insert(connection, name, parts["tables"].get(name, {}))


def _insert(connection: sqlite3.Connection, name: str, columns: JSON) -> None:
    known = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
    if not isinstance(columns, dict) or not all(isinstance(values, list) for values in columns.values()):
        raise Refused(f"table {name} of records.json is not columns of values")
    unknown = set(columns) - set(known)
    if unknown:
        raise Refused(f"table {name} of records.json has a column {shown(min(unknown))}, which no study has")
    if len({len(values) for values in columns.values()}) > 1:
        raise Refused(f"columns of table {name} of records.json differ in length")
    if not columns:
        return
    stored = {
        column: [as_json(value) for value in values] if column in _DOCUMENTS.get(name, ()) else values
        for column, values in columns.items()
    }
    query = f"INSERT INTO {name} ({', '.join(stored)}) VALUES ({schema.marks(stored)})"
    connection.executemany(query, zip(*stored.values()))


def _check_sound(folder: Path) -> None:
    """Refused where readers would leave rows out, or a row belongs to no run."""
    from framework_compare.results.runs import read_runs, whole_table

    try:
        with Store.open(folder) as store:
            store.settings(), store.machine(), store.environments(), store.cells(), store.nodes()
            read_runs(store)
            for table in CHILDREN:
                whole_table(store, table)
            orphans = store.select("PRAGMA foreign_key_check")
            damage = dict(store.damage)
    except StudyError as error:
        sentence = str(error).replace(str(folder) + os.sep, "").replace(str(folder), "it")
        raise Refused(f"records.json is damaged: {sentence}") from None
    if damage:
        table, (rows, fault) = next(iter(damage.items()))
        raise Refused(f"table {table} of records.json has {rows} invalid rows: {fault}")
    if orphans:
        raise Refused(f"table {orphans[0][0]} of records.json has a row that belongs to no run")


SECOND = 1_000_000_000
Row = Document


class Tables:
    """Sound records: runs and cells by their numbers, machines by node, None being the machine of the study."""

    def __init__(self, records: Document) -> None:
        self.settings, self.environments = records["settings"], records["environments"]
        self._columns, self._rows = records["tables"], dict[str, list[Fields]]()
        self.runs: dict[int, Row] = {row["run_id"]: row for row in self.rows("run")}
        self.cells: dict[int, Row] = {row["cell_id"]: row for row in self.rows("cell")}
        nodes = {row["node_id"]: row["machine"] for row in self.rows("node")}
        self.machines: dict[int | None, Row] = {None: records["machine"], **nodes}

    @functools.cached_property
    def configs(self) -> dict[int, TrainConfig]:
        """The settings of the cells by their numbers."""
        return {number: TrainConfig.from_dict(cell["config"]) for number, cell in self.cells.items()}

    def rows(self, table: str) -> Sequence[Fields]:
        if table not in self._rows:
            columns = self._columns.get(table, {})
            self._rows[table] = [dict(zip(columns, values)) for values in zip(*columns.values())]
        return self._rows[table]

    def by_run(self, table: str) -> dict[int, list[Fields]]:
        return grouped(self.rows(table), lambda row: row["run_id"])

    def column(self, table: str, name: str) -> Sequence[JSON]:
        """The values of a column; nothing where no row has any."""
        values: Sequence[JSON] = self._columns.get(table, {}).get(name, ())
        return values

    def cell_of(self, run: int) -> Row:
        return self.cells[self.runs[run]["cell_id"]]

    def machine_of(self, run: int) -> Row:
        return self.machines[self.runs[run].get("node_id")]


def length_s(row: Row) -> float:
    """Seconds from the start of a row to its end."""
    return float((row["end_ns"] - row["start_ns"]) / SECOND)


def awake_s(epoch: Row) -> float:
    """Seconds of an epoch without those in which its worker waited for a turn."""
    return length_s(epoch) - (epoch.get("waited_s") or 0.0)


def in_order(rows: Iterable[Row], name: str = "start_ns") -> list[Row]:
    return sorted(rows, key=lambda row: row[name])


def overlaps(ordered: Sequence[Row]) -> list[tuple[Row, Row]]:
    """The rows that begin before the one in front of them has ended, with that one first."""
    return [(one, other) for one, other in zip(ordered, ordered[1:]) if other["start_ns"] < one["end_ns"]]
