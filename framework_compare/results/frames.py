"""Pandas frames of a study, with one row per cell, epoch, sample or phase. Pandas is imported on demand."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from framework_compare import registry
from framework_compare.protocol import Document
from framework_compare.records import Epoch, oversize
from framework_compare.results import metrics, precision, repeats, steadiness
from framework_compare.results.block_times import BlockTimes, block_seconds
from framework_compare.results.columns import BUDGET, CELL_COLUMNS, REPORTED_NUMBERS, RUN_KEYS, reported
from framework_compare.results.measured import epoch_seconds, span_seconds, turn_seconds
from framework_compare.results.metrics import METRICS
from framework_compare.results.parity import read_verdicts, verdict_of
from framework_compare.results.runs import (
    EPOCHS,
    Lists,
    Row,
    columns_of,
    figures_of,
    read_measured,
    read_runs,
    whole_table,
)
from framework_compare.results.workloads import OF_SEARCHES
from framework_compare.store import row_checks
from framework_compare.store.folder import STEPS

if TYPE_CHECKING:
    import pandas as pd

    from framework_compare.store.study_file import Store

# The fields of an epoch that a frame has under their own names, as numbers.
EPOCH_FIGURES = tuple(
    field.name
    for field in dataclasses.fields(Epoch)
    if field.name not in ("number", "start_ns", "end_ns", "images", "steps")
)
# The status of a cell with several runs is the first of these that a run of it has.
WORST_FIRST = tuple(
    """
crashed out-of-memory timed-out diverged failed unsupported not-installed interrupted running planned ok
""".split()
)


def cell_frame(store: Store) -> pd.DataFrame:
    """One row per cell, including failed and planned ones; figures missing from the cache are computed."""
    import pandas as pd

    settings = store.settings()
    datasets = settings.get("datasets") or {}
    groups = itertools.groupby(read_runs(store), key=lambda row: row["cell_id"])
    kept = store.kept_figures(metrics.version())
    parities = read_verdicts(store.folder)
    rows = [_cell_row(store, list(runs), datasets, kept) for _, runs in groups]
    mode = settings.get("verify", "off")
    budget = precision.stored_budget(settings)
    asked = precision.columns(budget)
    for row in rows:
        row.update(verdict_of(row, parities, mode), **asked)
    if budget:
        beside = precision.to_reference(rows, looked_blocks(store), str(budget.get("reference", "")))
        for place, (ratio, _) in beside.items():
            if ratio:
                rows[place].update(ratio_half_width=ratio.half_width, ratio_blocks=ratio.runs)
    # Column by column: numbers lie in one block then, to which users and figures may add columns.
    values = map(operator.itemgetter(*CELL_COLUMNS), ({**_EMPTY, **row} for row in rows))
    columns = zip(CELL_COLUMNS, zip(*values) if rows else itertools.repeat(()))
    return pd.DataFrame({name: np.array(of, dtype=float) if name in _NUMBERS else list(of) for name, of in columns})


_NUMBERS = frozenset(
    (*METRICS, *REPORTED_NUMBERS, *repeats.COLUMNS, *steadiness.COLUMNS, *BUDGET)
    + ("runs_alone", "images", "skipped_images")
)
_EMPTY = dict.fromkeys(CELL_COLUMNS)


def looked_blocks(store: Store) -> BlockTimes:
    """Block times of a study that adds runs until its ratios are sure, by the places of its cells."""
    return block_seconds(epoch_frame(store), looked=True)


def _cell_row(store: Store, all_runs: list[Row], datasets: Document, kept: Mapping[int, Row]) -> Row:
    runs = [run for run in all_runs if run["counts"]]
    figures = row_checks.numbers(kept.get(runs[0]["cell_id"]), (*METRICS, EPOCHS))
    if figures is None:
        figures = figures_of([read_measured(store, run) for run in runs])
    worst = min(runs, key=lambda run: WORST_FIRST.index(run["status"]))
    ok = [run for run in runs if run["status"] == "ok"]
    facts = datasets.get(worst["dataset"]) or {}
    images, own_facts = _count(facts.get("images")), facts.get("facts")
    generated = own_facts.get("generated") if isinstance(own_facts, dict) else None
    warnings = [*repeats.warnings(runs), *steadiness.sentences(runs), *repeats.sentences(all_runs)]
    if images is not None:
        warnings.append(oversize(worst["batch_size"], images, worst["dataset"], registry.unit(worst["model"])))
    # Of a run that ended badly without a reason the signal and the phase.
    reason = worst["reason"] or " ".join(filter(None, [worst["signal"], worst["died_in"] and f"in {worst['died_in']}"]))
    return {
        **worst,
        **figures,
        **reported(runs, figures),
        **repeats.summary(runs),
        **steadiness.summary(runs),
        "schedule": " and ".join(sorted({"sequential" if run["duel"] is None else "interleaved" for run in ok}))
        or None,
        "alone_why": next((run["alone_why"] for run in ok if run["alone_why"]), None),
        "runs_alone": sum(bool(run["alone_why"]) for run in ok),
        "runs_set_aside": sum(run["status"] == "ok" for run in all_runs) - len(ok),
        "warnings": "; ".join(filter(None, warnings)),
        "framework_version": next((run["framework_version"] for run in runs if run["framework_version"]), None),
        "backend": next((found for run in runs if (found := _backend(run))), None),
        "reason": f"run {runs.index(worst) + 1} of {len(runs)}: {reason}" if reason and len(runs) > 1 else reason,
        "runs": len(runs),
        "runs_ok": len(ok),
        "images": images,
        "skipped_images": _count(facts.get("skipped")),
        "generated": generated if type(generated) is bool else None,  # from a seed; None where the study does not say
    }


def _backend(run: Row) -> str | None:
    """The plain framework that a library ran on, with its version."""
    known = registry.FRAMEWORKS.get(run["framework"].partition("@")[0])
    if known and known.backend:
        with contextlib.suppress(row_checks.InvalidRow):
            found = row_checks.document(run["settings"], dict, "settings").get("backend")
            return found if isinstance(found, str) else None
    return None


def _count(value: object) -> int | None:
    if isinstance(value, (list, tuple, dict)):
        return len(value)
    return value if type(value) is int else None


RUN_COLUMNS = tuple(
    """
