"""Tables of what training takes: CPU, memory, GPU, energy, money; memory and speed by batch size, and where that ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from framework_compare import registry
from framework_compare.plan.settings import SETTINGS, column
from framework_compare.registry import device_kind
from framework_compare.report import table_notes
from framework_compare.report.names import title
from framework_compare.report.study_table import StudyTable
from framework_compare.report.table_spec import NAMES, Column, Sheet, TableSpec, any_known, named, tabulate, where_known
from framework_compare.report.tables import Table, Value, clean, count, estimate, number, with_interval
from framework_compare.results.bills import Prices
from framework_compare.results.columns import SHARED, Record, batch_sizes, grouped
from framework_compare.results.metrics import METRICS
from framework_compare.results.ratios import epoch_seconds

if TYPE_CHECKING:
    import pandas as pd

PSS, RSS = "pss_peak_bytes", "peak_rss_bytes"
MEMORY = {PSS: "memory (PSS)", RSS: "memory (RSS)"}
OWN, WHOLE = "gpu_process_memory_peak_bytes", "gpu_memory_peak_bytes"  # of the GPU
APART = (
    "PSS is the main figure: it divides shared memory among processes, and is read at the end of each phase. RSS counts shared "
    "memory once per process, so frameworks with several processes look larger."
)
NO_ENERGY = "Energy not measured: this machine exposes no counter, or the measured epochs were too short."


def peak_memory(cells: pd.DataFrame) -> tuple[pd.Series, str]:
    """Peak bytes of each cell, and their name: PSS of its processes on a CPU, what they hold of the device on a GPU.

    RSS stands in for all cells where one that worked has no PSS.
    """
    on_gpu = cells["device"].map(device_kind) != "cpu"
    known = cells.loc[~on_gpu & (cells["status"] == "ok"), PSS].notna()
    host = PSS if known.all() else RSS
    name = "GPU memory" if on_gpu.all() else "memory" if on_gpu.any() else MEMORY[host]
    return cells[OWN].fillna(cells[WHOLE]).where(on_gpu, cells[host]), name


def _on_gpu(sheet: Sheet) -> bool:
    return device_kind(sheet.cells[0].device) != "cpu"


def _resource_remarks(sheet: Sheet) -> Iterable[str]:
    cells = sheet.cells
    if _on_gpu(sheet):
        yield table_notes.HANDING_OVER.format(device=cells[0].device)
        yield from table_notes.gpu_reading_notes(cells)
    if any(cell.pss_peak_bytes > 0 for cell in cells):
        yield APART
    measured = [cell for cell in cells if epoch_seconds(cell) > 0]  # others end within a second, mostly of the parent's
    parent = [cell for cell in measured if cell.parent_cpu_percent > 0 and cell.parent_peak_rss_bytes > 0]
    if parent:
        percent = max(cell.parent_cpu_percent for cell in parent)
        peak = max(cell.parent_peak_rss_bytes for cell in parent)
        yield f"Measurement overhead: at most {percent:.1f} % of a core and {peak / 2**20:.0f} MiB."


_RESOURCES = (
    Column("{unit}s/s", "images_per_s"),
    Column("wait %", "data_wait_share"),
    Column("mean", "cpu_percent_mean", "CPU %"),
    Column("p95", "cpu_percent_p95", "CPU %"),
    Column("PSS", PSS, "peak GiB"),
    Column("RSS", RSS, "peak GiB"),
    Column("min-max", ("threads_min", "threads_max"), "threads"),
    where_known("mean %", "gpu_percent_mean", "GPU"),
    where_known("peak GiB", WHOLE, "GPU"),
    where_known("own GiB", OWN, "GPU"),
    where_known("W", "gpu_power_w_mean", "GPU"),
    where_known("max °C", "gpu_temperature_c_max", "GPU"),
    where_known("SM MHz", "gpu_sm_clock_mhz_mean", "GPU"),
    where_known("throttled %", "gpu_throttled_share", "GPU"),
    where_known("copying %", "copy_share", "GPU"),
    where_known("computing %", "compute_share", "GPU"),
)
RESOURCES = TableSpec(
    "Resources during the measured epochs. CPU: 100 % is one core. Wait: share of the time spent waiting for data.",
    _RESOURCES,
    tuple(name for column in _RESOURCES for name in column.metrics),
    remarks=_resource_remarks,
)


def _peaks(sheet: Sheet) -> tuple[Column, ...]:
    if not _on_gpu(sheet):
        return Column("peak PSS, GiB", PSS), Column("peak RSS, GiB", RSS)

    def peak(cell: Record) -> str:
        name = WHOLE if math.isnan(getattr(cell, OWN)) else OWN
        return METRICS[name].show(getattr(cell, name))

    return (Column("peak GPU memory, GiB", peak),)


def _sweeps(sheet: Sheet) -> dict[tuple[str, ...], list[Record]]:
    """The cells by framework, model and data set; sizes rise within a sweep."""
    sweeps = grouped(sheet.cells, lambda cell: (cell.framework, cell.model, cell.dataset))
    return {key: sorted(sweep, key=lambda cell: cell.batch_size) for key, sweep in sweeps.items()}


def _step_size(cell: Record) -> int:
    """Samples of the largest step: a batch is never larger than the data set."""
    return cell.batch_size if math.isnan(cell.images) else max(batch_sizes(cell))


def _size(cell: Record) -> str:
    """The requested batch size, with that of the steps where it differs."""
    size = _step_size(cell)
    if size > cell.batch_size:
        return f"{cell.batch_size} to {size}"
    return str(size) if size == cell.batch_size else f"{cell.batch_size}, steps of {size}"


def _largest(sheet: Sheet) -> Iterable[str]:
    """Yield the largest batch that worked in each sweep with a failed cell."""
    for (framework, model, _), sweep in _sweeps(sheet).items():
        worked = [_step_size(cell) for cell in sweep if cell.status == "ok"]
        failed = [cell for cell in sweep if cell.status not in ("ok", "planned", "running", "interrupted")]
        if failed:
            first = next((cell for cell in failed if not worked or cell.batch_size > max(worked)), failed[0])
            most = f"the largest batch that worked is {max(worked)}" if worked else "no batch size worked"
            tried = _size(first) + "," * (_step_size(first) != first.batch_size)
            yield f"{title(framework)} {title(model)}: {most}; {tried} ended {first.status}."
    if not _on_gpu(sheet):
        yield APART


SCALING = TableSpec(
    lambda sheet: f"{{Unit}}s/s and peak {'GPU memory' if _on_gpu(sheet) else 'PSS and RSS'} at each batch size.",
    lambda sheet: (Column("{unit}s/s", "images_per_s"), *_peaks(sheet)),
    ("images", "images_per_s", "epoch_s_median", OWN, WHOLE, PSS, RSS),
    names=(*NAMES, Column("batch_size", _size)),
    rows=lambda sheet: [cell for sweep in _sweeps(sheet).values() for cell in sweep],
    remarks=_largest,
    across=("batch_size",),
    there=lambda cells: len({cell.batch_size for cell in cells}) > 1,
    absent="All cells of this study have the same batch size; run it with several.",
)


def sweep_tables(
    frame: pd.DataFrame, probes: pd.DataFrame, varying: Sequence[str], limit_bytes: int | None
) -> StudyTable:
    """The tables of a sweep from its `frame` and `probes`; `varying` are the columns in which its cells differ."""
    limit = []
    if limit_bytes is not None:
        limit.append(
            f"The limit of {limit_bytes / 2**30:.3f} GiB counts shared pages once (PSS); RSS counts them once per process, so it "
            "may exceed the limit."
        )
    worked = (cell for cell in probes.itertuples() if cell.status == "ok")
    verdicts = table_notes.cells_by(worked, lambda cell: table_notes.unproved(cell.parity))
    parity = (f"Parity {verdict}: {', '.join(cells)}." for verdict, cells in verdicts.items())
    remarks = (*limit, *parity, *registry.labels(probes["framework"]))
    parts = largest_table(frame, varying, remarks), memory_table(probes, varying, remarks)
    return StudyTable("sweep", parts, (), lambda: probes)


def largest_table(frame: pd.DataFrame, names: Sequence[str], remarks: Sequence[str] = ()) -> Table:
    """One row per swept cell: the largest batch size that works, the next one, and how that one ended."""

    def ending(row: Record) -> Value | str:
        status: object = row.next_failed_status
        return Value(status, table_notes.shorten(clean(row.next_failed_reason))) if isinstance(status, str) else "-"

    return tabulate(
        "Largest batch size that works.",
        [named(name, always=True) for name in names],
        (
            Column("works up to", lambda row: count(row.largest_ok, "none")),
            Column("peak GiB", _gib("largest_ok_peak_rss_bytes")),
            Column("first that fails", lambda row: count(row.next_failed, "none tried")),
            Column("ends", ending),
            Column("peak GiB", _gib("next_failed_peak_rss_bytes")),
        ),
        frame.itertuples(),
        remarks=tuple(remarks),
    )


def memory_table(probes: pd.DataFrame, names: Sequence[str], remarks: Sequence[str] = ()) -> Table:
    """Peak RSS of the worker's process tree in GiB at each batch size tried."""

    def peak(cell: Record) -> str | Value:
        return _gib("peak_rss_bytes")(cell) if cell.status == "ok" else table_notes.status_value(cell)

    return tabulate(
        "Peak RSS in GiB.",
        [named(name, always=True) for name in names],
        [Column(str(size), peak, "batch size", size) for size in sorted(set(probes["batch_size"]))],
        probes.itertuples(),
        spread=lambda cell: cell.batch_size,
        remarks=tuple(remarks),
    )


