"""Tables of speed-ups: a device over the CPU, precisions and executions against fp32 eager."""

import math
from collections.abc import Callable
from functools import partial

from framework_compare.protocol import EXECUTIONS, PRECISIONS, replicas_of
from framework_compare.report.names import title
from framework_compare.report.table_notes import parity_note, status_value
from framework_compare.report.table_spec import NAMES, Column, Sheet, TableSpec, named
from framework_compare.report.tables import NOTHING, Value, estimate, with_interval
from framework_compare.results import ratios
from framework_compare.results.columns import Record
from framework_compare.results.metrics import digits
from framework_compare.results.ratios import Ratio, epoch_seconds

_SURE = "±: larger half-width of the 95 % confidence interval; it needs 2 runs of both cells."
BATCH_SIZE = named("batch_size", always=True)


def _times(cell: Record, one: Ratio, also: str = "", *, slower: bool = False) -> Value:
    """A ratio of speeds, or of times if `slower`, with the notes of both cells; also: one more remark."""
    if one.base.Index == cell.Index:
        return Value("1")
    ends = (one.ratio, one.ratio_ci_low, one.ratio_ci_high)
    if slower:
        ends = (1 / one.ratio, 1 / one.ratio_ci_high, 1 / one.ratio_ci_low)
    return Value(with_interval(*ends), parity_note(cell, one.base, also))


def _median(cell: Record) -> Value:
    if cell.status != "ok" or math.isnan(epoch_seconds(cell)):
        return status_value(cell)
    return estimate(digits(epoch_seconds(cell)), math.isnan(cell.epoch_s_median), parity_note(cell))


def _speedup_columns(sheet: Sheet) -> list[Column]:
    def speedup(cell: Record) -> Value:
        ratio = sheet.ratios[cell.Index]
        threads = f"{ratio.base.threads} threads on the CPU, {cell.threads} with the device"
        differ = threads if ratio.base.threads != cell.threads else ""
        return _times(cell, ratio, differ)

    three: tuple[tuple[str, Callable[[Record], Value]], ...] = (
        ("CPU", lambda cell: _median(sheet.ratios[cell.Index].base)),
        ("device", _median),
        ("speed-up", speedup),
    )
    devices = dict.fromkeys(cell.device for cell in _with_ratio(sheet))
    return [Column(heading, shown, device, device) for device in devices for heading, shown in three]


def _with_ratio(sheet: Sheet) -> list[Record]:
    return [cell for cell in sheet.cells if cell.Index in sheet.ratios]


SPEEDUP = TableSpec(
    f"Epoch time in seconds on the CPU and on the device, and the speed-up; {_SURE}",
    _speedup_columns,
    ("epoch_s_median",),
    names=(*NAMES, named("threads")),
    rows=_with_ratio,
    spread=lambda cell: cell.device,
    across=("device", "threads"),
    ratios=ratios.speedups,
    absent="No model ran on both the CPU and another device with the same settings.",
)


def _stack_columns(sheet: Sheet) -> tuple[Column, ...]:
    def times(cell: Record) -> Value:
        one = sheet.ratios[cell.Index]
        differ = "" if one.base.execution == cell.execution else f"{title(one.base.framework)} in {one.base.execution}"
        return _times(cell, one, differ, slower=True)

    return (
        Column("execution", lambda cell: cell.execution),
        Column("over", lambda cell: title(sheet.ratios[cell.Index].base.framework)),
        Column("plain", lambda cell: _median(sheet.ratios[cell.Index].base)),
        Column("library", _median),
        Column("times as long", times),
    )


def _mode_columns(sheet: Sheet) -> tuple[Column, ...]:
    def slowdown(cell: Record) -> Value:
        one = sheet.ratios[cell.Index]
        return _times(cell, one.fastest or one, slower=True)

    return (
        Column("best mode", lambda cell: cell.execution),
        Column("s", _median, "epoch"),
        Column("over default", lambda cell: _times(cell, sheet.ratios[cell.Index]), "speed-up"),
        Column("to the fastest", slowdown, "slowdown"),
    )


def _on_other_versions(sheet: Sheet) -> tuple[str, ...]:
    """Libraries that the table lacks, since the version below them was not measured."""
    lacking = {
        cell.framework: cell.backend
        for cell in sheet.cells
        if cell.status == "ok" and isinstance(cell.backend, str) and cell.Index not in sheet.ratios
    }
    shown = {cell.framework for cell in sheet.cells if cell.Index in sheet.ratios}
    return tuple(
        f"{title(name)} {'lacks cells: they' if name in shown else 'is left out: it'} ran on "
        f"{title(backend.replace(' ', '@'))}, which was not measured with the same settings."
        for name, backend in lacking.items()
    )