reason started_at wall_s exit_code signal died_in log_path log_tail interpreter part_id
""".split()
)


def run_frame(store: Store) -> pd.DataFrame:
    """One row per run, whatever became of it; started_s counts from the start of the first run of the study."""
    import pandas as pd

    frame = pd.DataFrame(_placed(read_runs(store)), columns=[*RUN_KEYS, "cell", *RUN_COLUMNS])
    started = pd.to_datetime(frame["started_at"], errors="coerce", utc=True, format="ISO8601")
    return frame.assign(started_s=(started - started.min()).dt.total_seconds())


class _Records:
    """The records of a run, by table and column."""

    def __init__(self, store: Store, run: Row) -> None:
        self._store, self.run, self.folder = store, run, store.folder
        self._tables: dict[str, Lists] = {}

    def __getitem__(self, table: str) -> Lists:
        if table not in self._tables:
            self._tables[table] = columns_of(self._store, table, self.run["run_id"])
        return self._tables[table]

    def start_s(self, times: Sequence[int]) -> np.ndarray:
        """Seconds since the start of the first phase; since the first of these times where there is none."""
        return (_integers(times) - min(self["phase"]["start_ns"] or times[:1], default=0)) / 1e9


def _of_runs(columns: Callable[[_Records], dict[str, np.ndarray]]) -> Callable[[Store], pd.DataFrame]:
    """Make a function from a run's records to arrays one from a study to the frame of all its runs."""

    @functools.wraps(columns)
    def frame(store: Store) -> pd.DataFrame:
        import pandas as pd

        runs = _placed(read_runs(store))
        # A run that left nothing, so that a study without any still has every column, of its own type.
        parts = [columns(_Records(store, run)) for run in ({"run_id": -1, "cell": -1}, *runs)]
        data = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        lengths = [len(next(iter(part.values()))) for part in parts[1:]]
        rows = np.repeat(np.arange(len(runs)), lengths)
        # The keys of its run head each row.
        keys = pd.DataFrame(runs, columns=list(RUN_KEYS)).iloc[rows].reset_index(drop=True)
        # A setting that is also measured (`threads`) is the figure in these frames, and the setting what was asked for.
        keys = keys.rename(columns={name: f"{name}_asked" for name in keys.columns if name in data})
        return pd.concat([keys, pd.DataFrame(data)], axis=1)

    return frame


def epoch_frame(store: Store) -> pd.DataFrame:
    """One row per measured epoch of any run, failed ones included; `cell` is the row of its cell in the cell frame.

    epoch_s: without waited_s, in which rivals had their turns; turn_s: seconds of an epoch by the run's slices that
    count, NaN of a run without any.
    """
    frame = _epoch_frame(store)
    # A column a metric of the network after an epoch, such as `validation_accuracy`; none where nothing was measured.
    values: dict[str, dict[tuple[int, int], float]] = {}
    for run_id, epoch, split, name, value in zip(*whole_table(store, "quality").values()):
        if not split.startswith(OF_SEARCHES):  # these are in candidate_frame
            values.setdefault(f"{split}_{name}", {})[run_id, epoch] = value
    keys = list(zip(frame["run_id"], frame["epoch"]))
    return frame.assign(**{name: _numbers(of.get(key) for key in keys) for name, of in values.items()})


