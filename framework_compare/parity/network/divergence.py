"""Find where a failed network first diverges: the first layer or array that differs, with both values."""

import dataclasses
import math
from pathlib import Path
from typing import Any, Sequence

import numpy as np

from framework_compare.graph import Graph, weight_views
from framework_compare.parity.network import deviations, surgery
from framework_compare.parity.network.ladder import TOLERANCE, Judge
from framework_compare.parity.network.oracle import Oracle
from framework_compare.parity.network.reference import Reference
from framework_compare.parity.network.rounding import rounding_of, unit
from framework_compare.parity.network.tasks import build_task
from framework_compare.parity.workers import RunTasks
from framework_compare.results.parity import Level

SECTIONS = 12  # layers asked about in one worker
UNITS = 100.0  # of the layer's yardstick are allowed: single values scatter more than norms
MOST = 0.5  # of the layer's largest value: 100 units of bf16 would be all of it
Place = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Watched:
    """Places watched in one layer, the exact values there, (N, places), and the deviation allowed at each, (places,).

    The last columns are signed sums of all values, `surgery.SUMS` of them.
    """

    places: Sequence[Place]
    exact: np.ndarray
    allowed: np.ndarray


def first_divergence(failed: Level, judge: Judge, run_tasks: RunTasks, folder: Path) -> str:
    """A sentence on where level 1, 2 or 3 failed; empty where its own says all, as for an array of another shape."""
    if failed.number == 1:
        asked = judge.full if failed.where.endswith(judge.at_full_size) else judge.reference
        return first_layer(asked, failed.where.startswith(deviations.TRAINING), run_tasks, folder)
    compared, ratios = judge.compared.get(failed.number, {}), judge.ratios.get(failed.number, {})
    ends = ("", *deviations.ALONG.values())
    wrong = [(name, end) for name in compared for end in ends if ratios.get(name + end, 0.0) > TOLERANCE]
    if not wrong:
        return ""
    backward = failed.number == 2  # the last parameter that is wrong is where the gradient went wrong first
    name, end = wrong[-1 if backward else 0]
    what = "backward from the loss, the first gradient" if backward else "after the steps, the first"
    op = next((f" ({node.op})" for node in judge.graph.nodes if node.name == name.rpartition(".")[0]), "")
    return f"{what} that differs: {name}{op} {_values(end, *compared[name], judge.reference.initial.get(name))}"


def _values(end: str, found: np.ndarray, exact: np.ndarray, initial: np.ndarray | None) -> str:
    if exact.ndim == 0:
        return f"is {found:.9g}, expected {exact:.9g}"
    if end and initial is not None:
        way = (initial if end == deviations.ALONG["start"] else exact - initial).ravel().astype(np.float64)
        moved = [float((array - initial).ravel() @ way) / float(np.linalg.norm(way)) for array in (found, exact)]
        return f"moved {moved[0]:.9g}{end}, expected {moved[1]:.9g}"
    place = np.unravel_index(np.argmax(_distance(found, exact)), exact.shape)
    return f"at {tuple(map(int, place))} {found[place]:.9g}, expected {exact[place]:.9g}"


