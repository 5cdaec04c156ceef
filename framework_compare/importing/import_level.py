"""The level "import": the user's own module in float64, in its own framework, against the reference on the graph."""

from __future__ import annotations

from typing import Dict, Mapping

import numpy as np

from framework_compare.graph import Graph, trainable_names
from framework_compare.graph.imported_model import ImportLevel
from framework_compare.parity.network.deviations import relative
from framework_compare.parity.network.oracle import Oracle
from framework_compare.parity.network.surgery import without_dropout

Arrays = Mapping[str, np.ndarray]
TOLERANCE = 1e-10  # both are float64; what differs is the order of sums
SMALL = 1e-5  # of the largest gradient: one that is zero by construction (a bias in front of BatchNorm) is noise


def judge(graph: Graph, exact: Arrays, judge_name: str) -> ImportLevel:
    """Logits in evaluation and in training, every gradient, every running statistic; the worst of them.

    exact: what the module computes, as adapters' tracing.py writes it.
    """
    bare = without_dropout(graph)
    start = {name: exact[f"start:{name}"] for name in (p.name for p in bare.parameters())}
    oracle = Oracle(bare, start)
    _, training, gradients, statistics = oracle.gradients(exact["images"], exact["labels"])
    errors = {
        "logits in evaluation": relative(oracle.forward(exact["images"]), exact["evaluation"]),
        "logits in training": relative(training, exact["training"]),
        **{name: relative(value, exact[f"after:{name}"]) for name, value in statistics.items()},
        **_gradient_errors({name: gradients[name] for name in trainable_names(bare)}, exact),
    }
    where = max(errors, key=lambda name: errors[name])
    return ImportLevel(bool(errors[where] <= TOLERANCE), where, float(errors[where]), judge_name)


def _gradient_errors(found: Arrays, exact: Arrays) -> Dict[str, float]:
    theirs = {name: exact.get(f"gradient:{name}", np.zeros_like(array)) for name, array in found.items()}
    sizes = {name: float(np.linalg.norm(array)) for name, array in theirs.items()}
    least = SMALL * max(sizes.values())
    return {
        f"gradient of {name}": float(np.linalg.norm(array - theirs[name])) / max(sizes[name], least)
        for name, array in found.items()
    }
