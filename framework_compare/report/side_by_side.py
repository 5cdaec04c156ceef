"""Two studies side by side, to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from framework_compare import registry
from framework_compare.report.table_notes import verdict_note
from framework_compare.report.table_spec import FRAMEWORK, MODEL, Column, named, tabulate
from framework_compare.report.tables import NOTHING, Table, Value, clean
from framework_compare.results import regression_gate
from framework_compare.results.columns import SETTINGS, Record
from framework_compare.results.metrics import digits, percent

if TYPE_CHECKING:
    import pandas as pd

VERDICTS = {"faster": "faster", "slower": "slower", "not_shown": "~", "": ""}
COUNTED = {
    "slower": "slower in B",
    "faster": "faster",
    "not_shown": "without a significant difference",
    "": "not judged",
}


def table(
    frame: "pd.DataFrame", folders: tuple[object, object], cells: tuple[int, int], *, changed: bool = False
) -> Table:
    """A frame of `regression_gate.side_by_side` to read; `folders` of the studies, and how many cells each has.

    changed: only the rows of cells that became slower or faster, or work in one study alone.
    """
    several = frame["dataset"].nunique() > 1
    varying = [name for name in SETTINGS if frame[name].nunique() > 1]
    remarks = [f"A: {folders[0]}. B: {folders[1]}. ~: no significant difference."]
    if frame["ratio"].notna().any():
        remarks += ["A verdict needs 2 runs in both studies. Verdicts are not corrected for multiple comparisons."]
        remarks += [regression_gate.variance(frame).sentence]
    remarks += [f"{all_ - len(frame)} cells are in {name} only" for name, all_ in zip("AB", cells) if all_ > len(frame)]
    works_once = (frame["status_a"] == "ok") != (frame["status_b"] == "ok")
    chosen = frame[frame["verdict"].isin(("slower", "faster")) | works_once] if changed else frame

    def interval(row: Record) -> str:
        return NOTHING if np.isnan(row.ratio_ci_low) else f"[{row.ratio_ci_low:.3f}, {row.ratio_ci_high:.3f}]"

    return tabulate(
        "Epoch time in seconds, B relative to A with its 95 % confidence interval over runs, and the verdict on B."
        + ("" if several or frame.empty else f" {clean(frame['dataset'].iloc[0])}."),
        (FRAMEWORK, MODEL, *(named(name, always=True) for name in (["dataset"] * several + varying))),
        (
            Column("A", _median("a")),
            Column("B", _median("b")),
            Column("B / A", lambda row: NOTHING if np.isnan(row.ratio) else f"{row.ratio:.3f}"),
            Column("95 % interval", interval),
            Column("B is", lambda row: VERDICTS[row.verdict]),
        ),
        chosen.itertuples(),
        remarks=(*remarks, *registry.labels(frame["framework"])),
        verdicts=(summary(frame),) if len(frame) else (),
    )


def summary(frame: "pd.DataFrame") -> str:
    """Count the cells that became slower or faster in B, with the mean change of all."""
    worked = (frame["status_a"] == "ok") & (frame["status_b"] == "ok")
    verdicts = frame["verdict"][worked]
    counts = [f"{(verdicts == one).sum()} {words}" for one, words in COUNTED.items() if one or (verdicts == one).any()]
    failed = [] if worked.all() else [f"{(~worked).sum()} failed in A or B"]
    ratios = frame["ratio"].dropna()
    mean = f"; geometric mean of B / A {np.exp(np.log(ratios).mean()):.3f}" if len(ratios) > 1 else ""
    return ", ".join([*counts, *failed]) + f"{mean}."


def _median(side: str) -> Callable[[Record], Value]:
    def median(row: Record) -> Value:
        status, seconds, parity, share = (
            getattr(row, f"{name}_{side}") for name in ("status", "epoch_s_median", "parity", "disturbed_share")
        )
        if status != "ok":
            return Value(str(status))
        disturbed = f"other programs took {percent(share)} of a core in some epochs" if share > 0 else ""
        return Value(digits(seconds), verdict_note(parity, also=disturbed))

    return median
