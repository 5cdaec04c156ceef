"""Pandas frames of a study: a row a cell, and a row an epoch, a sample or a phase. Pandas is imported on demand."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Sequence

import numpy as np

from framework_compare import gauges, metrics, soundness
from framework_compare.metrics import METRICS, Measured
from framework_compare.parity import in_study
from framework_compare.protocol import TrainConfig
from framework_compare.records import Energy, Epoch, Phase, Sample, oversize

if TYPE_CHECKING:
    import pandas as pd

    from framework_compare.store import Store

SETTINGS = (
    "device",
    "batch_size",
    "execution",
    "pipeline",
    "precision",
    "tuning",
    "threads",
    "loader_workers",
)
RUN_KEYS = ("framework", "model", "dataset", *SETTINGS, "status", "run_id", "repeat")
_OUTCOME = ("status", "reason", "runs", "runs_ok", "epochs_measured")
_FIXED = ("framework", "framework_version", "model", "dataset", *SETTINGS, *_OUTCOME, *METRICS)
# What is left of the TrainConfig; `loss` there is a name, and would hide nothing but surprise beside the figures.
_REST = tuple(
    "loss_function" if field.name == "loss" else field.name
    for field in dataclasses.fields(TrainConfig)
    if field.name not in SETTINGS
)
PARITY = in_study.COLUMNS
_EVIDENCE = (*gauges.COLUMNS, "warnings", "pictures", "skipped_pictures", "trace_path", "log_path")
CELL_COLUMNS = (*_FIXED, *PARITY, *_EVIDENCE, *_REST)
# The status of a cell with several runs is the first of these that a run of it has.
WORST_FIRST = (
    "crashed",
    "out-of-memory",
    "timed-out",
    "diverged",
    "failed",
    "unsupported",
    "not-installed",
    "interrupted",
    "running",
    "planned",
    "ok",
)
EPOCHS = "epochs_measured"
Row = Dict[str, Any]
_KINDS = {"phase": Phase, "epoch": Epoch, "sample": Sample, "energy": Energy}


def read_runs(store: "Store") -> List[Row]:
    """Every sound run with the settings of its cell, cells in the order of the plan."""
    return _runs(store, "ORDER BY cell_id, repeat")


def _runs(store: "Store", which: str, values: Sequence[Any] = ()) -> List[Row]:
    names, rows = store.select(f"SELECT cell.*, run.* FROM run JOIN cell USING (cell_id) {which}", values)
    found = []
    for row in rows:
        try:
            found.append(_run_row(soundness.run_row(dict(zip(names, row)))))
        except soundness.Unsound as error:
            store.left_out("run", str(error))
    return found


def _run_row(row: Row) -> Row:
    config = row.pop("config")
    config["loss_function"] = config.pop("loss")
    # The cell's own device wins: it is what was asked for.
    return {**config, **row}


def _columns(store: "Store", table: str, run_id: int) -> Dict[str, List[Any]]:
    names = [field.name for field in dataclasses.fields(_KINDS[table])]
    _, rows = store.select(f"SELECT {', '.join(names)} FROM {table} WHERE run_id = ? ORDER BY rowid", (run_id,))
    return sound_columns(store, table, _KINDS[table], dict(zip(names, zip(*rows)))) if rows else {n: [] for n in names}


def sound_columns(store: "Store", table: str, kind: Any, columns: soundness.Columns) -> Dict[str, List[Any]]:
    """Stored columns of a record without the rows that are not sound, which the store is told of."""
    faulty, fault = soundness.rows(kind, columns)
    if faulty:
        store.left_out(table, fault, len(faulty))
    left = set(faulty)
    return {name: [v for n, v in enumerate(c) if n not in left] if left else list(c) for name, c in columns.items()}


def cell_frame(store: "Store") -> "pd.DataFrame":
    """A row a cell, failed and planned ones included; figures that no writer kept are computed, cell by cell."""
    import pandas as pd

    settings = store.settings()
    datasets = settings.get("datasets") or {}
    groups = itertools.groupby(read_runs(store), key=lambda row: row["cell_id"])
    kept = store.kept_figures(metrics.version())
    verdicts = in_study.read(store.folder)
    rows = [_cell_row(store, list(runs), datasets, kept) for _, runs in groups]
    unknown = in_study.unknown(settings.get("verify", "off"))
    rows = [{**row, **verdicts.get(in_study.key(row), unknown)} for row in rows]
    frame = pd.DataFrame(rows, columns=list(CELL_COLUMNS))
    numbers = [*METRICS, *gauges.NUMBERS, "pictures", "skipped_pictures"]
    return frame.astype({name: float for name in numbers})


def store_figures(store: "Store", run_id: int) -> None:
    """Compute the figures of the cell of a run that was recorded, and keep them for those who read the study."""
    runs = _runs(store, "WHERE cell_id = (SELECT cell_id FROM run WHERE run_id = ?) ORDER BY repeat", (run_id,))
    if not runs:
        return
    found = {**metrics.figures(_measured(store, runs)), EPOCHS: _epochs_measured(store, runs)}
    store.keep_figures(runs[0]["cell_id"], metrics.version(), found)


def _measured(store: "Store", runs: List[Row]) -> List[Measured]:
    return [Measured(run, *(_columns(store, table, run["run_id"]) for table in _KINDS)) for run in runs]


def _epochs_measured(store: "Store", runs: List[Row]) -> int:
    count = "SELECT count(*) FROM epoch WHERE run_id = ?"
    return sum(store.select(count, (run["run_id"],))[1][0][0] for run in runs if run["status"] == "ok")


def _cell_row(store: "Store", runs: List[Row], datasets: Mapping[str, Any], kept: Mapping[int, Row]) -> Row:
    figures = soundness.numbers(kept.get(runs[0]["cell_id"]), (*METRICS, EPOCHS))
    if figures is None:
        figures = {**metrics.figures(_measured(store, runs)), EPOCHS: _epochs_measured(store, runs)}
    worst = min(runs, key=lambda run: WORST_FIRST.index(run["status"]))
    ok = [run for run in runs if run["status"] == "ok"]
    pictures = datasets.get(worst["dataset"]) or {}
    return {
        **worst,
        **figures,
        **gauges.of_cell(runs, figures),
        "warnings": "; ".join(filter(None, (*_warnings(runs), _oversize(worst, pictures)))),
        "framework_version": next((run["framework_version"] for run in runs if run["framework_version"]), None),
        "reason": _reason(worst, len(runs)),
        "runs": len(runs),
        "runs_ok": len(ok),
        "pictures": _count(pictures.get("pictures")),
        "skipped_pictures": _count(pictures.get("skipped")),
    }


def _warnings(runs: List[Row]) -> List[str]:
    """Each warning of the runs once."""
    return list(dict.fromkeys(text for run in runs for text in run["warnings"]))


def _oversize(cell: Row, dataset: Mapping[str, Any]) -> str:
    pictures = _count(dataset.get("pictures"))
    return oversize(cell["batch_size"], pictures, cell["dataset"]) if isinstance(pictures, int) else ""


def _reason(run: Row, runs: int) -> str:
    place = " ".join(filter(None, [run["signal"], f"in {run['died_in']}" if run["died_in"] else ""]))
    reason = run["reason"] or place
    return f"run {run['repeat']} of {runs}: {reason}" if reason and runs > 1 else reason


def _count(value: Any) -> Any:
    if isinstance(value, (list, tuple, dict)):
        return len(value)
    return value if type(value) is int else None


def epoch_frame(store: "Store") -> "pd.DataFrame":
    """A row a measured epoch of any run, failed ones included."""

    def columns(run: Row) -> Dict[str, np.ndarray]:
        raw = _columns(store, "epoch", run["run_id"])
        start = _origin(_columns(store, "phase", run["run_id"]), raw["start_ns"])
        rest = ("data_wait_s", "loss", "step_s_median", "step_s_p05", "step_s_p95", "copy_s", "compute_s")
        return {
            "epoch": _integers(raw["number"]),
            "start_s": (_integers(raw["start_ns"]) - start) / 1e9,
            "epoch_s": (_integers(raw["end_ns"]) - _integers(raw["start_ns"])) / 1e9,
            "images": _integers(raw["images"]),
            "steps": _integers(raw["steps"]),
            **{name: _numbers(raw[name]) for name in rest},
        }

    return _long(store, columns)


def phase_frame(store: "Store") -> "pd.DataFrame":
    """A row a phase: its start in the run, its seconds, and the PSS of the process tree at its end."""

    def columns(run: Row) -> Dict[str, np.ndarray]:
        raw = _columns(store, "phase", run["run_id"])
        starts, ends = _integers(raw["start_ns"]), _integers(raw["end_ns"])
        return {
            "phase": np.array(raw["name"], dtype=object),
            "start_s": (starts - _origin(raw, raw["start_ns"])) / 1e9,
            "seconds": (ends - starts) / 1e9,
            "pss_bytes": _numbers(raw["pss_bytes"]),
        }

    return _long(store, columns)


def sample_frame(store: "Store") -> "pd.DataFrame":
    """A row a reading: `t_s` counts from the start of the run's first phase, `phase` is the one it fell in, or None."""

    def columns(run: Row) -> Dict[str, np.ndarray]:
        raw = _columns(store, "sample", run["run_id"])
        phases = _columns(store, "phase", run["run_id"])
        times = _integers(raw["t_ns"])
        return {
            "t_s": (times - _origin(phases, raw["t_ns"])) / 1e9,
            "phase": _phase_at(phases, times),
            **{name: _numbers(values) for name, values in raw.items() if name != "t_ns"},
        }

    return _long(store, columns)


