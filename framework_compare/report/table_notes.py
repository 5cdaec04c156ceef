"""Texts beside the figures of a table: notes, captions, remarks, warnings."""

import math
from collections.abc import Callable, Iterable, Sequence
from numbers import Number

from framework_compare import registry
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.plan.settings import ANY_EPOCHS, BY_ARRAYS, DEFAULTS, OF_DATASET, SETTINGS, column
from framework_compare.report.names import title
from framework_compare.report.tables import Row, Value, clean, estimate, with_interval, with_notes
from framework_compare.results import ratios
from framework_compare.results.columns import Record, grouped
from framework_compare.results.metrics import percent
from framework_compare.results.parity import PROVED, UNVERIFIED

MAX_NOTE = 400
MAX_WARNINGS = 6  # below a table; the report has all
MOST_APART = 1.05  # of a rebuilt model over the same as it is written; beyond it a warning says so
HOW_TO_PROVE = (
    "run `framework-compare verify STUDY` to check that all frameworks train the same function; it stores the verdict in "
    "the study"
)
HANDING_OVER = (
    "On {device} the host queues work and runs ahead, so the wait for data and `step_s_*` of the frames are queueing times. "
    "Copying and computing are read from the clock of the device; for a framework without device events, steps and copies "
    "are timed separately."
)
POWER = {
    "counter": "joules divided by the seconds of the epochs",
    "samples": "without the first second of the epochs, as NVML averages it over up to a second",
}


def status_value(cell: Record) -> Value:
    """The status of a cell that did not work, with its reason."""
    reason = clean(cell.reason)
    if cell.runs_ok and cell.status != "planned":
        ended = f"{cell.runs_ok} of {cell.runs} runs ok"
        reason = f"{reason} ({ended})" if reason else ended
    return Value(cell.status, shorten(reason))


def first_value(cell: Record, text: str) -> Value:
    """The first figure of a cell's row, with the note of the whole row: why it did not work, or its parity."""
    return Value(text, parity_note(cell)) if cell.status == "ok" else status_value(cell)


def parity_note(cell: Record, base: Record | None = None, also: str = "") -> str:
    """The note that a cell is not proved equal; "" if it is proved, or was not checked.

    Disturbed epochs have a note, too. base is the baseline of the figure; also is one more remark on the figure.
    """
    against = "" if base is None or base is cell else disturbance(base)
    more = [also, disturbance(cell), f"baseline: {against}" if against else ""]
    return verdict_note(cell.parity, None if base is None else base.parity, "; ".join(filter(None, more)))


def verdict_note(verdict: object, other: object = None, also: str = "") -> str:
    """The same for verdicts as the frame's column `parity` has them."""
    own, other = unproved(verdict), unproved(other)
    parts = [f"parity {own}"] * bool(own) + [f"its baseline has parity {other}"] * bool(other)
    advice = [HOW_TO_PROVE] if UNVERIFIED in (own, other) else []
    return clean("; ".join([*filter(None, [also]), *parts, *advice]))


def unproved(verdict: object) -> str:
    """A verdict on parity that proves too little; "" for one that proves all, or if parity was not checked."""
    return verdict if isinstance(verdict, str) and verdict not in PROVED else ""


def merge_parity_notes(rows: tuple[Row, ...], cells: Sequence[Record]) -> tuple[tuple[Row, ...], list[str]]:
    """Rows without their notes on parity, and one remark instead, where two cells or more have the same verdict."""
    verdicts = [unproved(cell.parity) for cell in cells if cell.status == "ok"]
    if len(verdicts) < 2 or not verdicts[0] or len(set(verdicts)) > 1:
        return rows, []
    verdict, advice = verdicts[0], f"; {HOW_TO_PROVE}" if verdicts[0] == UNVERIFIED else ""
    shared = [clean(text) for text in (f"its baseline has parity {verdict}", f"parity {verdict}", HOW_TO_PROVE)]

    def without(note: str) -> str:
        for text in shared:
            note = note.replace(text, "")
        return "; ".join(part for part in note.split("; ") if part.strip("; "))

    return with_notes(rows, without), [f"All cells: parity {verdict}{advice}."]


def disturbance(cell: Record) -> str:
    """The note on a cell in whose epochs others took the CPU; "" for another."""
    if not cell.epochs_disturbed > 0:
        return ""
    lost = "most rounds do not count"
    if cell.disturbed_share > 0:
        lost = f"other programs took {percent(cell.disturbed_share)} of a core for {cell.disturbed_s:.1f} s"
    if cell.epochs_disturbed < cell.epochs_measured:
        are = "is" if cell.epochs_disturbed == 1 else "are"
        return f"{lost}: {cell.epochs_disturbed:.0f} of {cell.epochs_measured} epochs, which {are} excluded"
    whole = f"all {plural(cell.epochs_measured, 'epoch')}" if cell.epochs_measured > 1 else "its only epoch"
    return f"{lost}: {whole}, so there is no verdict"


