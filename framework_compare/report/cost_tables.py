"""Tables of cost: speed and memory by batch size, energy per image."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Sequence, Tuple

from framework_compare.registry import device_kind
from framework_compare.report.figures.look import title
from framework_compare.report.parts import Notes, Record, any_known, how_read, names_of, row_names, texts_of, unit_of
from framework_compare.report.tables import Figure, Group, Row, Table
from framework_compare.results import memory
from framework_compare.results.columns import batch_sizes
from framework_compare.results.metrics import METRICS

SCALING = (
    "pictures",
    "images_per_s",
    "epoch_s_median",
    "gpu_process_memory_peak_bytes",
    "gpu_memory_peak_bytes",
    "pss_peak_bytes",
    "peak_rss_bytes",
)
ENERGY = (
    "gpu_j_per_image",
    "gpu_energy_source",
    "gpu_power_w_mean",
    "gpu_power_source",
    "gpu_percent_mean",
    "gpu_utilization_period_s",
    "gpu_throttled_share",
    "gpu_throttle_reasons",
    "host_j_per_image",
    "host_energy_reason",
    "images_per_s",
)
_ENERGY_GROUPS: Tuple[Tuple[str, Tuple[Tuple[str, str], ...]], ...] = (
    ("", (("{unit}s/s", "images_per_s"),)),
    (
        "GPU",
        (
            ("J/{unit}", "gpu_j_per_image"),
            ("mean W", "gpu_power_w_mean"),
            ("mean %", "gpu_percent_mean"),
            ("throttled %", "gpu_throttled_share"),
            ("clocks held by", "gpu_throttle_reasons"),
        ),
    ),
    ("host", (("J/{unit}", "host_j_per_image"),)),
)


NO_ENERGY = "Energy not measured: this machine exposes no counter, or the measured epochs were too short."


def scaling_table(cells: Sequence[Record], caption: str) -> Table:
    """One row per framework, model and batch size: images/s and peak memory; below, the largest batch that worked."""
    headings = row_names(cells)
    order = {key: place for place, key in enumerate(dict.fromkeys(map(_sweep, cells)))}
    cells = sorted(cells, key=lambda cell: (order[_sweep(cell)], cell.batch_size))
    notes, unit = Notes(), unit_of(cells)
    on_gpu = device_kind(cells[0].device) != "cpu"
    columns = ("GPU memory",) if on_gpu else ("PSS", "RSS")
    return Table(
        f"{unit.capitalize()}s/s and peak {' and '.join(columns)} at each batch size. {caption}",
        (*headings, "batch_size"),
        (Group("", (f"{unit}s/s", *(f"peak {one}, GiB" for one in columns))),),
        tuple(Row((*names_of(cell, headings), _size(cell)), _scaling(cell, notes)) for cell in cells),
        tuple(notes.texts),
        (*_largest(cells), *(() if on_gpu else (memory.APART,))),
    )


def _sweep(cell: Record) -> Tuple[str, ...]:
    return cell.framework, cell.model, cell.dataset


def _step_size(cell: Record) -> int:
    """Pictures of the largest step: a batch is never larger than the data set."""
    return cell.batch_size if math.isnan(cell.pictures) else max(batch_sizes(cell))


def _size(cell: Record) -> str:
    """The requested batch size, with that of the steps where it differs."""
    size = _step_size(cell)
    if size > cell.batch_size:
        return f"{cell.batch_size} to {size}"
    return str(size) if size == cell.batch_size else f"{cell.batch_size}, steps of {size}"


def _scaling(cell: Record, notes: Notes) -> Tuple[Figure, ...]:
    names: Tuple[str, ...] = (memory.PSS, memory.RSS)
    if device_kind(cell.device) != "cpu":
        names = (memory.WHOLE if math.isnan(getattr(cell, memory.OWN)) else memory.OWN,)
    peaks = [Figure(METRICS[name].show(getattr(cell, name))) for name in names]
    if cell.status != "ok":
        return (notes.figure(cell), *peaks)
    return (Figure(METRICS["images_per_s"].show(cell.images_per_s), notes.parity(cell)), *peaks)


def _largest(cells: Sequence[Record]) -> List[str]:
    """For each sweep with a failed cell, the largest batch that worked; sizes rise within a sweep."""
    sweeps: Dict[Any, List[Record]] = {}
    for cell in cells:
        sweeps.setdefault(_sweep(cell), []).append(cell)
    lines = []
    for (framework, model, _), sweep in sweeps.items():
        worked = [_step_size(cell) for cell in sweep if cell.status == "ok"]
        failed = [cell for cell in sweep if cell.status not in ("ok", "planned", "running", "interrupted")]
        if failed:
            first = next((cell for cell in failed if not worked or cell.batch_size > max(worked)), failed[0])
            most = f"the largest batch that worked is {max(worked)}" if worked else "no batch size worked"
            tried = _size(first) + "," * (_step_size(first) != first.batch_size)
            lines.append(f"{title(framework)} {title(model)}: {most}; {tried} ended {first.status}.")
    return lines


def energy_table(cells: Sequence[Record], caption: str) -> Table:
    """One row per cell: speed, and the known readings of the GPU's and the host's energy."""
    headings = row_names(cells, "device", "batch_size", "precision", "execution")
    notes, unit = Notes(), unit_of(cells)
    with_figures = [
        (title, tuple(column for column in columns if not title or any_known(cells, ((column[0], (column[1],)),))))
        for title, columns in _ENERGY_GROUPS
    ]
    groups = [group for group in with_figures if group[1]]
    return Table(
        f"Energy per {unit} during the measured epochs. {caption}",
        headings,
        tuple(Group(title, tuple(heading.format(unit=unit) for heading, _ in columns)) for title, columns in groups),
        tuple(Row(names_of(cell, headings), _energy(cell, groups, notes)) for cell in cells),
        tuple(notes.texts),
        (*_sources(cells), *how_read(cells)),
    )


def _energy(cell: Record, groups: Sequence[Any], notes: Notes) -> Tuple[Figure, ...]:
    names = [name for _, columns in groups for _, name in columns]
    shown = [Figure(METRICS[name].show(getattr(cell, name))) for name in names]
    return (notes.first(cell, shown[0].text), *shown[1:])


def _sources(cells: Sequence[Record]) -> List[str]:
    """Where the joules come from, or why there are none."""
    on_gpu = [cell for cell in cells if cell.gpu_j_per_image > 0]
    on_host = [cell for cell in cells if cell.host_j_per_image > 0]
    lines = []
    if on_gpu:
        sources = texts_of(on_gpu, "gpu_energy_source")
        lines.append(f"GPU energy of the whole device, other users included, by {' or '.join(sources)}.")
    if on_host:
        lines.append("Host energy of all processor packages, other programs included, by their counters.")
    if not on_gpu and not on_host:
        lines.append(NO_ENERGY)
    return lines + reasons(cells)


def reasons(cells: Sequence[Record]) -> List[str]:
    """Why the energy of the GPU, or that of the host, is not known."""
    lines = [f"GPU energy not measured: {reason}." for reason in texts_of(cells, "gpu_reason")]
    return lines + [f"Host energy not measured: {reason}." for reason in texts_of(cells, "host_energy_reason")]


def has_energy(cells: Sequence[Record]) -> bool:
    """Whether any cell has a reading of the GPU or of the energy of the host."""
    return any_known(
        cells, [(heading, (name,)) for title, columns in _ENERGY_GROUPS if title for heading, name in columns]
    )
