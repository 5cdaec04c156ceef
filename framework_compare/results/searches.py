"""Grid searches: what each candidate took and reached, and where the seconds of the whole search went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from framework_compare.batches import quality
from framework_compare.events import BUILD, CANDIDATE, FIRST_STEP, JUDGING, SEARCH
from framework_compare.plan import searches
from framework_compare.protocol import Fields
from framework_compare.results import repeats
from framework_compare.results.runs import whole_table

if TYPE_CHECKING:
    import pandas as pd

    from framework_compare.store.study_file import Store

OF_SEARCHES = (SEARCH, CANDIDATE)
SECONDS = (BUILD, FIRST_STEP, JUDGING)
COLUMNS = ("candidates", *(f"candidates_{name}" for name in SECONDS), "best", "best_metric", "best_value")


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
    """The cells that are searches, with COLUMNS: means over the runs that are ok and count.

    best: the candidate that is best by the first metric in the mean over runs, and best_value what it reached.
    """
    cells = quality_frame[quality_frame["model"].map(searches.is_search)]
    ok = repeats.counted(epochs)
    of_cell = found.merge(ok[["run_id", "cell"]].drop_duplicates(), on="run_id") if len(found) else found
    rows: list[Fields] = []
    for place, cell in zip(cells.index, cells.to_dict("records")):
        own = of_cell[of_cell["cell"] == place] if len(found) else found
        rows.append(_row(cell, own) if len(own) else dict.fromkeys(COLUMNS, np.nan))
    return cells.assign(**{name: [row[name] for row in rows] for name in COLUMNS})


def _row(cell: Fields, own: pd.DataFrame) -> Fields:
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
