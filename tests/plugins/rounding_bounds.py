"""Bounds on the difference of figures of two frameworks by rounding in float32, for tests of real ones.

They come from the reference, as parity's yardsticks do.
"""

from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from framework_compare.graph import Graph, weight_views
from framework_compare.parity.network.ladder import TOLERANCE
from framework_compare.parity.network.oracle import Oracle
from framework_compare.parity.network.reference import moved
from framework_compare.parity.network.surgery import without_dropout
from framework_compare.parity.pipeline.scenes import shared_batches
from framework_compare.parity.training.curves import DRAWS, of_arrays, oracle_curve, yardstick
from framework_compare.plan import planning
from framework_compare.protocol import TrainConfig
from framework_compare.study.data_files import weight_pieces

Array = np.ndarray
Bounds = Tuple[Array, Array]  # losses in float64, and the most that those of two frameworks may differ by


def of_steps(graph: Graph, batches: Sequence[Tuple[Any, Array]], config: TrainConfig) -> Bounds:
    """The loss before each step from the initial weights, without dropout."""
    graph = without_dropout(graph)
    flat = np.concatenate(list(weight_pieces(graph, config.seed)))

    def curve(dtype: str, draw: int) -> Dict[str, Any]:
        moving = [(moved(inputs, draw), labels) for inputs, labels in batches]
        return oracle_curve(graph, weight_views(graph, flat), moving, config, dtype, plain_sums=draw > 0)

    exact, labels = curve("float64", 0), [found for _, found in batches]
    allowed = yardstick(exact, [curve("float32", draw) for draw in range(DRAWS)], labels, graph.task)
    return np.array(exact["losses"]), np.array(allowed)


def of_epochs(model: str, dataset: Any, settings: Mapping[str, Any], steps: int, **data: Any) -> Bounds:
    """The mean loss of each epoch of so many steps, from the first batches of the shared pipeline."""
    plan = planning.plan("torch", model, "cpu", dataset, settings, **data)
    (cell,), (found,) = plan.cells, plan.datasets.values()
    epochs = cell.config.epochs
    batches: List[Any] = list(shared_batches(found.files, cell.config, epochs * steps))
    each = of_steps(planning.build_graph(model, cell.config), batches, cell.config)
    exact, allowed = (np.reshape(one, (epochs, steps)).mean(axis=1) for one in each)
    return exact, allowed


def of_rows(folder: Path, model: str, settings: Mapping[str, Any], steps: int) -> Bounds:
    """The loss before each step of a workload on its generated rows."""
    plan = planning.plan("torch", model, "cpu", None, settings)
    (cell,), (found,) = plan.cells, plan.datasets.values()
    batches = of_arrays(folder, found, steps, cell.config).batches
    return of_steps(planning.build_graph(model, cell.config, found.task), batches, cell.config)


def of_digits(exact: Array, rounded: Array, dtype: Any = np.float64) -> float:
    """The largest difference of one figure's values in two orders of sums; exact, rounded: those in float64 and float32."""
    places = float(np.abs(exact - rounded).max() / np.finfo(np.float32).eps)
    return TOLERANCE * float(np.finfo(dtype).eps) * max(places, float(np.abs(exact).max()))


def of_logits(graph: Graph, weights: Mapping[str, Array], images: Array) -> float:
    """The largest difference of two frameworks' logits in evaluation, over the largest logit."""
    exact = Oracle(graph, weights).forward(images)
    draws = range(DRAWS - 1)
    found = [Oracle(graph, weights, np.float32, plain_sums=n > 0).forward(moved(images, n)) for n in draws]
    return TOLERANCE * max(float(np.abs(one - exact).max() / np.abs(exact).max()) for one in found)
