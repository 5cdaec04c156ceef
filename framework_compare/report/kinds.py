"""The kinds of table that a study has, and how they are made from its cell frame."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from framework_compare import registry
from framework_compare.errors import check_name
from framework_compare.report import headlines, machine_tables, ratio_tables, resource_tables, task_tables, time_tables
from framework_compare.report.study import Study
from framework_compare.report.study_table import StudyTable
from framework_compare.report.table_notes import (
    caption,
    imported_models,
    merge_parity_notes,
    rebuild_slowdown_warnings,
    warning_lines,
    without_turns,
)
from framework_compare.report.table_spec import NO_CELLS, Sheet, TableSpec
from framework_compare.report.tables import ABOUT, Table
from framework_compare.results import precision, ratios, speed_verdicts
from framework_compare.results.block_times import BlockTimes
from framework_compare.results.columns import SETTINGS, SHARED, Record, grouped, records, values, values_of
from framework_compare.results.runs import Modes

if TYPE_CHECKING:
    import pandas as pd

KINDS: dict[str, TableSpec] = {
    "time": time_tables.TIME,
    "resources": resource_tables.RESOURCES,
    "speedup": ratio_tables.SPEEDUP,
    "stack": ratio_tables.STACK,
    "modes": ratio_tables.MODES,
    "devices": ratio_tables.DEVICES,
    "precision": ratio_tables.PRECISION,
    "scaling": resource_tables.SCALING,
    "startup": time_tables.STARTUP,
    "energy": resource_tables.ENERGY,
    "quality": task_tables.QUALITY,
    "gains": task_tables.GAINS,
    "search": task_tables.SEARCH,
    "inference": task_tables.INFERENCE,
    "generation": task_tables.GENERATION,
    "roofline": machine_tables.ROOFLINE,
    "profile": machine_tables.PROFILE,
}


def find(kind: str) -> TableSpec:
    """A kind by its name; UnknownNameError for another."""
    check_name("table", kind, KINDS)
    return KINDS[kind]


def build(
    frame: "pd.DataFrame",
    kind: str,
    blocks: Callable[[], BlockTimes] = BlockTimes,
    modes: Callable[[], Mapping[str, Modes]] = dict,
) -> list[Table]:
    """The tables of a study, one for each set of settings that its cells share; none of a kind that it has not.

    `blocks` is called for ratios and verdicts only, `modes` for verdicts.
    """
    spec, varied = find(kind), [name for name in SHARED if frame[name].nunique(dropna=False) > 1]
    of_cells = spec.frame == "frame"
    fixed = [name for name in SHARED if name not in spec.across]
    key = values_of(*fixed, *spec.apart)
    # Records once for all tables: making those of a slice of a frame takes longer than its table does.
    cells_of_all = records(frame)
    if not spec.there(cells_of_all):
        return []
    # Reading all epochs takes long, and of one run each there is no verdict.
    judged = of_cells and bool((frame["runs_ok"] > 1).any())
    seconds = blocks() if spec.ratios or judged else BlockTimes()
    judgements = speed_verdicts.verdicts(cells_of_all, seconds) if judged else []
    # By condition, as a study may have thousands of tables.
    verdicts = grouped(judgements, lambda one: values(one.condition))
    tables = []
    for cells in grouped(cells_of_all, key).values():
        of_these = headlines.verdicts_for(cells, verdicts)
        compared = spec.ratios(cells, seconds) if spec.ratios else {}
        sheet = Sheet(cells, compared, of_these if spec.judged else ())
        table = with_remarks(spec.table(sheet, caption(cells, varied, sheet.unit)), cells, precision_too=spec.judged)
        if of_cells:
            table = dataclasses.replace(
                table,
                remarks=(*table.remarks, *imported_models(cells)),
                warnings=(*table.warnings, *rebuild_slowdown_warnings(cells)),
                verdicts=tuple(headlines.lines(cells, of_these, modes() if of_these else {})),
            )
        tables.append(table)
    return [table for table in tables if table.rows]


def with_remarks(table: Table, cells: Sequence[Record], *, precision_too: bool) -> Table:
    """A table with what is to be said of its cells; precision_too: whether of the precision that was asked for, too."""
    rows, parity = merge_parity_notes(table.rows, cells)
    estimates = any(value.about for row in rows for value in row.values)
    remarks = (
        *parity,
        *table.remarks,
        *([f"{ABOUT}: estimated for a whole epoch from the measured steps."] if estimates else []),
        *(precision.sentences(cells) if precision_too else ()),
        *without_turns(cells),
        *registry.labels(cell.framework for cell in cells),
    )
    return dataclasses.replace(table, rows=rows, remarks=remarks, warnings=tuple(warning_lines(cells)))


def table(study: Study, kind: str, verdicts: bool = True) -> StudyTable:
    """The tables of a study with all that they hold; verdicts: whether verdicts and warnings are among it."""
    spec = find(kind)
    frame = getattr(study, spec.frame)
    parts = build(frame, kind, lambda: study.block_times, lambda: study.modes)
    if not verdicts:
        parts = [part.bare() for part in parts]
    if parts:
        absence: list[str] = []
    elif not len(frame) and spec.frame == "frame":  # other frames have no rows in studies of another kind
        absence = [NO_CELLS]
    else:
        absence = [spec.absent, *spec.reasons(records(frame))]
    return StudyTable(kind, parts, absence, lambda: _long(frame, spec, study))


def present(study: Study) -> list[str]:
    """The kinds of table that a study has."""
    cells = records(study.frame)
    return [
        kind
        for kind, spec in KINDS.items()
        if (spec.there(cells) if spec.slow else build(getattr(study, spec.frame), kind))
    ]


def _long(frame: "pd.DataFrame", spec: TableSpec, study: Study) -> "pd.DataFrame":
    """The figures of a kind, one row per cell, with each cell's baseline and ratio."""
    names = ("framework", "framework_version", "model", "dataset", *SETTINGS, "status", "reason", "parity")
    figures = frame[[*names, *spec.figures]]
    if spec.judged:
        best = ratios.to_best(records(frame))
        return figures.assign(ratio_to_best=[best.get(place) for place in frame.index])
    if not spec.ratios:
        return figures
    by_place = spec.ratios(records(frame), study.block_times)
    columns = {name: [getattr(by_place.get(place), name, None) for place in frame.index] for name in ratios.COLUMNS}
    return figures.assign(**columns)
