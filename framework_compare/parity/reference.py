"""What the ladder asks of a network, the oracle's answers in float64, and how far float32 rounding moves them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from framework_compare.graph import Graph, initial_weights, weight_views, weights_size
from framework_compare.oracle import Oracle
from framework_compare.parity import calibration
from framework_compare.parity.surgery import without_dropout

Array = np.ndarray
Errors = Dict[int, Dict[str, float]]  # level -> where -> relative error
EVALUATION, TRAINING = "logits, BatchNorm in evaluation mode", "logits, BatchNorm in training mode"


@dataclasses.dataclass(frozen=True)
class Questions:
    """Sizes and settings of the network levels. `draws` float32 runs of the oracle make the yardstick.

    The first run sums in blocks, the others one by one and from pictures moved by a unit in the last place: between
    them lie the orders in which frameworks sum.
    """

    batch_size: int = 2
    steps: int = 3
    stride: float = 1.0  # of the first step: how many times the loss it would take off, if the loss were linear
    momentum: float = 0.9
    weight_decay: float = 0.01
    seed: int = 20
    draws: int = 3



@dataclasses.dataclass(frozen=True)
class Answers:
    """What a network, the oracle's or a framework's, says to the questions."""

    evaluation: Array
    training: Array
    gradients: Mapping[str, Array]
    losses: Sequence[float]
    weights: Mapping[str, Array]
    step_logits: Sequence[Array] = ()  # those behind the losses; of the oracle only


@dataclasses.dataclass(frozen=True)
class Reference:
    """The questions of one graph, what the oracle answers, and what float32 alone does to the answers."""

    graph: Graph  # without dropout
    flat: Array  # weights of level 1, float32
    smooth: Array  # weights of levels 2 and 3
    optimiser: Mapping[str, float]  # learning rate, momentum and weight decay of level 3
    batches: List[Tuple[Array, Array]]
    exact: Answers
    yardstick: Errors

    @property
    def initial(self) -> Dict[str, Array]:
        return weight_views(self.graph, self.smooth)

    def with_biased_variance(self) -> Dict[str, Array]:
        """The exact weights after the steps, of a framework that keeps the biased running variance."""
        shapes, initial, steps = self.graph.shapes(), self.initial, len(self.batches)
        weights = dict(self.exact.weights)
        for node in self.graph.nodes:
            if node.op == "BatchNorm2d":
                name = f"{node.name}.running_var"
                count = len(self.batches[0][1]) * shapes[node.name][1] * shapes[node.name][2]
                left = (1 - node.attrs["momentum"]) ** steps * initial[name].astype(np.float64)
                weights[name] = left + (weights[name] - left) * (count - 1) / count
        return weights

    def write(self, folder: Path) -> None:
        """The weights and batches as the probe reads them: weights.npy, smooth.npy, batches.npz."""
        np.save(folder / "weights.npy", self.flat)
        np.save(folder / "smooth.npy", self.smooth)
        named = {f"{kind}{i}": pair[n] for i, pair in enumerate(self.batches) for n, kind in enumerate(KINDS)}
        np.savez(folder / "batches.npz", **named)


KINDS = ("images", "labels")


def make_reference(graph: Graph, questions: Questions = Questions()) -> Reference:
    """Run the oracle (seconds to a minute): once in float64, `draws` times in float32."""
    graph = without_dropout(graph)
    batches = make_batches(graph, questions)
    flat = asked_weights(graph, batches[0][0], questions.seed)
    smooth = flat.copy()
    views, smooth_views = weight_views(graph, flat), weight_views(graph, smooth)
    calibration.smooth(graph, smooth_views, batches[0][0], questions.seed)
    optimiser = {
        "learning_rate": learning_rate(graph, smooth_views, batches[0], questions.stride),
        "momentum": questions.momentum,
        "weight_decay": questions.weight_decay,
    }
    exact = answer(graph, views, smooth_views, batches, optimiser, np.float64)
    yardstick: Errors = {}
    for draw in range(questions.draws):
        nearby = [(moved(images, draw), labels) for images, labels in batches]
        said = answer(graph, views, smooth_views, nearby, optimiser, np.float32, plain_sums=draw > 0)
        found = errors(said, exact, smooth_views)
        found[3].update(loss_roundings(said, exact))
        yardstick = _larger(yardstick, found)
    return Reference(graph, flat, smooth, optimiser, batches, exact, yardstick)


def make_batches(graph: Graph, questions: Questions) -> List[Tuple[Array, Array]]:
    """One batch a step: pictures of coarse and fine noise, the same in each, as they are clear of kinks; other labels."""
    rng = np.random.default_rng(questions.seed)
    shape = (questions.batch_size, *graph.input_shape)
    coarse = rng.standard_normal((*shape[:2], -(-shape[2] // 8), -(-shape[3] // 8)))
    coarse = coarse.repeat(8, axis=2).repeat(8, axis=3)[:, :, : shape[2], : shape[3]]
    images = (0.8 * coarse + 0.6 * rng.standard_normal(shape)).astype(np.float32)
    labels = [np.arange(shape[0]) + step * shape[0] for step in range(questions.steps)]
    return [(images, (found % graph.num_classes).astype(np.int64)) for found in labels]


def learning_rate(
    graph: Graph, weights: Mapping[str, Array], batch: Tuple[Array, Array], stride: float
) -> float:
    """A rate, of two digits: a larger one takes the network to where it is not smooth, a smaller one moves the weights
    by less than float32 can tell."""
    loss, _, gradients, _ = Oracle(graph, weights, np.float32).gradients(*batch)
    square = sum(float(np.linalg.norm(gradient)) ** 2 for gradient in gradients.values())
    return float(f"{stride * loss / square:.1e}")


def asked_weights(graph: Graph, images: Array, seed: int) -> Array:
    """Initial weights whose biases, BatchNorm scales and running statistics all differ from their neutral values.

    With the neutral ones a network would not show a bias left out, a scale taken for a shift or an activation that
    is not capped. Running statistics are those of the batch, moved a little, so that evaluation mode is well scaled.
    """
    flat = np.empty(weights_size(graph), np.float32)
    views = initial_weights(graph, seed, flat)
    rng = np.random.default_rng(seed)
    capped = {source for node in graph.nodes if node.op == "ReLU6" for source in node.inputs}
    for node in graph.nodes:
        names = [name for name in views if name.rpartition(".")[0] == node.name]
        for name in names:
            kind = name.rpartition(".")[2]
            if node.op == "BatchNorm2d" and kind in ("weight", "bias"):
                views[name][:] = rng.uniform(*{"weight": (0.5, 2.0), "bias": (-1.0, 1.0)}[kind], views[name].shape)
                if kind == "bias" and node.name in capped:
                    views[name][::4] += 5.0  # standard normal values hardly ever reach the cap of 6
            elif kind == "bias":
                views[name][:] = 0.1 * rng.standard_normal(views[name].shape)
    _move_statistics(graph, views, images, rng)
    return flat


def _move_statistics(graph: Graph, views: Dict[str, Array], images: Array, rng: np.random.Generator) -> None:
    measured = Oracle(graph, views, np.float32).batch_statistics(images)
    for name, value in measured.items():
        if name.endswith("running_var"):
            views[name][:] = value * rng.uniform(0.8, 1.25, value.shape)
        else:
            spread = np.sqrt(measured[name.replace("running_mean", "running_var")])
            views[name][:] = value + 0.2 * spread * rng.standard_normal(value.shape)


def moved(images: Array, draw: int) -> Array:
    """Each number one float32 up or down by chance, the same for the same draw; draw 0 moves none."""
    if draw == 0:
        return images
    up = np.random.default_rng(draw).random(images.shape) < 0.5
    return np.nextafter(images, np.where(up, np.float32(np.inf), np.float32(-np.inf)))


def answer(
    graph: Graph,
    weights: Mapping[str, Array],
    smooth: Mapping[str, Array],
    batches: Sequence[Tuple[Array, Array]],
    optimiser: Mapping[str, float],
    dtype: Any,
    plain_sums: bool = False,
) -> Answers:
    """The oracle's answers at one precision: logits at `weights`; gradients and steps from `smooth`."""
    oracle = Oracle(graph, weights, dtype, plain_sums=plain_sums)
    evaluation = oracle.forward(batches[0][0])
    training = oracle.forward(batches[0][0], training=True)
    oracle = Oracle(graph, smooth, dtype, plain_sums=plain_sums)
    losses, step_logits = [], []
    for step, (images, labels) in enumerate(batches):
        loss, logits, gradients = oracle.train_step(images, labels, **optimiser)
        losses.append(loss)
        step_logits.append(logits)
        if step == 0:
            first = gradients
    return Answers(evaluation, training, first, losses, oracle.weights, step_logits)


