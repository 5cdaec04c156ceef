"""The runs of a study as the figures read them, and the figures stored beside them. No pandas here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from framework_compare.plan.settings import column
from framework_compare.protocol import Fields, TrainConfig
from framework_compare.results import metrics, repeats
from framework_compare.results.measured import Measured
from framework_compare.store import row_checks
from framework_compare.store.schema import CHILDREN, fields_of, marks
from framework_compare.store.study_file import TO_RUN

if TYPE_CHECKING:
    from framework_compare.store.study_file import Store

EPOCHS = "epochs_measured"
Row = Fields
Lists = dict[str, list[Any]]  # stored rows by column
_COLUMNS = {name: column(name) for name in TrainConfig().to_dict()}
_SAME_MODE = {"jit": "compiled"}  # what adapters call it, and what the setting does
_MEASURED = ("phase", "epoch", "sample", "energy", "slice")


def read_runs(store: Store) -> list[Row]:
    """Every sound run with the settings of its cell, cells in the order of the plan.

    `counts`: figures are made of it; `block`: the turn in which it was planned; `paired`: a rival has a run in it, too.
    """
    return _runs(store, "ORDER BY cell_id, repeat")


def _runs(store: Store, which: str, values: Sequence[object] = ()) -> list[Row]:
    names, rows = store.table(f"SELECT cell.*, run.* FROM run JOIN cell USING (cell_id) {which}", values)
    sound_rows = []
    for row in rows:
        try:
            sound = row_checks.run_row(dict(zip(names, row)))
            config = {_COLUMNS[name]: value for name, value in sound.pop("config").items()}
            sound_rows.append({**config, **sound})  # the cell's own device wins: it is what was asked for
        except row_checks.InvalidRow as error:
            store.left_out("run", str(error))
    counted = repeats.counting(sound_rows)
    blocks = repeats.blocks(sound_rows)
    paired = repeats.paired(sound_rows, blocks)
    for run in sound_rows:
        run.update(counts=run["run_id"] in counted, block=blocks[run["run_id"]], paired=run["run_id"] in paired)
    return sound_rows


def columns_of(store: Store, table: str, run_id: int) -> Lists:
    """The rows of a run in one table, by column."""
    return _sound_columns(store, table, fields_of(table), "run_id = ? ORDER BY rowid", (run_id,))


def whole_table(store: Store, table: str, order: str = "rowid") -> Lists:
    """The rows of all runs in one table, by column, `run_id` first."""
    return _sound_columns(store, table, ["run_id", *fields_of(table)], f"typeof(run_id) = 'integer' ORDER BY {order}")


def _sound_columns(store: Store, table: str, names: Sequence[str], which: str, values: Sequence[object] = ()) -> Lists:
    """Stored columns of a record without invalid rows; the store counts those."""
    rows = store.select(f"SELECT {', '.join(names)} FROM {table} WHERE {which}", values)
    columns = dict(zip(names, zip(*rows))) if rows else dict.fromkeys(names, ())
    faulty, fault = row_checks.rows(CHILDREN[table], columns)
    if faulty:
        store.left_out(table, fault, len(faulty))
    left = set(faulty)
    return {name: [v for n, v in enumerate(c) if n not in left] if left else list(c) for name, c in columns.items()}


def store_figures(store: Store, run_id: int) -> None:
    """Keep the figures of the cell of this run for those who read the study."""
    _keep_figures(store, "SELECT cell_id FROM run WHERE run_id = ?", (run_id,))


def refresh_figures(store: Store) -> None:
    """Keep the figures of every cell whose runs have all ended and that has none: of parts that were absorbed."""
    lacking = (
        f"SELECT cell_id FROM run GROUP BY cell_id HAVING sum(status IN ({marks(TO_RUN)})) = 0"
        " EXCEPT SELECT cell_id FROM figures WHERE version = ?"
    )
    _keep_figures(store, lacking, (*TO_RUN, metrics.version()))


def _keep_figures(store: Store, cells: str, values: Sequence[object]) -> None:
    figures = {}
    for (cell_id,) in store.select(cells, values):
        rows = [row for row in _runs(store, "WHERE cell_id = ? ORDER BY repeat", (cell_id,)) if row["counts"]]
        if rows:
            figures[cell_id] = figures_of([read_measured(store, row) for row in rows])
    store.keep_figures(metrics.version(), figures)


def figures_of(runs: Sequence[Measured]) -> Row:
    """The stored figures of a cell: every figure of METRICS, and the number of their epochs."""
    epochs = sum(len(run.epochs["number"]) for run in runs if run.run["status"] == "ok")
    return {**metrics.figures(runs), EPOCHS: epochs}


def read_measured(store: Store, row: Row) -> Measured:
    """Return the records of one run from the store."""
    return Measured(row, *(columns_of(store, table, row["run_id"]) for table in _MEASURED))


class Modes(NamedTuple):
    """The execution modes of a framework. ran: of all its runs, "" where they differ or it is unknown; others: besides."""

    ran: str
    others: tuple[str, ...]


def read_modes(store: Store) -> dict[str, Modes]:
    """Return the modes of each framework's runs that are ok."""
    rows = store.select(
        "SELECT framework, settings FROM run JOIN cell USING (cell_id) WHERE status = 'ok' ORDER BY run_id"
    )
    found: dict[str, Modes] = {}
    for framework, text in rows:
        settings = json.loads(text)
        ran = str(settings.get("execution", ""))
        others = tuple(
            one for one in settings.get("executions", ()) if one not in ("default", ran, _SAME_MODE.get(ran, ran))
        )
        known = found.setdefault(framework, Modes(ran, others))
        if known.ran != ran:
            found[framework] = Modes("", ())
    return found
