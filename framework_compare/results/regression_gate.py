"""Whether a study is slower than a baseline, cell by cell: what a gate in CI asks."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from framework_compare.results.columns import IDENTITY

if TYPE_CHECKING:
    import pandas as pd

SLOWER, FASTER, SAME, LOST, UNJUDGED = "slower", "faster", "within the limit", "no longer works", "not judged"
UNSURE = "inconclusive"
FAILS = (SLOWER, LOST)
ONE_RUN = "one run: no interval"


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What became of a cell: its place in `Comparison.beside`, the outcome, the reason in words."""

    place: int
    outcome: str
    reason: str

    @property
    def fails(self) -> bool:
        return self.outcome in FAILS

    @property
    def proved(self) -> bool:
        """Whether a cell is shown to be within the limit, or not to be."""
        return self.outcome not in (UNJUDGED, UNSURE)


def judge(beside: pd.DataFrame, max_slowdown: float) -> list[Judgement]:
    """One judgement per row of `baseline.beside(study)`; max_slowdown is a share, 0.05 for 5 %.

    A cell is slower if its whole interval is above 1 + max_slowdown, and within the limit if all of it is below; between
    these, and without an interval, nothing is shown. A cell that worked in the baseline and does not in the study fails,
    too.
    """
    return [Judgement(place, *_outcome(row, 1 + max_slowdown)) for place, row in enumerate(beside.to_dict("records"))]


def _outcome(row: Any, most: float) -> tuple[str, str]:
    if row["status_a"] != "ok":
        return UNJUDGED, f"the baseline is {row['status_a']}"
    if row["status_b"] != "ok":
        return LOST, f"it is {row['status_b']}"
    low, high = row["ratio_ci_low"], row["ratio_ci_high"]
    if math.isnan(row["ratio"]):
        return UNJUDGED, "no epoch time"
    if row["disturbed_throughout"]:
        return UNJUDGED, "others took CPU time in every epoch"
    if math.isnan(low):
        return UNSURE, ONE_RUN
    if low > most:
        return SLOWER, ""
    return (FASTER if high < 1 else SAME if high <= most else UNSURE), ""


def missing(baseline: pd.DataFrame, study: pd.DataFrame) -> pd.DataFrame:
    """The rows of a baseline's cell frame that a study's has not."""
    keys = {tuple(map(str, row)) for row in study[list(IDENTITY)].itertuples(index=False, name=None)}
    absent = [tuple(map(str, row)) not in keys for row in baseline[list(IDENTITY)].itertuples(index=False, name=None)]
    return baseline[absent]


def names(beside: pd.DataFrame) -> list[str]:
    """The columns that name a row: framework, model, and the settings that differ between rows."""
    return [name for name in IDENTITY if name in ("framework", "model") or beside[name].astype(str).nunique() > 1]
