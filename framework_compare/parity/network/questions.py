"""Questions of the network levels: sizes, and an optimiser whose rate takes a network where it is smooth."""

import dataclasses
import math
from typing import Mapping, Sequence

import numpy as np

from framework_compare.graph import OPTIMIZERS, Graph, Optimizer, Schedule
from framework_compare.parity.network.oracle import Oracle
from framework_compare.parity.network.oracle.op import Inputs
from framework_compare.protocol import Fields

Array = np.ndarray
Batches = Sequence[tuple[Inputs, Array]]
# Calibrated ReLUs leave a network almost linear; these do not, and a long step takes it to where rounding grows fast.
CURVED = ("LSTM", "GRU", "Tanh", "Sigmoid", "Quanv2d", "SiLU", "HardSwish", "GELU", "Mul", "Attention")
CURVED_STRIDE = 0.1
DECAY = 0.1  # of adamw: a twentieth of its step and more
SCHEDULE, SCHEDULED = Schedule(2, 6, 0.1), 4  # updates that show both of its parts


@dataclasses.dataclass(frozen=True)
class Questions:
    """Sizes and settings of the network levels. `draws` runs of the oracle at a precision make its yardstick.

    The first run sums in blocks, the others one by one and from inputs moved by about a unit in the last place:
    between them lie the orders in which frameworks sum. Below float32 they also round at other places (`Rounding`).
    replicas: each is asked with a batch of `batch_size`, part by part of one batch of all.
    optimizer: by its name; momentum and weight decay are those of "sgd". Another's eps is asked as large as the
    gradients, so that it shows where eps is added, and noise of gradients near zero does not. clips, schedules: whether
    gradients are clipped, to half of the first one's norm, and rates rise and fall, over a few updates (SCHEDULE).
    """

    batch_size: int = 2
    steps: int = 3
    stride: float = 1.0  # of the first step: how many times the loss it would take off, if the loss were linear
    momentum: float = 0.9
    weight_decay: float = 0.01
    seed: int = 20
    draws: int = 3
    optimizer: str = "sgd"
    replicas: int = 1
    beta2: float = 0.999
    clips: bool = False
    schedules: bool = False
    accumulation: int = 1


def asked_optimizer(graph: Graph, weights: Mapping[str, Array], batches: Batches, questions: Questions) -> Optimizer:
    """Return the optimizer of the questions, with the clipping, schedule and accumulation that they ask about."""
    asked: Fields = {"accumulation": questions.accumulation}
    if questions.clips:
        asked["clip_norm"] = clip_norm_of(graph, weights, batches, questions)
    if questions.schedules:
        asked["schedule"] = SCHEDULE
    return dataclasses.replace(_of_a_rate(graph, weights, batches[0], questions), **asked)


def clip_norm_of(graph: Graph, weights: Mapping[str, Array], batches: Batches, questions: Questions) -> float:
    """Half the norm of the first gradient; of updates of several batches a norm that every other one does not reach.

    Were each clipped, a sum of batches in the place of their mean would be seen in none: gradients of batches with other
    targets cancel in part, those of one batch several times do not.
    """
    oracle, norms = Oracle(graph, weights, np.float32, replicas=questions.replicas), []
    for update in range(2 if questions.accumulation > 1 else 1):
        own = batches[update * questions.accumulation : (update + 1) * questions.accumulation]
        found = [oracle.gradients(*batch)[2] for batch in own]
        means = [sum(one[name] for one in found) / len(found) for name in found[0]]
        norms.append(math.sqrt(sum(float(np.linalg.norm(mean)) ** 2 for mean in means)))
    return float(f"{norms[0] / 2 if len(norms) == 1 else math.sqrt(norms[0] * norms[1]):.2e}")


def _of_a_rate(
    graph: Graph, weights: Mapping[str, Array], batch: tuple[Inputs, Array], questions: Questions
) -> Optimizer:
    """Return it with a rate of two digits: a larger one leaves the smooth part of the network, a smaller one moves the
    weights by less than float32 can tell. Only SGD's first step is as long as the gradient; others' go by its signs."""
    oracle = Oracle(graph, weights, np.float32, replicas=questions.replicas)
    loss, _, gradients, _ = oracle.gradients(*batch)
    off = questions.stride * loss * (CURVED_STRIDE if any(node.op in CURVED for node in graph.nodes) else 1)
    square = sum(float(np.linalg.norm(gradient)) ** 2 for gradient in gradients.values())
    if questions.optimizer == "sgd":
        options = {"momentum": questions.momentum, "weight_decay": questions.weight_decay}
        return Optimizer("sgd", float(f"{off / square:.1e}"), options)
    mean_square = square / sum(np.count_nonzero(gradient) for gradient in gradients.values())
    eps = mean_square if questions.optimizer == "rmsprop" else np.sqrt(mean_square)  # inside the root, or beside it
    asked = {"eps": float(f"{eps:.1e}"), "beta2": questions.beta2, "weight_decay": DECAY}
    options = {name: value for name, value in asked.items() if name in OPTIMIZERS[questions.optimizer]}
    trial = Oracle(graph, weights)
    before = {name: trial.weights[name].copy() for name in gradients}
    trial.apply(gradients, Optimizer(questions.optimizer, 1.0, options))
    taken_off = sum(float(((before[name] - trial.weights[name]) * gradients[name]).sum()) for name in gradients)
    return Optimizer(questions.optimizer, float(f"{off / taken_off:.1e}"), options)
