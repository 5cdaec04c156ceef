"""Levels 3 and 5 as a cell trains: a small model, once per framework, each step repeated in float64.

The ladder's steps on a whole network know one setting and batches of one size. Here the settings are others, batches are
of several sizes, come from the native pipeline over three epochs, and dropout is read off the steps themselves.
"""

import dataclasses
import itertools
import json
import math
import shutil
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np

from framework_compare.graph import Graph, GraphBuilder, Optimizer, initial_flat, weight_views
from framework_compare.parity.network import surgery
from framework_compare.parity.network.deviations import step_errors
from framework_compare.parity.network.ladder import RUNNING_VARIANCE as VARIANCE_SETTING
from framework_compare.parity.network.ladder import SIGMAS, TOLERANCE, LevelFailed, WorkerEndedEarly, checked, ratios_of
from framework_compare.parity.network.oracle import Oracle
from framework_compare.parity.network.reference import NOTHING, Reference, save_batches
from framework_compare.parity.network.rounding import unit
from framework_compare.parity.network.tasks import build_task
from framework_compare.parity.pipeline import ramps, scenes
from framework_compare.parity.workers import RunTasks
from framework_compare.protocol import Document, Fields, ImageFiles, TrainConfig
from framework_compare.results.parity import Level

Array = np.ndarray
CLASSES, IMAGE_SIZE, SEED, DRAWS = 10, 32, 7, 3
SIZES = (4, 4, 2, 4, 1, 3)  # of the held batches: the rests of epochs must count as what they are
ORDER = (0, 1, 2, 3, 4, 5, 0)  # the first once more: a step must leave its batch as it was
DROPPED = 0.3  # not 0.5, whose scale is that of the share that is left, too
DROP_SIZES = (1, 2, 2, 1)
# Each of momentum and decay by itself; level 3 of the networks has both. Rates at which the loss falls: with 4,096 inputs
# of about one, ten times as much would diverge.
DECAYING = {"learning_rate": 5e-4, "momentum": 0.0, "weight_decay": 0.03}
MOVING = {"learning_rate": 2e-4, "momentum": 0.9, "weight_decay": 0.0}  # as the networks are trained by default
FAINT = {"learning_rate": 1e-8, "momentum": 0.0, "weight_decay": 0.0}  # so that what is learnt stays out of the logits
LARGE = 0.2  # inputs that tell whether they were dropped: most are
COMMON = {"batch_size": 4, "image_size": IMAGE_SIZE, "num_classes": CLASSES, "epochs": 3}
WHEN = "as a cell trains, "
Batches = list[tuple[Array, Array]]


