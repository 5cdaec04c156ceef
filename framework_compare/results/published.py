"""Published figures that travel with the package, facts only, each row with its source."""

from __future__ import annotations

import csv
import importlib.resources
from collections.abc import Mapping

# The published data sets by the names of those that stand in for them, with their number of images.
SETS = {"fire-smoke-small": "small", "fire-smoke-big": "big"}
IMAGES = {"small": 791, "big": 6003}


def rows(name: str) -> list[dict[str, str]]:
    """The rows of one file of `report/published/`, as text."""
    folder = importlib.resources.files("framework_compare.report").joinpath("published")
    return list(csv.DictReader(folder.joinpath(name).read_text(encoding="utf-8").splitlines()))


def epoch_seconds(name: str) -> dict[tuple[str, str, str], float]:
    """Mean epoch seconds by framework, model and data set of a published table (Lerat 2021)."""
    return {(one["framework"], one["model"], one["dataset"]): float(one["mean_epoch_s"]) for one in rows(name)}


def rung_seconds(name: str, workload: str, phase: str) -> Mapping[int, float]:
    """Seconds by rung of a published ladder of gains."""
    mine = [one for one in rows(name) if (one["workload"], one["phase"]) == (workload, phase)]
    return {int(one["rung"]): float(one["time_s"]) for one in mine}


def largest_batches(name: str) -> dict[str, tuple[str, str]]:
    """By framework the largest batch that worked, and the one that failed; "" where none did."""
    return {one["framework"]: (one["largest_ok"], one["next_failed"]) for one in rows(name)}