def energy_frame(store: "Store") -> "pd.DataFrame":
    """A row a reading of an energy counter: `meter`, `t_s` as in the samples, joules since an origin of its own."""

    def columns(run: Row) -> Dict[str, np.ndarray]:
        raw = _columns(store, "energy", run["run_id"])
        phases = _columns(store, "phase", run["run_id"])
        return {
            "meter": np.array(raw["device"], dtype=object),
            "t_s": (_integers(raw["t_ns"]) - _origin(phases, raw["t_ns"])) / 1e9,
            "energy_j": _numbers(raw["energy_j"]),
            "source": np.array(raw["source"], dtype=object),
        }

    return _long(store, columns)


def _origin(phases: Mapping[str, Sequence[int]], otherwise: Sequence[int]) -> int:
    """Start of the first phase, in nanoseconds; where there is none, the first of the other times."""
    return min(phases["start_ns"] or otherwise[:1], default=0)


def _phase_at(phases: Mapping[str, Sequence[Any]], times: np.ndarray) -> np.ndarray:
    order = np.argsort(_integers(phases["start_ns"]), kind="stable")
    starts, ends = _integers(phases["start_ns"])[order], _integers(phases["end_ns"])[order]
    names = np.array([*np.array(phases["name"], dtype=object)[order], None], dtype=object)
    place = np.searchsorted(starts, times, side="right") - 1
    inside = (place >= 0) & (times <= np.append(ends, 0)[place])
    return names[np.where(inside, place, len(starts))]


def _integers(values: Iterable[Any]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def _numbers(values: Iterable[Any]) -> np.ndarray:
    return np.array(values, dtype=float)


def _long(store: "Store", columns: Callable[[Row], Dict[str, np.ndarray]]) -> "pd.DataFrame":
    """The arrays of all runs one below the other, each row headed by the keys of its run."""
    import pandas as pd

    runs = read_runs(store)
    # A run that left nothing, so that a study without any still has every column, of its own type.
    parts = [columns({"run_id": -1}), *map(columns, runs)]
    data = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    lengths = [len(next(iter(part.values()))) for part in parts[1:]]
    rows = np.repeat(np.arange(len(runs)), lengths)
    keys = pd.DataFrame(runs, columns=list(RUN_KEYS)).iloc[rows].reset_index(drop=True)
    # A setting that is also measured (`threads`) is the figure in these frames, and the setting what was asked for.
    keys = keys.rename(columns={name: f"{name}_asked" for name in keys.columns if name in data})
    return pd.concat([keys, pd.DataFrame(data)], axis=1)