def judge(run_tasks: RunTasks, config: TrainConfig) -> list[Level]:
    """Levels 3 and 5 of one framework; what fails is its `where`."""
    folder = run_tasks.folder / "training"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        return [
            checked(3, lambda: Level(3, True, *_train(run_tasks, config, folder)), WHEN),
            checked(5, lambda: Level(5, True, *_drop(run_tasks, config, folder)), WHEN),
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def network(dropout: float = 0.0) -> Graph:
    """Without kinks, at which rounding would grow; its only chance is dropout."""
    g = GraphBuilder("training_check", num_classes=CLASSES, image_size=IMAGE_SIZE)
    g.conv("conv", 16, 3, stride=2, padding=1)
    if not dropout:
        g.batchnorm("bn")
    g.flatten("flatten")
    if dropout:
        g.dropout("dropout", dropout)
    g.linear("fc", CLASSES)
    return g.build()


def _train(run_tasks: RunTasks, config: TrainConfig, folder: Path) -> tuple[str, float, float]:
    """The worst place of two trainings, its error and that in units of the yardstick."""
    graph = network()
    build = _build(graph, folder, initial_flat(graph, SEED))
    held = _held_batches(graph)
    ramps.write(folder / "images", CLASSES)
    listed = str(folder / "images" / "images.json")
    task = {"ask": "train", "name": "train"}
    save_batches(folder / "held.npz", held)
    plain = {**task, "batches": str(folder / "held.npz"), "order": ORDER}
    given = [held[number] for number in ORDER]
    found = [_steps(run_tasks, [build, plain], graph, config, "held batches", DECAYING, given)]
    if config.pipeline == "native":
        found.append(
            _steps(run_tasks, [build, {**task, "images": listed}], graph, config, "the native pipeline", MOVING)
        )
    elif config.pipeline == "shared":
        files = ImageFiles(**json.loads(Path(listed).read_text(encoding="utf-8")))
        as_asked = dataclasses.replace(config, **dict[str, Any](COMMON))
        given = scenes.shared_batches(files, as_asked, as_asked.epochs * math.ceil(len(files) / as_asked.batch_size))
        shared = {**task, "shared": listed}
        found.append(_steps(run_tasks, [build, shared], graph, config, "the shared pipeline", MOVING, given))
    else:
        found.append(_steps(run_tasks, [build, plain], graph, config, "held batches", MOVING, given))
    return max(found, key=lambda one: one[2])


def _drop(run_tasks: RunTasks, config: TrainConfig, folder: Path) -> tuple[str, float, float]:
    """Masks of dropout, read off how a last layer of zeros moves: its logits are none, and so their gradient is known."""
    graph = network(DROPPED)
    flat = initial_flat(graph, SEED)
    weights = weight_views(graph, flat)
    for name in ("fc.weight", "fc.bias"):
        weights[name][...] = 0
    rng = np.random.default_rng(SEED)
    batches = [
        (rng.standard_normal((size, *graph.input_shape)).astype(np.float32), 1 + np.arange(size)) for size in DROP_SIZES
    ]
    save_batches(folder / "dropped.npz", batches)
    task = {"ask": "train", "name": "train", "batches": str(folder / "dropped.npz")}
    said, held = _ask(
        run_tasks, [_build(graph, folder, flat), task], "dropout", {**FAINT, "batch_size": max(DROP_SIZES)}
    )
    masks: dict[str, tuple[Array, Array]] = {}
    for step, (images, labels) in enumerate(batches, start=1):
        after = {name: held[f"{name}@{step}"] for name in weights}
        for number, mask in enumerate(_masks(graph, weights, after, images, labels, config.precision), start=1):
            masks[f"image {number} of step {step}"] = mask
        weights = after
    _check_unlike(masks)
    return f"dropout of {DROPPED} in {len(batches)} steps", 0.0, 0.0


def _check_unlike(masks: Mapping[str, tuple[Array, Array]]) -> None:
    for (one, (kept, sure)), (other, (also_kept, also_sure)) in itertools.combinations(masks.items(), 2):
        common = sure & also_sure
        if np.array_equal(kept[common], also_kept[common]):
            raise LevelFailed(f"dropout drops the same values of {one} and {other}")


def _masks(
    graph: Graph, before: Mapping[str, Array], after: Mapping[str, Array], images: Array, labels: Array, precision: str
) -> list[tuple[Array, Array]]:
    """Return, per image, which inputs of the last layer a step kept, and which are large enough to tell.

    All logits are zero, so row r of the layer moves by -rate / B times the sum over images of (1/CLASSES - [r is its
    label]) times what dropout left of its inputs: as many equations as images.
    """
    inputs = _inputs(graph, before, images)
    moves = np.subtract(after["fc.weight"], before["fc.weight"], dtype=np.float64)[labels]
    slopes = 1 / CLASSES - np.eye(len(labels))
    left = np.linalg.solve(slopes, moves) * -len(labels) / FAINT["learning_rate"]
    return [_mask(ours, image, precision) for ours, image in zip(left, inputs)]


def _inputs(graph: Graph, weights: Mapping[str, Array], images: Array) -> Array:
    """Return the inputs of dropout, (N, inputs), in float64."""
    values: dict[str, Array] = {}
    inside = {name: np.asarray(array) for name, array in weights.items() if name.startswith("conv")}
    cut = surgery.up_to(graph, "flatten")
    Oracle(cut, inside, np.float64).forward(images, watch=lambda name, value: values.update({name: value}))
    return values["flatten"]


def _mask(left: Array, inputs: Array, precision: str) -> tuple[Array, Array]:
    """Return what was kept of one image's inputs, and which are LARGE; LevelFailed if share or scale are not dropout's."""
    sure = np.abs(inputs) > LARGE
    kept = np.abs(left) > 0.25 * np.abs(inputs)
    share, count = 1 - float(kept[sure].mean()), int(sure.sum())
    if abs(share - DROPPED) > SIGMAS * math.sqrt(DROPPED * (1 - DROPPED) / count):
        raise LevelFailed(f"{share:.3f} of {count} values are dropped in a step, expected {DROPPED}")
    scale = float(np.median((left / inputs)[sure & kept]))
    if abs(scale * (1 - DROPPED) - 1) > 1e-3 + 4 * unit(precision):
        raise LevelFailed(
            f"values that dropout keeps in a step are scaled by {scale:.5g}, expected {1 / (1 - DROPPED):.5g}"
        )
    return kept, sure


def _steps(
    run_tasks: RunTasks,
    tasks: Sequence[Fields],
    graph: Graph,
    config: TrainConfig,
    source: str,
    settings: Document,
    given: Sequence[tuple[Array, Array]] = (),
) -> tuple[str, float, float]:
    """One training, gone over; nothing of it where the framework has no such pipeline here."""
    said, held = _ask(run_tasks, tasks, source.replace(" ", "-"), settings)
    if said.get("error", "").startswith("Unsupported: "):
        return ("", 0.0, 0.0)
    if said["reloaded"]:
        raise LevelFailed(f"weights loaded again after training: {said['reloaded'][0]} differs from what was loaded")
    batches: Batches = list(given) or [(held[f"images{i}"], held[f"labels{i}"]) for i in range(len(said["losses"]))]
    if [len(labels) for _, labels in batches] != said["sizes"]:
        raise LevelFailed(f"batches of {said['sizes']} were trained as {len(batches)}")
    flat = initial_flat(graph, SEED)
    rates = {name: settings[name] for name in ("momentum", "weight_decay")}
    optimizer = Optimizer("sgd", settings["learning_rate"], rates)
    reference = Reference(graph, flat, flat, optimizer, batches, NOTHING, {}).answered().at(config.precision, DRAWS)
    exact, yardstick = reference.exact, reference.yardstick[3]
    if said["biased"]:
        exact = dataclasses.replace(exact, weights={**exact.weights, **exact.biased})
    last = {name: held[f"{name}@{len(batches)}"] for name in exact.weights}
    found = dataclasses.replace(exact, losses=[math.nan if x is None else x for x in said["losses"]], weights=last)
    errors = step_errors(found, exact, reference.initial)
    ratios = ratios_of(errors, yardstick, config.precision)
    where = max(ratios, key=lambda name: ratios[name])
    if ratios[where] > TOLERANCE:
        numbers = ", ".join(f"{name} {settings[name]}" for name in FAINT)
        first = _first_wrong(ratios, found.losses, exact.losses)
        raise LevelFailed(
            f"with {source}, {numbers}: {where} is {ratios[where]:.0f} units off after {len(batches)} steps{first}"
        )
    return f"{where}, with {source}", errors[where], ratios[where]


def _first_wrong(ratios: Mapping[str, float], found: Sequence[float], exact: Sequence[float]) -> str:
    wrong = [name for name in ratios if name.startswith("loss of") and ratios[name] > TOLERANCE]
    if not wrong:
        return ""
    step = int(wrong[0].rpartition(" ")[2])
    return f"; losses first differ at step {step}: {found[step - 1]:.9g}, expected {exact[step - 1]:.9g}"


def _ask(
    run_tasks: RunTasks, tasks: Sequence[Fields], name: str, settings: Document
) -> tuple[Document, Mapping[str, Array]]:
    run, said, folder = run_tasks(tasks, f"training-{name}", **{**COMMON, **settings})
    for answer in ("build", "train"):
        if answer not in said:
            raise WorkerEndedEarly(run.reason)
        error = said[answer].get("error", "")
        if error and not error.startswith("Unsupported: "):
            raise LevelFailed(error)
    held = dict(np.load(folder / "train.npz")) if (folder / "train.npz").exists() else {}
    shutil.rmtree(folder, ignore_errors=True)
    biased = run.settings.get(VARIANCE_SETTING) == "biased"
    return {**said["train"], "biased": biased}, held


def _build(graph: Graph, folder: Path, flat: Array) -> Fields:
    np.save(folder / "weights.npy", flat)
    return build_task("build", graph, folder / "weights.npy")


def _held_batches(graph: Graph) -> Batches:
    rng = np.random.default_rng(SEED)
    images = [rng.standard_normal((size, *graph.input_shape)).astype(np.float32) for size in SIZES]
    labels = [rng.integers(0, CLASSES, size) for size in SIZES]
    return list(zip(images, labels))
