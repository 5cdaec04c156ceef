"""Pima Indians diabetes, Kaggle's CSV: eight numbers of a person, diabetic or not.

Zeros that mean a missing value become the median of the training part; columns are standardised by the training part.
"""

import functools
from pathlib import Path

import numpy as np

from framework_compare.datasets.arrays import ArrayData, Baseline, Split, split_indices
from framework_compare.datasets.source_files import number, read_or_generate, read_rows
from framework_compare.errors import DataError, UsageError
from framework_compare.graph import Field, Task
from framework_compare.protocol import Fields

COLUMNS = (
    "Pregnancies",
    "Glucose",
    "BloodPressure",
    "SkinThickness",
    "Insulin",
    "BMI",
    "DiabetesPedigreeFunction",
    "Age",
)
MISSING_AT_ZERO = ("Glucose", "BloodPressure", "SkinThickness", "Insulin", "BMI")
OUTCOME = "Outcome"
_ZERO_IS_MISSING = np.array([name in MISSING_AT_ZERO for name in COLUMNS])


def diabetes(path: Path | None = None, *, seed: int = 0) -> ArrayData:
    """Rows of 8 numbers and a target (1,) of 0 or 1; a fifth of the rows, drawn by `seed`, validates."""
    (table, outcome), facts = _rows(path, seed)
    train, held = split_indices(len(table), round(0.2 * len(table)), seed, name="diabetes")
    return prepare(table, outcome, train, held, facts=facts)


def diabetes_folds(path: Path | None = None, *, folds: int = 3, seed: int = 0) -> ArrayData:
    """The same rows as so many folds, one behind the other in both splits; each is standardised by its training rows.

    facts["folds"] counts the rows of each fold by split.
    """
    (table, outcome), facts = _rows(path, seed)
    made = [prepare(table, outcome, *rows, facts=facts) for rows in rows_of_folds(len(table), folds, seed)]
    return ArrayData(
        "diabetes-folds",
        made[0].task,
        _joined([one.train for one in made]),
        _joined([one.validation for one in made]),
        {
            **facts,
            "rows": len(table),
            "positive": int(outcome.sum()),
            "folds": {"train": [len(one.train) for one in made], "validation": [len(one.validation) for one in made]},
        },
        Baseline("majority class", np.concatenate([one.baseline.outputs for one in made])),
    )


def _rows(path: Path | None, seed: int) -> tuple[tuple[np.ndarray, np.ndarray], Fields]:
    """Table float64 (N, 8) and outcomes int64 (N,), and where both are from."""
    return read_or_generate(path, ("*.csv",), "the table", read, functools.partial(generate, 768), seed)


def _joined(splits: list[Split]) -> Split:
    features = np.concatenate([split.inputs["features"] for split in splits])
    return Split({"features": features}, np.concatenate([split.target for split in splits]))


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Table float64 (N, 8) as the file has it, zeros and all, and outcomes int64 (N,) of 0 or 1."""
    rows = read_rows(path, (*COLUMNS, OUTCOME))
    table = np.array([[number(row, column) for column in COLUMNS] for row in rows])
    outcome = [number(row, OUTCOME) for row in rows]
    for row, value in zip(rows, outcome):
        if value not in (0, 1):
            raise DataError(f"{row.place}: {OUTCOME} is {value:g}; allowed: 0 and 1")
    return table, np.array(outcome).astype(np.int64)


def generate(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A table of that form whose outcome follows three columns with noise; 35 % are 1, about half of Insulin is 0."""
    state = np.random.RandomState(seed & 0xFFFFFFFF)
    middle = np.array([3.8, 121, 72, 29, 155, 32, 0.47, 33])
    spread = np.array([3.3, 30, 12, 10, 85, 7, 0.33, 11])
    normal = state.standard_normal((count, 8))
    score = 1.6 * normal[:, 1] + 0.9 * normal[:, 5] + 0.7 * normal[:, 7] + 0.8 * state.standard_normal(count)
    table = np.maximum(middle + spread * normal, 0.1)
    table[state.random_sample(count) < 0.48, 4] = 0
    table[state.random_sample(count) < 0.3, 3] = 0
    outcome = score > np.sort(score)[-round(0.349 * count)]
    return np.round(table, 3), outcome.astype(np.int64)


def prepare(
    table: np.ndarray, outcome: np.ndarray, train: np.ndarray, validation: np.ndarray, *, facts: Fields
) -> ArrayData:
    """A data set of given rows, such as a fold: medians, means and deviations are of the rows `train`."""
    missing = (table == 0) & _ZERO_IS_MISSING
    empty = missing[train].all(axis=0)
    if empty.any():
        raise DataError(f"{COLUMNS[int(np.argmax(empty))]} is 0, which means missing, in all training rows")
    medians = np.nanmedian(np.where(missing[train], np.nan, table[train]), axis=0)
    filled = np.where(missing, medians, table)
    mean, deviation = filled[train].mean(axis=0), filled[train].std(axis=0)
    if not deviation.all():
        column = COLUMNS[int(np.argmin(deviation))]
        raise DataError(f"{column} is the same in all {len(train)} training rows; it cannot be standardised")
    scaled = ((filled - mean) / deviation).astype(np.float32)
    target = outcome[:, None].astype(np.float32)
    majority = float(outcome[train].mean() > 0.5)
    return ArrayData(
        "diabetes",
        Task((Field("features", (8,)),), Field("outcome", (1,)), 1, "binary_cross_entropy", ("accuracy", "auc"), "row"),
        Split({"features": scaled[train]}, target[train]),
        Split({"features": scaled[validation]}, target[validation]),
        {
            **facts,
            "rows": len(table),
            "positive": int(outcome.sum()),
            "medians": dict(zip(MISSING_AT_ZERO, medians[_ZERO_IS_MISSING].tolist())),
            "missing": {name: int((table[:, COLUMNS.index(name)] == 0).sum()) for name in MISSING_AT_ZERO},
            "mean": mean.tolist(),
            "deviation": deviation.tolist(),
        },
        Baseline("majority class", np.full((len(validation), 1), 2 * majority - 1, np.float32)),
    )


def rows_of_folds(count: int, k: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(train, validation) rows of k folds drawn by `seed`; sizes differ by one at most, all rows validate once."""
    if not 2 <= k <= count:
        raise UsageError(f"folds must be 2 to {count}, not {k!r}")
    parts = np.array_split(np.random.RandomState(seed & 0xFFFFFFFF).permutation(count), k)
    return [(np.sort(np.concatenate(parts[:i] + parts[i + 1 :])), np.sort(parts[i])) for i in range(k)]
