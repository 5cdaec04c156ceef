"""A published study beside its repetition: one table for each way in which their figures are compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from framework_compare import registry
from framework_compare.plan.reproductions import Part
from framework_compare.report import headlines, kinds
from framework_compare.report.names import title
from framework_compare.report.table_notes import epoch_value, first_value, status_value
from framework_compare.report.table_spec import FRAMEWORK, MODEL, Column, named, tabulate
from framework_compare.report.tables import NOTHING, Table, Value, count, number, with_interval
from framework_compare.results import published, speed_verdicts
from framework_compare.results.block_times import BlockTimes
from framework_compare.results.columns import Record

if TYPE_CHECKING:
    import pandas as pd


def ratios(part: Part, cells: "pd.DataFrame", blocks: BlockTimes, caption: str) -> Table:
    """Milliseconds per image and the ratio to PyTorch, published and here; one row per cell."""
    seconds, frame = published.epoch_seconds(part.published), list(cells.itertuples())
    verdicts = speed_verdicts.verdicts(frame, blocks) if (cells["runs_ok"] > 1).any() else []
    worked = [cell for cell in frame if cell.status == "ok"]
    torch = {(cell.model, cell.dataset): cell.Index for cell in worked if cell.framework == "torch"}

    def theirs(cell: Record, framework: str) -> float | None:
        return seconds.get((framework, cell.model, published.SETS.get(cell.dataset, "")))

    def their_ms(cell: Record) -> str:
        own = theirs(cell, cell.framework)
        return number(1000 * own / published.IMAGES[published.SETS[cell.dataset]] if own else None)

    def their_ratio(cell: Record) -> str:
        own, base = theirs(cell, cell.framework), theirs(cell, "torch")
        return number(own / base if own and base else None)

    def our_ms(cell: Record) -> Value:
        return epoch_value(cell, 1000 / cell.images) if cell.status == "ok" else status_value(cell)

    def our_ratio(cell: Record) -> str:
        base = torch.get((cell.model, cell.dataset), -1)
        here = blocks.ratio(cell.Index, base) if cell.status == "ok" else None  # some of its runs may be ok
        if here is None:
            return NOTHING
        return "1.00" if cell.framework == "torch" else with_interval(here.value, here.low, here.high)

    over = f"over {title('torch')}"
    columns = (
        Column("ms/image", their_ms, "published"),
        Column(over, their_ratio, "published"),
        Column("ms/image", our_ms, "here"),
        Column(over, our_ratio, "here"),
    )
    table = tabulate(caption, (MODEL, named("dataset", always=True), FRAMEWORK), columns, frame)
    lines = tuple(headlines.lines(frame, verdicts))
    return dataclasses.replace(kinds.with_remarks(table, frame, precision_too=True), verdicts=lines)


def gains(part: Part, cells: "pd.DataFrame", caption: str) -> Table:
    """Seconds of training and the speed-up over the first rung, published and here; one row per rung."""
    seconds = published.rung_seconds(part.published, part.workload, part.phase)

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
        "A published step changes several techniques at once; it is compared with our rung that has the last of them.",
        *registry.labels(cells["framework"]),
    )
    names = (FRAMEWORK, named("rung", always=True))
    return tabulate(caption, names, columns, cells.itertuples(), remarks=remarks)


def sizes(part: Part, cells: "pd.DataFrame", caption: str) -> Table:
    """The largest batch that works and the one that fails, published and here; one row per framework and model."""
    published_sizes = published.largest_batches(part.published)

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
