"""What the kinds of tables share: notes, captions, names of rows."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from framework_compare import registry
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.plan.planning import BY_ARRAYS
from framework_compare.plan.settings import DEFAULTS, OF_DATASET, SETTINGS, column
from framework_compare.report import tables
from framework_compare.report.figures.look import title
from framework_compare.report.tables import ABOUT, Figure, Table
from framework_compare.results.columns import Record
from framework_compare.results.metrics import decimals, digits
from framework_compare.results.parity import PROVED, UNVERIFIED

MAX_NOTE = 400
MAX_WARNINGS = 6  # below a table; the report has all
MOST_APART = 1.05  # of a rebuilt model over the same as it is written; beyond it a warning says so
HOW_TO_PROVE = (
    "not yet checked that all frameworks train the same function: `framework-compare verify STUDY` checks it and keeps "
    "the verdict with the study"
)
HANDING_OVER = (
    "On {device} the host queues work and runs ahead: the wait for data, and `step_s_*` of the frames, are times of "
    "queueing. Copying and computing are read from the device's clock; of a framework without device events, steps and "
    "copies are timed alone."
)
POWER = {
    "counter": "the joules over the seconds of the epochs",
    "samples": "without the first second of the epochs, as NVML averages it over up to a second",
}


class Notes:
    """Reasons, numbered in the order in which they appear; cells with the same reason share its number."""

    def __init__(self) -> None:
        self.texts: List[str] = []

    def figure(self, cell: Record) -> Figure:
        """The status of a cell that did not work, with the number of its reason."""
        reason = tables.clean(cell.reason)
        if cell.runs_ok and cell.status != "planned":
            ended = f"{cell.runs_ok} of {cell.runs} runs ok"
            reason = f"{reason} ({ended})" if reason else ended
        if not reason:
            return Figure(cell.status)
        return Figure(cell.status, self.number(shorten(reason)))

    def first(self, cell: Record, text: str) -> Figure:
        """The first figure of a cell's row, with the note of the whole row: why it did not work, or its parity."""
        return Figure(text, self.parity(cell)) if cell.status == "ok" else self.figure(cell)

    def number(self, text: str) -> int:
        """The number under which a sentence stands below the table."""
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1

    def parity(self, cell: Record, base: Optional[Record] = None, also: str = "") -> int:
        """The number of the note that a cell is not proved equal; 0 if it is proved, or was not checked.

        Disturbed epochs have a note, too. base is the baseline of the figure; also is one more remark on the figure.
        """
        against = "" if base is None or base is cell else disturbance(base)
        said = [also, disturbance(cell), f"of its baseline, {against}" if against else ""]
        return self.verdict(cell.parity, None if base is None else base.parity, "; ".join(filter(None, said)))

    def verdict(self, verdict: Any, other: Any = None, also: str = "") -> int:
        """The same for verdicts as the frame's column `parity` has them."""
        own, other = unproved(verdict), unproved(other)
        parts = [f"parity {own}"] * bool(own) + [f"its baseline has parity {other}"] * bool(other)
        advice = [HOW_TO_PROVE] if UNVERIFIED in (own, other) else []
        sentences = [*filter(None, [also]), *parts, *advice]
        return self.number(tables.clean("; ".join(sentences))) if sentences else 0


def unproved(verdict: Any) -> str:
    """A verdict on parity that proves too little; "" for one that proves all, or if parity was not checked."""
    return verdict if isinstance(verdict, str) and verdict not in PROVED else ""


def disturbance(cell: Record) -> str:
    """What to say of a cell in whose epochs others took the CPU; "" of another."""
    if not cell.epochs_disturbed > 0:
        return ""
    lost = f"others took {cell.disturbed_share:.0%} of a core in {cell.disturbed_s:.1f} s"
    if cell.epochs_disturbed < cell.epochs_measured:
        return f"{lost}: {cell.epochs_disturbed:.0f} of {cell.epochs_measured} epochs, which the figure leaves out"
    whole = "all" if cell.epochs_measured > 1 else "the only one of"
    return f"{lost}: {whole} {plural(cell.epochs_measured, 'epoch')}, so no verdict stands on the figure"


def with_interval(mean: float, low: float, high: float) -> str:
    """A mean and the longer arm of its interval, to the digits that the arm leaves sure, three at least.

    Where that arm is as long as the mean, both ends stand instead: a time below 0 means nothing.
    """
    arm = max(high - mean, mean - low)
    if math.isnan(arm):
        return f"{mean:.{decimals(mean)}f}"
    if arm >= mean > low > 0:
        return f"{digits(mean)} [{digits(low)}, {digits(high)}]"
    # Equal values leave the rounding of a logarithm.
    first = -math.floor(math.log10(arm)) if arm > 1e-9 * mean else 0
    places = min(max(decimals(mean), first), decimals(mean) + 2)
    return f"{mean:.{places}f} ±{arm:.{places}f}"


