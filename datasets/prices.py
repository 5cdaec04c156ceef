"""Daily prices: the next day's from a window of days before, scaled to (0, 1) by the training part.

Reads Kaggle's DJIA form (Date,Open,High,Low,Close,Volume,Name) and the bokeh form (...,Volume,Adj Close).
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from pathlib import Path

import numpy as np

from framework_compare.datasets.arrays import ArrayData, Baseline, Split
from framework_compare.datasets.source_files import Row, number, read_or_generate, read_rows
from framework_compare.errors import DataError, UsageError, check_count
from framework_compare.graph import Field, Task
from framework_compare.protocol import Fields

NAME_COLUMNS = ("Name", "Ticker")


@dataclasses.dataclass(frozen=True)
class Series:
    """Prices in dollars, float64 (days,), and their dates as YYYY-MM-DD, rising."""

    dates: tuple[str, ...]
    values: np.ndarray
    origin: str  # for messages


def ibm(path: Path | None = None, *, column: str = "High", window: int = 60, seed: int = 0) -> ArrayData:
    """IBM as the notebook splits it: the last 3,020 days, of which the last 251 validate; 2,709 + 251 windows of 60."""
    return prices(path, column=column, window=window, last_days=3020, validation=251, seed=seed)


def google(path: Path | None = None, *, column: str = "Close", window: int = 30, seed: int = 0) -> ArrayData:
    """Google: 80 % of the days train, windows of 30; 1,688 windows train of the 2,148 days of the bokeh form."""
    return prices(path, column=column, window=window, validation=0.2, seed=seed, days=2148)


def prices(
    path: Path | None = None,
    *,
    column: str = "Close",
    window: int = 60,
    validation: int | float = 0.2,
    last_days: int | None = None,
    seed: int = 0,
    days: int = 3020,
) -> ArrayData:
    """Windows (window, 1) of a CSV file of daily prices and the price of the day after each.

    validation: a share of the days, or a number of days. last_days leaves out what is before. Without a path, `days` of
    a generated series. A validation window may reach back into the training part, as the notebook's do. DataError:
    missing column, several tickers, a price that is not a number, dates that do not rise, a series shorter than the window.
    """
    make = functools.partial(generate, days)
    series, facts = read_or_generate(path, ("*.csv",), "prices", lambda file: read(file, column), make, seed)
    if last_days is not None:
        series = Series(series.dates[-last_days:], series.values[-last_days:], series.origin)
    return prepare(series, column=column, window=window, validation=validation, facts=facts)


def read(path: Path, column: str) -> Series:
    """One column of a CSV file of daily prices."""
    rows = read_rows(path, ("Date", column))
    ticker = next((name for name in NAME_COLUMNS if name in rows[0].values), None)
    names = sorted({row.values[ticker] for row in rows}) if ticker else []
    if len(names) > 1:
        raise DataError(
            f"file {str(path)!r} has prices of {len(names)} tickers; keep the rows of one, such as {names[0][:20]!r}"
        )
    dates = [_date(row) for row in rows]
    for before, after, row in zip(dates, dates[1:], rows[1:]):
        if after <= before:
            raise DataError(
                f"{row.place}: Date {after} follows {before}; dates must rise: sort the file, one row per day"
            )
    return Series(tuple(dates), np.array([number(row, column) for row in rows]), f"file {str(path)!r}")


def generate(days: int, seed: int) -> Series:
    """A series with slow swings: tomorrow goes on as the last days went, so a window knows more than its last day."""
    state = np.random.RandomState(seed & 0xFFFFFFFF)
    time = np.arange(days)
    swings = sum(
        size * np.sin(2 * np.pi * (time / period + state.random_sample()))
        for size, period in ((9, 45), (14, 130), (25, 900))
    )
    values = 120 + 0.01 * time + swings + 0.25 * state.standard_normal(days)
    start = datetime.date(2006, 1, 2)
    dates = tuple((start + datetime.timedelta(days=int(day // 5 * 7 + day % 5))).isoformat() for day in time)
    return Series(dates, np.round(values, 2), "the generated series")


def prepare(series: Series, *, column: str, window: int, validation: int | float, facts: Fields) -> ArrayData:
    """Windows of a series, scaled by the minimum and maximum of its training days."""
    check_count("window", window)
    total = len(series.values)
    train_days = _train_days(total, validation)
    if train_days <= window or train_days >= total:
        raise DataError(
            f"{series.origin}: {total} days, of which {max(0, train_days)} train; the training part needs more than the "
            f"window of {window} days, and validation at least one: take a longer series or a shorter window"
        )
    low, high = float(series.values[:train_days].min()), float(series.values[:train_days].max())
    if high == low:
        raise DataError(f"{series.origin}: {column} is the same on all {train_days} training days; it cannot be scaled")
    scaled = (series.values - low) / (high - low)
    train, held = _windows(scaled[:train_days], window), _windows(scaled[train_days - window :], window)
    return ArrayData(
        "prices",
        Task((Field("window", (window, 1)),), Field("price", (1,)), 1, "mse", ("rmse",), "sequence"),
        train,
        held,
        {
            **facts,
            "column": column,
            "days": {"train": train_days, "validation": total - train_days},
            "dates": [series.dates[0], series.dates[train_days], series.dates[-1]],
            "scaling": {"minimum": low, "maximum": high, "unit": "$"},
        },
        Baseline("last day's price", held.inputs["window"][:, -1].copy()),
    )


def _windows(values: np.ndarray, window: int) -> Split:
    views = np.lib.stride_tricks.sliding_window_view(values, window)[:-1]
    return Split({"window": views[:, :, None].astype(np.float32)}, values[window:, None].astype(np.float32))


def _train_days(total: int, validation: int | float) -> int:
    if isinstance(validation, float) and 0 < validation < 1:
        return int((1 - validation) * total + 1e-9)  # 0.8 * 5 is 4, not the 3.9999 of 1 - 0.2
    if isinstance(validation, int) and not isinstance(validation, bool) and validation > 0:
        return total - validation
    raise UsageError(f"validation is {validation!r}; allowed: a share between 0 and 1, a number of days")


def _date(row: Row) -> str:
    text = row.values["Date"].strip()
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%d").date().isoformat()
    except ValueError:
        raise DataError(f"{row.place}: Date is {text[:20]!r}; it must be YYYY-MM-DD") from None