def epoch_value(cell: Record, times: float = 1.0, best: bool = False) -> Value:
    """The seconds of an epoch, `times` a factor, with their interval, and the note of the cell's row."""
    about = math.isnan(cell.epoch_s_median)
    ends = (cell.epoch_s_median, cell.epoch_s_ci_low, cell.epoch_s_ci_high)
    if about:
        ends = (cell.epoch_estimate_s, cell.epoch_estimate_s_low, cell.epoch_estimate_s_high)
    return estimate(with_interval(*(times * seconds for seconds in ends)), about, parity_note(cell), best)


def caption(cells: Sequence[Record], varied: Sequence[str], unit: str = "image") -> str:
    """The settings that all cells share: device, those that are not at their default or `varied` within the study, samples.

    unit: what the figures above the caption call a sample.
    """
    samples = [_samples(own[0], unit) for own in grouped(cells, lambda cell: cell.dataset).values()]
    return f"{shared_settings(cells, varied)}. {'; '.join(samples)}."


def shared_settings(cells: Sequence[Record], varied: Sequence[str], always: Sequence[str] = ("device",)) -> str:
    """The settings of a caption without the data; always: what is named at its default, too."""
    kinds = {(cell.model, cell.threads): cell for cell in cells}.values()
    names = [
        name
        for name in SETTINGS
        if not varies(cells, column(name))
        and (name in always or column(name) in varied or any(_is_chosen(cell, name) for cell in kinds))
    ]
    if not getattr(cells[0], "image_size", 1):  # none of rows and series
        names = [name for name in names if name != "image_size"]
    values = [setting_words(column(name), getattr(cells[0], column(name))) for name in names]
    schedules = {cell.schedule for cell in cells if isinstance(cell.schedule, str)}  # of those with a run that is ok
    turns = ", interleaved" if schedules == {"interleaved"} else ""
    fewest, most = min(cell.runs for cell in cells), max(cell.runs for cell in cells)
    runs = f"{plural(fewest, 'run')} per cell" if fewest == most else f"{fewest} to {most} runs per cell"
    return ", ".join([*values, f"{runs}{turns}"])


def _is_chosen(cell: Record, name: str) -> bool:
    """Return whether a setting of a cell has a value that neither its default nor the data set gives it."""
    arrays, value = registry.of_arrays(cell.model), getattr(cell, column(name))
    if SETTINGS[name].role == OF_DATASET or arrays and name in BY_ARRAYS:
        return False
    if SETTINGS[name].all_cores:  # as many as the machine has; loader workers are named where they are not as many
        return name == "threads" or bool(value != cell.threads)
    default = "shared" if arrays and name == "pipeline" else getattr(DEFAULTS, name)
    return bool(value != (registry.MODELS[cell.model].settings.get(name, default) if arrays else default))


def setting_words(name: str, value: object) -> str:
    """A value of a setting in words; name: its column."""
    if setting_value(name, value) != value:
        return f"epochs: {setting_value(name, value)}"
    captions = {column(field): setting.caption for field, setting in SETTINGS.items()}
    form = captions.get(name) or f"{name.replace('_', ' ')} {{}}"
    return plural(value, form[3:]) if form.startswith("{} ") else form.format(title(value))


def setting_value(name: str, value: object) -> object:
    """A value of a setting as tables list it; name: its column."""
    return "as many as fit into the sample" if (name, value) == ("epochs", ANY_EPOCHS) else value


def _samples(cell: Record, unit: str) -> str:
    """A data set and the number of its samples; `unit` is what the figures call a sample."""
    if math.isnan(cell.images):
        return str(cell.dataset)
    own = registry.unit(cell.model)
    skipped = f", {cell.skipped_images:.0f} skipped" if own == "image" and cell.skipped_images > 0 else ""
    renamed = "" if own == unit else f"; {unit}s/s are {own}s/s"
    return f"{cell.dataset}: {data_words(int(cell.images), own, cell.generated)}{skipped}{renamed}"


def data_words(samples: int, unit: str, generated: object) -> str:
    """The size of a data set in words, which say so where the data were generated: "1,600 generated images"."""
    return plural(samples, f"generated {unit}" if generated is True else unit)


def varies(cells: Sequence[Record], name: str) -> bool:
    """Return whether the cells differ in a setting."""
    return len({getattr(cell, name) for cell in cells}) > 1


def row_name(column: str, value: object) -> str:
    """A value that names a row; frameworks and models as people write them."""
    return title(value) if column in ("framework", "model") else str(value)


def cell_title(cell: Record) -> str:
    """The framework and the model of a cell, as people write them."""
    return f"{title(cell.framework)} {title(cell.model)}"