MODES = TableSpec(
    f"Each framework in its fastest execution mode. Epoch time in seconds; speed-up over its default mode; slowdown relative to "
    f"the fastest framework in its own best mode. {_SURE}",
    _mode_columns,
    ("epoch_s_median",),
    names=(*NAMES, BATCH_SIZE),
    rows=lambda sheet: sorted(_with_ratio(sheet), key=lambda cell: (cell.model, cell.dataset, epoch_seconds(cell))),
    remarks=lambda sheet: (
        "The same runs choose the mode and give its figures, so close rivals may look slightly too fast.",
    ),
    across=("execution", "batch_size"),
    ratios=ratios.modes,
    there=lambda cells: len({cell.execution for cell in cells}) > 1,
    absent="All cells of this study ran in the same execution mode; run it with several, such as --execution default,compiled.",
)


STACK = TableSpec(
    f"Epoch time in seconds with a library and with the plain framework below it, and their ratio; {_SURE}",
    _stack_columns,
    ("epoch_s_median",),
    names=(*NAMES, BATCH_SIZE),
    rows=_with_ratio,
    across=("execution", "batch_size"),
    ratios=ratios.stacks,
    remarks=_on_other_versions,
    absent="No library was measured together with its plain framework in the version that it ran on; run both, such as torch"
    " and keras-torch.",
)


def _device_rows(sheet: Sheet) -> list[Record]:
    places = {*sheet.ratios, *(one.base.Index for one in sheet.ratios.values())}
    cells = [cell for cell in sheet.cells if cell.Index in places]
    return sorted(cells, key=lambda cell: (cell.framework, cell.model, cell.batch_size, len(replicas_of(cell))))


def _device_columns(sheet: Sheet) -> tuple[Column, ...]:
    def known(cell: Record) -> bool:
        return cell.status == "ok" and not math.isnan(cell.images_per_s)

    def speed(cell: Record) -> Value:
        return Value(digits(cell.images_per_s), parity_note(cell)) if known(cell) else status_value(cell)

    def weak(cell: Record) -> str | Value:
        one = sheet.ratios.get(cell.Index)
        return NOTHING if one is None or math.isnan(one.ratio) or not known(cell) else _times(cell, one)

    def share(name: str, cell: Record) -> str:
        ratio = getattr(sheet.ratios.get(cell.Index), name, math.nan)
        return NOTHING if math.isnan(ratio) or not known(cell) else f"{100 * ratio / len(replicas_of(cell)):.0f}"

    return (
        Column("{unit}s/s", speed),
        Column("speed-up", weak, "weak"),
        Column("% per device", partial(share, "ratio"), "weak"),
        Column("% per device", partial(share, "strong"), "strong"),
    )


# Weak scaling: the batch of each device is the same. Strong: that of all devices together is the single one's.
DEVICES = TableSpec(
    "{Unit}s/s on several devices; speed-up over one device, and per device. Weak: the same number of {unit}s per device and "
    f"step; strong: the same number of {{unit}}s per step over all devices. {_SURE}",
    _device_columns,
    ("images_per_s",),
    names=(
        *NAMES,
        named("threads"),
        BATCH_SIZE,
        named("device", always=True),
        Column("nodes", lambda cell: str(cell.nodes), there=lambda cells: any(cell.nodes > 1 for cell in cells)),
    ),
    rows=_device_rows,
    across=("device", "nodes", "batch_size"),
    ratios=ratios.devices,
    absent="No model ran on both one and several devices of the same kind; use devices=[1, 2] (--devices 1,2).",
)


def _step(cell: Record) -> tuple[str, str]:
    return cell.precision, cell.execution


def _step_columns(sheet: Sheet) -> list[Column]:
    def times(cell: Record) -> str | Value:
        if cell.status != "ok" or math.isnan(epoch_seconds(cell)):
            return status_value(cell)
        ratio = sheet.ratios.get(cell.Index)
        if ratio is None:
            return Value(NOTHING, "no fp32 eager baseline in this study")
        if math.isnan(ratio.ratio):
            return Value(NOTHING, f"its baseline, fp32 eager, is {ratio.base.status}")
        if ratio.base.Index == cell.Index:
            return Value("1", parity_note(cell))
        return _times(cell, ratio)

    there = set(map(_step, sheet.cells))
    steps = [(precision, execution) for precision in PRECISIONS for execution in EXECUTIONS]
    return [Column(step[1], times, step[0], step) for step in steps if step in there]


PRECISION = TableSpec(
    f"{{Unit}}s/s relative to fp32 eager (= 1); {_SURE}",
    _step_columns,
    ("images_per_s",),
    names=(*NAMES, BATCH_SIZE),
    spread=_step,
    across=("precision", "execution", "batch_size"),
    ratios=ratios.ladder,
    there=lambda cells: len(set(map(_step, cells))) > 1,
    absent="All cells of this study have the same precision and execution; run it with several.",
)