@_of_runs
def _epoch_frame(records: _Records) -> dict[str, np.ndarray]:
    epochs = records["epoch"]
    return {
        "cell": np.full(len(epochs["number"]), records.run["cell"]),
        "epoch": _integers(epochs["number"]),
        "start_s": records.start_s(epochs["start_ns"]),
        "epoch_s": epoch_seconds(epochs),
        "turn_s": np.full(len(epochs["number"]), turn_seconds(epochs, records["slice"]) or np.nan),
        **{name: _integers(epochs[name]) for name in ("images", "steps")},
        **{name: _numbers(epochs[name]) for name in EPOCH_FIGURES},
    }


@_of_runs
def step_frame(records: _Records) -> dict[str, np.ndarray]:
    """One row per step of any run whose step times are in its folder: the epoch, the step's number in it, seconds.

    A step lasts from the end of the one before it, or the start of its epoch, to its own end.
    """
    raw, log = records["epoch"], records.run.get("log_path")
    epochs = [Epoch(**dict(zip(raw, values))) for values in zip(*raw.values())]
    steps = steadiness.read(records.folder / Path(log).parent / STEPS, epochs) if log else None
    counts = [len(part) for part in steps or ()]
    return {
        "epoch": np.repeat(_integers(raw["number"][: len(counts)]), counts),
        "step": np.concatenate([np.arange(1, count + 1) for count in (*counts, 0)]),
        "step_s": np.concatenate([*(steps or ()), np.empty(0)]) / 1e9,
    }


@_of_runs
def slice_frame(records: _Records) -> dict[str, np.ndarray]:
    """One row per turn of a run: the round, its start in the run and its seconds; steps, samples and seconds on the clock."""
    turns = records["slice"]
    return {
        "cell": np.full(len(turns["round"]), records.run["cell"]),
        "round": _integers(turns["round"]),
        "start_s": records.start_s(turns["start_ns"]),
        "seconds": span_seconds(turns),
        **{name: _integers(turns[name]) for name in ("steps", "samples", "major_faults")},
        **{name: _numbers(turns[name]) for name in ("measured_s", "cpu_s")},
        "void": np.array(turns["void"], dtype=object),
    }


@_of_runs
def phase_frame(records: _Records) -> dict[str, np.ndarray]:
    """One row per phase: its start in the run, its seconds, and the PSS of the process tree at its end."""
    phases = records["phase"]
    return {
        "phase": np.array(phases["name"], dtype=object),
        "start_s": records.start_s(phases["start_ns"]),
        "seconds": span_seconds(phases),
        "pss_bytes": _numbers(phases["pss_bytes"]),
    }


@_of_runs
def sample_frame(records: _Records) -> dict[str, np.ndarray]:
    """One row per reading: `t_s` counts from the start of the run's first phase, `phase` is the one it fell in, or None."""
    samples, phases = records["sample"], records["phase"]
    order = np.argsort(_integers(phases["start_ns"]), kind="stable")
    starts, ends = _integers(phases["start_ns"])[order], _integers(phases["end_ns"])[order]
    names = np.array([*np.array(phases["name"], dtype=object)[order], None], dtype=object)
    times = _integers(samples["t_ns"])
    place = np.searchsorted(starts, times, side="right") - 1
    inside = (place >= 0) & (times <= np.append(ends, 0)[place])
    phase = names[np.where(inside, place, len(starts))]
    return {
        "t_s": records.start_s(samples["t_ns"]),
        "phase": phase,
        **{name: _numbers(values) for name, values in samples.items() if name != "t_ns"},
    }


@_of_runs
def energy_frame(records: _Records) -> dict[str, np.ndarray]:
    """One row per reading of an energy counter: `meter`, `t_s` as in the samples, joules since an origin of its own."""
    energy = records["energy"]
    return {
        "meter": np.array(energy["device"], dtype=object),
        "t_s": records.start_s(energy["t_ns"]),
        "energy_j": _numbers(energy["energy_j"]),
        "source": np.array(energy["source"], dtype=object),
    }


def _integers(values: Iterable[object]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def _numbers(values: Iterable[object]) -> np.ndarray:
    return np.array(list(values), dtype=float)


def _placed(runs: list[Row]) -> list[Row]:
    """Runs with the place of their cell in the cell frame."""
    places = {cell_id: place for place, cell_id in enumerate(dict.fromkeys(run["cell_id"] for run in runs))}
    return [{**run, "cell": places[run["cell_id"]]} for run in runs]
