"""The level "import": the user's own module in float64, in its own framework, against the reference on the graph."""

from typing import Callable, Dict, Mapping, Optional, Tuple

import numpy as np

from framework_compare.graph import Graph
from framework_compare.graph.imported_model import ImportLevel
from framework_compare.parity.network.deviations import relative
from framework_compare.parity.network.oracle import Oracle
from framework_compare.parity.network.surgery import without_dropout

Arrays = Mapping[str, np.ndarray]
TOLERANCE = 1e-10  # both are float64; what differs is the order of sums
SMALL = 1e-3  # of the largest gradient: one that is zero by construction (a bias in front of BatchNorm) is noise
AMPLIFIED = 10.0  # times what a unit in the last place of the images does to the reference itself
MOST = 1e-8  # that is allowed for that: a tenth of what one rounding to float32 changes


def judge(graph: Graph, exact: Arrays, judge_name: str) -> ImportLevel:
    """Logits in evaluation and in training, every gradient, every running statistic; the worst of them.

    exact: what the module computes, as adapters' tracing.py writes it. Where one differs by more than TOLERANCE it is
    allowed as much as rounding is amplified there, up to MOST: many BatchNorms over few values do that.
    """
    bare = without_dropout(graph)
    start = {parameter.name: exact[f"start:{parameter.name}"] for parameter in bare.parameters()}
    inputs, target = tuple(exact[f"input:{name}"] for name in bare.inputs), exact["target"]
    found = _answers(bare, start, inputs, target)
    errors = _errors(found, lambda name: exact.get(name))
    where = max(errors, key=lambda name: errors[name])
    passed, rounding = errors[where] <= TOLERANCE, 0.0
    if not passed:
        moved = (np.nextafter(one, np.inf) if one.dtype.kind == "f" else one for one in inputs)
        nearby = _answers(bare, start, tuple(moved), target)
        noise = _errors(nearby, lambda name: found[name])
        rounding = noise[where]
        passed = all(error <= max(TOLERANCE, min(AMPLIFIED * noise[name], MOST)) for name, error in errors.items())
    return ImportLevel(bool(passed), where, float(errors[where]), judge_name, float(rounding))


def _answers(graph: Graph, start: Arrays, inputs: Tuple[np.ndarray, ...], target: np.ndarray) -> Dict[str, np.ndarray]:
    """The reference's, by the names that `exact` has."""
    oracle = Oracle(graph, start)
    _, training, gradients, statistics = oracle.gradients(inputs, target)
    return {
        "evaluation": oracle.forward(inputs),
        "training": training,
        **{f"after:{name}": value for name, value in statistics.items()},
        **{f"gradient:{name}": value for name, value in gradients.items()},
    }


def _errors(found: Arrays, exact: Callable[[str], Optional[np.ndarray]]) -> Dict[str, float]:
    """Relative errors; of small gradients relative to the largest. A gradient that is not there is zero."""
    pairs: Dict[str, Tuple[np.ndarray, Optional[np.ndarray]]] = {
        name: (value, exact(name)) for name, value in found.items()
    }
    theirs = {name: np.zeros_like(ours) if other is None else other for name, (ours, other) in pairs.items()}
    largest = max(float(np.linalg.norm(value)) for name, value in theirs.items() if name.startswith("gradient:"))
    errors = {}
    for name, value in found.items():
        if name.startswith("gradient:"):
            size = max(float(np.linalg.norm(theirs[name])), SMALL * largest)
            errors[name] = float(np.linalg.norm(value - theirs[name])) / size
        else:
            errors[name] = relative(value, theirs[name])
    return errors
