"""The share of the machine's peak that a cell reaches: in arithmetic, and in memory traffic.

The roofline model of Williams, Waterman and Patterson (Communications of the ACM 52(4), 2009), layer by layer: a layer
takes at least its arithmetic over the peak, and at least its bytes over the bandwidth.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from framework_compare import registry
from framework_compare.environments.peaks import Peak
from framework_compare.errors import UsageError
from framework_compare.graph import Graph, Task
from framework_compare.plan.planning import build_graph
from framework_compare.plan.searches import is_search
from framework_compare.protocol import Document, TrainConfig
from framework_compare.results.columns import Record, batch_sizes

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = tuple(
    """
flop_per_image bytes_per_image flop_per_s peak_flop_per_s bytes_per_s peak_bytes_per_s peak_disturbed_share
roofline_share
""".split()
)
FLOAT_BYTES = 4
NARROW_BYTES = 2  # of what layers read and write in these precisions; updates stay in float32
NARROW = ("bf16", "fp16")
# Of each parameter an update reads weight and gradient and writes the weight; it reads and writes these states.
UPDATE, STATES = 3, {"sgd": 1, "adam": 2, "rmsprop": 1, "nadam": 2, "adamw": 2}
# Ops that move nothing: what follows reads what stood before them.
_VIEWS = ("Flatten",)
PeakOf = Callable[[Record], Peak | None]


class Work(NamedTuple):
    """Floating-point operations and bytes of one pass through one layer, per sample."""

    flop: float
    bytes: float


def roofline_frame(frame: pd.DataFrame, settings: Document, peak_of: PeakOf) -> pd.DataFrame:
    """The cell frame with COLUMNS; NaN for a cell that did not work, or where no peak is known.

    roofline_share: the least time that the machine allows, over the time of the cell, its waiting for data included.
    """
    datasets = settings.get("datasets") or {}
    rows = [_row(cell, datasets.get(cell.dataset) or {}, peak_of) for cell in frame.itertuples()]
    return frame.assign(**{name: [row.get(name, math.nan) for row in rows] for name in COLUMNS})


def _row(cell: Record, dataset: Document, peak_of: PeakOf) -> dict[str, float]:
    if cell.status != "ok" or not cell.images_per_s > 0 or is_search(cell.model):  # which has many graphs
        return {}
    if cell.mode == "generation":  # its passes read the weights once a token
        return {}
    try:
        task = Task.from_dict(dataset["task"]) if registry.of_arrays(cell.model) else None
        graph = _graph(cell.model, int(cell.num_classes), int(cell.image_size), task)
    except (UsageError, KeyError, TypeError):  # a plug-in's model that is not there now, a task that is not stored
        return {}
    number_bytes = NARROW_BYTES if cell.precision in NARROW else FLOAT_BYTES
    # The mean where batches grow.
    batch_size = float(cell.batch_size)
    if not math.isnan(cell.images):
        batch_size = float(cell.images / len(batch_sizes(cell)))
        if cell.batch_growth == 1:
            batch_size = float(min(cell.batch_size, cell.images))
    passes = work(graph, batch_size, cell.mode, number_bytes, states(cell.optimizer, cell.momentum))
    flop, moved = sum(one.flop for one in passes), sum(one.bytes for one in passes)
    speeds = {"flop_per_s": flop * cell.images_per_s, "bytes_per_s": moved * cell.images_per_s}
    reached = {"flop_per_image": flop, "bytes_per_image": moved, **speeds}
    peak = peak_of(cell)
    if peak is None:
        return reached
    least_s = sum(max(one.flop / peak.flop_per_s, one.bytes / peak.bytes_per_s) for one in passes)
    reached.update(peak_flop_per_s=peak.flop_per_s, peak_bytes_per_s=peak.bytes_per_s)
    if peak.others is not None:
        reached.update(peak_disturbed_share=peak.others)
    return {**reached, "roofline_share": least_s * cell.images_per_s}


def states(optimizer: str, momentum: float) -> int:
    """Numbers that an optimizer keeps for each parameter."""
    return STATES[optimizer] if optimizer != "sgd" or momentum else 0


def work(
    graph: Graph, batch_size: float, mode: str, number_bytes: int = FLOAT_BYTES, optimizer_states: int = 0
) -> tuple[Work, ...]:
    """Return the work of a step, pass by pass and layer by layer, per sample of its batch, as if no two layers were fused.

    A layer reads its inputs and parameters and writes its output; the way back reads the gradient of the output, the
    inputs and the parameters, and writes their gradients. Parameters count once per batch. number_bytes: of a number
    that a layer reads or writes; updates are of float32. optimizer_states: as `states` gives them.
    """
    sizes = {name: math.prod(shape) for name, shape in graph.shapes().items()}
    forward, backward = graph.macs_by_node(), graph.backward_macs_by_node()
    passes = []
    for node in graph.nodes:
        parameters = sum(p.size for p in graph.parameters_of(node)) / batch_size
        inputs, output = sum(sizes[name] for name in node.inputs), sizes[node.name]
        if node.op in _VIEWS:
            continue
        passes.append(Work(2 * forward[node.name], number_bytes * (inputs + output + parameters)))
        if mode == "train" and node.name in backward:
            passes.append(Work(2 * backward[node.name], number_bytes * (output + 2 * inputs + 2 * parameters)))
    if mode == "train":
        numbers = UPDATE + 2 * optimizer_states
        passes.append(Work(0, FLOAT_BYTES * numbers * graph.parameter_count() / batch_size))
    return tuple(passes)


@functools.lru_cache(maxsize=64)
def _graph(model: str, num_classes: int, image_size: int, task: Task | None) -> Graph:
    return build_graph(model, TrainConfig(num_classes=num_classes, image_size=image_size), task)
