"""Loss curves: frameworks that train on the same batches, against the same training in float64.

The ladder proves single steps at weights chosen for it. Here training is what a user's is (initial weights, real
images, momentum), only dropout is left out, as each framework draws its own masks. Rounding grows from step to step;
how fast, float32 runs of the oracle say.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import zlib
from pathlib import Path
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import numpy as np
from numpy.typing import DTypeLike

from framework_compare import registry
from framework_compare.batches.arrays import ArrayPipeline, Inputs, read_split
from framework_compare.datasets.arrays import ArrayData
from framework_compare.datasets.resolve import resolve
from framework_compare.environments.managed import Environment
from framework_compare.errors import UnknownNameError, UsageError, check_count
from framework_compare.graph import Graph, Optimizer, Task, image_classification, initial_flat, weight_views
from framework_compare.launch.scratch import scratch
from framework_compare.parity import asked, cache
from framework_compare.parity.asked import CheckForecast
from framework_compare.parity.network.oracle import LOSSES, Oracle
from framework_compare.parity.network.reference import moved
from framework_compare.parity.network.surgery import without_dropout
from framework_compare.parity.network.tasks import build_task
from framework_compare.parity.pipeline.scenes import first_batches, shared_batches
from framework_compare.parity.verify import RunTasks, Say, Where
from framework_compare.plan import planning
from framework_compare.plan.competitors import find_frameworks
from framework_compare.plan.data_of_models import DataSets
from framework_compare.plan.planning import Names
from framework_compare.protocol import Document, Fields, ImageFiles, TrainConfig
from framework_compare.records import Run

Array = np.ndarray
Batches = Sequence[tuple[Inputs, Array]]
VERSION = 1  # raised when the oracle or a curve is made otherwise: those in the cache are not taken for it then
# Float32 runs: the first sums in blocks, the others one by one and from images moved by a unit. With the exact one they
# are as many as frameworks are usually compared: the furthest two of few would be nearer by chance.
DRAWS = 4


@dataclasses.dataclass(frozen=True)
class Curves:
    """Losses before each step of one model: in float64, of each framework, and what float32 rounding explains.

    yardstick: for each step, the most that rounding of the logits may have set the losses of two runs of the oracle
    apart up to then, one of them in float32; with the rounding of a loss itself, and the spacing of float32 numbers
    there. failures,
    unsupported: why a framework has no curve.
    """

    model: str
    setting: Fields
    exact: list[float]
    yardstick: list[float]
    losses: dict[str, list[float]]
    failures: dict[str, str]
    unsupported: dict[str, str]

    def off(self, framework: str) -> list[float]:
        """Distance of each loss from float64's."""
        return [_distance(a, b) for a, b in zip(self.losses[framework], self.exact)]

    def apart(self) -> list[float]:
        """Distance of the highest from the lowest framework at each step."""
        return [_distance(max(at), min(at)) for at in zip(*self.losses.values())]

    def ratio(self, distances: Sequence[float]) -> float:
        """The largest of such distances in units of the yardstick of its step."""
        return max(distance / allowed for distance, allowed in zip(distances, self.yardstick))

    @property
    def hold(self) -> bool:
        """Return whether every framework that was to train did, and all lie within the yardstick of each other."""
        return not self.failures and (not self.losses or self.ratio(self.apart()) <= 1)


def _distance(first: float, second: float) -> float:
    return abs(first - second) if math.isfinite(first) and math.isfinite(second) else math.inf


def train_curves(
    frameworks: Names,
    models: Names,
    dataset: str | os.PathLike[str] | None,
    *,
    steps: int = 20,
    where: Where = Where(),
    say: Say = lambda message: None,
    **settings: Any,
) -> list[Curves]:
    """One `Curves` a model; curves that are cached are not trained again.

    settings are fields of TrainConfig; execution may be a list. DataError for images that cannot be read.
    """
    _, chosen, configs = _checked(frameworks, models, steps, settings, say)
    names, where = where.named(frameworks, configs[0].device, say)
    index = resolve(dataset or registry.Model.dataset, seed=configs[0].seed)
    configs = [dataclasses.replace(config, num_classes=len(index.files.classes)) for config in configs]
    with scratch() as place:
        ready = {name: where.environment(name, say, configs[0].device) for name in names}
        given = of_images(place, index.name, index.files, steps, configs[0])
        run = CurveRun(place, given, configs[0], say)
        return [run.curves(model, planning.build_graph(model, configs[0]), configs, ready) for model in chosen]


def dry_run(
    frameworks: Names, models: Names, *, steps: int = 20, say: Say = lambda message: None, **settings: Any
) -> CheckForecast:
    """Return what `train_curves` would take where no curve is cached, the most that it can take; nothing is started."""
    names, chosen, configs = _checked(frameworks, models, steps, settings, say)
    graphs = {model: planning.build_graph(model, configs[0]) for model in chosen}
    every = [(graphs[model], config) for model in chosen for config in configs for _ in names]
    return asked.of_curves(every, steps)


