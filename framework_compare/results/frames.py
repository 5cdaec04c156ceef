"""Pandas frames of a study, with one row per cell, epoch, sample or phase. Pandas is imported on demand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from framework_compare import registry
from framework_compare.launch.launcher import STEPS
from framework_compare.records import Epoch, Quality, oversize
from framework_compare.results import metrics, precision, reading_sources, repeats, steadiness, verdicts
from framework_compare.results.block_times import block_seconds
from framework_compare.results.columns import BUDGET, CELL_COLUMNS, RUN_KEYS
from framework_compare.results.measured import epoch_seconds, turn_seconds
from framework_compare.results.metrics import METRICS
from framework_compare.results.runs import EPOCHS, Row, columns_of, figures_of, read_measured, read_runs, sound_columns
from framework_compare.results.searches import OF_SEARCHES
from framework_compare.store import row_checks

if TYPE_CHECKING:
    import pandas as pd

    from framework_compare.store.study_file import Store

DISTURBANCES = ("disturbed", "disturbed_share", "steal_share", "parent_share", "swap_in_bytes", "cpu_throttles")
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


def cell_frame(store: Store) -> pd.DataFrame:
    """One row per cell, including failed and planned ones; figures missing from the cache are computed."""
    import pandas as pd

    settings = store.settings()
    datasets = settings.get("datasets") or {}
    groups = itertools.groupby(read_runs(store), key=lambda row: row["cell_id"])
    kept = store.kept_figures(metrics.version())
    parities = verdicts.read(store.folder)
    rows = [_cell_row(store, list(runs), datasets, kept) for _, runs in groups]
    mode = settings.get("verify", "off")
    budget = precision.columns(settings)
    rows = [{**row, **verdicts.of_row(row, parities, mode), **budget} for row in rows]
    if precision.under_budget(settings):
        half_widths = ratio_half_widths(store, rows)
        rows = [{**row, **half_widths.get(place, {})} for place, row in enumerate(rows)]
    frame = pd.DataFrame(rows, columns=list(CELL_COLUMNS))
    numbers = [
        *METRICS,
        *reading_sources.NUMBERS,
        *repeats.COLUMNS,
        *steadiness.COLUMNS,
        *BUDGET,
        "pictures",
        "skipped_pictures",
    ]
    return frame.astype({name: float for name in numbers})


def ratio_half_widths(store: Store, cells: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """How sure ratios of cells are, of a study that adds runs where they are not; `precision.ratio_half_widths`."""
    return precision.ratio_half_widths(cells, block_seconds(epoch_frame(store), looked=True))


def _cell_row(store: Store, all_runs: list[Row], datasets: Mapping[str, Any], kept: Mapping[int, Row]) -> Row:
    runs = [run for run in all_runs if run["counts"]]
    figures = row_checks.numbers(kept.get(runs[0]["cell_id"]), (*METRICS, EPOCHS))
    if figures is None:
        figures = figures_of([read_measured(store, run) for run in runs])
    worst = min(runs, key=lambda run: WORST_FIRST.index(run["status"]))
    ok = [run for run in runs if run["status"] == "ok"]
    pictures = datasets.get(worst["dataset"]) or {}
    return {
        **worst,
        **figures,
        **reading_sources.of_cell(runs, figures),
        **repeats.summary(runs),
        **steadiness.summary(runs),
        "schedule": _schedule(ok),
        "alone_why": next((run["alone_why"] for run in ok if run["alone_why"]), None),
        "runs_set_aside": sum(run["status"] == "ok" for run in all_runs) - len(ok),
        "warnings": "; ".join(
            filter(
                None, (*_warnings(runs), *steadiness.sentences(runs), *_set_aside(all_runs), _oversize(worst, pictures))
            )
        ),
        "framework_version": next((run["framework_version"] for run in runs if run["framework_version"]), None),
        "reason": _reason(worst, len(runs)),
        "runs": len(runs),
        "runs_ok": len(ok),
        "pictures": _count(pictures.get("pictures")),
        "skipped_pictures": _count(pictures.get("skipped")),
    }


def _schedule(runs: list[Row]) -> str | None:
    """Whether a cell's runs took turns with those of its competitors; of some and not of others both."""
    found = {"sequential" if run["duel"] is None else "interleaved" for run in runs}
    return " and ".join(sorted(found)) or None


def _warnings(runs: list[Row]) -> list[str]:
    """Each warning of the runs once."""
    return list(dict.fromkeys(text for run in runs for text in run["warnings"]))


