"""Level 3 and 5 as a cell trains: a small network, asked once a framework, whose every step is gone over in float64.

The ladder's steps on a whole network know one setting and batches of one size. Here the settings are others, batches are
of several sizes, come from the native pipeline over three epochs, and dropout is read off the steps themselves.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from framework_compare.graph import Graph, GraphBuilder, initial_weights, weight_views, weights_size
from framework_compare.oracle import Oracle
from framework_compare.parity import deviations, ramps, surgery
from framework_compare.parity.deviations import Answers
from framework_compare.parity.ladder import SIGMAS, TOLERANCE, Wrong, ratios_of
from framework_compare.parity.reference import moved
from framework_compare.parity.result import Level
from framework_compare.parity.rounding import rounding_of, unit
from framework_compare.protocol import TrainConfig

Array = np.ndarray
CLASSES, IMAGE_SIZE, SEED, DRAWS = 10, 32, 7, 3
SIZES = (4, 4, 2, 4, 1, 3)  # of the held batches: the rests of epochs must count as what they are
DROPPED = 0.3  # not 0.5, whose scale is that of the share that is left, too
# Rates at which the loss falls: with 4,096 inputs of about one, ten times as much would diverge.
PLAIN = {"learning_rate": 5e-4, "momentum": 0.0, "weight_decay": 0.0}
HEAVY = {"learning_rate": 2e-4, "momentum": 0.8, "weight_decay": 0.03}
SLOW = {**PLAIN, "learning_rate": 3e-5}  # of one picture
COMMON = {"batch_size": 4, "image_size": IMAGE_SIZE, "num_classes": CLASSES, "epochs": 3}
Batches = List[Tuple[Array, Array]]


def judge(run_tasks: Callable[..., Any], config: TrainConfig) -> List[Level]:
    """Levels 3 and 5 of one framework; what fails is its `where`."""
    folder = run_tasks.folder / "practice"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        return [_level(3, lambda: _train(run_tasks, config, folder)), _level(5, lambda: _drop(run_tasks, config, folder))]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _level(number: int, check: Callable[[], Tuple[str, float, float]]) -> Level:
    try:
        return Level(number, True, *check())
    except Wrong as wrong:
        return Level(number, False, f"as a cell trains, {wrong}")
    except (ArithmeticError, LookupError, ValueError) as error:  # an answer of another form than anyone thought of
        what = f"what it answers cannot be judged: {type(error).__name__}: {error}"[:500]
        return Level(number, False, f"as a cell trains, {what}")


def network(dropout: float = 0.0) -> Graph:
    """Without kinks, at which rounding would grow; its only chance is dropout."""
    g = GraphBuilder("practice", num_classes=CLASSES, image_size=IMAGE_SIZE)
    g.conv("conv", 16, 3, stride=2, padding=1)
    if not dropout:
        g.batchnorm("bn")
    g.flatten("flatten")
    if dropout:
        g.dropout("dropout", dropout)
    g.linear("fc", CLASSES)
    return g.build()


def _train(run_tasks: Callable[..., Any], config: TrainConfig, folder: Path) -> Tuple[str, float, float]:
    """The worst place of two trainings, its error and that in units of the yardstick."""
    graph = network()
    build = _build(graph, folder)
    given = _held_batches(graph)
    ramps.write(folder / "pictures", CLASSES)
    plain = {"ask": "train", "name": "train", "batches": str(_save(given, folder / "held.npz"))}
    found = [_steps(run_tasks, [build, plain], graph, config, "held batches", PLAIN, given)]
    if config.pipeline == "native":
        heavy = {"ask": "train", "name": "train", "pictures": str(folder / "pictures" / "pictures.json")}
        found.append(_steps(run_tasks, [build, heavy], graph, config, "the native pipeline", HEAVY))
    else:
        found.append(_steps(run_tasks, [build, plain], graph, config, "held batches", HEAVY, given))
    return max((one for one in found if one), key=lambda one: one[2])


def _drop(run_tasks: Callable[..., Any], config: TrainConfig, folder: Path) -> Tuple[str, float, float]:
    graph = network(DROPPED)
    weights = weight_views(graph, _weights(graph))
    image = np.random.default_rng(SEED).standard_normal((1, *graph.input_shape)).astype(np.float32)
    batches = [(image, np.array([1]))] * 3
    task = {"ask": "train", "name": "train", "batches": str(_save(batches, folder / "dropped.npz"))}
    said, held = _ask(run_tasks, [_build(graph, folder), task], "dropout", {**SLOW, "batch_size": 1})
    masks = []
    for step in range(1, len(batches) + 1):
        after = {name: held[f"{name}@{step}"] for name in weights}
        masks.append(_mask(graph, weights, after, image, config.precision))
        weights = after
    if any(np.array_equal(masks[0], mask) for mask in masks[1:]):
        raise Wrong("dropout drops the same values in every step")
    return f"dropout of {DROPPED} in {len(masks)} steps", 0.0, 0.0


def _mask(graph: Graph, before: Mapping[str, Array], after: Mapping[str, Array], image: Array, precision: str) -> Array:
    """Which inputs of the last layer a step on one picture left out: their weights it did not move.

    The others' move is their input times that of the bias, scaled by 1 / (1 - p).
    """
    values: Dict[str, Array] = {}
    cut = surgery.up_to(graph, "flatten")
    inside = {name: np.asarray(array) for name, array in before.items() if name.startswith("conv")}
    Oracle(cut, inside, np.float64).forward(image, watch=lambda name, value: values.update({name: value}))
    inputs = values["flatten"][0]
    moves = np.subtract(after["fc.weight"], before["fc.weight"], dtype=np.float64)
    bias = np.subtract(after["fc.bias"], before["fc.bias"], dtype=np.float64)
    row = int(np.argmax(np.abs(bias)))
    kept = moves[row] != 0
    share, count = 1 - kept.mean(), kept.size
    if abs(share - DROPPED) > SIGMAS * math.sqrt(DROPPED * (1 - DROPPED) / count):
        raise Wrong(f"{share:.3f} of {count} values are dropped in a step, expected {DROPPED}")
    scale = float(np.median(moves[row][kept] / (inputs[kept] * bias[row])))
    if abs(scale * (1 - DROPPED) - 1) > 1e-3 + 4 * unit(precision):
        raise Wrong(f"values that dropout keeps in a step are scaled by {scale:.5g}, expected {1 / (1 - DROPPED):.5g}")
    return kept


def _steps(
    run_tasks: Callable[..., Any],
    tasks: Sequence[Dict[str, Any]],
    graph: Graph,
    config: TrainConfig,
    source: str,
    settings: Mapping[str, Any],
    given: Sequence[Tuple[Array, Array]] = (),
) -> Tuple[str, float, float]:
    """One training, gone over; nothing of it where the framework has no such pipeline here."""
    said, held = _ask(run_tasks, tasks, source.replace(" ", "-"), settings)
    if said.get("error", "").startswith("Unsupported: "):
        return ("", 0.0, 0.0)
    if said["reloaded"]:
        raise Wrong(f"{said['reloaded'][0]} is not what was loaded, where weights are loaded once more after training")
    batches = given or [(held[f"images{i}"], held[f"labels{i}"]) for i in range(len(said["losses"]))]
    if [len(labels) for _, labels in batches] != said["sizes"]:
        raise Wrong(f"batches of {said['sizes']} were trained as {len(batches)}")
    initial = weight_views(graph, _weights(graph))
    exact, yardstick = _gone_over(graph, initial, batches, settings, config.precision)
    last = {name: held[f"{name}@{len(batches)}"] for name in exact.gradients}
    found = dataclasses.replace(exact, losses=[math.nan if x is None else x for x in said["losses"]], weights=last)
    errors = deviations.step_errors(found, _parameters(exact), initial)
    ratios = ratios_of(errors, yardstick, config.precision)
    where = max(ratios, key=lambda name: ratios[name])
    if ratios[where] > TOLERANCE:
        numbers = ", ".join(f"{name} {settings[name]}" for name in PLAIN)
        first = _first_wrong(ratios, found.losses, exact.losses)
        raise Wrong(f"with {source}, {numbers}: {where} is {ratios[where]:.0f} units off after {len(batches)} steps{first}")
    return f"{where}, with {source}", errors[where], ratios[where]


def _first_wrong(ratios: Mapping[str, float], found: Sequence[float], exact: Sequence[float]) -> str:
    wrong = [name for name in ratios if name.startswith("loss of") and ratios[name] > TOLERANCE]
    if not wrong:
        return ""
    step = int(wrong[0].rpartition(" ")[2])
    return f"; the first loss that differs is that of step {step}, {found[step - 1]:.9g}, expected {exact[step - 1]:.9g}"


def _gone_over(
    graph: Graph, initial: Mapping[str, Array], batches: Batches, settings: Mapping[str, Any], precision: str
) -> Tuple[Answers, Dict[str, float]]:
    """The exact answers to the same batches, and the yardstick of each place at level 3."""
    exact = _oracle(graph, initial, batches, settings, np.float64)
    yardstick: Dict[str, float] = {}
    for draw in range(DRAWS):
        nearby = [(moved(images, draw, precision), labels) for images, labels in batches]
        rounding = rounding_of(precision, draw)
        said = _oracle(graph, initial, nearby, settings, np.float32, plain_sums=draw > 0, rounding=rounding)
        off = deviations.step_errors(_parameters(said), _parameters(exact), initial)
        bounds = {**deviations.loss_roundings(said, exact), **deviations.scatter(off, exact)}
        for name, size in off.items():
            yardstick[name] = max(yardstick.get(name, 0.0), size, bounds.get(name, 0.0))
    return exact, yardstick


def _oracle(
    graph: Graph, initial: Mapping[str, Array], batches: Batches, settings: Mapping[str, Any], dtype: Any, **rounding: Any
) -> Answers:
    oracle = Oracle(graph, initial, dtype, **rounding)
    rates = {name: settings[name] for name in PLAIN}
    steps = [oracle.train_step(images, labels, **rates) for images, labels in batches]
    nothing = np.empty(0)
    return Answers(nothing, nothing, steps[0][2], [s[0] for s in steps], oracle.weights, [s[1] for s in steps])


def _parameters(answers: Answers) -> Answers:
    """Without running statistics, which level 3 of the networks has, as each framework keeps them."""
    return dataclasses.replace(answers, weights={name: answers.weights[name] for name in answers.gradients})


def _ask(
    run_tasks: Callable[..., Any], tasks: Sequence[Dict[str, Any]], name: str, settings: Mapping[str, Any]
) -> Tuple[Mapping[str, Any], Mapping[str, Array]]:
    run, said, folder = run_tasks(tasks, f"practice-{name}", **{**COMMON, **settings})
    for answer in ("build", "train"):
        error = said.get(answer, {"error": run.reason}).get("error", "")
        if error and not error.startswith("Unsupported: "):
            raise Wrong(error)
    held = dict(np.load(folder / "train.npz")) if (folder / "train.npz").exists() else {}
    shutil.rmtree(folder, ignore_errors=True)
    return said["train"], held


def _build(graph: Graph, folder: Path) -> Dict[str, Any]:
    path = folder / "weights.npy"
    np.save(path, _weights(graph))
    return {"ask": "build", "name": "build", "graph": graph.to_dict(), "weights": str(path)}


def _weights(graph: Graph) -> Array:
    flat = np.empty(weights_size(graph), np.float32)
    initial_weights(graph, SEED, flat)
    return flat


def _held_batches(graph: Graph) -> Batches:
    rng = np.random.default_rng(SEED)
    images = [rng.standard_normal((size, *graph.input_shape)).astype(np.float32) for size in SIZES]
    labels = [rng.integers(0, CLASSES, size) for size in SIZES]
    return list(zip(images, labels))


def _save(batches: Batches, path: Path) -> Path:
    """As the probe reads them."""
    named = {f"images{i}": images for i, (images, _) in enumerate(batches)}
    np.savez(path, **named, **{f"labels{i}": labels for i, (_, labels) in enumerate(batches)})
    return path
