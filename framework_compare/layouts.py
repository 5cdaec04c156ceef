"""Which rows, columns and notes each kind of table has. It reads the cell frame; `tables` draws what it makes."""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

from framework_compare import tables
from framework_compare.errors import UnknownNameError
from framework_compare.frames import CELL_COLUMNS, SETTINGS
from framework_compare.metrics import METRICS, decimals
from framework_compare.tables import Figure, Group, Row, Table

if TYPE_CHECKING:
    import pandas as pd

# A table is of one value of each of these; num_classes goes with the data set.
_SHARED = (*SETTINGS, *(name for name in CELL_COLUMNS[CELL_COLUMNS.index("log_path") + 1 :] if name != "num_classes"))
# Named in a caption only where tables of one study differ in them.
_QUIET = ("learning_rate", "momentum", "weight_decay", "image_size", "seed", "flip", "optimizer", "loss_function")
_NO_CELLS = "No cells in this study."
MAX_NOTE = 400
Record = Any  # a row of the cell frame, as itertuples gives it

RESOURCES: Tuple[Tuple[str, Tuple[Tuple[str, Tuple[str, ...]], ...]], ...] = (
    ("", (("images/s", ("images_per_s",)), ("wait %", ("data_wait_share",)))),
    ("CPU %", (("mean", ("cpu_percent_mean",)), ("max", ("cpu_percent_max",)))),
    ("RSS GiB", (("peak", ("peak_rss_bytes",)),)),
    ("threads", (("min-max", ("threads_min", "threads_max")),)),
    (
        "GPU",
        (("mean %", ("gpu_percent_mean",)), ("peak GiB", ("gpu_memory_peak_bytes",)), ("W", ("gpu_power_w_mean",))),
    ),
)


class Notes:
    """Reasons, numbered in the order in which they are met; one that several cells share is told once."""

    def __init__(self) -> None:
        self.texts: List[str] = []

    def figure(self, cell: Record) -> Figure:
        """The status of a cell that did not work, pointing to its reason."""
        reason = tables.clean(cell.reason)
        if cell.runs_ok and cell.status != "planned":
            reason = f"{reason or 'no reason given'} ({cell.runs_ok} of {cell.runs} runs ok)"
        if not reason:
            return Figure(cell.status)
        text = reason if len(reason) <= MAX_NOTE else reason[: MAX_NOTE - 1] + "…"
        if text not in self.texts:
            self.texts.append(text)
        return Figure(cell.status, self.texts.index(text) + 1)

    def parity(self, cell: Record) -> int:
        """The number of the note that says that a cell's network is not proved equal, 0 where it is, or was not asked."""
        verdict = getattr(cell, "parity", None)
        if not isinstance(verdict, str) or verdict.startswith("0-5"):
            return 0
        text = tables.clean(f"parity {verdict}; `framework-compare verify` proves it")
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1


def time_table(cells: Sequence[Record], caption: str) -> Table:
    """A row a framework, a column a network and data set: mean epoch seconds."""
    found = {(cell.framework, cell.model, cell.dataset): cell for cell in cells}
    models = list(dict.fromkeys(cell.model for cell in cells))
    columns = sorted(dict.fromkeys(key[1:] for key in found), key=lambda column: models.index(column[0]))
    frameworks = list(dict.fromkeys(cell.framework for cell in cells))
    notes, winners = Notes(), {column: _fastest([found.get((f, *column)) for f in frameworks]) for column in columns}
    rows = []
    for framework in frameworks:
        picked = [(found.get((framework, *column)), winners[column][0] == framework) for column in columns]
        rows.append(Row((framework,), tuple(_time(cell, best, notes) for cell, best in picked)))
    return Table(
        f"Mean epoch time in seconds, ± its 95 % interval. {caption}",
        ("framework",),
        _networks(columns),
        tuple(rows),
        tuple(notes.texts),
        tuple(_remarks({_heading(column, columns): winner for column, winner in winners.items()})),
    )


def _networks(columns: Sequence[Tuple[str, str]]) -> Tuple[Group, ...]:
    if len({dataset for _, dataset in columns}) == 1:
        return tuple(Group("", (model,)) for model, _ in columns)
    models = dict.fromkeys(model for model, _ in columns)
    return tuple(Group(name, tuple(dataset for model, dataset in columns if model == name)) for name in models)


def _heading(column: Tuple[str, str], columns: Sequence[Tuple[str, str]]) -> str:
    return column[0] if len({dataset for _, dataset in columns}) == 1 else " / ".join(column)


def _time(cell: Optional[Record], best: bool, notes: Notes) -> Figure:
    if cell is None:
        return Figure("-")
    if cell.status != "ok" or math.isnan(cell.epoch_s):
        return notes.figure(cell)
    text = with_interval(cell.epoch_s, cell.epoch_s_ci_low, cell.epoch_s_ci_high)
    return Figure(text, notes.parity(cell), best)


def with_interval(mean: float, low: float, high: float) -> str:
    """A mean and the longer arm of its interval, to the digits that the arm leaves sure, three at least."""
    arm = max(high - mean, mean - low)
    if math.isnan(arm):
        return f"{mean:.{decimals(mean)}f}"
    first = -math.floor(math.log10(arm)) if arm > 0 else 0
    places = min(max(decimals(mean), first), decimals(mean) + 2)
    return f"{mean:.{places}f} ±{arm:.{places}f}"