def epoch_text(cell: Record, times: float = 1.0) -> str:
    """The seconds of an epoch, `times` a factor, with their interval; an estimate is marked."""
    if not math.isnan(cell.epoch_s_median):
        mark, ends = "", (cell.epoch_s_median, cell.epoch_s_ci_low, cell.epoch_s_ci_high)
    else:
        mark, ends = ABOUT, (cell.epoch_estimate_s, cell.epoch_estimate_s_low, cell.epoch_estimate_s_high)
    return mark + with_interval(*(times * seconds for seconds in ends))


def _epoch_s(cell: Record) -> float:
    """Seconds of a whole epoch, of a sampled cell those of its estimate; NaN of one that did not work."""
    return float(cell.epoch_estimate_s if math.isnan(cell.epoch_s_median) else cell.epoch_s_median)


def estimated(table: Table) -> List[str]:
    """What the mark of an estimate means, where a figure has it."""
    some = any(figure.text.startswith(ABOUT) for row in table.rows for figure in row.figures)
    return [f"{ABOUT}: estimated for a whole epoch from the steps that were measured."] if some else []


def any_known(cells: Sequence[Record], columns: Sequence[Tuple[str, Tuple[str, ...]]]) -> bool:
    return any(not math.isnan(getattr(cell, name)) for _, names in columns for name in names for cell in cells)


def caption(cells: Sequence[Record], varied: Sequence[str], unit: str = "image") -> str:
    """What all the cells share: device, settings that are not at their default or `varied` within the study, samples.

    unit: what the figures above the caption call a sample.
    """
    names = [name for name in SETTINGS if not varies(cells, column(name))]
    said = [name for name in names if name == "device" or column(name) in varied or _by_choice(cells, name)]
    if not getattr(cells[0], "image_size", 1):  # none of rows and series
        said = [name for name in said if name != "image_size"]
    values = [_value(name, getattr(cells[0], column(name))) for name in said]
    turns = " in turns" if all(cell.schedule == "interleaved" for cell in cells) else ""
    runs = [] if varies(cells, "runs") else [f"{plural(cells[0].runs, 'run')} per cell{turns}"]
    datasets: Dict[str, Record] = {}
    for one in cells:
        datasets.setdefault(one.dataset, one)
    samples = [_samples(one, unit) for one in datasets.values()]
    return f"{', '.join([*values, *runs])}. {'; '.join(samples)}."


def _by_choice(cells: Sequence[Record], name: str) -> bool:
    """Whether a setting has a value that neither its default nor the data set gives it."""
    if SETTINGS[name].role == OF_DATASET:
        return False
    return any(getattr(cell, column(name)) != _default(cell, name) for cell in cells)


def _default(cell: Record, name: str) -> Any:
    """The value that a cell has where nobody asks for one."""
    if registry.of_arrays(cell.model) and name in BY_ARRAYS:
        return getattr(cell, column(name))
    if SETTINGS[name].all_cores:  # as many as the machine has; loader workers are said where they are not as many
        return None if name == "threads" else cell.threads
    own = {"pipeline": "shared", **registry.MODELS[cell.model].settings} if registry.of_arrays(cell.model) else {}
    return own.get(name, getattr(DEFAULTS, name))


def _value(name: str, value: Any) -> str:
    form = SETTINGS[name].caption or f"{column(name).replace('_', ' ')} {{}}"
    return plural(value, form[3:]) if form.startswith("{} ") else form.format(title(value))


def varies(cells: Sequence[Record], name: str) -> bool:
    """Whether the cells differ in a setting."""
    return len({getattr(cell, name) for cell in cells}) > 1


def row_names(cells: Sequence[Record], *more: str) -> Tuple[str, ...]:
    """What a row is named by: framework, model, and of the other settings those in which the cells differ."""
    return ("framework", "model", *(name for name in ("dataset", *more) if varies(cells, name)))


def names_of(cell: Record, headings: Sequence[str]) -> Tuple[str, ...]:
    return tuple(row_name(name, getattr(cell, name)) for name in headings)


def row_name(column: str, value: Any) -> str:
    """A value that names a row; frameworks and models as people write them."""
    return title(value) if column in ("framework", "model") else str(value)


def who(cell: Record) -> str:
    """The framework and the model of a cell, as people write them."""
    return f"{title(cell.framework)} {title(cell.model)}"


def how_read(cells: Sequence[Record]) -> List[str]:
    """Where the table's GPU figures come from: the source of power, the time that utilisation is averaged over."""
    return [*_power(cells), *_utilisation([cell for cell in cells if not math.isnan(cell.gpu_percent_mean)])]


def _power(cells: Sequence[Record]) -> List[str]:
    by_source = {source: [cell for cell in cells if cell.gpu_power_source == source] for source in POWER}
    sources = [source for source in POWER if by_source[source]]
    lines = []
    for source in sources:
        names = dict.fromkeys(who(cell) for cell in by_source[source])
        whose = f" ({', '.join(names)})" if source != sources[0] else ""
        lines.append(f"GPU power by {source}{whose}, {POWER[source]}.")
    return lines


def _utilisation(cells: Sequence[Record]) -> List[str]:
    windows = texts_of(cells, "gpu_utilization_window")
    periods = dict.fromkeys(
        f"{cell.gpu_utilization_period_s:.2g} s" for cell in cells if cell.gpu_utilization_period_s > 0
    )
    update = f"; on this machine it updates the value every {' or '.join(periods)}" if periods else ""
    return [f"NVML averages GPU % over a period of {window}{update}." for window in windows]


