"""Where a network that failed first goes another way: the first layer whose output differs, with both values."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from framework_compare.graph import Graph, weight_views
from framework_compare.oracle import Oracle
from framework_compare.parity import deviations, surgery
from framework_compare.parity.reference import Reference
from framework_compare.parity.result import Level
from framework_compare.parity.rounding import rounding_of, unit

VALUES = 16  # looked at in each layer's output
SECTIONS = 12  # layers asked about in one worker
TOLERANCE = 100.0  # in units of the yardstick of the layer: single values scatter more than norms
MOST = 0.5  # of the layer's largest value: 100 units of bf16 would be all of it
Place = Tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Watched:
    """Of one layer: where was looked, the exact values (N, places), and how far a precision moves them."""

    places: Sequence[Place]
    exact: np.ndarray
    rounding: float
    size: float
    precision: str


def first_divergence(failed: Level, found: Reference, run_tasks: Callable[..., Any], folder: Path) -> str:
    """A sentence that names the layer; for a failed level 1 by looking into the network, else from the level itself."""
    if failed.number == 2:
        return f"backward from the loss, the first gradient that differs is that of {failed.where}"
    if failed.number != 1:
        return ""
    training = failed.where == deviations.TRAINING
    watched = watch(found, training)
    names = list(watched)
    while names:
        step = max(1, len(names) // SECTIONS)
        asked = names[step - 1 :: step]
        said = ask(found, watched, asked, training, run_tasks, folder)
        place = next((i for i, name in enumerate(asked) if differs(watched[name], said.get(name))), None)
        if place is None:
            return "" if step == 1 else "only the last layers differ"
        if step == 1:
            return describe(asked[place], found.graph, watched[asked[place]], said.get(asked[place]))
        start = 0 if place == 0 else names.index(asked[place - 1]) + 1
        names = names[start : names.index(asked[place]) + 1]
    return ""


def watch(found: Reference, training: bool) -> Dict[str, Watched]:
    """The exact values of every layer at a few places, by graph order."""
    views = weight_views(found.graph, found.flat)
    shapes = found.graph.shapes()
    places = {node.name: surgery.places_in(shapes[node.name], VALUES, 1) for node in found.graph.nodes}
    sides: List[Dict[str, np.ndarray]] = []
    for dtype, rounding in ((np.float64, None), (np.float32, rounding_of(found.precision))):
        values: Dict[str, np.ndarray] = {}

        def keep(name: str, value: np.ndarray, values: Dict[str, np.ndarray] = values) -> None:
            values[name] = np.stack([value[(slice(None), *place)] for place in places[name]], axis=1)
            sizes[name] = float(np.abs(value).max())

        sizes: Dict[str, float] = {}
        Oracle(found.graph, views, dtype, rounding=rounding).forward(found.batches[0][0], training=training, watch=keep)
        sides.append(values)
    exact, narrow = sides
    return {
        name: Watched(places[name], exact[name], float(np.abs(exact[name] - narrow[name]).max()), sizes[name], found.precision)
        for name in exact
    }


def ask(
    found: Reference,
    watched: Dict[str, Watched],
    names: Sequence[str],
    training: bool,
    run_tasks: Callable[..., Any],
    folder: Path,
) -> Dict[str, np.ndarray]:
    """What the framework has at the watched places of some layers, by name; a layer it cannot build is missing."""
    views, shapes = weight_views(found.graph, found.flat), found.graph.shapes()
    tasks = []
    for number, name in enumerate(names):
        cut = surgery.peeking(found.graph, name, watched[name].places)
        arrays = {**views, **surgery.peek_weights(shapes[name], watched[name].places)}
        path = folder / f"peek-{number}.npy"
        np.save(path, surgery.flat_weights(cut, arrays))
        tasks.append({"ask": "build", "name": f"build {number}", "graph": cut.to_dict(), "weights": str(path)})
        batches = str(folder / "batches.npz")
        tasks.append({"ask": "forward", "name": f"peek {number}", "training": training, "batches": batches})
    _, said, answers = run_tasks(tasks, "divergence")
    for number in range(len(names)):
        (folder / f"peek-{number}.npy").unlink()
    return {
        name: np.load(answers / f"peek {number}.npz")["values"][0]
        for number, name in enumerate(names)
        if "error" not in said.get(f"peek {number}", {"error": ""})
    }


def differs(watched: Watched, values: Optional[np.ndarray]) -> bool:
    if values is None or values.shape != watched.exact.shape or not np.isfinite(values).all():
        return True
    floor = unit(watched.precision) * watched.size
    allowed = min(TOLERANCE * max(watched.rounding, floor), max(MOST * watched.size, 2 * watched.rounding))
    return float(np.abs(values - watched.exact).max()) > allowed


def describe(name: str, graph: Graph, watched: Watched, values: Optional[np.ndarray]) -> str:
    op = next(node.op for node in graph.nodes if node.name == name)
    if values is None or values.shape != watched.exact.shape:
        return f"first layer that differs: {name} ({op}), which gives no output of the expected shape"
    picture, column = np.unravel_index(np.argmax(np.abs(values - watched.exact)), values.shape)
    place = (int(picture), *watched.places[column])
    got, expected = values[picture, column], watched.exact[picture, column]
    return f"first layer that differs: {name} ({op}), at {place} {got:.6g}, expected {expected:.6g}"
