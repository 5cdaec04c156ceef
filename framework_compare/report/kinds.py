"""Which rows, columns and notes each kind of table has. It reads the cell frame; `renderers` draw its tables."""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

from framework_compare import registry
from framework_compare.errors import UnknownNameError
from framework_compare.report import cost_tables, headlines, ratio_tables, renderers, shared_notes, task_tables
from framework_compare.report.parts import (
    HANDING_OVER,
    Notes,
    any_known,
    caption,
    how_read,
    names_of,
    row_names,
    unsure,
    warming,
    warned,
    with_interval,
)
from framework_compare.report.profile_table import profile_table
from framework_compare.report.startup_table import STARTUP, startup_table
from framework_compare.report.tables import Figure, Group, Row, Table
from framework_compare.results import profiles, ratios, repeats, speed_verdicts
from framework_compare.results.columns import SETTINGS, SHARED, Record
from framework_compare.results.gains import COLUMNS as GAIN_COLUMNS
from framework_compare.results.metrics import METRICS
from framework_compare.results.parity import fails
from framework_compare.results.ratios import Blocks, Ratio
from framework_compare.results.speed_verdicts import Verdict

if TYPE_CHECKING:
    import pandas as pd

_NO_CELLS = "No cells in this study."
_NOTHING = {
    "speedup": "No model was trained on the CPU and on another device with the same settings.",
    "devices": "No model was trained on one device and on several of its kind; give devices=[1, 2] (--devices 1,2).",
    "quality": "No model of this study was measured on a validation split.",
    "gains": "This study is no ladder; run one with `framework-compare ladder`.",
    "inference": "No cell of this study is of mode inference.",
    "profile": "No cell of this study was profiled; run it with profile=True (--profile).",
}
RESOURCES: Tuple[Tuple[str, Tuple[Tuple[str, Tuple[str, ...]], ...]], ...] = (
    ("", (("images/s", ("images_per_s",)), ("wait %", ("data_wait_share",)))),
    ("CPU %", (("mean", ("cpu_percent_mean",)), ("max", ("cpu_percent_max",)))),
    ("RSS GiB", (("peak", ("peak_rss_bytes",)),)),
    ("threads", (("min-max", ("threads_min", "threads_max")),)),
    (
        "GPU",
        (
            ("mean %", ("gpu_percent_mean",)),
            ("peak GiB", ("gpu_memory_peak_bytes",)),
            ("own GiB", ("gpu_process_memory_peak_bytes",)),
            ("W", ("gpu_power_w_mean",)),
            ("max °C", ("gpu_temperature_c_max",)),
            ("SM MHz", ("gpu_sm_clock_mhz_mean",)),
            ("throttled %", ("gpu_throttled_share",)),
            ("copying %", ("copy_share",)),
            ("computing %", ("compute_share",)),
        ),
    ),
)


def time_table(cells: Sequence[Record], caption: str, verdicts: Sequence[Verdict] = ()) -> Table:
    """One row per framework, one column per model and data set: median epoch seconds."""
    by_name = {(cell.framework, cell.model, cell.dataset): cell for cell in cells}
    models = list(dict.fromkeys(cell.model for cell in cells))
    columns = sorted(dict.fromkeys(key[1:] for key in by_name), key=lambda column: models.index(column[0]))
    frameworks = list(dict.fromkeys(cell.framework for cell in cells))
    by_column = {(model, data): _of_column(verdicts, model, data) for model, data in columns}
    winners = {
        column: _fastest([by_name.get((f, *column)) for f in frameworks], by_column[column]) for column in columns
    }
    notes, rows = Notes(), []
    for framework in frameworks:
        picked = [(by_name.get((framework, *column)), winners[column][0] == framework) for column in columns]
        rows.append(Row((framework,), tuple(_time(cell, best, notes) for cell, best in picked)))
    best = [by_name[(winner, *column)] for column, (winner, _) in winners.items() if winner]
    return Table(
        f"Median epoch time in seconds ± 95 % interval over runs. {caption}",
        ("framework",),
        _model_groups(columns),
        tuple(rows),
        tuple(notes.texts),
        (*_remarks({_heading(column, columns): winner for column, winner in winners.items()}), *unsure(best)),
    )


def _of_column(verdicts: Sequence[Verdict], model: str, dataset: str) -> List[Verdict]:
    return [one for one in verdicts if one.model == model and one.condition["dataset"] == dataset]


def _model_groups(columns: Sequence[Tuple[str, str]]) -> Tuple[Group, ...]:
    if len({dataset for _, dataset in columns}) == 1:
        return tuple(Group("", (model,)) for model, _ in columns)
    models = dict.fromkeys(model for model, _ in columns)
    return tuple(Group(name, tuple(dataset for model, dataset in columns if model == name)) for name in models)


