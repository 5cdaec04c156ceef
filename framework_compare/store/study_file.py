"""A study on disk: one SQLite file in its folder, every planned run in it before the first one starts.

One process writes (a lock on study.lock says which), any number read meanwhile.
"""

import contextlib
import math
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

from framework_compare import __version__
from framework_compare.errors import StudyError, UsageError, check_count
from framework_compare.json_types import JSON
from framework_compare.protocol import Document, Fields, TrainConfig
from framework_compare.records import STATUSES, Cell, Run
from framework_compare.store import absorption, row_checks, schema
from framework_compare.store.folder import CUT_SHORT, FILE, NEW, acquire_lock, check_vacant, missing
from framework_compare.store.schema import LISTS, RUN_FIELDS, as_json, column, insert, marks

REQUEST = "request"  # in the settings of a study: the arguments of the call that made it
TO_RUN = ("planned", "interrupted", "running")


class Store:
    """An open study; a context manager. Every error of the file becomes a StudyError that names it."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: FileLock | None) -> None:
        self.folder, self.path = folder, folder / FILE
        self._connection, self._lock = connection, lock
        self.damage: dict[str, tuple[int, str]] = {}

    @classmethod
    def create(
        cls,
        folder: str | Path,
        *,
        settings: Fields,
        machine: Fields,
        cells: Sequence[Cell],
        repeats: int,
        orders: Sequence[Sequence[int]] | None = None,
        prepare: Callable[[Path], None] = lambda folder: None,
    ) -> "Store":
        """Plan a new study in an empty or absent folder, `repeats` runs a cell, and open it for writing.

        orders: of each block of runs, the places of its cells in `cells`; by default all are in the order given.
        `prepare` writes what belongs to it into IMAGES and MODELS of the folder, before the study is there. Raises
        StudyError, with nothing written, where the folder holds anything; UsageError for a cell given twice or repeats below 1.
        """
        folder = Path(folder).absolute()
        check_count("repeats", repeats)
        for cell in (cell for cell, count in Counter(cells).items() if count > 1):
            raise UsageError(f"cell {cell.label} on {cell.dataset} is planned twice with the same settings")
        check_vacant(folder)
        with schema.study_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        lock = acquire_lock(folder)
        try:
            # Again under the lock: another process may have made its study since.
            check_vacant(folder)
            prepare(folder)
            with schema.study_errors(folder / FILE):
                _write_new(folder, settings, machine, cells, orders or [range(len(cells))] * repeats)
        finally:
            lock.release()
        return cls.open(folder, readonly=False)

    @classmethod
    def open(cls, folder: str | Path, readonly: bool = True, *, checked: bool = False) -> "Store":
        """Open a study; a writer takes the lock and looks for damage. checked: a reader looks for damage, too."""
        folder = Path(folder).absolute()
        path = folder / FILE
        if not path.is_file():
            raise StudyError(f"{folder} contains no study: {missing(folder)}")
        with contextlib.ExitStack() as undo:
            lock = None if readonly else acquire_lock(folder)
            if lock:
                undo.callback(lock.release)
            with schema.study_errors(path):
                connection = schema.open_study(path, checked=checked) if readonly else schema.connect(path, "rw")
                undo.callback(connection.close)
                if not readonly:
                    schema.check_length(connection, path)
                    schema.prepare(connection, path)
            undo.pop_all()
        return cls(folder, connection, lock)

    def plan(self, retry: Sequence[str] = ()) -> list[tuple[int, Cell, int]]:
        """(run_id, cell, repeat from 1) of each run still to do or to `retry`, runs of different cells interleaved."""
        wanted = (*TO_RUN, *retry)
        rows = self.select(
            f"SELECT run_id, repeat, {_CELL} FROM run JOIN cell USING (cell_id)"
            f" WHERE status IN ({marks(wanted)}) ORDER BY run_id",
            wanted,
        )
        return [(run_id, self._cell(*cell), repeat) for run_id, repeat, *cell in rows]

    def cells(self) -> list[tuple[int, Cell]]:
        """(cell_id, cell) of the whole plan, in its order."""
        rows = self.select(f"SELECT cell_id, {_CELL} FROM cell ORDER BY cell_id")
        return [(cell_id, self._cell(*cell)) for cell_id, *cell in rows]

    def repeats(self) -> int:
        """Blocks planned, without repeats of disturbed runs and more of an anchor; 0 for a study without any.

        Runs are planned block by block, so that those of a block stand together; an anchor's stand behind all of them.
        """
        request = self.settings().get(REQUEST)
        if isinstance(request, Mapping) and type(request.get("repeats")) is int:
            return request["repeats"]
        # without a request, cells may have been added with blocks of their own
        size = "(SELECT count(*) FROM cell)" if request else "(SELECT count(*) + 1 FROM run)"
        anchor = (
            "SELECT 1 FROM run AS mate WHERE mate.repeat = run.repeat AND mate.retry_of IS NULL"
            f" AND (mate.run_id - 1) / {size} < (run.run_id - 1) / {size}"
        )
        of_cells = f"SELECT count(*) AS runs FROM run WHERE retry_of IS NULL AND NOT EXISTS ({anchor}) GROUP BY cell_id"
        return self.select(f"SELECT coalesce(min(runs), 0) FROM ({of_cells})")[0][0]

    def replace_settings(self, settings: Fields) -> None:
        """Store other settings in place of those that the study was created with."""
        with self._transaction() as connection:
            connection.execute("UPDATE meta SET value = ? WHERE key = 'settings'", (as_json(settings),))

    def add(self, cells: Sequence[Cell], orders: Sequence[Sequence[int]]) -> None:
        """Add cells with blocks of their own behind those of the study, orders as in `create`; StudyError for a known one."""
        first = self.select("SELECT coalesce(max(repeat), 0) + 1 FROM run")[0][0]
        with self._transaction() as connection:
            _plan(connection, cells, orders, first)

    def extend(self, cells: Sequence[Cell]) -> None:
        """Add cells with one run each to the plan's first block. StudyError where one is there already."""
        with self._transaction() as connection:
            _plan(connection, cells, [range(len(cells))], 1)

    def add_block(self, cells: Sequence[Cell]) -> None:
        """Plan one more run of each of these cells, in this order; the block's number is the same for all of them."""
        known = {cell: cell_id for cell_id, cell in self.cells()}
        with self._transaction() as connection:
            block = connection.execute("SELECT max(repeat) + 1 FROM run").fetchone()[0]
            connection.executemany(_NEW_RUN, [(known[cell], block) for cell in cells])

    def paces(self, block: int) -> dict[Cell, float]:
        """Return by cell the mean seconds per sample of its ok runs of a block, without those in which it waited."""
        seconds = "sum((end_ns - start_ns) / 1e9 - coalesce(waited_s, 0)) / sum(images)"
        which = "JOIN epoch USING (run_id) WHERE repeat = ? AND status = 'ok' GROUP BY cell_id"
        return {cell: pace for cell, (pace,) in self._by_cell(seconds, which, (block,)).items()}

    def beside_anchor(self, run_ids: Sequence[int], cell: Cell) -> tuple[int, int] | None:
        """Move runs into a block of their own, behind one more run of this cell; return its run_id and the block's number.

        Where one of the runs is a repeat, none is moved, and None is returned.
        """
        which = f"WHERE run_id IN ({marks(run_ids)})"
        if self.select(f"SELECT 1 FROM run {which} AND retry_of IS NOT NULL", run_ids):
            return None
        known = {one: cell_id for cell_id, one in self.cells()}
        with self._transaction() as connection:
            block = connection.execute("SELECT max(repeat) + 1 FROM run").fetchone()[0]
            connection.execute(f"UPDATE run SET repeat = ? {which}", (block, *run_ids))
            return connection.execute(_NEW_RUN, (known[cell], block)).lastrowid or 0, block

    def set_aside(self, run_id: int) -> None:
        """Make a run a repeat of an ok run of its cell, so that the cell keeps its status and its figures."""
        ok = "SELECT min(run_id) FROM run AS ok WHERE ok.cell_id = run.cell_id AND status = 'ok' AND retry_of IS NULL"
        with self._transaction() as connection:
            connection.execute(f"UPDATE run SET retry_of = ({ok}) WHERE run_id = ?", (run_id,))

    def repeat_disturbed(self, most: int, left_s: float = math.inf, costs_s: Mapping[int, float] | None = None) -> int:
        """Plan each run once more that was disturbed, as were its repeats so far, if these are below `most`; how many.

        The run that is repeated stays. A repeat that ended otherwise is not repeated again. Repeats of a duel are one, too.
        costs_s: by cell_id the seconds of a run, which must fit into left_s.
        """
        query = (
            "SELECT coalesce(retry_of, run_id) AS first, cell_id,"
            " max(CASE WHEN retry_of IS NULL THEN duel || ' of ' || coalesce(part_id, '') END) FROM run GROUP BY first"
            " HAVING sum(NOT (status = 'ok' AND coalesce(disturbed_epochs, 0) > 0)) = 0 AND count(*) <= ? ORDER BY first"
        )
        found = []
        for row in self.select(query, (most,)):
            if (cost_s := (costs_s or {}).get(row[1], 0.0)) <= left_s:
                left_s -= cost_s
                found.append(row)
        plan = (
            "INSERT INTO run (cell_id, repeat, retry_of)"
            " SELECT cell_id, coalesce(?, max(repeat) + 1), ? FROM run WHERE cell_id = ? GROUP BY cell_id"
        )
        last, blocks = self.select("SELECT max(repeat) FROM run")[0][0], {None: None}
        with self._transaction() as connection:
            for first, cell_id, duel in sorted(found, key=lambda one: one[2] is None):
                connection.execute(plan, (blocks.setdefault(duel, last + len(blocks)), first, cell_id))
        return len(found)

    def outcomes(self) -> dict[Cell, list[str]]:
        """Return by cell the statuses of its runs, in the order of the plan."""
        return self._by_cell("status", "ORDER BY cell_id, repeat")

    def wall_seconds(self) -> dict[Cell, list[float]]:
        """Return by cell the wall seconds of its runs that have ended."""
        return self._by_cell("wall_s", "WHERE typeof(wall_s) = 'real' ORDER BY run_id")

    def _by_cell(self, name: str, which: str, values: tuple[object, ...] = ()) -> dict[Cell, list[Any]]:
        found: dict[Cell, list[Any]] = {}
        query = f"SELECT {name}, {_CELL} FROM run JOIN cell USING (cell_id) {which}"
        for value, *cell in self.select(query, values):
            found.setdefault(self._cell(*cell), []).append(value)
        return found

    def begin(self, run_id: int) -> None:
        """Mark a run as running; drop the records of an interrupted attempt."""
        self._write({run_id: Run(status="running", started_at=schema.now())})

    def record(self, run_id: int, run: Run) -> None:
        """Store the outcome of a run in one transaction; earlier records of it are replaced."""
        self.record_all({run_id: run})

    def record_all(self, runs: Mapping[int, Run]) -> None:
        """Store the outcomes of several runs: all of them, or none."""
        allowed = [status for status in STATUSES if status not in ("planned", "running")]
        for run in runs.values():
            if run.status not in allowed:
                raise UsageError(f"a run cannot end as {run.status!r}; allowed: {', '.join(allowed)}")
        self._write(runs)

    def environment(self, framework: str, document: Fields) -> None:
        """Store the packages of a framework's environment; an earlier entry is replaced."""
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO environment VALUES (?, ?)", (framework, as_json(document)))

    def left_out(self, table: str, fault: str, rows: int = 1) -> None:
        """Count invalid rows of a table, with the fault of one of them."""
        count, first = self.damage.get(table, (0, fault))
        self.damage[table] = (count + rows, first)

    def keep_figures(self, version: str, figures: Mapping[int, Fields]) -> None:
        """Cache by cell_id the figures of its runs, until one of them changes."""
        rows = [(cell_id, version, as_json(document)) for cell_id, document in figures.items()]
        with self._transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO figures VALUES (?, ?, ?)", rows)

    def kept_figures(self, version: str) -> dict[int, Fields]:
        """Return by cell_id the figures that this version computed; none where they are damaged."""
        try:
            rows = self.select("SELECT cell_id, document FROM figures WHERE version = ?", (version,))
            return {cell_id: self._parsed(document) for cell_id, document in rows}
        except schema.DamagedStudy:
            return {}

    def settings(self) -> Fields:
        """Return what the study was created with."""
        rows = self.select("SELECT value FROM meta WHERE key = 'settings'")
        with self._sound():
            return row_checks.settings(rows[0][0] if rows else "")

    def machine(self) -> Fields:
        found = {key: self._parsed(value) for key, value in self.select("SELECT key, value FROM machine")}
        with self._sound():
            return dict(row_checks.machine(found))

    def environments(self) -> dict[str, Fields]:
        rows = self.select("SELECT framework, document FROM environment ORDER BY framework")
        with self._sound():
            return {framework: row_checks.document(text, dict, "environment") for framework, text in rows}

    def keep_machine(self, machine: Document) -> None:
        """Store the machine of a study that was planned for others and has run on none; one that is there stays."""
        with self._transaction() as connection:
            rows = [(key, as_json(value)) for key, value in machine.items()]
            connection.executemany("INSERT OR IGNORE INTO machine VALUES (?, ?)", [] if self.machine() else rows)

    def nodes(self) -> dict[int, Fields]:
        """Return by node_id the machines that parts of the study ran on, each with its "name"."""
        rows = self.select("SELECT node_id, name, machine FROM node ORDER BY node_id")
        with self._sound():
            found = {node_id: row_checks.document(text, dict, "machine") for node_id, _, text in rows}
            return {node_id: {**row_checks.machine(found[node_id]), "name": name} for node_id, name, _ in rows}

    def parts(self) -> set[int]:
        """The numbers of the parts that are absorbed."""
        return {number for (number,) in self.select("SELECT part_id FROM part")}

    def absorb(self, part: absorption.Part) -> bool:
        """Absorb a part as `absorption.absorb` does; StudyError for one that is damaged."""
        with schema.study_errors(part.path):
            return absorption.absorb(self._connection, part)

    def single_file(self) -> None:
        """Leave WAL mode, whose files beside the study other hosts of a shared disk cannot use.

        A reader at work keeps it in WAL mode, which is as good on one host; nobody is waited for.
        """
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA journal_mode = DELETE")
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA busy_timeout = 30000")

    def select(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query."""
        return self.table(query, values)[1]

    def table(self, query: str, values: Sequence[object] = ()) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of a query."""
        with schema.study_errors(self.path):
            cursor = self._connection.execute(query, values)
            return [column[0] for column in cursor.description], cursor.fetchall()

    def close(self) -> None:
        """Close the file; a writer leaves it a single file that can be read on a read-only medium."""
        if self._lock and self._lock.is_locked:
            self.single_file()
        self._connection.close()
        if self._lock:
            self._lock.release()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _parsed(self, document: str) -> JSON:
        with self._sound():
            return row_checks.document(document, object, "document")

    @contextlib.contextmanager
    def _sound(self) -> Iterator[None]:
        try:
            yield
        except row_checks.InvalidRow as error:
            raise schema.damaged(self.path, error) from None

    def _cell(self, framework: str, model: str, dataset: str, device: str, config: str) -> Cell:
        try:
            with self._sound():
                fields = row_checks.config(config)
            return Cell(framework, model, dataset, device, TrainConfig.from_dict(fields))
        except TypeError as error:
            raise StudyError(f"{self.path} was planned by another version of framework_compare: {error}") from None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with schema.study_errors(self.path), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection

    def _write(self, runs: Mapping[int, Run]) -> None:
        assignments = ", ".join(f"{name} = ?" for name in RUN_FIELDS)
        query = f"UPDATE run SET part_id = NULL, node_id = NULL, {assignments} WHERE run_id = ?"
        stale = "DELETE FROM figures WHERE cell_id = (SELECT cell_id FROM run WHERE run_id = ?)"
        with self._transaction() as connection:
            for run_id, run in runs.items():
                values = [column(getattr(run, name)) for name in RUN_FIELDS]
                if connection.execute(query, (*values, run_id)).rowcount != 1:
                    raise StudyError(f"{self.path} has no run {run_id}")
                connection.execute(stale, (run_id,))
                for field, table in LISTS.items():
                    connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
                    insert(connection, table, run_id, getattr(run, field))


_CELL = "framework, model, dataset, device, config"
_NEW_CELL = f"INSERT INTO cell ({_CELL}) VALUES (?, ?, ?, ?, ?)"
_NEW_RUN = "INSERT INTO run (cell_id, repeat) VALUES (?, ?)"


def _plan(connection: sqlite3.Connection, cells: Sequence[Cell], orders: Sequence[Sequence[int]], first: int) -> None:
    """Add cells with their runs, block by block from number `first`."""
    ids = []
    for cell in cells:
        values = cell.framework, cell.model, cell.dataset, cell.device, as_json(cell.config.to_dict())
        ids.append(connection.execute(_NEW_CELL, values).lastrowid)
    runs = [(ids[place], block) for block, order in enumerate(orders, first) for place in order]
    connection.executemany(_NEW_RUN, runs)


def _write_new(
    folder: Path, settings: Fields, machine: Fields, cells: Sequence[Cell], orders: Sequence[Sequence[int]]
) -> None:
    meta = {"settings": as_json(settings), "created_at": schema.now(), "created_by": __version__}
    for name in CUT_SHORT:
        (folder / name).unlink(missing_ok=True)
    with contextlib.closing(schema.connect(folder / NEW, "rwc")) as connection:
        schema.create(connection)
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        connection.executemany("INSERT INTO machine VALUES (?, ?)", [(k, as_json(v)) for k, v in machine.items()])
        _plan(connection, cells, orders, 1)
        connection.commit()
    os.replace(folder / NEW, folder / FILE)
