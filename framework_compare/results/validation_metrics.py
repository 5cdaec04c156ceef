"""Metrics of cells on the validation split after the last epoch, beside those of a baseline without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from framework_compare.protocol import Document, Fields
from framework_compare.results import repeats

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "validation_"


def metric_names(epochs: pd.DataFrame) -> list[str]:
    """The metrics of an epoch frame, "loss" first, as `validation_<name>` has them."""
    return [name[len(PREFIX) :] for name in epochs if name.startswith(PREFIX)]


def last_epochs(epochs: pd.DataFrame) -> pd.DataFrame:
    """The last epoch of each run that is ok and counts."""
    ok = repeats.counted(epochs)
    return ok.sort_values("epoch").groupby("run_id", sort=True).tail(1)


def with_quality(frame: pd.DataFrame, epochs: pd.DataFrame, settings: Document) -> pd.DataFrame:
    """The cell frame with `epochs_run`, each metric after the last epoch (mean over runs), and what needs no model.

    Columns: epochs_run, validation_<metric>, baseline_<metric>, baseline (its name), data_unit ("$" of prices),
    tokens_per_s (of language models); none of a study without arrays.
    """
    names = [PREFIX + name for name in metric_names(epochs)]
    last = last_epochs(epochs)
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
