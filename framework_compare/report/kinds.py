"""Which rows, columns and notes each kind of table has. It reads the cell frame; `StudyTable` gives the text."""

from __future__ import annotations

import dataclasses
import operator
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

from framework_compare import registry
from framework_compare.errors import UnknownNameError
from framework_compare.plan.searches import is_search
from framework_compare.report import cost_tables, headlines, ratio_tables, shared_notes, task_tables
from framework_compare.report.parts import (
    HANDING_OVER,
    Notes,
    alone,
    any_known,
    beside_written,
    caption,
    estimated,
    how_read,
    imported,
    names_of,
    row_names,
    unit_of,
    varies,
    warned,
)
from framework_compare.report.profile_table import profile_table
from framework_compare.report.roofline_table import roofline_table
from framework_compare.report.startup_table import STARTUP, startup_table
from framework_compare.report.study_table import StudyTable
from framework_compare.report.tables import Figure, Group, Row, Table
from framework_compare.report.time_table import time_table
from framework_compare.results import memory, precision, profiles, ratios, roofline, searches, speed_verdicts
from framework_compare.results.block_times import BlockTimes
from framework_compare.results.columns import SETTINGS, SHARED, Record
from framework_compare.results.gains import COLUMNS as GAIN_COLUMNS
from framework_compare.results.metrics import METRICS
from framework_compare.results.ratios import Ratio

if TYPE_CHECKING:
    import pandas as pd

