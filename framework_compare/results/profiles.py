"""Counts of profilers as frames: time by operator, CUDA function and kernel class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framework_compare.results import repeats
from framework_compare.results.columns import RUN_KEYS, SETTINGS
from framework_compare.results.kernels import api_name, classify
from framework_compare.results.runs import read_runs, whole_table

if TYPE_CHECKING:
    import pandas as pd

    from framework_compare.store.study_file import Store

CELL_KEYS = ("framework", "model", "dataset", *SETTINGS)
FIGURES = ("kind", "name", "kernel_class", "calls", "self_s", "share")


def profile_frame(store: Store) -> pd.DataFrame:
    """One row per name that a run's profiler counted, largest first; share is of the run's time of that kind."""
    import pandas as pd

    frame = pd.DataFrame(whole_table(store, "profile", "run_id, kind, self_s DESC")).astype({"run_id": "int64"})
    whole = frame.groupby(["run_id", "kind"])["self_s"].transform("sum")
    frame["share"] = (frame["self_s"] / whole).where(whole > 0)
    kernel = frame["kind"] == "kernel"
    frame["kernel_class"] = frame["name"].map(classify).where(kernel, None)
    frame["name"] = frame["name"].where(frame["kind"] != "cuda-runtime", frame["name"].map(api_name))
    keys = pd.DataFrame(read_runs(store), columns=list(RUN_KEYS)).astype({"run_id": "int64"})
    return keys.merge(frame, on="run_id")[[*RUN_KEYS, *FIGURES]]


def with_profile(cells: pd.DataFrame, profile: pd.DataFrame) -> pd.DataFrame:
    """The cell frame with one row per name that profilers counted; runs of a cell are added up.

    A cell without any has one row, without a name, for each kind that was met on its device.
    """
    ok = repeats.counted(profile)
    keys = [*CELL_KEYS, "kind", "name", "kernel_class"]
    sums = ok.groupby(keys, sort=False, dropna=False)[["calls", "self_s"]].sum().reset_index()
    whole = sums.groupby([*CELL_KEYS, "kind"])["self_s"].transform("sum")
    sums["share"] = (sums["self_s"] / whole).where(whole > 0)
    kinds = sums[["device", "kind"]].drop_duplicates().sort_values("kind")
    return cells.merge(kinds, on="device").merge(sums, on=[*CELL_KEYS, "kind"], how="left")
