"""A study as the report reads it, and its values as JSON has them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from framework_compare.json_types import JSON
from framework_compare.protocol import Document, Fields
from framework_compare.results.block_times import BlockTimes
from framework_compare.results.runs import Modes
from framework_compare.results.speed_verdicts import Verdict

if TYPE_CHECKING:
    import pandas as pd


class Study(Protocol):
    """The part of `Comparison` that figures and the report use."""

    folder: Path

    @property
    def frame(self) -> "pd.DataFrame": ...
    @property
    def epochs(self) -> "pd.DataFrame": ...
    @property
    def gains(self) -> "pd.DataFrame": ...
    @property
    def runs(self) -> "pd.DataFrame": ...
    @property
    def samples(self) -> "pd.DataFrame": ...
    @property
    def phases(self) -> "pd.DataFrame": ...
    @property
    def block_times(self) -> BlockTimes: ...
    @property
    def profiled(self) -> "pd.DataFrame": ...
    @property
    def settings(self) -> Fields: ...
    @property
    def modes(self) -> dict[str, Modes]: ...
    @property
    def machine(self) -> Fields: ...
    @property
    def environments(self) -> dict[str, Fields]: ...
    def verdicts(self, of: str = "framework", *, correct: bool = True) -> list[Verdict]: ...
    def to_toml(self) -> str: ...


def rounded(frame: "pd.DataFrame", digits: int = 5) -> list[Document]:
    """Rows for a specification: numbers to so many significant digits, what is missing as None."""
    return [{name: plain(value, digits) for name, value in row.items()} for row in frame.to_dict("records")]


def plain(value: JSON, digits: int) -> JSON:
    """A value as JSON has it: a number to so many significant digits, None where there is none."""
    if isinstance(value, (bool, str)) or value is None:
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**53 else float(f"{number:.{digits}g}")