def gpu_reading_notes(cells: Sequence[Record]) -> list[str]:
    """The sources of the GPU figures: where power is read, the time that utilisation is averaged over."""
    lines: list[str] = []
    for source, how in POWER.items():
        names = dict.fromkeys(cell_title(cell) for cell in cells if cell.gpu_power_source == source)
        if names:
            whose = f" ({', '.join(names)})" if lines else ""
            lines.append(f"GPU power by {source}{whose}, {how}.")
    read = [cell for cell in cells if not math.isnan(cell.gpu_percent_mean)]
    seconds = [cell.gpu_utilization_period_s for cell in read if cell.gpu_utilization_period_s > 0]
    periods = " or ".join(dict.fromkeys(f"{one:.2g} s" for one in seconds))
    update = f"; on this machine it updates the value every {periods}" if periods else ""
    windows = texts_of(read, "gpu_utilization_window")
    return [*lines, *(f"NVML averages GPU % over a period of {window}{update}." for window in windows)]


def texts_of(cells: Sequence[Record], name: str) -> list[str]:
    """The different texts of a column."""
    texts = [getattr(cell, name) for cell in cells]
    return [shorten(clean(text)) for text in dict.fromkeys(texts) if isinstance(text, str)]


def cells_by(cells: Iterable[Record], text_of: Callable[[Record], object]) -> dict[str, list[str]]:
    """Each text that `text_of` finds in a cell, with the titles of its cells; others have none or ""."""
    titles: dict[str, list[str]] = {}
    for cell in cells:
        text = text_of(cell)
        if isinstance(text, str) and text:
            names = titles.setdefault(clean(text), [])
            names += [cell_title(cell)] if cell_title(cell) not in names else []
    return titles


def warnings_of(cells: Iterable[Record]) -> dict[str, list[str]]:
    """The warnings of the runs, each with its cells."""
    return cells_by(cells, lambda cell: cell.warnings)


def warning_lines(cells: Sequence[Record]) -> list[str]:
    """The warnings of the runs as lines below a table."""
    lines = [f"Warning, {', '.join(names)}: {shorten(text)}" for text, names in warnings_of(cells).items()]
    left = len(lines) - MAX_WARNINGS
    more = [f"{left} more warnings: `framework-compare report` lists all."] if left > 0 else []
    return [*lines[:MAX_WARNINGS], *more]


def without_turns(cells: Sequence[Record]) -> list[str]:
    """The cells that did not take turns with their competitors, in how many of their runs, and why."""

    def why_alone(cell: Record) -> object:
        if not isinstance(cell.alone_why, str) or not cell.runs_alone < cell.runs_ok:
            return cell.alone_why
        return f"in {cell.runs_alone:.0f} of {plural(cell.runs_ok, 'run')}: {cell.alone_why}"

    why = cells_by(cells, why_alone)
    return [f"Not interleaved with competitors: {', '.join(names)} ({one})." for one, names in why.items()]


def imported_models(cells: Sequence[Record]) -> list[str]:
    """The origin of each model of the user's, and what was left out or replaced on its way into the graph."""
    lines = []
    for name in dict.fromkeys(cell.model for cell in cells):
        model = registry.builder(name)
        if isinstance(model, ImportedModel):
            classes = dict.fromkeys(
                int(cell.num_classes) for cell in cells if cell.model == name and cell.num_classes > 0
            )
            heads = [model.replaced_head(count).replace(f"{name}: ", "") for count in classes]
            remarks = "; ".join(filter(None, (f"{name} is {model.source}", *heads, *model.notes)))
            lines.append(f"{clean(remarks)}.")
    return lines


def rebuild_slowdown_warnings(cells: Sequence[Record]) -> list[str]:
    """Warn of models of users that take another time as we rebuild them than as they are written; see MOST_APART.

    Nothing is said where the intervals of the two overlap: no difference is shown then.
    """
    if not any(cell.framework in registry.AS_WRITTEN for cell in cells):
        return []
    texts = []
    groups = grouped(ratios.timed(cells), ratios.alike_but("framework")).values()
    for own, entry in registry.AS_WRITTEN.items():
        for pair in ({cell.framework: cell for cell in group} for group in groups):
            if own not in pair or entry.name not in pair:
                continue
            ours, theirs = pair[entry.name], pair[own]
            ratio = ratios.epoch_seconds(ours) / ratios.epoch_seconds(theirs)
            # NaN of single runs, which have no interval, is no overlap.
            overlap = ours.epoch_s_ci_low <= theirs.epoch_s_ci_high and theirs.epoch_s_ci_low <= ours.epoch_s_ci_high
            if abs(math.log(ratio)) > math.log(MOST_APART) and not overlap:
                texts.append(
                    f"Warning, {theirs.model}: rebuilt from its layer graph, it takes {ratio:.2f} times as long in"
                    f" {title(entry.name)} as in its original form."
                )
    return texts


def shorten(text: str) -> str:
    return text if len(text) <= MAX_NOTE else text[: MAX_NOTE - 1] + "…"


def unit_of(cells: Sequence[Record]) -> str:
    """The word for a sample: "row" where all its cells train on rows; "image" where they differ."""
    units = {registry.unit(cell.model) for cell in cells}
    return units.pop() if len(units) == 1 else "image"


def plural(count: object, noun: str) -> str:
    if count == 1:
        return f"{count} {noun}"
    return f"{count:,} {noun}s" if isinstance(count, Number) else f"{count} {noun}s"
