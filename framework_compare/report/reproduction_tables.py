"""A published study beside its repetition: one table for each way in which their figures are compared."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Optional, Tuple

from framework_compare import registry
from framework_compare.plan.reproductions import Part
from framework_compare.report import headlines, shared_notes
from framework_compare.report.figures.look import title
from framework_compare.report.parts import Notes, alone, epoch_text, estimated, warned, with_interval
from framework_compare.report.tables import NOTHING, Figure, Group, Row, Table
from framework_compare.results import precision, published, speed_verdicts
from framework_compare.results.block_times import BlockTimes
from framework_compare.results.intervals import Interval
from framework_compare.results.metrics import digits

if TYPE_CHECKING:
    import pandas as pd

NAN = float("nan")


def ratios(part: Part, cells: "pd.DataFrame", blocks: BlockTimes, caption: str) -> Table:
    """Milliseconds per image and the ratio to PyTorch, published and here; one row per cell."""
    seconds, notes, rows = published.epoch_seconds(part.published), Notes(), []
    frame = list(cells.itertuples())
    verdicts = speed_verdicts.verdicts(frame, blocks) if (cells["runs_ok"] > 1).any() else []
    worked = [cell for cell in frame if cell.status == "ok"]
    torch = {(cell.model, cell.dataset): cell.Index for cell in worked if cell.framework == "torch"}
    for cell in frame:
        theirs = published.SETS.get(cell.dataset, "")
        key = (cell.framework, cell.model, theirs)
        own, base = seconds.get(key), seconds.get(("torch", *key[1:]))
        base_here = torch.get((cell.model, cell.dataset), -1)
        here = blocks.ratio(cell.Index, base_here) if cell.status == "ok" else None  # some of its runs may be ok
        per_image = epoch_text(cell, 1000 / cell.pictures) if cell.status == "ok" else NOTHING
        figures = (
            Figure(digits(1000 * own / published.IMAGES[theirs]) if own else NOTHING),
            Figure(digits(own / base) if own and base else NOTHING),
            notes.first(cell, per_image),
            Figure("1.00" if cell.framework == "torch" and here is not None else _shown(here)),
        )
        rows.append(Row((title(cell.model), cell.dataset, title(cell.framework)), figures))
    columns = ("ms/image", f"over {title('torch')}")
    groups = (Group("published", columns), Group("here", columns))
    table = Table(caption, ("model", "dataset", "framework"), groups, tuple(rows), tuple(notes.texts))
    table = shared_notes.once(table, frame)
    return dataclasses.replace(
        table,
        remarks=(
            *table.remarks,
            *estimated(table),
            *precision.sentences(frame),
            *alone(frame),
            *registry.labels(cells["framework"]),
        ),
        warnings=tuple(warned(frame)),
        verdicts=tuple(headlines.lines(frame, verdicts)),
    )


def gains(part: Part, cells: "pd.DataFrame", caption: str) -> Table:
    """Seconds of training and how many times faster than the first rung, published and here; one row per rung."""
    seconds, notes, rows = published.rung_seconds(part.published, part.workload, part.phase), Notes(), []
    for cell in cells.itertuples():
        own = seconds.get(part.places.get(cell.rung, -1))
        worse = notes.number("its quality is worse than the base's: no gain at equal quality") if cell.worse else 0
        figures = (
            Figure(digits(own) if own else NOTHING),
            Figure(digits(seconds[0] / own) if own else NOTHING),
            notes.first(cell, digits(cell.total_s) if cell.total_s == cell.total_s else NOTHING),
            Figure(digits(cell.gain_in_all) if cell.gain_in_all == cell.gain_in_all else NOTHING, worse),
        )
        rows.append(Row((title(cell.framework), cell.rung), figures))
    columns = ("seconds", "times faster")
    groups = (Group("published", columns), Group("here", columns))
    remarks = (
        "A published step changes several techniques at a time; it stands beside the rung of ours that has the last.",
        *registry.labels(cells["framework"]),
    )
    return Table(caption, ("framework", "rung"), groups, tuple(rows), tuple(notes.texts), remarks)


def sizes(part: Part, cells: "pd.DataFrame", caption: str) -> Table:
    """The largest batch that works and the one that fails, published and here; one row per framework and model."""
    theirs, rows = published.largest_batches(part.published), []
    for cell in cells.itertuples():
        known = theirs.get(cell.framework, ("", ""))
        here = (_size(cell.largest_ok), _size(cell.next_failed), str(cell.next_failed_status or NOTHING))
        figures = tuple(Figure(text or NOTHING) for text in (*known, *here))
        rows.append(Row((title(cell.framework), title(cell.model)), figures))
    columns = ("works", "fails")
    groups = (Group("published", columns), Group("here", (*columns, "how")))
    return Table(caption, ("framework", "model"), groups, tuple(rows), remarks=registry.labels(cells["framework"]))


def _size(value: Any) -> str:
    return NOTHING if value is None or value != value else str(int(value))


def _shown(ratio: Optional[Interval]) -> str:
    if ratio is None:
        return NOTHING
    ends: Tuple[float, ...] = tuple(NAN if end is None else end for end in (ratio.low, ratio.high))
    return with_interval(ratio.value, *ends)
