"""Frames of workloads: metrics after the last epoch beside those of a baseline, gains of ladders, grid searches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from framework_compare.batches import quality
from framework_compare.errors import StudyError
from framework_compare.events import BUILD, CANDIDATE, FIRST_STEP, JUDGING, SEARCH
from framework_compare.plan import searches
from framework_compare.protocol import Document, Fields
from framework_compare.results import repeats
from framework_compare.results.block_times import BlockTimes, strata
from framework_compare.results.columns import Record
from framework_compare.results.intervals import UNKNOWN, geometric_mean
from framework_compare.results.runs import whole_table

if TYPE_CHECKING:
    import pandas as pd

    from framework_compare.store.study_file import Store

PREFIX = "validation_"
# A gain is marked where the first metric is worse than the base's by more than this share of it.
TOLERANCE = 0.02
GAIN = ("gain", "gain_low", "gain_high", "gain_in_all")
GAIN_COLUMNS = ("rung", "before", "total_s", "epochs_run", *GAIN, "metric", "value", "worse")
OF_SEARCHES = (SEARCH, CANDIDATE)
SECONDS = (BUILD, FIRST_STEP, JUDGING)
SEARCH_COLUMNS = ("candidates", *(f"candidates_{name}" for name in SECONDS), "best", "best_metric", "best_value")


def gain_frame(cells: pd.DataFrame, epochs: pd.DataFrame, phases: pd.DataFrame, settings: Document) -> pd.DataFrame:
    """The cell frame of a ladder with `GAIN_COLUMNS`; no rows for a study that is none.

    before: the rung that this one changes, which is the base where they change it one at a time; "" for the base.
    total_s: the first step, which may compile, and all epochs; geometric mean over runs. gain: total_s of the rung
    before over that of this rung, with its 95 % interval over blocks; gain_in_all: of the base. value: `metric` after
    the last epoch. worse: whether it is worse than the base's by more than TOLERANCE.
    """
    rungs = settings.get("rungs") or []
    rows = with_quality(cells, epochs, settings)
    if not rungs:
        return rows.iloc[:0].assign(**dict.fromkeys(GAIN_COLUMNS, []))
    if len(rows) % len(rungs):
        raise StudyError(f"the study has {len(rows)} cells for {len(rungs)} rungs; it is damaged: name another folder")
    subjects, ok = len(rows) // len(rungs), repeats.counted(epochs)
    first_s = phases[phases["phase"] == "first-step"].groupby("run_id")["seconds"].sum().to_dict()
    totals: dict[int, dict[int, float]] = {}  # by the place of a cell, then by block
    for (cell, block, run), epochs_s in ok.groupby(["cell", "block", "run_id"])["epoch_s"].sum().items():
        totals.setdefault(int(cell), {})[int(block)] = float(epochs_s) + float(first_s.get(run, 0.0))
    seconds = BlockTimes(totals, strata(ok))
    found = []
    for place, row in enumerate(rows.to_dict("records")):
        number, base = divmod(place, subjects)
        changed = rungs[number].get("on", number - 1)
        own = seconds.get(place, {})
        gain = seconds.ratio(base + changed * subjects, place) if number else None
        in_all = seconds.ratio(base, place) if number else None
        metric = next(iter(row["metrics"]), None)
        value, first = (float(one.get(f"{PREFIX}{metric}", np.nan)) for one in (row, rows.iloc[base]))
        better = -1 if metric and quality.METRICS[metric].higher_is_better else 1
        found.append(
            {
                "rung": rungs[number]["name"],
                "before": rungs[changed]["name"] if number else "",
                "total_s": geometric_mean(list(own.values())).value if own else np.nan,
                "epochs_run": row["epochs_run"],
                **dict(zip(GAIN, ((gain or UNKNOWN).value, *(gain or UNKNOWN).ends, (in_all or UNKNOWN).value))),
                "metric": metric,
                "value": value,
                "worse": bool(better * (value - first) > TOLERANCE * abs(first)),  # False of NaN
            }
        )
    return rows.assign(**{name: [row[name] for row in found] for name in GAIN_COLUMNS})


def one_at_a_time(cells: Iterable[Record]) -> bool:
    """Return whether two rungs of a ladder change the same one, the base; rows of `gain_frame`."""
    pairs = {(cell.before, cell.rung) for cell in cells if cell.before}
    return len({before for before, _ in pairs}) < len(pairs)


def with_quality(frame: pd.DataFrame, epochs: pd.DataFrame, settings: Document) -> pd.DataFrame:
    """The cell frame with `epochs_run`, each metric after the last epoch, and what needs no model.

    Metrics are means over the runs that reached the last epoch; with `patience` each run has its own.
    Columns: epochs_run, validation_<metric>, baseline_<metric>, baseline (its name), data_unit ("$" of prices),
    tokens_per_s (of language models); none of a study without arrays.
    """
    names = [name for name in epochs if name.startswith(PREFIX)]
    last = repeats.counted(epochs).sort_values("epoch").groupby("run_id", sort=True).tail(1)
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


def candidate_frame(store: Store) -> pd.DataFrame:
    """One row per candidate of any run: run_id, candidate from 1, its metrics (means over folds), and its seconds.

    search_s: all of it; of these build_s, first_step_s (the first, waited for) and validation_s.
    """
    import pandas as pd

    table: dict[object, Fields] = {}
    for run_id, _, split, name, value in zip(*whole_table(store, "quality").values()):
        kind, _, number = split.partition(" ")
        if kind == CANDIDATE and number.isdigit():
            row = table.setdefault((run_id, int(number)), {"run_id": run_id, "candidate": int(number)})
            row[name] = np.nan if value is None else float(value)
    return pd.DataFrame(list(table.values()) or None, columns=None if table else ["run_id", "candidate"])


def search_frame(quality_frame: pd.DataFrame, epochs: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """The cells that are searches, with SEARCH_COLUMNS: means over the runs that are ok and count.

    best: the candidate that is best by the first metric in the mean over runs, and best_value what it reached.
    """
    cells = quality_frame[quality_frame["model"].map(searches.is_search)]
    ok = repeats.counted(epochs)
    of_cell = found.merge(ok[["run_id", "cell"]].drop_duplicates(), on="run_id") if len(found) else found
    rows: list[Fields] = []
    for place, cell in zip(cells.index, cells.to_dict("records")):
        own = of_cell[of_cell["cell"] == place] if len(found) else found
        rows.append(_search(cell, own) if len(own) else dict.fromkeys(SEARCH_COLUMNS, np.nan))
    return cells.assign(**{name: [row[name] for row in rows] for name in SEARCH_COLUMNS})


def _search(cell: Fields, own: pd.DataFrame) -> Fields:
    means = own.groupby("candidate").mean(numeric_only=True)
    metric = next(iter(cell["metrics"]), "loss")
    higher = metric != "loss" and quality.METRICS[metric].higher_is_better
    values = means[metric].dropna()
    best = int(values.idxmax() if higher else values.idxmin()) if len(values) else 0
    runs = own["run_id"].nunique()
    return {
        "candidates": len(means),
        **{f"candidates_{name}": float(own[name].sum()) / runs for name in SECONDS},
        "best": searches.candidates(cell["model"])[best - 1].label if best else "",
        "best_metric": metric,
        "best_value": float(values.get(best, np.nan)),
    }
