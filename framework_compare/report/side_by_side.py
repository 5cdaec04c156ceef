"""Two studies side by side, to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Tuple

import numpy as np

from framework_compare import registry
from framework_compare.report.parts import Notes, row_name
from framework_compare.report.tables import Figure, Group, Row, Table, clean
from framework_compare.results.columns import NAMES, SETTINGS
from framework_compare.results.metrics import digits

if TYPE_CHECKING:
    import pandas as pd

VERDICTS = {"faster": "faster", "slower": "slower", "not_shown": "~", "": ""}
COUNTED = {
    "slower": "cells slower in B",
    "faster": "faster",
    "not_shown": "without a difference shown",
    "": "not judged",
}


def table(frame: "pd.DataFrame", folders: Tuple[Any, Any], cells: Tuple[int, int], *, changed: bool = False) -> Table:
    """A frame of `regression_gate.side_by_side` to read; `folders` of the studies, and how many cells each has.

    changed: only the rows of cells that became slower or faster, or work in one study alone.
    """
    several = frame["dataset"].nunique() > 1
    named = [*(name for name in NAMES if name != "dataset" or several), *_varying(frame)]
    notes = Notes()
    chosen = frame[_changed(frame)] if changed else frame
    rows = tuple(_table_row(row, named, notes) for row in chosen.to_dict("records"))
    remarks = [f"A: {folders[0]}. B: {folders[1]}. ~: no difference shown."]
    if frame["ratio"].notna().any():
        remarks += ["There is no verdict without 2 runs in both. Verdicts are not corrected for their number."]
    remarks += [f"{all_ - len(frame)} cells are in {name} only" for name, all_ in zip("AB", cells) if all_ > len(frame)]
    remarks += registry.labels(frame["framework"])
    return Table(
        "Median epoch time in seconds, B over A with its 95 % interval over runs, and what is shown of B."
        + ("" if several or frame.empty else f" {clean(frame['dataset'].iloc[0])}."),
        tuple(named),
        (Group("", ("A", "B", "B / A", "95 % interval", "B is")),),
        rows,
        tuple(notes.texts),
        tuple(remarks),
        verdicts=(summary(frame),) if len(frame) else (),
    )


def summary(frame: "pd.DataFrame") -> str:
    """How many cells became slower or faster, and by how much all did together."""
    worked = (frame["status_a"] == "ok") & (frame["status_b"] == "ok")
    verdicts = frame["verdict"][worked]
    counts = [f"{(verdicts == one).sum()} {words}" for one, words in COUNTED.items() if one or (verdicts == one).any()]
    failed = [] if worked.all() else [f"{(~worked).sum()} failed in A or B"]
    ratios = frame["ratio"].dropna()
    mean = f"; geometric mean of B / A {np.exp(np.log(ratios).mean()):.3f}" if len(ratios) > 1 else ""
    return ", ".join([*counts, *failed]) + f"{mean}."


def _varying(frame: "pd.DataFrame") -> List[str]:
    return [name for name in SETTINGS if frame[name].nunique() > 1]


def _changed(frame: "pd.DataFrame") -> Any:
    """Of each row whether the cell became slower or faster, or works in one study alone."""
    return frame["verdict"].isin(("slower", "faster")) | ((frame["status_a"] == "ok") != (frame["status_b"] == "ok"))


def _table_row(row: Dict[str, Any], named: List[str], notes: Notes) -> Row:
    medians = [_median(row, side, notes) for side in "ab"]
    ratio = "-" if np.isnan(row["ratio"]) else f"{row['ratio']:.3f}"
    interval = "-" if np.isnan(row["ratio_ci_low"]) else f"[{row['ratio_ci_low']:.3f}, {row['ratio_ci_high']:.3f}]"
    texts = (ratio, interval, VERDICTS[row["verdict"]])
    return Row(tuple(row_name(name, row[name]) for name in named), (*medians, *map(Figure, texts)))


def _median(row: Dict[str, Any], side: str, notes: Notes) -> Figure:
    if row[f"status_{side}"] != "ok":
        return Figure(str(row[f"status_{side}"]))
    return Figure(
        digits(row[f"epoch_s_median_{side}"]), notes.verdict(row[f"parity_{side}"], also=_disturbance(row, side))
    )


def _disturbance(row: Dict[str, Any], side: str) -> str:
    share = row[f"disturbed_share_{side}"]
    return f"others took {share:.0%} of a core in some of its epochs" if share > 0 else ""