def _heading(column: Tuple[str, str], columns: Sequence[Tuple[str, str]]) -> str:
    return column[0] if len({dataset for _, dataset in columns}) == 1 else " / ".join(column)


def _time(cell: Optional[Record], best: bool, notes: Notes) -> Figure:
    if cell is None:
        return Figure("-")
    if cell.status != "ok" or math.isnan(cell.epoch_s_median):
        return notes.figure(cell)
    text = with_interval(cell.epoch_s_median, cell.epoch_s_ci_low, cell.epoch_s_ci_high)
    return Figure(text, notes.parity(cell), best)


def _fastest(cells: Sequence[Optional[Record]], verdicts: Sequence[Verdict]) -> Tuple[Optional[str], str]:
    """The framework that is shown to be faster than all others, or None and why none is named."""
    worked = [
        cell for cell in cells if cell is not None and cell.status == "ok" and not math.isnan(cell.epoch_s_median)
    ]
    if len(worked) < 2:
        return None, ""
    disturbed = [
        cell.framework for cell in worked if repeats.disturbed_throughout(cell.epochs_disturbed, cell.epochs_measured)
    ]
    if disturbed:
        return None, f"others took CPU time in every epoch of {', '.join(disturbed)}"
    first, *others = sorted(worked, key=lambda cell: cell.epoch_s_median)
    if fails(first.parity):
        return None, f"{first.framework} is ahead and fails parity"
    rivals = {cell.framework for cell in others if not fails(cell.parity)}
    among = [one for one in verdicts if {one.faster, one.slower} <= {first.framework, *rivals}]
    unclear = [one for one in among if one.p is None]
    if unclear or not among:
        return None, "fewer than 2 runs" if not unclear or unclear[0].blocks < 2 else unclear[0].reason
    slower = {one.slower for one in among if one.shown and one.faster == first.framework}
    return (first.framework, "") if rivals <= slower else (None, "no difference shown")


def _remarks(winners: Dict[str, Tuple[Optional[str], str]]) -> List[str]:
    lines = []
    if any(name for name, _ in winners.values()):
        lines.append("Marked: the fastest, shown to be faster than each other in the column.")
    for why in dict.fromkeys(why for name, why in winners.values() if why):
        headings = [heading for heading, winner in winners.items() if winner[1] == why]
        where = ", ".join(headings) if len(headings) < len(winners) else "all models"
        lines.append(f"No fastest framework is marked ({why}): {where}.")
    return lines


def resource_table(cells: Sequence[Record], caption: str) -> Table:
    """One row per cell: the resources that its measured epochs used."""
    notes = Notes()
    headings = row_names(cells)
    groups = [group for group in map(lambda one: _known(cells, one), RESOURCES) if group[1]]
    rows = [Row(names_of(cell, headings), tuple(_resources(cell, groups, notes))) for cell in cells]
    device = cells[0].device
    below = () if registry.device_kind(device) == "cpu" else (HANDING_OVER.format(device=device), *how_read(cells))
    return Table(
        "Resources during the measured epochs. CPU: 100 % is one core. Wait: share of the time spent waiting for data. "
        f"{caption}",
        headings,
        tuple(Group(title, tuple(heading for heading, _ in columns)) for title, columns in groups),
        tuple(rows),
        tuple(notes.texts),
        below,
    )


def _known(cells: Sequence[Record], group: Any) -> Any:
    """The group; of the GPU's, only the columns that any cell has a figure for."""
    title, columns = group
    return title, tuple(column for column in columns if title != "GPU" or any_known(cells, (column,)))