def _set_aside(runs: list[Row]) -> list[str]:
    return repeats.sentences(runs, {run["run_id"] for run in runs if run["counts"]})


def _oversize(cell: Row, dataset: Mapping[str, Any]) -> str:
    pictures = _count(dataset.get("pictures"))
    if not isinstance(pictures, int):
        return ""
    return oversize(cell["batch_size"], pictures, cell["dataset"], registry.unit(cell["model"]))


def _reason(run: Row, runs: int) -> str:
    place = " ".join(filter(None, [run["signal"], f"in {run['died_in']}" if run["died_in"] else ""]))
    reason = run["reason"] or place
    return f"run {run['repeat']} of {runs}: {reason}" if reason and runs > 1 else reason


def _count(value: Any) -> Any:
    if isinstance(value, (list, tuple, dict)):
        return len(value)
    return value if type(value) is int else None


RUN_COLUMNS = (
    "reason",
    "started_at",
    "wall_s",
    "exit_code",
    "signal",
    "died_in",
    "log_path",
    "log_tail",
    "interpreter",
    "part_id",
)


def run_frame(store: Store) -> pd.DataFrame:
    """One row per run, whatever became of it; started_s counts from the start of the first run of the study."""
    import pandas as pd

    runs = read_runs(store)
    places = {cell_id: place for place, cell_id in enumerate(dict.fromkeys(run["cell_id"] for run in runs))}
    rows = [{**run, "cell": places[run["cell_id"]]} for run in runs]
    frame = pd.DataFrame(rows, columns=[*RUN_KEYS, "cell", *RUN_COLUMNS])
    started = pd.to_datetime(frame["started_at"], errors="coerce", utc=True, format="ISO8601")
    return frame.assign(started_s=(started - started.min()).dt.total_seconds())


def epoch_frame(store: Store) -> pd.DataFrame:
    """One row per measured epoch of any run, failed ones included; `cell` is the row of its cell in the cell frame.

    epoch_s: without waited_s, in which rivals had their turns; turn_s: seconds of an epoch by the run's slices that
    count, NaN of a run without any.
    """

    def columns(run: Row) -> dict[str, np.ndarray]:
        raw = columns_of(store, "epoch", run["run_id"])
        start = _origin(columns_of(store, "phase", run["run_id"]), raw["start_ns"])
        rest = (
            "data_wait_s",
            "loss",
            "step_s_median",
            "step_s_p05",
            "step_s_p95",
            "copy_s",
            "compute_s",
            *DISTURBANCES,
            "waited_s",
            "whole_images",
            "pipeline_s",
            "estimate_s",
        )
        return {
            "cell": np.full(len(raw["number"]), run["cell"]),
            "epoch": _integers(raw["number"]),
            "start_s": (_integers(raw["start_ns"]) - start) / 1e9,
            "epoch_s": epoch_seconds(raw),
            "turn_s": np.full(
                len(raw["number"]), turn_seconds(raw, columns_of(store, "slice", run["run_id"])) or np.nan
            ),
            "images": _integers(raw["images"]),
            "steps": _integers(raw["steps"]),
            **{name: _numbers(raw[name]) for name in rest},
        }

    return _with_quality(_long(store, columns), store)


def _with_quality(frame: pd.DataFrame, store: Store) -> pd.DataFrame:
    """A column a metric of the network after an epoch, such as `validation_accuracy`; none where nothing was measured."""
    names, rows = store.select("SELECT run_id, epoch, split, name, value FROM quality ORDER BY rowid")
    if not rows:
        return frame
    fields = [name for name in names if name != "run_id"]
    found = sound_columns(store, "quality", Quality, dict(zip(names, zip(*rows))))
    values: dict[str, dict[Any, Any]] = {}
    for run_id, *quality in zip(found["run_id"], *(found[name] for name in fields)):
        epoch, split, name, value = quality
        if split.startswith(OF_SEARCHES):  # these are in candidate_frame
            continue
        values.setdefault(f"{split}_{name}", {})[run_id, epoch] = value
    keys = list(zip(frame["run_id"], frame["epoch"]))
    return frame.assign(**{name: _numbers(of.get(key) for key in keys) for name, of in values.items()})