def _distance(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Return how far apart values are; what is not a number is the furthest off."""
    return np.nan_to_num(np.abs(np.subtract(found, exact, dtype=np.float64)), nan=np.inf)


def first_layer(found: Reference, training: bool, run_tasks: RunTasks, folder: Path) -> str:
    """Search by sections: ask about the last layer of each, then cut the first section that differs again."""
    watched = watch(found, training)
    names = list(watched)
    while names:
        step = max(1, len(names) // SECTIONS)
        asked = list(dict.fromkeys([*names[step - 1 :: step], names[-1]]))
        said = ask(found, watched, asked, training, run_tasks, folder)
        place = next((i for i, name in enumerate(asked) if differs(watched[name], said.get(name))), None)
        if place is None:
            return "no single layer's output differs: small differences in many layers add up"
        if step == 1:
            return describe(asked[place], found.graph, watched[asked[place]], said.get(asked[place]))
        start = 0 if place == 0 else names.index(asked[place - 1]) + 1
        names = names[start : names.index(asked[place]) + 1]
    return ""


def watch(found: Reference, training: bool) -> dict[str, Watched]:
    """Return what is watched of every layer that reads others, by graph order."""
    views = weight_views(found.graph, found.flat)
    shapes = found.graph.shapes()
    places = {node.name: surgery.places_in(shapes[node.name]) for node in found.graph.nodes}
    sides: list[dict[str, np.ndarray]] = []
    sizes: dict[str, tuple[float, float]] = {}
    for dtype, rounding in ((np.float64, None), (np.float32, rounding_of(found.precision))):
        values: dict[str, np.ndarray] = {}

        def keep(name: str, value: np.ndarray, values: dict[str, np.ndarray] = values) -> None:
            flat = value.reshape(len(value), -1).astype(np.float64)
            indices: list[tuple[Any, ...]] = [(slice(None), *place) for place in places[name]]
            single = np.stack([value[index] for index in indices], axis=1)
            sums = flat @ surgery.signs(flat.shape[1]).T
            both = np.concatenate([single, sums], axis=1)
            values[name] = both[found.samples] if len(both) > 1 else both  # of a Constant all samples have the same
            sizes[name] = float(np.abs(flat).max()), float(np.linalg.norm(flat, axis=1).max())

        oracle = Oracle(found.graph, views, dtype, rounding=rounding)
        oracle.forward(found.batches[0][0], training=training, watch=keep, copies=found.copies)
        sides.append(values)
    exact, narrow = sides
    readers = {node.name for node in found.graph.nodes if node.inputs}
    return {
        name: Watched(places[name], values, _allowed(values, narrow[name], *sizes[name], shapes[name], found.precision))
        for name, values in exact.items()
        if name in readers
    }


def _allowed(
    exact: np.ndarray, narrow: np.ndarray, largest: float, norm: float, shape: Sequence[int], precision: str
) -> np.ndarray:
    """Return the bound: for single values by the layer's largest; for sums by its norm, as n terms round n times."""
    rounding = np.abs(exact - narrow)
    split = exact.shape[1] - surgery.SUMS
    sums = norm * unit(precision) * math.sqrt(math.prod(shape))
    limits = []
    for part, size, floor in (
        (rounding[:, :split], largest, unit(precision) * largest),
        (rounding[:, split:], norm, sums),
    ):
        worst = float(part.max())
        limits.append(np.full(part.shape[1], min(UNITS * max(worst, floor), max(MOST * size, 2 * worst))))
    return np.concatenate(limits)


def ask(
    found: Reference,
    watched: dict[str, Watched],
    names: Sequence[str],
    training: bool,
    run_tasks: RunTasks,
    folder: Path,
) -> dict[str, np.ndarray]:
    """Return what the framework has at the watched places of some layers, by name; a layer it cannot build is missing."""
    views, shapes = weight_views(found.graph, found.flat), found.graph.shapes()
    tasks = []
    for number, name in enumerate(names):
        cut = surgery.peeking(found.graph, name, watched[name].exact.shape[1])
        arrays = {**views, **surgery.peek_weights(shapes[name], watched[name].places)}
        path = folder / f"peek-{number}.npy"
        np.save(path, surgery.flat_weights(cut, arrays))
        tasks.append(build_task(f"build {number}", cut, path))
        batch = {"batches": str(folder / "batches.npz"), "samples": found.samples.tolist()}
        tasks.append({"ask": "forward", "name": f"peek {number}", "training": training, **batch})
    _, said, answers = run_tasks(tasks, "divergence")
    for number in range(len(names)):
        (folder / f"peek-{number}.npy").unlink()
    return {
        name: np.load(answers / f"peek {number}.npz")["values"][0]
        for number, name in enumerate(names)
        if "error" not in said.get(f"peek {number}", {"error": ""})
    }


def differs(watched: Watched, values: np.ndarray | None) -> bool:
    if values is None or values.shape != watched.exact.shape:
        return True
    return bool((_distance(values, watched.exact) > watched.allowed).any())


def describe(name: str, graph: Graph, watched: Watched, values: np.ndarray | None) -> str:
    op = next(node.op for node in graph.nodes if node.name == name)
    if values is None or values.shape != watched.exact.shape:
        return f"first layer that differs: {name} ({op}), which gives no output of the expected shape"
    excess = _distance(values, watched.exact) / watched.allowed
    single = excess[:, : -surgery.SUMS]
    if single.max() <= 1:
        image, column = np.unravel_index(np.argmax(excess), excess.shape)
        where = f"in a signed sum of all its values (no single one of {len(watched.places)} shows it)"
    else:
        image, column = np.unravel_index(np.argmax(single), single.shape)
        where = f"at {(int(image), *watched.places[int(column)])}"
    got, expected = values[image, column], watched.exact[image, column]
    return f"first layer that differs: {name} ({op}), {where} {got:.9g}, expected {expected:.9g}"
