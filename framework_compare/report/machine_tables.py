"""Tables of the roofline and of profiles: cells beside the peaks of the machine, those peaks, and shares of time."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from framework_compare.plan.searches import is_search
from framework_compare.report.names import title
from framework_compare.report.table_notes import first_value
from framework_compare.report.table_spec import Column, Sheet, TableSpec, named, tabulate
from framework_compare.report.tables import NOTHING, Table, Value, number
from framework_compare.results import profiles, roofline
from framework_compare.results.columns import Record, grouped
from framework_compare.results.metrics import percent

BUSY = 0.1  # of a core
LEAST = 0.01  # a row is shown where it takes this share with any framework
REST = f"below {percent(LEAST)} everywhere"
TITLES = {
    "operator": ("operator", "Host time by operator"),
    "cuda-runtime": ("CUDA function", "Host time by function of the CUDA API, including waits for the GPU"),
    "kernel": ("kernel class", "GPU time by class of kernel"),
}
Shares = dict[str, float]
Key = tuple[str, str, str]  # model, data set, framework


def _scaled(name: str, scale: float) -> Callable[[Record], str]:
    return lambda cell: number(getattr(cell, name), scale)


def _percent(part: str, whole: str) -> Callable[[Record], str]:
    def shown(cell: Record) -> str:
        of = getattr(cell, whole)
        return number(getattr(cell, part) / of if of > 0 else None, 100)

    return shown


def _roofline_remarks(sheet: Sheet) -> Iterable[str]:
    cells = sheet.cells
    yield (
        "Reached and moved: the demand of each layer of the model, divided by the time of the epochs; a framework that fuses "
        "layers moves less. Roofline: the minimum time that the peaks allow, layer by layer, divided by the time taken."
    )
    if any(cell.flop_per_s > 0 and math.isnan(cell.peak_flop_per_s) for cell in cells):
        yield "Peak unknown: run `framework-compare peaks STUDY` on the machine that ran the study."
    busy = max((cell.peak_disturbed_share for cell in cells if cell.peak_disturbed_share > BUSY), default=0.0)
    if busy:
        yield (
            f"Peaks may be too low: other programs took {percent(busy)} of a core during their measurement. Repeat it with "
            "`framework-compare peaks STUDY`."
        )
    if any(cell.roofline_share > 1 for cell in cells):
        yield (
            "Above 100 %: the measured peak is too low, or the framework fuses layers or has faster kernels than the benchmark."
        )


ROOFLINE = TableSpec(
    "Arithmetic and memory traffic of the measured epochs, relative to the peaks of this machine.",
    (
        Column("reached", _scaled("flop_per_s", 1e-9), "GFLOP/s"),
        Column("peak", _scaled("peak_flop_per_s", 1e-9), "GFLOP/s"),
        Column("%", _percent("flop_per_s", "peak_flop_per_s"), "GFLOP/s"),
        Column("moved", _scaled("bytes_per_s", 1e-9), "GB/s"),
        Column("peak", _scaled("peak_bytes_per_s", 1e-9), "GB/s"),
        Column("%", _percent("bytes_per_s", "peak_bytes_per_s"), "GB/s"),
        Column("roofline %", _scaled("roofline_share", 100)),
        Column("wait %", "data_wait_share"),
    ),
    (*roofline.COLUMNS, "images_per_s", "data_wait_share"),
    remarks=_roofline_remarks,
    frame="roofline",
    there=lambda cells: any(cell.status == "ok" and not is_search(cell.model) for cell in cells),
    slow=True,
)


def peak_table(measured: Sequence[Any]) -> Table:
    """One row per `peaks.MeasuredPeak`: GFLOP/s, GB/s, and what others took of a core meanwhile."""

    def of_peak(name: str, scale: float) -> Callable[[Any], Value]:
        return lambda one: Value(number(getattr(one.peak, name, None), scale), one.reason * (name == "flop_per_s"))

    return tabulate(
        "Peaks of this machine: a matrix product and a memory copy, best of several repetitions.",
        [named(name, always=True) for name in ("device", "precision", "threads")],
        (
            Column("GFLOP/s", of_peak("flop_per_s", 1e-9), "peak"),
            Column("GB/s", of_peak("bytes_per_s", 1e-9), "peak"),
            Column("% of a core", of_peak("others", 100), "others"),
        ),
        measured,
    )


def _key(row: Record) -> Key:
    return row.model, row.dataset, row.framework


def _shares(rows: Sequence[Record]) -> dict[Key, Shares]:
    """The share of each name by model, data set and framework; the columns of a model are neighbours."""
    shares: dict[Key, Shares] = {}
    for of_model in grouped(rows, lambda row: (row.model, row.dataset)).values():
        for key, own in grouped(of_model, _key).items():
            shares[key] = {}
            for row in own:
                name = row.kernel_class if row.kind == "kernel" else row.name
                if isinstance(name, str):
                    shares[key][name] = shares[key].get(name, 0.0) + row.share
    return shares


def _names(sheet: Sheet) -> list[str]:
    """Names by the sum of their shares, the largest first, and one for all that are small everywhere."""
    shares = _shares(sheet.cells).values()
    sums = {name: sum(own.get(name, 0.0) for own in shares) for own in shares for name in own}
    shown = [name for name in sums if any(own.get(name, 0) >= LEAST for own in shares)]
    return [*sorted(shown, key=lambda name: -sums[name]), REST] if shown else []


def _columns(sheet: Sheet) -> list[Column]:
    shares, names = _shares(sheet.cells), _names(sheet)
    cells = {_key(row): row for row in sheet.cells}
    named = 2 if len({dataset for _, dataset, _ in shares}) > 1 else 1  # by the model, or by its data set, too

    def shown(key: Key) -> Callable[[str], Value]:
        own = shares[key]
        rest = 1 - sum(own.get(name, 0) for name in names) if own else None

        def share(name: str) -> Value:
            value = rest if name == REST else own.get(name)
            text = NOTHING if value is None else f"{100 * max(value, 0.0):.1f}"
            return first_value(cells[key], text) if name == names[0] else Value(text)

        return share

    return [Column(title(key[2]), shown(key), " / ".join((title(key[0]), *key[1:named]))) for key in shares]


PROFILE = TableSpec(
    lambda sheet: (
        f"{TITLES[sheet.cells[0].kind][1]}, in % of the total, in a few steps under each framework's own profiler after "
        "the measured epochs."
    ),
    _columns,
    profiles.FIGURES,
    names=lambda sheet: (Column(TITLES[sheet.cells[0].kind][0], str),),
    rows=_names,
    frame="profiled",
    apart=("kind",),
    absent="No cell of this study was profiled; run it with profile=True (--profile).",
    noted=False,
    sparse=True,  # operators are named differently by each framework
)
