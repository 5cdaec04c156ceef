"""Two studies side by side: the cells that both have, and the ratio of their median epoch times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from framework_compare.results import repeats
from framework_compare.results.columns import IDENTITY
from framework_compare.results.intervals import median_ratio_interval

if TYPE_CHECKING:
    import pandas as pd

Sides = Tuple["pd.DataFrame", "pd.DataFrame"]  # the cell frame and the epoch frame of a study
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
    "verdict",
)


def side_by_side(a: Sides, b: Sides) -> "pd.DataFrame":
    """One row per cell that both studies have, in the order of the first; each side is its cell and epoch frames.

    ratio is the median epoch time of B over that of A, with its 95 % interval where both have 3 epochs or more; verdict
    is "faster" or "slower" (B) where that excludes 1, "even" where it does not, "" where there is none.
    """
    import pandas as pd

    first, second = _cells(a[0]), _cells(b[0])
    epochs = epoch_runs(a[1]), epoch_runs(b[1])
    rows = [_row(key, first[key], second[key], epochs) for key in first if key in second]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _cells(frame: "pd.DataFrame") -> Dict[Tuple[Any, ...], Dict[str, Any]]:
    records: List[Dict[str, Any]] = frame.to_dict("records")
    return {tuple(record[name] for name in IDENTITY): {**record, "number": n} for n, record in enumerate(records)}


def epoch_runs(epochs: "pd.DataFrame") -> Dict[int, List[np.ndarray]]:
    """Epoch seconds of the runs that are ok and count, one array per run, by the place of the cell in the cell frame.

    Disturbed epochs are left out where the cell has others.
    """
    ok = epochs[(epochs["status"] == "ok") & epochs["counts"].astype(bool)]
    quiet = ok["disturbed"] != 1
    ok = ok[quiet | ~quiet.groupby(ok["cell"]).transform("any")]
    seconds: Dict[int, List[np.ndarray]] = {}
    for (cell, _), group in ok.groupby(["cell", "run_id"], sort=False):
        seconds.setdefault(int(cell), []).append(group["epoch_s"].to_numpy())
    return seconds


def _row(key: Tuple[Any, ...], a: Dict[str, Any], b: Dict[str, Any], epochs: Any) -> Dict[str, Any]:
    runs = epochs[0].get(a["number"], []), epochs[1].get(b["number"], [])
    medians = [float(np.median(np.concatenate(side))) if side else np.nan for side in runs]
    low, high = median_ratio_interval(*runs) if all(runs) else (None, None)
    return {
        **dict(zip(IDENTITY, key)),
        "status_a": a["status"],
        "status_b": b["status"],
        "parity_a": a["parity"],
        "parity_b": b["parity"],
        "epoch_s_median_a": medians[0],
        "epoch_s_median_b": medians[1],
        "ratio": medians[1] / medians[0],
        "ratio_ci_low": np.nan if low is None else low,
        "ratio_ci_high": np.nan if high is None else high,
        "disturbed_share_a": a["disturbed_share"],
        "disturbed_share_b": b["disturbed_share"],
        "verdict": "" if _throughout(a) or _throughout(b) else _verdict(low, high),
    }


def _throughout(cell: Mapping[str, Any]) -> bool:
    return repeats.disturbed_throughout(cell["epochs_disturbed"], cell["epochs_measured"])


def _verdict(low: Optional[float], high: Optional[float]) -> str:
    if low is None or high is None:
        return ""
    return "faster" if high < 1 else "slower" if low > 1 else "even"