def step_frame(store: Store) -> pd.DataFrame:
    """One row per step of any run whose step times are in its folder: the epoch, the step's number in it, seconds.

    A step lasts from the end of the one before it, or the start of its epoch, to its own end.
    """

    def columns(run: Row) -> dict[str, np.ndarray]:
        raw = columns_of(store, "epoch", run["run_id"])
        log = run.get("log_path")
        epochs = [Epoch(**dict(zip(raw, values))) for values in zip(*raw.values())]
        steps = steadiness.read(store.folder / Path(log).parent / STEPS, epochs) if log else None
        counts = [len(part) for part in steps or ()]
        return {
            "epoch": np.repeat(_integers(raw["number"][: len(counts)]), counts),
            "step": np.concatenate([np.arange(1, count + 1) for count in (*counts, 0)]),
            "step_s": np.concatenate([*(steps or ()), np.empty(0)]) / 1e9,
        }

    return _long(store, columns)


def slice_frame(store: Store) -> pd.DataFrame:
    """A row a turn of a run: the round, its start in the run and its seconds; steps, samples and seconds on the clock."""

    def columns(run: Row) -> dict[str, np.ndarray]:
        raw = columns_of(store, "slice", run["run_id"])
        starts = _integers(raw["start_ns"])
        return {
            "cell": np.full(len(starts), run["cell"]),
            "round": _integers(raw["round"]),
            "start_s": (starts - _origin(columns_of(store, "phase", run["run_id"]), raw["start_ns"])) / 1e9,
            "seconds": (_integers(raw["end_ns"]) - starts) / 1e9,
            **{name: _integers(raw[name]) for name in ("steps", "samples", "major_faults")},
            **{name: _numbers(raw[name]) for name in ("measured_s", "cpu_s")},
            "void": np.array(raw["void"], dtype=object),
        }

    return _long(store, columns)


def phase_frame(store: Store) -> pd.DataFrame:
    """A row a phase: its start in the run, its seconds, and the PSS of the process tree at its end."""

    def columns(run: Row) -> dict[str, np.ndarray]:
        raw = columns_of(store, "phase", run["run_id"])
        starts, ends = _integers(raw["start_ns"]), _integers(raw["end_ns"])
        return {
            "phase": np.array(raw["name"], dtype=object),
            "start_s": (starts - _origin(raw, raw["start_ns"])) / 1e9,
            "seconds": (ends - starts) / 1e9,
            "pss_bytes": _numbers(raw["pss_bytes"]),
        }

    return _long(store, columns)


def sample_frame(store: Store) -> pd.DataFrame:
    """A row a reading: `t_s` counts from the start of the run's first phase, `phase` is the one it fell in, or None."""

    def columns(run: Row) -> dict[str, np.ndarray]:
        raw = columns_of(store, "sample", run["run_id"])
        phases = columns_of(store, "phase", run["run_id"])
        times = _integers(raw["t_ns"])
        return {
            "t_s": (times - _origin(phases, raw["t_ns"])) / 1e9,
            "phase": _phase_at(phases, times),
            **{name: _numbers(values) for name, values in raw.items() if name != "t_ns"},
        }

    return _long(store, columns)


def energy_frame(store: Store) -> pd.DataFrame:
    """A row a reading of an energy counter: `meter`, `t_s` as in the samples, joules since an origin of its own."""

    def columns(run: Row) -> dict[str, np.ndarray]:
        raw = columns_of(store, "energy", run["run_id"])
        phases = columns_of(store, "phase", run["run_id"])
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
    return np.array(list(values), dtype=float)


def _long(store: Store, columns: Callable[[Row], dict[str, np.ndarray]]) -> pd.DataFrame:
    """The arrays of all runs one below the other, each row headed by the keys of its run."""
    import pandas as pd

    runs = read_runs(store)
    places = {cell_id: place for place, cell_id in enumerate(dict.fromkeys(run["cell_id"] for run in runs))}
    runs = [{**run, "cell": places[run["cell_id"]]} for run in runs]
    # A run that left nothing, so that a study without any still has every column, of its own type.
    parts = [columns({"run_id": -1, "cell": -1}), *map(columns, runs)]
    data = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    lengths = [len(next(iter(part.values()))) for part in parts[1:]]
    rows = np.repeat(np.arange(len(runs)), lengths)
    keys = pd.DataFrame(runs, columns=list(RUN_KEYS)).iloc[rows].reset_index(drop=True)
    # A setting that is also measured (`threads`) is the figure in these frames, and the setting what was asked for.
    keys = keys.rename(columns={name: f"{name}_asked" for name in keys.columns if name in data})
    return pd.concat([keys, pd.DataFrame(data)], axis=1)
