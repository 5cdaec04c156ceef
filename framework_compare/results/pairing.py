"""Two studies side by side: the cells that both have, and the ratio of their median epoch times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from framework_compare.results import repeats
from framework_compare.results.block_times import BlockTimes, Stratum
from framework_compare.results.columns import IDENTITY
from framework_compare.results.intervals import SESSION_SD, Interval, unpaired_ratio

if TYPE_CHECKING:
    import pandas as pd

Sides = tuple["pd.DataFrame", "pd.DataFrame"]  # the cell frame and the epoch frame of a study
COLUMNS = (
    *IDENTITY,
    "status_a",
    "status_b",
    "parity_a",
    "parity_b",
    "epoch_s_median_a",
    "epoch_s_median_b",
    "ratio",
    "ratio_ci_low",
    "ratio_ci_high",
    "disturbed_share_a",
    "disturbed_share_b",
    "disturbed_throughout",
    "verdict",
)


def side_by_side(a: Sides, b: Sides) -> pd.DataFrame:
    """One row per cell that both studies have, in the order of the first; each side is its cell and epoch frames.

    ratio is the median epoch time of B over that of A. Where both have 2 runs or more it has a 95 % interval: Welch's, as
    runs of two studies share no block, with what two sessions differ by though nothing changed. verdict is "faster" or
    "slower" (B) where that excludes 1, "not_shown" where it does not, "" where there is none. Verdicts are not corrected
    for their number.
    """
    import pandas as pd

    first, second = _cells(a[0]), _cells(b[0])
    seconds = block_seconds(a[1]), block_seconds(b[1])
    rows = [_row(key, first[key], second[key], seconds) for key in first if key in second]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _cells(frame: pd.DataFrame) -> dict[tuple[Any, ...], dict[str, Any]]:
    records: list[dict[str, Any]] = frame.to_dict("records")
    return {tuple(record[name] for name in IDENTITY): {**record, "number": n} for n, record in enumerate(records)}


def _timed(epochs: pd.DataFrame) -> pd.DataFrame:
    """Epochs of the runs that are ok and count, without disturbed ones where the cell has others, as `Pool` has them."""
    ok = epochs[(epochs["status"] == "ok") & epochs["counts"].astype(bool)]
    quiet = ok["disturbed"] != 1
    return ok[quiet | ~quiet.groupby(ok["cell"]).transform("any")]


def block_seconds(epochs: pd.DataFrame, looked: bool = False) -> BlockTimes:
    """Epoch seconds by block, by the place of the cell in the cell frame: by turns, else the median of its epochs.

    An epoch that was sampled is estimated. looked: as BlockTimes has it.
    """
    timed = _timed(epochs)
    whole_s = timed["turn_s"].fillna(timed["estimate_s"]).fillna(timed["epoch_s"])
    medians = whole_s.groupby([timed["cell"], timed["block"]], sort=True).median()
    seconds: dict[int, dict[int, float]] = {}
    for (cell, block), median in medians.items():
        if median > 0:
            seconds.setdefault(int(cell), {})[int(block)] = float(median)
    images = timed["whole_images"].fillna(timed["images"]).groupby(timed["cell"]).median()
    return BlockTimes(seconds, strata(timed), {int(cell): float(count) for cell, count in images.items()}, looked)


def strata(epochs: pd.DataFrame) -> dict[int, Stratum]:
    """Of each cell the device and the node, which noise is of, and the model and data set, which competitors share.

    A cell that ran on several nodes is of no pool, nor is one that others disturbed in every epoch.
    """
    quiet = {*epochs["cell"][epochs["disturbed"] != 1]}
    cells = epochs[["cell", "device", "node_id", "model", "dataset"]].drop_duplicates()
    found: dict[int, Stratum] = {}
    for cell, device, node, model, dataset in cells.itertuples(index=False, name=None):
        pool = None if int(cell) in found or cell not in quiet else (device, "" if node != node else node)
        found[int(cell)] = Stratum(pool, (model, dataset))
    return found


def _row(key: tuple[Any, ...], a: dict[str, Any], b: dict[str, Any], seconds: Any) -> dict[str, Any]:
    runs = [list(side.get(cell["number"], {}).values()) for side, cell in zip(seconds, (a, b))]
    ratio = unpaired_ratio(runs[1], runs[0], SESSION_SD) or Interval(np.nan)
    low, high = ratio.low, ratio.high
    return {
        **dict(zip(IDENTITY, key)),
        "status_a": a["status"],
        "status_b": b["status"],
        "parity_a": a["parity"],
        "parity_b": b["parity"],
        "epoch_s_median_a": a["epoch_s_median"],
        "epoch_s_median_b": b["epoch_s_median"],
        "ratio": ratio.value,
        "ratio_ci_low": np.nan if low is None else low,
        "ratio_ci_high": np.nan if high is None else high,
        "disturbed_share_a": a["disturbed_share"],
        "disturbed_share_b": b["disturbed_share"],
        "disturbed_throughout": _throughout(a) or _throughout(b),
        "verdict": "" if _throughout(a) or _throughout(b) else _verdict(low, high),
    }


def _throughout(cell: Mapping[str, Any]) -> bool:
    return repeats.disturbed_throughout(cell["epochs_disturbed"], cell["epochs_measured"])


def _verdict(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return "faster" if high < 1 else "slower" if low > 1 else "not_shown"
