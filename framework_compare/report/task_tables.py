"""Tables of workloads: what was learnt, what each rung of a ladder gains, how fast a model answers."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any

from framework_compare.batches import quality
from framework_compare.protocol import Fields
from framework_compare.report.table_spec import FRAMEWORK, Column, Sheet, TableSpec
from framework_compare.report.tables import NOTHING, Value, known, number, with_interval
from framework_compare.results.columns import SHARED, Record, grouped
from framework_compare.results.metrics import percent
from framework_compare.results.workloads import GAIN_COLUMNS, PREFIX, SEARCH_COLUMNS, TOLERANCE, one_at_a_time


def _number(value: Any) -> str:
    whole = known(value) and float(value).is_integer() and abs(value) < 1e6
    return str(int(value)) if whole else number(value)


def _of(name: str) -> Callable[[Record], str]:
    return lambda cell: _number(getattr(cell, name, None))


def _heading(metric: str, cells: Sequence[Record]) -> str:
    """A metric as a column's name, with the unit of the data where it has that: "rmse $"."""
    known = quality.METRICS.get(metric)
    units = {cell.data_unit for cell in cells} if known and known.unit == "data" else set()
    return " ".join([*metric.split("_"), *(units if len(units) == 1 else ())]).strip()


def _judged(sheet: Sheet) -> list[Record]:
    return [cell for cell in sheet.cells if cell.metrics and cell.mode == "train"]


def _metrics(cells: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(name for cell in cells for name in ("loss", *cell.metrics)))


def _with_baselines(sheet: Sheet) -> Iterable[Record]:
    """Cells on a validation split; before the first of a model and data set what needs no model, as a cell that worked."""
    cells, done = _judged(sheet), set()
    for cell in cells:
        if (cell.model, cell.dataset) not in done:
            done.add((cell.model, cell.dataset))
            figures: Fields = {PREFIX + name: getattr(cell, f"baseline_{name}", math.nan) for name in _metrics(cells)}
            figures.update(framework=f"({cell.baseline})", status="ok", parity=None, epochs_disturbed=0)
            yield SimpleNamespace(**{**cell._asdict(), **figures, "tokens_per_s": math.nan, "epochs_run": math.nan})
        yield cell


def _quality_columns(sheet: Sheet) -> list[Column]:
    cells = _judged(sheet)
    metrics = (Column(_heading(name, cells), _of(PREFIX + name)) for name in _metrics(cells))
    of_tokens = any(known(cell.tokens_per_s) for cell in cells)
    tokens = [Column("tokens/s", _of("tokens_per_s"))] if of_tokens else []
    return [Column("epochs", _of("epochs_run")), *metrics, *tokens]


QUALITY = TableSpec(
    lambda sheet: (
        "Quality on the validation split after the last epoch, mean over "
        + ("runs." if any(cell.patience > 0 for cell in sheet.cells) else "the runs that reached it.")
    ),
    _quality_columns,
    ("epochs_run", "baseline", "tokens_per_s"),
    rows=_with_baselines,
    frame="quality",
    absent="No model in this study has a validation split.",
)


def _gain_columns(sheet: Sheet) -> list[Column]:
    def worse(cell: Record) -> str:
        how = f"worse than that of the base by more than {percent(TOLERANCE)}: no gain at equal quality"
        return f"{cell.metric} is {how}" if cell.worse else ""

    def gain(cell: Record) -> Value:
        return Value(with_interval(cell.gain, cell.gain_low, cell.gain_high), worse(cell))

    metric = next((cell.metric for cell in sheet.cells if cell.metric), None)
    judged = []
    if metric:
        judged.append(Column(_heading(metric, sheet.cells), lambda cell: Value(_number(cell.value), worse(cell))))
    alone = one_at_a_time(sheet.cells)
    return [
        Column("total s", _of("total_s")),
        Column("epoch s", _of("epoch_s_median")),
        Column("samples/s", _of("images_per_s")),
        Column("epochs", _of("epochs_run")),
        *judged,
        Column("over base" if alone else "over previous", gain, "speed-up"),
        *([] if alone else [Column("in all", _of("gain_in_all"), "speed-up")]),
    ]


