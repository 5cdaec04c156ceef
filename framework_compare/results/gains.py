"""The gain of each rung of a ladder: training seconds of the rung before over those of the rung, run by run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from framework_compare.batches import quality
from framework_compare.errors import StudyError
from framework_compare.protocol import Document
from framework_compare.results import repeats, validation_metrics
from framework_compare.results.block_times import BlockTimes, strata
from framework_compare.results.columns import Record
from framework_compare.results.intervals import UNKNOWN, geometric_mean

if TYPE_CHECKING:
    import pandas as pd

# A gain is marked where the first metric is worse than the base's by more than this share of it.
TOLERANCE = 0.02
GAIN = ("gain", "gain_low", "gain_high", "gain_in_all")
COLUMNS = ("rung", "before", "total_s", "epochs_run", *GAIN, "metric", "value", "worse")


def gain_frame(cells: pd.DataFrame, epochs: pd.DataFrame, phases: pd.DataFrame, settings: Document) -> pd.DataFrame:
    """The cell frame of a ladder with `COLUMNS`; no rows for a study that is none.

    before: the rung that this one changes, which is the base where they change it one at a time; "" for the base.
    total_s: the first step, which may compile, and all epochs; geometric mean over runs. gain: total_s of the rung
    before over that of this rung, with its 95 % interval over blocks; gain_in_all: of the base. value: `metric` after
    the last epoch. worse: whether it is worse than the base's by more than TOLERANCE.
    """
    rungs = settings.get("rungs") or []
    rows = validation_metrics.with_quality(cells, epochs, settings)
    if not rungs:
        return rows.iloc[:0].assign(**dict.fromkeys(COLUMNS, []))
    if len(rows) % len(rungs):
        raise StudyError(f"the study has {len(rows)} cells for {len(rungs)} rungs; it is damaged: name another folder")
    subjects, seconds = len(rows) // len(rungs), _totals(epochs, phases)
    found = []
    for place, row in enumerate(rows.to_dict("records")):
        number, base = divmod(place, subjects)
        changed = rungs[number].get("on", number - 1)
        own = seconds.get(place, {})
        gain = seconds.ratio(base + changed * subjects, place) if number else None
        in_all = seconds.ratio(base, place) if number else None
        metric = next(iter(row["metrics"]), None)
        value, first = _value(row, metric), _value(rows.iloc[base], metric)
        found.append(
            {
                "rung": rungs[number]["name"],
                "before": rungs[changed]["name"] if number else "",
                "total_s": geometric_mean(list(own.values())).value if own else np.nan,
                "epochs_run": row["epochs_run"],
                **dict(zip(GAIN, ((gain or UNKNOWN).value, *(gain or UNKNOWN).ends, (in_all or UNKNOWN).value))),
                "metric": metric,
                "value": value,
                "worse": _is_worse(metric, value, first),
            }
        )
    return rows.assign(**{name: [row[name] for row in found] for name in COLUMNS})


def one_at_a_time(cells: Iterable[Record]) -> bool:
    """Return whether two rungs of a ladder change the same one, the base; rows of `gain_frame`."""
    pairs = {(cell.before, cell.rung) for cell in cells if cell.before}
    return len({before for before, _ in pairs}) < len(pairs)


def _totals(epochs: pd.DataFrame, phases: pd.DataFrame) -> BlockTimes:
    """Seconds of training of each run that is ok and counts, by the place of its cell, then by block."""
    ok = repeats.counted(epochs)
    first = phases[phases["phase"] == "first-step"].groupby("run_id")["seconds"].sum().to_dict()
    totals: dict[int, dict[int, float]] = {}
    for (cell, block, run), seconds in ok.groupby(["cell", "block", "run_id"])["epoch_s"].sum().items():
        totals.setdefault(int(cell), {})[int(block)] = float(seconds) + float(first.get(run, 0.0))
    return BlockTimes(totals, strata(ok))


def _value(row: Record, metric: str | None) -> float:
    return float(row.get(f"{validation_metrics.PREFIX}{metric}", np.nan)) if metric else np.nan


def _is_worse(metric: str | None, value: float, base: float) -> bool:
    if metric is None or np.isnan(value) or np.isnan(base):
        return False
    lost = base - value if quality.METRICS[metric].higher_is_better else value - base
    return bool(lost > TOLERANCE * abs(base))