def errors(found: Answers, exact: Answers, initial: Mapping[str, Array]) -> Errors:
    """Relative errors of levels 1 to 3, norm over norm; of weights, relative to how far the steps moved them."""
    return {
        1: {
            EVALUATION: relative(found.evaluation, exact.evaluation),
            TRAINING: relative(found.training, exact.training),
        },
        2: gradient_errors(found.gradients, exact.gradients),
        3: step_errors(found, exact, initial),
    }


def step_errors(found: Answers, exact: Answers, initial: Mapping[str, Array]) -> Dict[str, float]:
    """Relative errors of each step's loss, and of how far the steps moved each array."""
    steps = enumerate(zip(found.losses, exact.losses), start=1)
    losses = {f"loss of step {step}": relative(np.array(a), np.array(b)) for step, (a, b) in steps}
    return {**losses, **{name: moved_relative(found.weights[name], a, initial[name]) for name, a in exact.weights.items()}}


def loss_roundings(found: Answers, exact: Answers) -> Dict[str, float]:
    """How far rounding of the logits may move each step's loss, relative; a loss, one number, may be right by luck."""
    bounds = {}
    for step, (ours, theirs) in enumerate(zip(found.step_logits, exact.step_logits), start=1):
        off = np.abs(np.subtract(ours, theirs, dtype=np.float64)).max(axis=1).mean()
        bounds[f"loss of step {step}"] = _ratio(2 * off, exact.losses[step - 1])  # a loss moves by twice that at most
    return bounds


