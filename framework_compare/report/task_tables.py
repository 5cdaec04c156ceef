"""Tables of workloads: what was learnt, what each rung of a ladder gains, how fast a model answers."""

from __future__ import annotations

import math
from typing import Any, List, Sequence, Tuple

from framework_compare.batches import quality
from framework_compare.report.figures.look import title
from framework_compare.report.parts import Notes, Record, names_of, row_name, row_names, unit_of, with_interval
from framework_compare.report.tables import NOTHING, Figure, Group, Row, Table
from framework_compare.results.gains import TOLERANCE, one_at_a_time
from framework_compare.results.metrics import METRICS, digits
from framework_compare.results.validation_metrics import PREFIX

INFERENCE = ("step_s_median", "step_s_p95", "images_per_s")


def quality_table(cells: Sequence[Record], caption: str) -> Table:
    """One row per cell, one column per metric after the last epoch; a row more for what needs no model."""
    judged = [cell for cell in cells if cell.metrics and cell.mode == "train"]
    if not judged:
        return Table(caption, ("framework",), (), ())
    metrics = list(dict.fromkeys(name for cell in judged for name in ("loss", *cell.metrics)))
    headings, notes, rows, told = row_names(judged), Notes(), [], set()
    for cell in judged:
        if (cell.model, cell.dataset) not in told:
            told.add((cell.model, cell.dataset))
            rows.append(_baseline(cell, headings, metrics))
        values = [getattr(cell, PREFIX + name, math.nan) for name in metrics]
        figures = [notes.first(cell, _number(cell.epochs_run)), *(Figure(_number(value)) for value in values)]
        rows.append(Row(names_of(cell, headings), tuple(figures)))
    return Table(
        f"Quality on the validation split after the last epoch, mean over runs. {caption}",
        headings,
        (Group("", ("epochs", *(_heading(name, judged) for name in metrics))),),
        tuple(rows),
        tuple(notes.texts),
    )


def _baseline(cell: Record, headings: Sequence[str], metrics: Sequence[str]) -> Row:
    """What needs no model, under the name of its way of answering."""
    values = [getattr(cell, f"baseline_{name}", math.nan) for name in metrics]
    names = [f"({cell.baseline})" if name == "framework" else row_name(name, getattr(cell, name)) for name in headings]
    return Row(tuple(names), (Figure(NOTHING), *(Figure(_number(value)) for value in values)))


def gains_table(cells: Sequence[Record], caption: str) -> Table:
    """One row per framework and rung: seconds of training, epochs, quality, gain on the rung before and in all.

    Where each rung changes the base alone, its gain is on the base.
    """
    notes, rows = Notes(), []
    names = list(dict.fromkeys((cell.framework, cell.model) for cell in cells))
    metric = next((cell.metric for cell in cells if cell.metric), None)
    over, gains = (
        ("the base", ("than base",)) if one_at_a_time(cells) else ("the rung before", ("than before", "in all"))
    )
    for cell in sorted(cells, key=lambda cell: names.index((cell.framework, cell.model))):
        in_all = (Figure(_number(cell.gain_in_all)),) if len(gains) > 1 else ()
        rows.append(Row((title(cell.framework), cell.rung), (*_gains(cell, notes), *in_all)))
    judged = (_heading(metric, cells),) if metric else ()
    return Table(
        f"Training seconds (first step and epochs) by rung of the ladder; gain is {over} over this one. {caption}",
        ("framework", "rung"),
        (
            Group("", ("total s", "epoch s", "samples/s", "epochs", *judged)),
            Group("times faster", gains),
        ),
        tuple(rows),
        tuple(notes.texts),
    )