def texts_of(cells: Sequence[Record], name: str) -> List[str]:
    """The different texts of a column."""
    texts = [getattr(cell, name) for cell in cells]
    return [shorten(tables.clean(text)) for text in dict.fromkeys(texts) if isinstance(text, str)]


def warned(cells: Sequence[Record]) -> List[str]:
    """What may have disturbed the runs, in lines below a table."""
    lines = [f"Warning, {', '.join(names)}: {shorten(text)}" for text, names in warnings_of(cells).items()]
    if len(lines) <= MAX_WARNINGS:
        return lines
    left = len(lines) - MAX_WARNINGS
    return [*lines[:MAX_WARNINGS], f"{left} more warnings: `framework-compare report` lists all."]


def warnings_of(cells: Iterable[Record]) -> Dict[str, List[str]]:
    """What may have disturbed the runs: each text with its cells."""
    cells_of: Dict[str, List[str]] = {}
    for cell in cells:
        if isinstance(cell.warnings, str) and cell.warnings:
            names = cells_of.setdefault(tables.clean(cell.warnings), [])
            names += [who(cell)] if who(cell) not in names else []
    return cells_of


def imported(cells: Sequence[Record]) -> List[str]:
    """Of each model of the user's where it is from, and what was left out or replaced on its way into the graph."""
    lines = []
    for name in dict.fromkeys(cell.model for cell in cells):
        model = registry.builder(name)
        if isinstance(model, ImportedModel):
            classes = dict.fromkeys(
                int(cell.num_classes) for cell in cells if cell.model == name and cell.num_classes > 0
            )
            heads = [model.replaced_head(count).replace(f"{name}: ", "") for count in classes]
            remarks = "; ".join(filter(None, (f"{name} is {model.source}", *heads, *model.notes)))
            lines.append(f"{tables.clean(remarks)}.")
    return lines


def beside_written(cells: Sequence[Record]) -> List[str]:
    """Which models of users take another time as we rebuild them than as they are written; see MOST_APART.

    Nothing is said where the intervals of the two overlap: no difference is shown then.
    """
    found: Dict[Any, Dict[str, Record]] = {}
    for cell in cells:
        if cell.status == "ok" and not math.isnan(_epoch_s(cell)):
            key = tuple(getattr(cell, name, None) for name in ("model", "dataset", "device", *SETTINGS))
            found.setdefault(key, {})[cell.framework] = cell
    texts = []
    for own, entry in registry.AS_WRITTEN.items():
        for pair in found.values():
            if own not in pair or entry.name not in pair:
                continue
            ours, theirs = pair[entry.name], pair[own]
            ratio = _epoch_s(ours) / _epoch_s(theirs)
            if abs(math.log(ratio)) > math.log(MOST_APART) and not _overlap(ours, theirs):
                texts.append(
                    f"Warning, {theirs.model}: rebuilt from its layer graph it takes {ratio:.2f} times as long in"
                    f" {title(entry.name)} as it does as written."
                )
    return texts


def _overlap(one: Record, other: Record) -> bool:
    """Whether the intervals of two epoch times do; not those of single runs, which have none."""
    return bool(one.epoch_s_ci_low <= other.epoch_s_ci_high and other.epoch_s_ci_low <= one.epoch_s_ci_high)


def alone(cells: Sequence[Record]) -> List[str]:
    """Which cells did not take turns with their competitors, and why."""
    why: Dict[str, List[str]] = {}
    for cell in cells:
        if isinstance(cell.alone_why, str):
            why.setdefault(cell.alone_why, []).append(who(cell))
    return [
        f"Did not take turns with competitors: {', '.join(dict.fromkeys(names))} ({one})." for one, names in why.items()
    ]


def unsure(fastest: Sequence[Record]) -> List[str]:
    """Which of the cells marked as the fastest are not proved equal."""
    names = ", ".join(dict.fromkeys(title(cell.framework) for cell in fastest if unproved(cell.parity)))
    return [f"Marked as the fastest, but not proved to train the same function: {names}."] if names else []


def shorten(text: str) -> str:
    return text if len(text) <= MAX_NOTE else text[: MAX_NOTE - 1] + "…"


def unit_of(cells: Sequence[Record]) -> str:
    """What a table calls a sample: "row" where all its cells train on rows; "image" where they differ."""
    units = {registry.unit(cell.model) for cell in cells}
    return units.pop() if len(units) == 1 else "image"


def _samples(cell: Record, unit: str) -> str:
    """A data set and the number of its samples; `unit` is what the figures call a sample."""
    if math.isnan(cell.pictures):
        return str(cell.dataset)
    own = registry.unit(cell.model)
    skipped = f", {cell.skipped_pictures:.0f} skipped" if own == "image" and cell.skipped_pictures > 0 else ""
    renamed = "" if own == unit else f"; {unit}s/s are {own}s/s"
    return f"{cell.dataset}: {plural(int(cell.pictures), own)}{skipped}{renamed}"


def plural(count: Any, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