def relative(found: Array, exact: Array) -> float:
    """Norm of the difference over the norm of the exact value; infinite where either is not finite."""
    return _ratio(np.linalg.norm(np.subtract(found, exact, dtype=np.float64)), np.linalg.norm(exact))


def gradient_errors(found: Mapping[str, Array], exact: Mapping[str, Array]) -> Dict[str, float]:
    """Relative error of each gradient; of one that is zero but for rounding, relative to the largest of all.

    A bias whose effect the next BatchNorm takes out has such a gradient.
    """
    norms = {name: float(np.linalg.norm(array)) for name, array in exact.items()}
    floor = 1e-6 * max(norms.values())
    differences = {n: np.linalg.norm(np.subtract(found[n], a, dtype=np.float64)) for n, a in exact.items()}
    return {name: _ratio(difference, max(norms[name], floor)) for name, difference in differences.items()}


def moved_relative(found: Array, exact: Array, initial: Array) -> float:
    difference = np.linalg.norm(np.subtract(found, exact, dtype=np.float64))
    return _ratio(difference, np.linalg.norm(np.subtract(exact, initial, dtype=np.float64)))


def _ratio(difference: float, size: float) -> float:
    if not np.isfinite(difference) or not np.isfinite(size):
        return float("inf")
    return float(difference / size) if size else (0.0 if difference == 0 else float("inf"))


def _larger(first: Errors, second: Errors) -> Errors:
    return {
        level: {where: max(error, first.get(level, {}).get(where, 0.0)) for where, error in found.items()}
        for level, found in second.items()
    }