def _gains(cell: Record, notes: Notes) -> List[Figure]:
    worse = f"{cell.metric} is worse than the base's by more than {TOLERANCE:.0%}: no gain at equal quality"
    mark = notes.number(worse) if cell.worse else 0
    figures = [
        notes.first(cell, _number(cell.total_s)),
        Figure(_number(cell.epoch_s_median)),
        Figure(_number(cell.images_per_s)),
        Figure(_number(cell.epochs_run)),
    ]
    if cell.metric:
        figures.append(Figure(_number(cell.value), mark))
    gain = NOTHING if math.isnan(cell.gain) else with_interval(cell.gain, cell.gain_low, cell.gain_high)
    return [*figures, Figure(gain, mark)]


def search_table(cells: Sequence[Record], caption: str) -> Table:
    """One row per grid search: seconds of the whole and what they went into, the best candidate and its quality."""
    headings, notes, rows = row_names(cells) if cells else ("framework",), Notes(), []
    metric = next((cell.best_metric for cell in cells if isinstance(cell.best_metric, str)), "")
    for cell in cells:
        steps = cell.epoch_s_median - cell.candidates_build_s - cell.candidates_validation_s
        seconds = with_interval(cell.epoch_s_median, cell.epoch_s_ci_low, cell.epoch_s_ci_high)
        parts = (cell.candidates_build_s, steps, cell.candidates_first_step_s, cell.candidates_validation_s)
        best = cell.best if isinstance(cell.best, str) and cell.best else NOTHING
        figures = [
            notes.first(cell, NOTHING if math.isnan(cell.epoch_s_median) else seconds),
            Figure(_number(cell.candidates)),
            *(Figure(_number(part)) for part in parts),
            Figure(best),
            Figure(_number(cell.best_value)),
        ]
        rows.append(Row(names_of(cell, headings), tuple(figures)))
    return Table(
        "Seconds of the whole grid search, the candidates one after the other in one process; of these building, steps"
        f" (first steps among them, which may compile) and judging. Best: the mean over folds. {caption}",
        headings,
        (
            Group("", ("search s", "candidates")),
            Group("seconds of", ("building", "steps", "first steps", "judging")),
            Group("best", ("candidate", metric.replace("_", " ") or "metric")),
        ),
        tuple(rows),
        tuple(notes.texts),
    )


def inference_table(cells: Sequence[Record], caption: str) -> Table:
    """One row per framework and model, groups by batch size: latency of a step that is waited for, and throughput."""
    answered = [cell for cell in cells if cell.mode == "inference"]
    unit = unit_of(cells)
    sizes = sorted({cell.batch_size for cell in answered})
    headings, notes, rows = row_names(answered) if answered else ("framework",), Notes(), []
    by_row: Any = {}
    for cell in answered:
        by_row.setdefault(names_of(cell, headings), {})[cell.batch_size] = cell
    for names, by_size in by_row.items():
        rows.append(Row(names, tuple(figure for size in sizes for figure in _latency(by_size.get(size), notes))))
    return Table(
        f"Inference: latency of one step in milliseconds, median and 95th percentile, and {unit}s per second where steps"
        f" follow without waiting; outputs stay on the device. {caption}",
        headings,
        tuple(Group(f"batch {size}", ("median ms", "p95 ms", f"{unit}s/s")) for size in sizes),
        tuple(rows),
        tuple(notes.texts),
    )


def _latency(cell: Any, notes: Notes) -> Tuple[Figure, ...]:
    if cell is None:
        return (Figure(NOTHING),) * 3
    texts = [METRICS[name].show(getattr(cell, name)) for name in INFERENCE]
    return (notes.first(cell, texts[0]), Figure(texts[1]), Figure(texts[2]))


def _heading(metric: str, cells: Sequence[Record]) -> str:
    """A metric as a column's name, with the unit of the data where it has that: "rmse $"."""
    known = quality.METRICS.get(metric)
    units = {cell.data_unit for cell in cells} if known and known.unit == "data" else set()
    return " ".join([*metric.split("_"), *(units if len(units) == 1 else ())]).strip()


def _number(value: Any) -> str:
    if value is None or math.isnan(value):
        return NOTHING
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e6 else digits(value)