def _fastest(cells: Sequence[Optional[Record]]) -> Tuple[Optional[str], str]:
    """The framework whose interval lies below all others, or None and why none is named."""
    worked = [cell for cell in cells if cell is not None and cell.status == "ok" and not math.isnan(cell.epoch_s)]
    if len(worked) < 2:
        return None, ""
    if any(math.isnan(cell.epoch_s_ci_high) for cell in worked):
        return None, "fewer than 3 epochs"
    first, *others = sorted(worked, key=lambda cell: cell.epoch_s)
    if first.epoch_s_ci_high < min(cell.epoch_s_ci_low for cell in others):
        return first.framework, ""
    return None, "intervals overlap"


def _remarks(winners: Dict[str, Tuple[Optional[str], str]]) -> List[str]:
    lines = []
    if any(name for name, _ in winners.values()):
        lines.append("Marked: the fastest, where its interval lies below that of all others in the column.")
    for why in dict.fromkeys(why for name, why in winners.values() if why):
        headings = [heading for heading, winner in winners.items() if winner[1] == why]
        lines.append(f"None marked, {why}: {', '.join(headings) if len(headings) < len(winners) else 'all'}.")
    return lines


def resource_table(cells: Sequence[Record], caption: str) -> Table:
    """A row a cell: what its measured epochs took of the machine."""
    notes = Notes()
    headings = ("framework", "model") + (("dataset",) if len({cell.dataset for cell in cells}) > 1 else ())
    groups = [group for group in RESOURCES if group[0] != "GPU" or _any_known(cells, group[1])]
    rows = [
        Row(tuple(getattr(cell, name) for name in headings), tuple(_resources(cell, groups, notes)))
        for cell in cells
    ]
    return Table(
        f"Resources within the measured epochs: CPU in % of one core, waiting for data in % of the time. {caption}",
        headings,
        tuple(Group(title, tuple(heading for heading, _ in columns)) for title, columns in groups),
        tuple(rows),
        tuple(notes.texts),
    )


def _any_known(cells: Sequence[Record], columns: Sequence[Tuple[str, Tuple[str, ...]]]) -> bool:
    return any(not math.isnan(getattr(cell, name)) for _, names in columns for name in names for cell in cells)


def _resources(cell: Record, groups: Sequence[Any], notes: Notes) -> List[Figure]:
    shown = [
        Figure("-".join(dict.fromkeys(METRICS[name].show(getattr(cell, name)) for name in names)))
        for _, columns in groups
        for _, names in columns
    ]
    return shown if cell.status == "ok" else [notes.figure(cell), *shown[1:]]


def _caption(cells: Sequence[Record], varied: Sequence[str]) -> str:
    cell = cells[0]
    parts = [
        str(cell.device),
        f"batch {cell.batch_size}",
        *(f"{name} {getattr(cell, name)}" for name in ("pipeline", "execution", "precision", "tuning")),
        _plural(cell.threads, "thread"),
        _plural(cell.loader_workers, "loader worker"),
        _plural(cell.epochs, "epoch"),
        _plural(cell.runs, "run") + " a cell",
        *(f"{name.replace('_', ' ')} {getattr(cell, name)}" for name in _SHARED if name in varied and name in _QUIET),
    ]
    datasets: Dict[str, Record] = {}
    for one in cells:
        datasets.setdefault(one.dataset, one)
    pictures = map(_pictures, datasets.values())
    return f"{', '.join(parts)}. {'; '.join(pictures)}."


def _pictures(cell: Record) -> str:
    if math.isnan(cell.pictures):
        return str(cell.dataset)
    skipped = f", {cell.skipped_pictures:.0f} skipped" if cell.skipped_pictures > 0 else ""
    return f"{cell.dataset}: {_plural(int(cell.pictures), 'picture')}{skipped}"


def _plural(count: Any, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of table: what makes it from the cells of one set of settings, and the figures its CSV has."""

    make: Callable[[Sequence[Record], str], Table]
    figures: Tuple[str, ...]


KINDS: Dict[str, Kind] = {
    "time": Kind(time_table, ("epoch_s", "epoch_s_median", "epoch_s_ci_low", "epoch_s_ci_high", "epochs_measured")),
    "resources": Kind(
        resource_table, tuple(name for _, columns in RESOURCES for _, names in columns for name in names)
    ),
}


def build(frame: "pd.DataFrame", kind: str) -> List[Table]:
    """The tables of a study, one for each set of settings that its cells share."""
    if kind not in KINDS:
        raise UnknownNameError("table", kind, KINDS)
    varied = [name for name in _SHARED if frame[name].nunique(dropna=False) > 1]
    shared = operator.attrgetter(*_SHARED)
    # Records once for all tables: making those of a slice of a frame takes longer than its table does.
    groups: Dict[Any, List[Record]] = {}
    for cell in frame.itertuples(index=False):
        groups.setdefault(str(shared(cell)), []).append(cell)
    return [KINDS[kind].make(cells, _caption(cells, varied)) for cells in groups.values()]


def render(frame: "pd.DataFrame", kind: str, style: str, **terminal: Any) -> str:
    """The tables of a study as text; `terminal` (width, bold) is told to that style only."""
    if style == "csv" and kind in KINDS:
        return tables.csv(frame[["framework", "model", "dataset", *SETTINGS, "status", "reason", *KINDS[kind].figures]])
    found = build(frame, kind)
    if style not in tables.RENDERERS:
        raise UnknownNameError("style", style, [*tables.RENDERERS, "csv"])
    if not found:
        return ("% " if style == "latex" else "") + _NO_CELLS + "\n"
    given = terminal if style == "terminal" else {}
    return "\n".join(tables.RENDERERS[style](table, **given) for table in found)
