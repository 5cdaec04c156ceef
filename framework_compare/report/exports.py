"""A study as files for other tools: CSV, JSON or Parquet, one per table, and study.json with what goes with them."""

import dataclasses
import importlib.util
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pandas as pd

from framework_compare import registry
from framework_compare.errors import StudyError, UsageError, check_name
from framework_compare.json_types import JSON
from framework_compare.paths import fault
from framework_compare.protocol import Fields
from framework_compare.report import renderers, trackers
from framework_compare.results import frames, profiles
from framework_compare.store import schema
from framework_compare.store.folder import FILE, missing
from framework_compare.store.study_file import Store

_Part = TypeVar("_Part")


@dataclasses.dataclass(frozen=True)
class Export:
    """The files written, and the sentences that say which rows are damaged and left out."""

    files: tuple[Path | str, ...]  # a place that is not a file as its URL
    damage: tuple[str, ...] = ()


def export(study: str | os.PathLike[str], out: str | os.PathLike[str], kind: str = "csv") -> Export:
    """Write the tables of a study into folder `out`, made if absent: cells, runs, epochs, phases, samples, energy.

    kind: "csv", "json" or "parquet": all tables. "pytest-benchmark", "bencher" or "github-action-benchmark": one file.
    "mlflow" or "wandb": each run as one of that tracker's, in MLFLOW_TRACKING_URI or in `out` (needs its package).

    Rows that are not sound are left out, and `damage` says how many. UsageError for an unknown kind, files that are
    there already, or Parquet without pyarrow; DamagedStudy where the file cannot be read.
    """
    check_name("format", kind, FORMATS)
    if kind == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UsageError("Parquet needs pyarrow: pip install 'framework-compare[parquet]', or choose csv or json")
    folder, target = Path(study).absolute(), Path(out).absolute()
    if not (folder / FILE).is_file():
        raise StudyError(f"{folder} contains no study: {missing(folder)}")
    if why := fault(target):
        raise UsageError(f"{target} cannot be used for an export, because {why}; name another folder")
    Store.open(folder, checked=True).close()
    damage: dict[str, tuple[int, str]] = {}
    wanted = {kind: DOCUMENTS[kind]} if kind in DOCUMENTS else PARTS
    if kind in trackers.LOGS:
        logged = trackers.logged_runs(*_read(folder, _whole, damage))
        target.mkdir(parents=True, exist_ok=True)
        files: tuple[Path | str, ...] = (trackers.LOGS[kind](logged, target),)
    else:
        files = tuple(_write(target, {name: _read(folder, reader, damage) for name, reader in wanted.items()}, kind))
    return Export(files, tuple(schema.damage_sentences(folder, damage)))


def _read(folder: Path, reader: Callable[[Store], _Part], damage: dict[str, tuple[int, str]]) -> _Part:
    with Store.open(folder) as store:
        part = reader(store)
    damage.update(store.damage)
    return part


def _runs(store: Store) -> pd.DataFrame:
    names, rows = store.table("SELECT * FROM run ORDER BY run_id")
    # A damaged row may hold bytes, which no JSON has.
    texts = [[repr(value) if isinstance(value, bytes) else value for value in row] for row in rows]
    return pd.DataFrame(texts, columns=names)


def _facts(store: Store) -> Fields:
    rows = store.select("SELECT DISTINCT framework FROM cell")  # as stored, whatever else of a cell is damaged
    labels = list(registry.labels(str(name) for (name,) in rows))
    facts = {"settings": store.settings(), "machine": store.machine(), "environments": store.environments()}
    return {**facts, "labels": labels}


def _whole(store: Store) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    return frames.cell_frame(store), frames.epoch_frame(store), frames.run_frame(store)


DOCUMENTS: dict[str, Callable[[Store], JSON]] = {
    "pytest-benchmark": lambda store: trackers.document(*_whole(store), store.machine()),
    "bencher": lambda store: trackers.bencher(frames.cell_frame(store)),
    "github-action-benchmark": lambda store: trackers.action_benchmark(frames.cell_frame(store)),
}
PARTS: dict[str, Callable[[Store], pd.DataFrame]] = {
    "cells": frames.cell_frame,
    "epochs": frames.epoch_frame,
    "slices": frames.slice_frame,
    "phases": frames.phase_frame,
    "samples": frames.sample_frame,
    "profile": profiles.profile_frame,
    "energy": frames.energy_frame,
    "runs": _runs,
    "study": _facts,
}


def _write(target: Path, parts: Fields, kind: str) -> list[Path]:
    names = {
        name: target / f"{name}.{'json' if isinstance(part, (dict, list)) else kind}" for name, part in parts.items()
    }
    there = [path.name for path in names.values() if path.exists()]
    if there:
        raise UsageError(f"{target} already holds {there[0]}; name another folder for the export")
    with schema.study_errors(target):
        target.mkdir(parents=True, exist_ok=True)
        # Elsewhere until all are whole: what a full disk cuts short must not stand in the way of the next attempt.
        with tempfile.TemporaryDirectory(dir=target) as halves:
            for name, part in parts.items():
                half = Path(halves) / names[name].name
                if isinstance(part, (dict, list)):
                    half.write_text(json.dumps(part, indent=1), encoding="utf-8")
                else:
                    WRITERS[kind](part, half)
            for path in names.values():
                (Path(halves) / path.name).replace(path)
    return list(names.values())


def _one_kind_a_column(frame: pd.DataFrame) -> pd.DataFrame:
    """Parquet takes no column of several kinds, which a damaged one may be: it becomes text."""
    texts = [name for name in frame.columns if frame[name].dtype.kind == "O"]
    mixed = [name for name in texts if frame[name].dropna().map(type).nunique() > 1]
    return frame.assign(**{name: frame[name].map(str, na_action="ignore") for name in mixed})


WRITERS: dict[str, Callable[[pd.DataFrame, Path], object]] = {
    "parquet": lambda frame, path: _one_kind_a_column(frame).to_parquet(path, engine="pyarrow", index=False),
    "csv": lambda frame, path: path.write_text(renderers.csv(frame), encoding="utf-8", newline=""),
    "json": lambda frame, path: frame.to_json(path, orient="records", indent=1),
}
FORMATS = (*WRITERS, *DOCUMENTS, *trackers.LOGS)
