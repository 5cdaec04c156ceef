"""What the kinds of tables share: notes, captions, names of rows."""

from __future__ import annotations

import math
import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

from framework_compare.plan.settings import IDENTITY, QUIET, SETTINGS, STATED, column, of_role
from framework_compare.report import tables
from framework_compare.report.tables import Figure
from framework_compare.results.columns import Record
from framework_compare.results.metrics import decimals
from framework_compare.results.parity import PROVED, UNVERIFIED

MAX_NOTE = 400
HOW_TO_PROVE = (
    "verdicts are taken when a study runs: run `framework-compare verify` with these settings and then the study anew, "
    "or the study with `--verify require`"
)
HANDING_OVER = (
    "On {device} the host hands work over and runs ahead: waiting for data, and `step_s_*` of the frames, are times of "
    "handing over; copying and computing are by the device's clock, or of steps and copies timed alone where a framework "
    "gives none."
)
POWER = {
    "counter": "the joules over the seconds of the epochs",
    "samples": "without the first second of the epochs, as NVML averages it over up to a second",
}


class Notes:
    """Reasons, numbered in the order in which they are met; one that several cells share is told once."""

    def __init__(self) -> None:
        self.texts: List[str] = []

    def figure(self, cell: Record) -> Figure:
        """The status of a cell that did not work, pointing to its reason."""
        reason = tables.clean(cell.reason)
        if cell.runs_ok and cell.status != "planned":
            reason = f"{reason or 'no reason given'} ({cell.runs_ok} of {cell.runs} runs ok)"
        if not reason:
            return Figure(cell.status)
        return Figure(cell.status, self.number(shorten(reason)))

    def first(self, cell: Record, text: str) -> Figure:
        """The first figure of a cell's row, which has the note for all of them: why it did not work, or its parity."""
        return Figure(text, self.parity(cell)) if cell.status == "ok" else self.figure(cell)

    def number(self, text: str) -> int:
        """The number under which a sentence stands below the table."""
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1

    def parity(self, cell: Record, base: Optional[Record] = None, also: str = "") -> int:
        """The number of the note that says that a network is not proved equal, 0 where it is, or was not asked.

        So does that of disturbed epochs. base is the cell that the figure is held against; also is what else is to be
        said of the figure.
        """
        against = "" if base is None or base is cell else disturbance(base)
        said = [also, disturbance(cell), f"of what it is held against, {against}" if against else ""]
        return self.verdict(cell.parity, None if base is None else base.parity, "; ".join(filter(None, said)))

    def verdict(self, verdict: Any, other: Any = None, also: str = "") -> int:
        """The same for verdicts as a frame's column `parity` has them."""
        own, other = unproved(verdict), unproved(other)
        said = [f"parity {own}"] * bool(own) + [f"it is held against a cell of parity {other}"] * bool(other)
        how = [HOW_TO_PROVE] if UNVERIFIED in (own, other) else []
        sentences = [*filter(None, [also]), *said, *how]
        return self.number(tables.clean("; ".join(sentences))) if sentences else 0


def unproved(verdict: Any) -> str:
    """A verdict on parity that proves too little; "" for one that proves all, or where none was asked."""
    return verdict if isinstance(verdict, str) and verdict not in PROVED else ""


def disturbance(cell: Record) -> str:
    """What to say of a cell in whose epochs others took the CPU; "" of another."""
    if not cell.epochs_disturbed > 0:
        return ""
    lost = f"others took {cell.disturbed_share:.0%} of a core in {cell.disturbed_s:.1f} s"
    if cell.epochs_disturbed < cell.epochs_measured:
        return f"{lost}: {cell.epochs_disturbed:.0f} of {cell.epochs_measured} epochs, which the figure leaves out"
    return f"{lost}: all {cell.epochs_measured} epochs, so no verdict stands on the figure"


def fails(verdict: Any) -> bool:
    """Whether a level was asked and does not hold."""
    return isinstance(verdict, str) and re.search(r", not \d", verdict) is not None


def with_interval(mean: float, low: float, high: float) -> str:
    """A mean and the longer arm of its interval, to the digits that the arm leaves sure, three at least."""
    arm = max(high - mean, mean - low)
    if math.isnan(arm):
        return f"{mean:.{decimals(mean)}f}"
    # Equal values leave the rounding of a logarithm.
    first = -math.floor(math.log10(arm)) if arm > 1e-9 * mean else 0
    places = min(max(decimals(mean), first), decimals(mean) + 2)
    return f"{mean:.{places}f} ±{arm:.{places}f}"


def any_known(cells: Sequence[Record], columns: Sequence[Tuple[str, Tuple[str, ...]]]) -> bool:
    return any(not math.isnan(getattr(cell, name)) for _, names in columns for name in names for cell in cells)