def _checked(
    frameworks: Names, models: Names, steps: int, settings: Document, say: Say
) -> tuple[list[str], list[str], list[TrainConfig]]:
    """Frameworks, models and configs of loss curves; UsageError for what these cannot be asked."""
    check_count("steps", steps)
    names = find_frameworks(frameworks)
    chosen = planning.find_all("model", registry.image_models(), models)
    configs = planning.expand_configs({**settings, "pipeline": "shared"})
    if any(config.precision != "fp32" for config in configs):
        raise UsageError("loss curves are compared in fp32: their yardstick is float32 rounding")
    if len({dataclasses.replace(config, execution="default") for config in configs}) > 1:
        raise UsageError("loss curves are compared on the same batches: of all settings only execution may be a list")
    asked.check(chosen, configs, say)
    return names, chosen, configs


def train_workload_curves(
    frameworks: Names,
    workload: str,
    dataset: DataSets | None = None,
    *,
    steps: int = 20,
    where: Where = Where(),
    say: Say = lambda message: None,
    **settings: Any,
) -> Curves:
    """The curves of a workload with its own optimiser, on generated data or the user's file.

    settings are fields of TrainConfig, each one value. UsageError for a model that is no workload.
    """
    if not registry.of_arrays(workload):
        raise UnknownNameError("workload", workload, registry.workloads())
    names, where = where.named(frameworks, "cpu", say)
    planned = planning.plan(names, workload, "cpu", dataset, {**settings, "pipeline": "shared"})
    config = planned.cells[0].config
    if any(cell.config != config for cell in planned.cells) or config.precision != "fp32":
        raise UsageError("loss curves of a workload are compared in fp32, with one value for each setting")
    (data,) = planned.datasets.values()
    assert isinstance(data, ArrayData)  # as of every workload
    with scratch() as place:
        ready = {cell.framework: where.environment(cell.framework, say, "cpu") for cell in planned.cells}
        run = CurveRun(place, of_arrays(place, data, steps, config), config, say)
        return run.curves(workload, planning.build_graph(workload, config, data.task), [config], ready)


def _checksum(inputs: Inputs, labels: Array) -> int:
    """Return the checksum of the inputs in the task's order, then the labels, as workers have it."""
    found = 0
    for array in (*(inputs if isinstance(inputs, tuple) else (inputs,)), labels):
        found = zlib.crc32(np.ascontiguousarray(array).data, found)
    return found


class TrainingBatches(NamedTuple):
    """The batches as the reference trains on them, and how a worker is to open the same: {"images": file}."""

    dataset: str
    batches: Batches
    opened_by: dict[str, str]


def of_images(folder: Path, name: str, files: ImageFiles, steps: int, config: TrainConfig) -> TrainingBatches:
    path = folder / "images.json"
    path.write_text(json.dumps(dataclasses.asdict(files)), encoding="utf-8")
    return TrainingBatches(name, shared_batches(files, config, steps), {"images": str(path)})


def of_arrays(folder: Path, data: ArrayData, steps: int, config: TrainConfig) -> TrainingBatches:
    path = folder / "data.npz"
    data.write(path)
    with ArrayPipeline(read_split(path, "train"), batch_size=config.batch_size, seed=config.seed) as pipeline:
        return TrainingBatches(data.name, first_batches(pipeline.epoch, steps), {"data": str(path)})