def _gib(name: str) -> Callable[[Record], str]:
    return lambda row: METRICS["peak_rss_bytes"].show(getattr(row, name))


def _energy_remarks(sheet: Sheet) -> Iterable[str]:
    """The sources of the joules, or why there are none."""
    on_gpu = [cell for cell in sheet.cells if cell.gpu_j_per_image > 0]
    on_host = any(cell.host_j_per_image > 0 for cell in sheet.cells)
    if on_gpu:
        sources = " or ".join(table_notes.texts_of(on_gpu, "gpu_energy_source"))
        yield f"GPU energy: of the whole device, including other users; source: {sources}."
    if on_host:
        yield "Host energy: of all processor packages and their memory (if metered), including other programs; source: counter."
    if any(cell.gpu_idle_w >= 0 or cell.host_idle_w >= 0 for cell in sheet.cells):
        yield "Idle: the power before the first run; above idle: the energy minus that power over the same time."
    if on_gpu or on_host:
        summed = "GPU and host together" if on_gpu and on_host else "GPU only" if on_gpu else "host only"
        yield f"J/epoch: {summed}, with the 95 % confidence interval over runs. No verdict uses energy."
    if not on_gpu and not on_host:
        yield NO_ENERGY
    yield from unmeasured_energy(sheet.cells)
    yield from table_notes.gpu_reading_notes(sheet.cells)