def caption(cells: Sequence[Record], varied: Sequence[str]) -> str:
    """The settings that all the cells share, and their pictures; of the quiet ones those `varied` within the study."""
    quiet = [name for name in of_role(QUIET) if column(name) in varied]
    runs = [] if varies(cells, "runs") else [plural(cells[0].runs, "run") + " a cell"]
    parts = [*_values(cells, of_role(IDENTITY, STATED)), *runs, *_values(cells, quiet)]
    datasets: Dict[str, Record] = {}
    for one in cells:
        datasets.setdefault(one.dataset, one)
    pictures = map(_pictures, datasets.values())
    return f"{', '.join(parts)}. {'; '.join(pictures)}."


def _values(cells: Sequence[Record], names: Sequence[str]) -> List[str]:
    """The values of those settings that the cells share."""
    shared = [name for name in names if not varies(cells, column(name))]
    return [_value(name, getattr(cells[0], column(name))) for name in shared]


def _value(name: str, value: Any) -> str:
    form = SETTINGS[name].caption or f"{column(name).replace('_', ' ')} {{}}"
    return plural(value, form[3:]) if form.startswith("{} ") else form.format(value)


def varies(cells: Sequence[Record], name: str) -> bool:
    """Whether the cells differ in a setting."""
    return len({getattr(cell, name) for cell in cells}) > 1


def row_names(cells: Sequence[Record], *more: str) -> Tuple[str, ...]:
    """What a row is named by: framework, model, and of the other settings those in which the cells differ."""
    return ("framework", "model", *(name for name in ("dataset", *more) if varies(cells, name)))


def names_of(cell: Record, headings: Sequence[str]) -> Tuple[str, ...]:
    return tuple(str(getattr(cell, name)) for name in headings)


def how_read(cells: Sequence[Record]) -> List[str]:
    """How the figures of GPUs were had that a table shows: power by what, utilisation over what time."""
    return [*_power(cells), *_utilisation([cell for cell in cells if not math.isnan(cell.gpu_percent_mean)])]


def _power(cells: Sequence[Record]) -> List[str]:
    by_source = {source: [cell for cell in cells if cell.gpu_power_source == source] for source in POWER}
    known = [source for source in POWER if by_source[source]]
    lines = []
    for source in known:
        names = dict.fromkeys(f"{cell.framework} {cell.model}" for cell in by_source[source])
        whose = f" ({', '.join(names)})" if source != known[0] else ""
        lines.append(f"GPU power by {source}{whose}, {POWER[source]}.")
    return lines


def _utilisation(cells: Sequence[Record]) -> List[str]:
    windows = texts_of(cells, "gpu_utilization_window")
    periods = dict.fromkeys(
        f"{cell.gpu_utilization_period_s:.2g} s" for cell in cells if cell.gpu_utilization_period_s > 0
    )
    kept = f"; here it keeps a value every {' or '.join(periods)}" if periods else ""
    return [f"NVML averages GPU % over a period of {window}{kept}." for window in windows]


def texts_of(cells: Sequence[Record], name: str) -> List[str]:
    """The different texts of a column."""
    texts = [getattr(cell, name) for cell in cells]
    return [shorten(tables.clean(text)) for text in dict.fromkeys(texts) if isinstance(text, str)]


def warned(cells: Sequence[Record]) -> List[str]:
    """What may have disturbed the runs, each sentence once, with the cells that it is said of."""
    told: Dict[str, List[str]] = {}
    for cell in cells:
        if isinstance(cell.warnings, str) and cell.warnings:
            told.setdefault(shorten(tables.clean(cell.warnings)), []).append(f"{cell.framework} {cell.model}")
    return [f"Warning, {', '.join(dict.fromkeys(who))}: {text}" for text, who in told.items()]


def unsure(fastest: Sequence[Record]) -> List[str]:
    """Which of the cells that are marked as the fastest are not proved equal."""
    names = ", ".join(dict.fromkeys(cell.framework for cell in fastest if unproved(cell.parity)))
    return [f"Not proved to train the same function: {names}, marked as the fastest."] if names else []


def shorten(text: str) -> str:
    return text if len(text) <= MAX_NOTE else text[: MAX_NOTE - 1] + "…"


def _pictures(cell: Record) -> str:
    if math.isnan(cell.pictures):
        return str(cell.dataset)
    skipped = f", {cell.skipped_pictures:.0f} skipped" if cell.skipped_pictures > 0 else ""
    return f"{cell.dataset}: {plural(int(cell.pictures), 'picture')}{skipped}"


def plural(count: Any, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