def _resources(cell: Record, groups: Sequence[Any], notes: Notes) -> List[Figure]:
    shown = [
        Figure("-".join(dict.fromkeys(METRICS[name].show(getattr(cell, name)) for name in names)))
        for _, columns in groups
        for _, names in columns
    ]
    return [notes.first(cell, shown[0].text), *shown[1:]]


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of table: what makes it from the cells of one set of settings, and the figures its CSV has.

    A table may hold cells that differ in the settings of `across`. `ratios` compares each cell with a baseline; `make`
    and the CSV then get these ratios. `frame` names the Comparison's frame; each value of the columns `apart` has a
    table of its own. judged: `make` gets the verdicts on the frameworks.
    """

    make: Callable[..., Table]
    figures: Tuple[str, ...]
    across: Tuple[str, ...] = ()
    ratios: Optional[Callable[[Sequence[Record], Blocks], Dict[int, Ratio]]] = None
    frame: str = "frame"
    apart: Tuple[str, ...] = ()
    judged: bool = False


_TIMES = ("epoch_s", "epoch_s_median", "epoch_s_ci_low", "epoch_s_ci_high", "epochs_measured")
KINDS: Dict[str, Kind] = {
    "time": Kind(time_table, _TIMES, judged=True),
    "resources": Kind(
        resource_table, tuple(name for _, columns in RESOURCES for _, names in columns for name in names)
    ),
    "speedup": Kind(ratio_tables.speedup_table, ("epoch_s_median",), ("device", "threads"), ratios.speedups),
    "devices": Kind(ratio_tables.devices_table, ("images_per_s",), ("device", "batch_size"), ratios.devices),
    "ladder": Kind(
        ratio_tables.ladder_table, ("images_per_s",), ("precision", "execution", "batch_size"), ratios.ladder
    ),
    "scaling": Kind(cost_tables.scaling_table, cost_tables.SCALING, ("batch_size",)),
    "startup": Kind(startup_table, STARTUP, ("execution",)),
    "energy": Kind(cost_tables.energy_table, cost_tables.ENERGY, ("device", "batch_size", "precision", "execution")),
    "quality": Kind(task_tables.quality_table, ("epochs_run", "baseline"), frame="quality"),
    "gains": Kind(
        task_tables.gains_table, (*GAIN_COLUMNS, "epoch_s_median", "images_per_s"), tuple(SHARED), frame="gains"
    ),
    "inference": Kind(task_tables.inference_table, task_tables.INFERENCE, ("batch_size",)),
    "profile": Kind(profile_table, profiles.FIGURES, frame="profiled", apart=("kind",)),
}


OF_TASKS = ("quality", "gains", "inference")  # of workloads, ladders and inference; other studies have none of them


def frame_of(kind: str) -> str:
    """The name of the Comparison's frame that a kind of table reads."""
    if kind not in KINDS:
        raise UnknownNameError("table", kind, KINDS)
    return KINDS[kind].frame


def build(frame: "pd.DataFrame", kind: str, blocks: Callable[[], Blocks] = dict) -> List[Table]:
    """The tables of a study, one for each set of settings that its cells share; `blocks` is called
    for ratios and verdicts only."""
    if kind not in KINDS:
        raise UnknownNameError("table", kind, KINDS)
    made, varied = KINDS[kind], [name for name in SHARED if frame[name].nunique(dropna=False) > 1]
    fixed = [name for name in SHARED if name not in made.across]
    shared = operator.attrgetter(*fixed) if fixed else lambda cell: None
    # Records once for all tables: making those of a slice of a frame takes longer than its table does.
    groups: Dict[Any, List[Record]] = {}
    for cell in frame.itertuples():
        apart = [getattr(cell, name) for name in made.apart]
        groups.setdefault(str((shared(cell), apart)), []).append(cell)
    # Reading all epochs takes long, and of one run each there is no verdict.
    judged = made.frame == "frame" and bool((frame["runs_ok"] > 1).any())
    seconds = blocks() if made.ratios or judged else {}
    verdicts = speed_verdicts.verdicts(list(frame.itertuples()), seconds) if judged else []
    judgements = headlines.by_condition(verdicts)
    tables = []
    for cells in groups.values():
        more: Tuple[Any, ...] = (made.ratios(cells, seconds),) if made.ratios else ()
        among = headlines.among(cells, judgements)
        table = made.make(cells, caption(cells, varied), *more, *((among,) if made.judged else ()))
        table = shared_notes.once(table, cells)
        said = registry.labels(cell.framework for cell in cells)
        above = headlines.lines(cells, among) if made.frame == "frame" else ()
        tables.append(
            dataclasses.replace(
                table, remarks=(*table.remarks, *warming(cells), *warned(cells), *said), verdicts=tuple(above)
            )
        )
    return [table for table in tables if table.rows]


def render(frame: "pd.DataFrame", kind: str, style: str, blocks: Callable[[], Blocks] = dict, **terminal: Any) -> str:
    """The tables of a study as text; `terminal` (width, bold) applies to that style only."""
    if style == "csv" and kind in KINDS:
        return renderers.csv(_long(frame, KINDS[kind], blocks))
    tables = build(frame, kind, blocks)
    if style not in renderers.RENDERERS:
        raise UnknownNameError("style", style, [*renderers.RENDERERS, "csv"])
    if not tables:
        text = _NOTHING.get(kind, _NO_CELLS) if len(frame) or KINDS[kind].apart else _NO_CELLS
        return ("% " if style == "latex" else "") + text + "\n"
    options = terminal if style == "terminal" else {}
    return "\n".join(renderers.RENDERERS[style](table, **options) for table in tables)


def _long(frame: "pd.DataFrame", kind: Kind, blocks: Callable[[], Blocks]) -> "pd.DataFrame":
    """The figures of a kind, one row per cell, with each cell's baseline and ratio."""
    figures = frame[["framework", "model", "dataset", *SETTINGS, "status", "reason", "parity", *kind.figures]]
    if not kind.ratios:
        return figures
    by_place = kind.ratios(list(frame.itertuples()), blocks())
    columns = {name: [getattr(by_place.get(place), name, None) for place in frame.index] for name in ratios.COLUMNS}
    return figures.assign(**columns)
