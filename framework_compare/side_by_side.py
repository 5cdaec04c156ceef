"""Two studies side by side: the cells that both have, and the ratio of their median epoch times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

import numpy as np

from framework_compare.bootstrap import median_ratio_interval
from framework_compare.frames import CELL_COLUMNS, SETTINGS, read_runs
from framework_compare.layout_parts import Notes
from framework_compare.metrics import digits
from framework_compare.tables import Figure, Group, Row, Table

if TYPE_CHECKING:
    import pandas as pd

    from framework_compare.comparison import Comparison

NAMES = ("framework", "model", "dataset")
# Two cells are the same when these are: all that was asked for.
KEY = (*NAMES, *SETTINGS, *CELL_COLUMNS[CELL_COLUMNS.index("log_path") + 1 :])
COLUMNS = (
    *KEY,
    "status_a",
    "status_b",
    "parity_a",
    "parity_b",
    "epoch_s_median_a",
    "epoch_s_median_b",
    "ratio",
    "ratio_ci_low",
    "ratio_ci_high",
    "verdict",
)
VERDICTS = {"faster": "B is faster", "slower": "B is slower", "even": "no difference shown", "": ""}


def side_by_side(a: "Comparison", b: "Comparison") -> "pd.DataFrame":
    """A row a cell that both studies have, in the order of the first.

    ratio is the median epoch time of B over that of A, with its 95 % interval where both have 3 epochs or more; verdict
    is "faster" or "slower" (B) where that excludes 1, "even" where it does not, "" where there is none.
    """
    import pandas as pd

    first, second = _cells(a), _cells(b)
    epochs = epoch_runs(a), epoch_runs(b)
    rows = [_row(key, first[key], second[key], epochs) for key in first if key in second]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _cells(study: "Comparison") -> Dict[Tuple[Any, ...], Dict[str, Any]]:
    records: List[Dict[str, Any]] = study.frame.to_dict("records")
    return {tuple(record[name] for name in KEY): {**record, "number": n} for n, record in enumerate(records)}


def epoch_runs(study: "Comparison") -> Dict[int, List[np.ndarray]]:
    """Epoch seconds of the runs that are ok, an array a run, by the number of the cell in the study's frame."""
    frame = study.epochs[study.epochs["status"] == "ok"]
    numbers = _cell_numbers(study)
    found: Dict[int, List[np.ndarray]] = {}
    for run_id, group in frame.groupby("run_id", sort=False):
        found.setdefault(numbers[run_id], []).append(group["epoch_s"].to_numpy())
    return found


def _cell_numbers(study: "Comparison") -> Dict[int, int]:
    """run_id -> row of the cell frame, which is in the order of cell_id."""
    from framework_compare.store import Store

    with Store.open(study.folder) as store:
        rows = [(run["run_id"], run["cell_id"]) for run in read_runs(store)]
    order = {cell_id: n for n, cell_id in enumerate(sorted({cell_id for _, cell_id in rows}))}
    return {run_id: order[cell_id] for run_id, cell_id in rows}


def _row(key: Tuple[Any, ...], a: Dict[str, Any], b: Dict[str, Any], epochs: Any) -> Dict[str, Any]:
    runs = epochs[0].get(a["number"], []), epochs[1].get(b["number"], [])
    medians = [float(np.median(np.concatenate(side))) if side else np.nan for side in runs]
    low, high = median_ratio_interval(*runs) if all(runs) else (None, None)
    return {
        **dict(zip(KEY, key)),
        "status_a": a["status"],
        "status_b": b["status"],
        "parity_a": a["parity"],
        "parity_b": b["parity"],
        "epoch_s_median_a": medians[0],
        "epoch_s_median_b": medians[1],
        "ratio": medians[1] / medians[0],
        "ratio_ci_low": np.nan if low is None else low,
        "ratio_ci_high": np.nan if high is None else high,
        "verdict": _verdict(low, high),
    }


def _verdict(low: Optional[float], high: Optional[float]) -> str:
    if low is None or high is None:
        return ""
    return "faster" if high < 1 else "slower" if low > 1 else "even"


def table(a: "Comparison", b: "Comparison") -> Table:
    """The same to read, with what only one of the two has told below."""
    frame = side_by_side(a, b)
    varying = [name for name in SETTINGS if frame[name].nunique() > 1]
    notes = Notes()
    rows = tuple(_table_row(row, varying, notes) for row in frame.to_dict("records"))
    remarks = [f"A: {a.folder}", f"B: {b.folder}"]
    for name, alone in (("A", len(a.frame) - len(frame)), ("B", len(b.frame) - len(frame))):
        if alone:
            remarks.append(f"{alone} cells are in {name} only")
    return Table(
        "Median epoch time in seconds, and the ratio B / A with its 95 % interval.",
        (*NAMES, *varying),
        (Group("", ("A", "B", "B / A", "95 % interval", "verdict")),),
        rows,
        tuple(notes.texts),
        tuple(remarks),
    )


def _table_row(row: Dict[str, Any], varying: List[str], notes: Notes) -> Row:
    medians = [_median(row, side, notes) for side in "ab"]
    ratio = "-" if np.isnan(row["ratio"]) else f"{row['ratio']:.3f}"
    interval = "-" if np.isnan(row["ratio_ci_low"]) else f"{row['ratio_ci_low']:.3f} to {row['ratio_ci_high']:.3f}"
    texts = (ratio, interval, VERDICTS[row["verdict"]])
    return Row(tuple(str(row[name]) for name in (*NAMES, *varying)), (*medians, *map(Figure, texts)))


def _median(row: Dict[str, Any], side: str, notes: Notes) -> Figure:
    if row[f"status_{side}"] != "ok":
        return Figure(str(row[f"status_{side}"]))
    return Figure(digits(row[f"epoch_s_median_{side}"]), notes.verdict(row[f"parity_{side}"]))
