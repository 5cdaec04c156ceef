"""A published study beside its repetition: one table for each way in which their figures are compared."""

from __future__ import annotations

import csv
import dataclasses
import importlib.resources
from collections.abc import Callable
from typing import TYPE_CHECKING

from framework_compare import registry
from framework_compare.plan.reproductions import ReproductionPart
from framework_compare.report import headlines, kinds
from framework_compare.report.names import title
from framework_compare.report.table_notes import epoch_value, first_value, status_value
from framework_compare.report.table_spec import FRAMEWORK, MODEL, Column, named, tabulate
from framework_compare.report.tables import NOTHING, Table, Value, count, number, with_interval
from framework_compare.results import speed_verdicts
from framework_compare.results.block_times import BlockTimes
from framework_compare.results.columns import Record

if TYPE_CHECKING:
    import pandas as pd

# The published data sets by the names of those that stand in for them, with their number of images.
SETS = {"fire-smoke-small": "small", "fire-smoke-big": "big"}
IMAGES = {"small": 791, "big": 6003}


def ratios(part: ReproductionPart, cells: "pd.DataFrame", blocks: BlockTimes, caption: str) -> Table:
    """Milliseconds per image and the ratio to the reference, published and here; one row per cell."""
    published, frame = rows(part.published), list(cells.itertuples())
    seconds = {(one["framework"], one["model"], one["dataset"]): float(one["mean_epoch_s"]) for one in published}
    verdicts = speed_verdicts.verdicts(frame, blocks) if (cells["runs_ok"] > 1).any() else []
    worked = [cell for cell in frame if cell.status == "ok"]
    bases = {(cell.model, cell.dataset): cell.Index for cell in worked if cell.framework == part.reference}

    def theirs(cell: Record, framework: str) -> float | None:
        return seconds.get((framework, cell.model, SETS.get(cell.dataset, "")))

    def their_ms(cell: Record) -> str:
        own = theirs(cell, cell.framework)
        return number(1000 * own / IMAGES[SETS[cell.dataset]] if own else None)

    def their_ratio(cell: Record) -> str:
        own, base = theirs(cell, cell.framework), theirs(cell, part.reference)
        return number(own / base if own and base else None)

    def our_ms(cell: Record) -> Value:
        return epoch_value(cell, 1000 / cell.images) if cell.status == "ok" else status_value(cell)

    def our_ratio(cell: Record) -> str:
        base = bases.get((cell.model, cell.dataset), -1)
        here = blocks.ratio(cell.Index, base) if cell.status == "ok" else None  # some of its runs may be ok
        if here is None:
            return NOTHING
        return "1.00" if cell.framework == part.reference else with_interval(here.value, here.low, here.high)

    over = f"over {title(part.reference)}"
    columns = (
        Column("ms/image", their_ms, "published"),
        Column(over, their_ratio, "published"),
        Column("ms/image", our_ms, "here"),
        Column(over, our_ratio, "here"),
    )
    table = tabulate(caption, (MODEL, named("dataset", always=True), FRAMEWORK), columns, frame)
    lines = tuple(headlines.lines(frame, verdicts))
    return dataclasses.replace(kinds.with_remarks(table, frame, precision_too=True), verdicts=lines)


def gains(part: ReproductionPart, cells: "pd.DataFrame", caption: str) -> Table:
    """Seconds of training and the speed-up over the first rung, published and here; one row per rung."""
    seconds = rung_seconds(part)

    def theirs(cell: Record) -> float | None:
        return seconds.get(part.places.get(cell.rung, -1)) or None

    def their_gain(cell: Record) -> str:
        own = theirs(cell)
        return number(seconds[0] / own if own else None)

    def gain(cell: Record) -> Value:
        worse = "its quality is worse than the base's: no gain at equal quality" if cell.worse else ""
        return Value(number(cell.gain_in_all), worse)

    columns = (
        Column("seconds", lambda cell: number(theirs(cell)), "published"),
        Column("speed-up", their_gain, "published"),
        Column("seconds", lambda cell: first_value(cell, number(cell.total_s)), "here"),
        Column("speed-up", gain, "here"),
    )
    remarks = (
        "A published step changes several techniques at once; it is compared with the rung of ours that adds the last of them.",
        *registry.labels(cells["framework"]),
    )
    names = (FRAMEWORK, named("rung", always=True))
    return tabulate(caption, names, columns, cells.itertuples(), remarks=remarks)


def sizes(part: ReproductionPart, cells: "pd.DataFrame", caption: str) -> Table:
    """The largest batch that works and the one that fails, published and here; one row per framework and model."""
    published_sizes = {one["framework"]: (one["largest_ok"], one["next_failed"]) for one in rows(part.published)}

    def theirs(place: int) -> Callable[[Record], str]:
        return lambda cell: published_sizes.get(cell.framework, ("", ""))[place] or NOTHING

    columns = (
        Column("works", theirs(0), "published"),
        Column("fails", theirs(1), "published"),
        Column("works", lambda cell: count(cell.largest_ok), "here"),
        Column("fails", lambda cell: count(cell.next_failed), "here"),
        Column("how", lambda cell: str(cell.next_failed_status or NOTHING), "here"),
    )
    remarks = registry.labels(cells["framework"])
    return tabulate(caption, (FRAMEWORK, MODEL), columns, cells.itertuples(), remarks=remarks)


def rows(name: str) -> list[dict[str, str]]:
    """The rows of one file of `report/published/`, as text."""
    folder = importlib.resources.files("framework_compare.report").joinpath("published")
    return list(csv.DictReader(folder.joinpath(name).read_text(encoding="utf-8").splitlines()))


def rung_seconds(part: ReproductionPart) -> dict[int, float]:
    """Seconds by rung of a published ladder of gains."""
    mine = (one for one in rows(part.published) if (one["workload"], one["phase"]) == (part.workload, part.phase))
    return {int(one["rung"]): float(one["time_s"]) for one in mine}