def unmeasured_energy(cells: Sequence[Record]) -> list[str]:
    """The reasons why the energy of the GPU or of the host is not known."""
    lines = [f"GPU energy not measured: {reason}." for reason in table_notes.texts_of(cells, "gpu_reason")]
    return lines + [
        f"Host energy not measured: {reason}." for reason in table_notes.texts_of(cells, "host_energy_reason")
    ]


def _joules_per_epoch(cell: Record) -> Value:
    images = cell.images_per_s * epoch_seconds(cell)
    ends = (cell.j_per_image, cell.j_per_image_ci_low, cell.j_per_image_ci_high)
    about = math.isnan(cell.epoch_s_median) and not math.isnan(images)
    return estimate(with_interval(*(one * images for one in ends)), about)


_METERS = (
    Column("J/epoch", _joules_per_epoch, there=any_known("j_per_image")),
    where_known("J/{unit}", "gpu_j_per_image", "GPU"),
    where_known("above idle", "gpu_above_idle_j_per_image", "GPU"),
    where_known("idle W", "gpu_idle_w", "GPU"),
    where_known("mean W", "gpu_power_w_mean", "GPU"),
    where_known("mean %", "gpu_percent_mean", "GPU"),
    where_known("throttled %", "gpu_throttled_share", "GPU"),
    where_known("clocks limited by", "gpu_throttle_reasons", "GPU"),
    where_known("J/{unit}", "host_j_per_image", "host"),
    where_known("above idle", "host_above_idle_j_per_image", "host"),
    where_known("idle W", "host_idle_w", "host"),
)
ENERGY = TableSpec(
    "Energy per {unit} during the measured epochs.",
    (Column("{unit}s/s", "images_per_s"), *_METERS),
    tuple(
        """
    j_per_image j_per_image_ci_low j_per_image_ci_high gpu_j_per_image gpu_above_idle_j_per_image gpu_idle_w
    gpu_energy_source gpu_power_w_mean gpu_power_source gpu_percent_mean gpu_utilization_period_s gpu_throttled_share
    gpu_throttle_reasons host_j_per_image host_above_idle_j_per_image host_idle_w host_energy_reason images_per_s
    """.split()
    ),
    names=(*NAMES, *map(named, ("device", "batch_size", "precision", "execution"))),
    remarks=_energy_remarks,
    across=("device", "batch_size", "precision", "execution"),
    there=any_known(*(name for column in _METERS for name in column.metrics)),
    absent=NO_ENERGY,
    reasons=unmeasured_energy,
)