class CurveRun:
    """The batches that all train on, and the training: of the oracle here, of frameworks in workers."""

    def __init__(self, folder: Path, given: TrainingBatches, config: TrainConfig, say: Say) -> None:
        self.folder = folder
        self.given = given
        self.batches = given.batches
        self.steps = len(self.batches)
        self.config = config
        self.say = say
        self.checksums = [_checksum(inputs, labels) for inputs, labels in self.batches]

    def curves(self, model: str, graph: Graph, configs: Sequence[TrainConfig], ready: Document) -> Curves:
        graph = without_dropout(graph)
        flat = initial_flat(graph, self.config.seed)
        exact, allowed = self.exact_and_yardstick(graph, flat)
        np.save(self.folder / "initial.npy", flat)
        found = Curves(model, self.setting(), exact, allowed, {}, {}, {})
        for config in configs:
            for framework, environment in ready.items():
                name = framework if len(configs) == 1 else f"{framework} {config.execution}"
                kind, value = self.framework_losses(framework, environment, graph, config)
                getattr(found, kind)[name] = value
        return found

    def setting(self) -> Fields:
        names = ("image_size", "batch_size", "learning_rate", "momentum", "weight_decay", "seed", "num_classes")
        others = {} if self.config.optimizer == "sgd" else {"optimizer": self.config.optimizer}
        updates = ("clip_norm", "ramp_updates", "decay_updates", "final_rate", "accumulation")
        recipe, default = ("epsilon", "beta2", *updates, "label_smoothing"), TrainConfig()
        others.update({n: getattr(self.config, n) for n in recipe if getattr(self.config, n) != getattr(default, n)})
        chosen = {name: getattr(self.config, name) for name in names}
        return {"dataset": self.given.dataset, "steps": self.steps, **chosen, **others}

    def exact_and_yardstick(self, graph: Graph, flat: Array) -> tuple[list[float], list[float]]:
        exact = self._oracle(graph, flat, "float64", 0)
        runs = [self._oracle(graph, flat, "float32", draw) for draw in range(DRAWS)]
        labels = [found for _, found in self.batches]
        return exact["losses"], yardstick(exact, runs, labels, graph.task)

    def _oracle(self, graph: Graph, flat: Array, dtype: str, draw: int) -> Fields:
        key = self._key({"dtype": dtype, "draw": draw, "graph": graph.to_dict()})
        found = cache.load_curve(key)
        if found is None:
            self.say(f"{graph.name}: {self.steps} steps in {dtype}" + (f", run {draw + 1}" if draw else ""))
            moving = [(moved(images, draw), labels) for images, labels in self.batches]
            found = oracle_curve(graph, weight_views(graph, flat), moving, self.config, dtype, plain_sums=draw > 0)
            cache.save(key, {"value": found})
        return found

    def framework_losses(
        self, framework: str, environment: Environment | Run, graph: Graph, config: TrainConfig
    ) -> tuple[str, list[float] | str]:
        """("losses", of each step), or ("failures" or "unsupported", why there are none)."""
        if isinstance(environment, Run):
            return "unsupported" if environment.status == "unsupported" else "failures", environment.reason
        paths = {name: getattr(config, name) for name in cache.PATHS}
        state = cache.state(registry.framework(framework), environment, config.device)
        key = self._key({"framework": framework, "state": state, "graph": graph.to_dict(), **paths})
        losses = cache.load_curve(key)
        if losses is not None:
            return "losses", losses
        self.say(f"{framework} {graph.name} {config.execution}: {self.steps} steps")
        tasks: list[Fields] = [
            build_task("build", graph, self.folder / "initial.npy"),
            {"ask": "shared", "steps": self.steps, **self.given.opened_by},
        ]
        run_tasks = RunTasks(self.folder, framework, config, environment)
        run, said, _ = run_tasks(tasks, f"curve-{framework}-{graph.name}-{config.execution}")
        if run.status == "unsupported":
            return "unsupported", run.reason
        wrong = next((said[ask]["error"] for ask in ("build", "shared") if "error" in said.get(ask, {})), None)
        if wrong or "shared" not in said:
            return "failures", wrong or run.reason
        if said["shared"]["checksums"] != self.checksums:
            return "failures", "its worker read other batches than the reference"
        cache.save(key, {"value": said["shared"]["losses"]})
        return "losses", said["shared"]["losses"]

    def _key(self, key: Document) -> str:
        document = {"curves": VERSION, **self.setting(), "batches": self.checksums, **key}
        return f"curve-{cache.short_digest(document)}"


def oracle_curve(
    graph: Graph,
    weights: Mapping[str, Array],
    batches: Batches,
    config: TrainConfig,
    dtype: DTypeLike,
    *,
    plain_sums: bool,
) -> Fields:
    """Losses and logits before each step."""
    network = Oracle(graph, weights, dtype, plain_sums=plain_sums)
    taken = [network.train_step(*batch, optimizer=Optimizer.of(config))[:2] for batch in batches]
    return {"losses": [loss for loss, _ in taken], "logits": [logits.tolist() for _, logits in taken]}


def yardstick(
    exact: Document, runs: Sequence[Document], labels: Sequence[Array], task: Task = image_classification(2, 1)
) -> list[float]:
    """Return how far float32's rounding may set losses apart at each step, from curves of `oracle_curve`: it adds up.

    Any two of the runs count, the exact one included, as any two frameworks are compared.
    """
    pairs = itertools.combinations([exact, *runs], 2)
    moves = [
        [
            _MOVED[task.loss](np.array(a), np.array(b), found)
            for a, b, found in zip(one["logits"], other["logits"], labels)
        ]
        for one, other in pairs
    ]
    own = [
        abs(value - float(LOSSES[task.named_loss](np.array(logits), found, **task.loss_options)[0]))
        for run in runs
        for value, logits, found in zip(run["losses"], run["logits"], labels)
    ]
    spacing = np.spacing(np.array(exact["losses"], np.float32)).astype(np.float64)
    return (np.maximum.accumulate(np.max(moves, axis=0)) + max(own) + spacing).tolist()


def _of_logits(one: Array, other: Array, labels: Array) -> float:
    """Return twice the largest difference of each sample's logits, averaged."""
    return 2 * float(np.abs(one - other).max(axis=-1).mean())


def _of_tokens(one: Array, other: Array, labels: Array) -> float:
    counts = labels != -1
    return _of_logits(one[counts], other[counts], labels) if counts.any() else 0.0


def _of_numbers(one: Array, other: Array, target: Array) -> float:
    """a^2 - b^2 is (a - b)(a + b)."""
    return float((np.abs(one - other) * (np.abs(one - target) + np.abs(other - target))).mean())


# The most that a batch's loss can differ by between two outputs of the network.
_MOVED: dict[str, Callable[[Array, Array, Array], float]] = {
    "cross_entropy": _of_logits,
    "binary_cross_entropy": _of_logits,
    "token_cross_entropy": _of_tokens,
    "mse": _of_numbers,
}