GAINS = TableSpec(
    lambda sheet: (
        "Training seconds (first step and epochs) by rung of the ladder, with the speed-up over the "
        f"{'base' if one_at_a_time(sheet.cells) else 'previous rung'}."
    ),
    _gain_columns,
    (*GAIN_COLUMNS, "epoch_s_median", "images_per_s"),
    names=(FRAMEWORK, Column("rung", lambda cell: cell.rung)),
    rows=lambda sheet: chain(*grouped(sheet.cells, lambda cell: (cell.framework, cell.model)).values()),
    across=tuple(SHARED),
    frame="gains",
    absent="This study is not a ladder; run one with `framework-compare ladder`.",
)


def _search_columns(sheet: Sheet) -> tuple[Column, ...]:
    def steps(cell: Record) -> str:
        return _number(cell.epoch_s_median - cell.candidates_build_s - cell.candidates_validation_s)

    def seconds(cell: Record) -> str:
        return with_interval(cell.epoch_s_median, cell.epoch_s_ci_low, cell.epoch_s_ci_high)

    metric = next((cell.best_metric for cell in sheet.cells if isinstance(cell.best_metric, str)), "")
    return (
        Column("search s", seconds),
        Column("candidates", _of("candidates")),
        Column("building", _of("candidates_build_s"), "seconds of"),
        Column("steps", steps, "seconds of"),
        Column("first steps", _of("candidates_first_step_s"), "seconds of"),
        Column("evaluation", _of("candidates_validation_s"), "seconds of"),
        Column("candidate", lambda cell: cell.best if isinstance(cell.best, str) and cell.best else NOTHING, "best"),
        Column(metric.replace("_", " ") or "metric", _of("best_value"), "best"),
    )


SEARCH = TableSpec(
    "Seconds of the whole grid search, with all candidates in one process, and of its parts: building, steps (including"
    " first steps, which may compile) and evaluation. Best: mean over folds.",
    _search_columns,
    (*SEARCH_COLUMNS, "epoch_s_median", "epoch_s_ci_low", "epoch_s_ci_high"),
    frame="searches",
    absent="This study has no grid search.",
)


def _of_mode(mode: str) -> Callable[[Sheet], list[Record]]:
    return lambda sheet: [cell for cell in sheet.cells if cell.mode == mode]


def _by_batch_size(mode: str, values: Iterable[tuple[str, Any]]) -> Callable[[Sheet], list[Column]]:
    """These columns, each a heading and a value, once for each batch size of the cells of a mode."""
    return lambda sheet: [
        Column(heading, value, f"batch {size}", size)
        for size in sorted({cell.batch_size for cell in _of_mode(mode)(sheet)})
        for heading, value in values
    ]


_LATENCY = (("median ms", "step_s_median"), ("p95 ms", "step_s_p95"), ("{unit}s/s", "images_per_s"))
INFERENCE = TableSpec(
    "Inference: latency of one step in milliseconds, median and 95th percentile, and {unit}s per second if steps"
    " follow each other without waiting; outputs stay on the device.",
    _by_batch_size("inference", _LATENCY),
    tuple(name for _, name in _LATENCY),
    rows=_of_mode("inference"),
    spread=lambda cell: cell.batch_size,
    across=("batch_size",),
    absent="No cell in this study ran in inference mode.",
)


GENERATION = TableSpec(
    "Generation with cached keys and values: milliseconds to the first token, median and 95th percentile, and new tokens per"
    " second of whole sequences, prompts included.",
    _by_batch_size(
        "generation",
        (("first ms", "step_s_median"), ("p95 ms", "step_s_p95"), ("tokens/s", _of("tokens_per_s"))),
    ),
    ("step_s_median", "step_s_p95", "tokens_per_s"),
    rows=_of_mode("generation"),
    spread=lambda cell: cell.batch_size,
    across=("batch_size",),
    frame="quality",
    absent="No cell in this study ran in generation mode.",
)