def bill_table(cells: Sequence[Record], prices: Prices, epochs: int) -> Table:
    """One row per cell of a `bill_frame`; the settings in which cells differ name the rows."""

    def price(cell: Record) -> str:
        return with_interval(cell.bill_time, cell.bill_time_low, cell.bill_time_high)

    columns, given = [Column("s", lambda cell: number(cell.bill_s), "time")], []
    if isinstance(prices.per_hour, dict):
        given += [f"{value:g} per hour on {title(name)}" for name, value in prices.per_hour.items()]
    elif prices.per_hour is not None:
        given.append(f"{prices.per_hour:g} per hour")
    if prices.per_hour is not None:
        columns.append(Column("price", price, "time"))
    columns.append(Column("Wh", lambda cell: number(cell.bill_wh), "energy"))
    if prices.per_kwh is not None:
        columns.append(Column("price", lambda cell: number(cell.bill_energy), "energy"))
        given.append(f"{prices.per_kwh:g} per kWh")
    if prices.co2_g_per_kwh is not None:
        columns.append(Column("g CO2", lambda cell: number(cell.bill_co2_g), "energy"))
        given.append(f"{prices.co2_g_per_kwh:g} g CO2 per kWh")
    remarks = ["Measured epochs only; start-up, validation and idle time are not included."]
    if any(cell.bill_wh > 0 for cell in cells):
        remarks.append(
            "Energy of the GPU, the processor packages and their memory, where measured; fans, power supply and "
            "cooling are not included."
        )
    elif any(cell.status == "ok" for cell in cells):
        remarks += unmeasured_energy(cells) or [NO_ENERGY]
    settings = table_notes.caption(cells, (), table_notes.unit_of(cells))
    return tabulate(
        f"Cost of {table_notes.plural(epochs, 'epoch')}, in the currency of your prices ({', '.join(given)}). {settings}",
        (*NAMES, *(named(column(name)) for name in SETTINGS if column(name) in SHARED)),
        columns,
        cells,
        noted=True,
        remarks=tuple(remarks),
        warnings=tuple(table_notes.warning_lines(cells)),
    )