_NO_CELLS = "No cells in this study."
_NOTHING = {
    "speedup": "No model was trained on the CPU and on another device with the same settings.",
    "devices": "No model was trained on one device and on several of its kind; give devices=[1, 2] (--devices 1,2).",
    "precision": "All cells of this study have the same precision and execution; run it with several.",
    "scaling": "All cells of this study have the same batch size; run it with several.",
    "energy": cost_tables.NO_ENERGY,
    "search": "No model of this study is a grid search.",
    "quality": "No model of this study was measured on a validation split.",
    "gains": "This study is no ladder; run one with `framework-compare ladder`.",
    "inference": "No cell of this study is of mode inference.",
    "profile": "No cell of this study was profiled; run it with profile=True (--profile).",
}
RESOURCES: Tuple[Tuple[str, Tuple[Tuple[str, Tuple[str, ...]], ...]], ...] = (
    ("", (("{unit}s/s", ("images_per_s",)), ("wait %", ("data_wait_share",)))),
    ("CPU %", (("mean", ("cpu_percent_mean",)), ("p95", ("cpu_percent_p95",)))),
    ("peak GiB", (("PSS", (memory.PSS,)), ("RSS", (memory.RSS,)))),
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


def resource_table(cells: Sequence[Record], caption: str) -> Table:
    """One row per cell: the resources that its measured epochs used."""
    notes, unit = Notes(), unit_of(cells)
    headings = row_names(cells)
    groups = [group for group in map(lambda one: _known(cells, one), RESOURCES) if group[1]]
    rows = [Row(names_of(cell, headings), tuple(_resources(cell, groups, notes))) for cell in cells]
    device = cells[0].device
    of_gpu = () if registry.device_kind(device) == "cpu" else (HANDING_OVER.format(device=device), *how_read(cells))
    return Table(
        "Resources during the measured epochs. CPU: 100 % is one core. Wait: share of the time spent waiting for data. "
        f"{caption}",
        headings,
        tuple(Group(title, tuple(heading.format(unit=unit) for heading, _ in columns)) for title, columns in groups),
        tuple(rows),
        tuple(notes.texts),
        (*of_gpu, *([memory.APART] if any(cell.pss_peak_bytes > 0 for cell in cells) else []), *_parent(cells)),
    )


def _parent(cells: Sequence[Record]) -> List[str]:
    """What the comparison itself cost, where it is known."""
    known = [cell for cell in cells if cell.parent_cpu_percent > 0 and cell.parent_peak_rss_bytes > 0]
    if not known:
        return []
    percent, peak = (
        max(getattr(cell, name) for cell in known) for name in ("parent_cpu_percent", "parent_peak_rss_bytes")
    )
    return [f"The comparing process took {percent:.1f} % of a core and {peak / 2**20:.0f} MiB at most."]


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
    table of its own. judged: `make` gets the verdicts on the frameworks. there: whether the cells of a study have what
    the kind is about; reasons: sentences on why they have not. slow: whether its frame takes
    long to make, so that `there` alone says whether a study has the kind.
    """

    make: Callable[..., Table]
    figures: Tuple[str, ...]
    across: Tuple[str, ...] = ()
    ratios: Optional[Callable[[Sequence[Record], BlockTimes], Dict[int, Ratio]]] = None
    frame: str = "frame"
    apart: Tuple[str, ...] = ()
    judged: bool = False
    there: Callable[[Sequence[Record]], bool] = lambda cells: True
    reasons: Callable[[Sequence[Record]], List[str]] = lambda cells: []
    slow: bool = False


def _several(*names: str) -> Callable[[Sequence[Record]], bool]:
    """Whether the cells of a study differ in any of these settings."""
    return lambda cells: any(varies(cells, name) for name in names)


_ESTIMATES = ("epoch_estimate_s", "epoch_estimate_s_low", "epoch_estimate_s_high")
_TIMES = ("epoch_s", "epoch_s_median", "epoch_s_ci_low", "epoch_s_ci_high", *_ESTIMATES, "epochs_measured")
KINDS: Dict[str, Kind] = {
    "time": Kind(time_table, _TIMES, judged=True),
    "resources": Kind(
        resource_table, tuple(name for _, columns in RESOURCES for _, names in columns for name in names)
    ),
    "speedup": Kind(ratio_tables.speedup_table, ("epoch_s_median",), ("device", "threads"), ratios.speedups),
    "devices": Kind(ratio_tables.devices_table, ("images_per_s",), ("device", "nodes", "batch_size"), ratios.devices),
    "precision": Kind(
        ratio_tables.precision_table,
        ("images_per_s",),
        ("precision", "execution", "batch_size"),
        ratios.ladder,
        there=_several("precision", "execution"),
    ),
    "scaling": Kind(cost_tables.scaling_table, cost_tables.SCALING, ("batch_size",), there=_several("batch_size")),
    "startup": Kind(startup_table, STARTUP, ("execution",)),
    "energy": Kind(
        cost_tables.energy_table,
        cost_tables.ENERGY,
        ("device", "batch_size", "precision", "execution"),
        there=cost_tables.has_energy,
        reasons=cost_tables.reasons,
    ),
    "quality": Kind(task_tables.quality_table, ("epochs_run", "baseline"), frame="quality"),
    "gains": Kind(
        task_tables.gains_table, (*GAIN_COLUMNS, "epoch_s_median", "images_per_s"), tuple(SHARED), frame="gains"
    ),
    "search": Kind(
        task_tables.search_table,
        (*searches.COLUMNS, "epoch_s_median", "epoch_s_ci_low", "epoch_s_ci_high"),
        frame="searches",
    ),
    "inference": Kind(task_tables.inference_table, task_tables.INFERENCE, ("batch_size",)),
    "roofline": Kind(
        roofline_table,
        (*roofline.COLUMNS, "images_per_s", "data_wait_share"),
        frame="roofline",
        there=lambda cells: any(cell.status == "ok" and not is_search(cell.model) for cell in cells),
        slow=True,
    ),
    "profile": Kind(profile_table, profiles.FIGURES, frame="profiled", apart=("kind",)),
}


OF_TASKS = (
    "quality",
    "gains",
    "search",
    "inference",
)  # of workloads, ladders and inference; other studies have none of them


def find(kind: str) -> str:
    """The name of a kind; UnknownNameError for another."""
    if kind not in KINDS:
        raise UnknownNameError("table", kind, KINDS)
    return kind


def build(frame: "pd.DataFrame", kind: str, blocks: Callable[[], BlockTimes] = BlockTimes) -> List[Table]:
    """The tables of a study, one for each set of settings that its cells share; none of a kind that it has not.

    `blocks` is called for ratios and verdicts only.
    """
    made, varied = KINDS[find(kind)], [name for name in SHARED if frame[name].nunique(dropna=False) > 1]
    fixed = [name for name in SHARED if name not in made.across]
    shared = operator.attrgetter(*fixed) if fixed else lambda cell: None
    # Records once for all tables: making those of a slice of a frame takes longer than its table does.
    records = list(frame.itertuples())
    if not made.there(records):
        return []
    groups: Dict[Any, List[Record]] = {}
    for cell in records:
        apart = [getattr(cell, name) for name in made.apart]
        groups.setdefault(str((shared(cell), apart)), []).append(cell)
    # Reading all epochs takes long, and of one run each there is no verdict.
    judged = made.frame == "frame" and bool((frame["runs_ok"] > 1).any())
    seconds = blocks() if made.ratios or judged else BlockTimes()
    verdicts = speed_verdicts.verdicts(records, seconds) if judged else []
    judgements = headlines.by_condition(verdicts)
    tables = []
    for cells in groups.values():
        more: Tuple[Any, ...] = (made.ratios(cells, seconds),) if made.ratios else ()
        among = headlines.among(cells, judgements)
        table = made.make(cells, caption(cells, varied, unit_of(cells)), *more, *((among,) if made.judged else ()))
        table = shared_notes.once(table, cells)
        said = registry.labels(cell.framework for cell in cells)
        above = headlines.lines(cells, among) if made.frame == "frame" else ()
        tables.append(
            dataclasses.replace(
                table,
                remarks=(
                    *table.remarks,
                    *estimated(table),
                    *(precision.sentences(cells) if made.judged else ()),
                    *alone(cells),
                    *said,
                    *(imported(cells) if made.frame == "frame" else ()),
                ),
                warnings=(*warned(cells), *(beside_written(cells) if made.frame == "frame" else ())),
                verdicts=tuple(above),
            )
        )
    return [table for table in tables if table.rows]


def table(
    frame: "pd.DataFrame", kind: str, blocks: Callable[[], BlockTimes] = BlockTimes, verdicts: bool = True
) -> StudyTable:
    """The tables of a study with all that they hold; verdicts: whether verdicts and warnings are among it."""
    parts = build(frame, kind, blocks)
    if not verdicts:
        parts = [part.bare() for part in parts]
    absence = () if parts else _absence(frame, kind)
    return StudyTable(kind, parts, absence, lambda: _long(frame, KINDS[kind], blocks))


def present(study: Any) -> List[str]:
    """The kinds of table that a study has; `study` is a Comparison."""
    cells = list(study.frame.itertuples())
    return [
        kind
        for kind, made in KINDS.items()
        if (made.there(cells) if made.slow else build(getattr(study, made.frame), kind))
    ]


def _absence(frame: "pd.DataFrame", kind: str) -> List[str]:
    """Why a study has no table of a kind."""
    whole = KINDS[kind].frame == "frame"  # others have no rows in studies that are of something else
    if not len(frame) and whole:
        return [_NO_CELLS]
    return [_NOTHING.get(kind, _NO_CELLS), *KINDS[kind].reasons(list(frame.itertuples()))]


def _long(frame: "pd.DataFrame", kind: Kind, blocks: Callable[[], BlockTimes]) -> "pd.DataFrame":
    """The figures of a kind, one row per cell, with each cell's baseline and ratio."""
    names = ("framework", "framework_version", "model", "dataset", *SETTINGS, "status", "reason", "parity")
    figures = frame[[*names, *kind.figures]]
    if kind.judged:
        best = ratios.to_best(list(frame.itertuples()))
        return figures.assign(ratio_to_best=[best.get(place) for place in frame.index])
    if not kind.ratios:
        return figures
    by_place = kind.ratios(list(frame.itertuples()), blocks())
    columns = {name: [getattr(by_place.get(place), name, None) for place in frame.index] for name in ratios.COLUMNS}
    return figures.assign(**columns)
