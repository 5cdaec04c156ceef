"""Frames of workloads: metrics after the last epoch beside those of a baseline, and the gain of each rung of a ladder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from framework_compare.batches import quality
from framework_compare.errors import StudyError
from framework_compare.protocol import Document, Fields
from framework_compare.results import repeats
from framework_compare.results.block_times import BlockTimes, strata
from framework_compare.results.columns import Record
from framework_compare.results.intervals import UNKNOWN, geometric_mean

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "validation_"
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
    rows = with_quality(cells, epochs, settings)
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
    return float(row.get(f"{PREFIX}{metric}", np.nan)) if metric else np.nan


def _is_worse(metric: str | None, value: float, base: float) -> bool:
    if metric is None or np.isnan(value) or np.isnan(base):
        return False
    lost = base - value if quality.METRICS[metric].higher_is_better else value - base
    return bool(lost > TOLERANCE * abs(base))


def metric_names(epochs: pd.DataFrame) -> list[str]:
    """The metrics of an epoch frame, "loss" first, as `validation_<name>` has them."""
    return [name[len(PREFIX) :] for name in epochs if name.startswith(PREFIX)]


def last_epochs(epochs: pd.DataFrame) -> pd.DataFrame:
    """The last epoch of each run that is ok and counts."""
    ok = repeats.counted(epochs)
    return ok.sort_values("epoch").groupby("run_id", sort=True).tail(1)


def with_quality(frame: pd.DataFrame, epochs: pd.DataFrame, settings: Document) -> pd.DataFrame:
    """The cell frame with `epochs_run`, each metric after the last epoch, and what needs no model.

    Metrics are means over the runs that reached the last epoch; with `patience` each run has its own.
    Columns: epochs_run, validation_<metric>, baseline_<metric>, baseline (its name), data_unit ("$" of prices),
    tokens_per_s (of language models); none of a study without arrays.
    """
    names = [PREFIX + name for name in metric_names(epochs)]
    last = last_epochs(epochs)
    # Runs end apart where time ran out; each has its own last epoch where training stops by the validation loss.
    stops = last["cell"].map(frame["patience"].reset_index(drop=True)).gt(0)
    last = last[stops | last["epoch"].eq(last.groupby("cell")["epoch"].transform("max"))]
    means = last.groupby("cell")[["epoch", *names]].mean().reindex(range(len(frame)))
    columns: Fields = {"epochs_run": means["epoch"].to_numpy()}
    columns.update({name: means[name].to_numpy() for name in names})
    datasets = settings.get("datasets") or {}
    told = [datasets.get(name) or {} for name in frame["dataset"]]
    columns["baseline"] = [one.get("baseline") for one in told]
    columns["data_unit"] = [((one.get("facts") or {}).get("scaling") or {}).get("unit") or "" for one in told]
    tokens = np.array([_tokens(one.get("task")) for one in told])
    tokens = np.where(frame["mode"] == "generation", frame["new_tokens"], tokens)
    columns["tokens_per_s"] = frame["images_per_s"].to_numpy(dtype=float) * tokens
    columns["metrics"] = [tuple((one.get("task") or {}).get("metrics") or ()) for one in told]
    for name in names:
        metric = name[len(PREFIX) :]
        values = [(one.get("baseline_quality") or {}).get(metric, np.nan) for one in told]
        columns[f"baseline_{metric}"] = np.array(values, dtype=float)
    return frame.assign(**columns).copy()  # else pandas warns once a hundred columns lie apart


def _tokens(task: Document | None) -> float:
    """Tokens of a sample that are predicted; NaN where none are."""
    if not task or "perplexity" not in task["metrics"]:
        return float("nan")
    return float(np.prod(task["target"]["shape"]))
