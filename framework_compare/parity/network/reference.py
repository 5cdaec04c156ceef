"""The ladder's questions to a network, the oracle's float64 answers, and how far a precision's rounding moves them."""

import dataclasses
import functools
import math
from pathlib import Path
from typing import Sequence

import numpy as np
from numpy.typing import DTypeLike

from framework_compare.graph import Graph, Optimizer, Task, initial_weights, weight_views, weights_size
from framework_compare.parity.network import calibration, deviations
from framework_compare.parity.network.deviations import EVALUATION, TRAINING, Answers, Errors, larger
from framework_compare.parity.network.oracle import LOSSES, Oracle
from framework_compare.parity.network.oracle.op import Inputs
from framework_compare.parity.network.questions import SCHEDULED, Questions, asked_optimizer
from framework_compare.parity.network.rounding import RECURRENT, Rounding, rounding_of, unit
from framework_compare.parity.network.surgery import without_dropout
from framework_compare.protocol import Fields

Array = np.ndarray
# Of two values BatchNorm makes two signs, whatever they are: what is left of their gradients is rounding.
NORMED = 8
GROWN = 0.07  # relative; ten such units are less than a gradient that is left out
# Units in the last place. Of a layer, cuDNN's persistent kernels in float32 are off by 2e-6 to 6e-6, PyTorch's own by 1e-7
# (docs/records/workloads-gpu.md); ten times that is far from tf32, and from any mistake.
RECURRENT_UNITS = 8
NOTHING = Answers(np.empty(0), np.empty(0), {}, (), {})


@dataclasses.dataclass(frozen=True)
class Reference:
    """The questions of one graph, what the oracle answers, and what one precision's rounding does to the answers."""

    graph: Graph  # without dropout
    flat: Array  # weights of level 1, float32
    smooth: Array  # weights of levels 2 and 3
    optimizer: Optimizer  # of level 3
    batches: Sequence[tuple[Inputs, Array]]
    exact: Answers
    yardstick: Errors
    precision: str = "fp32"
    replicas: int = 1
    finest: float = 0.0  # the middle error of gradients where sums are added in blocks, as by most kernels
    copies: Array | None = None  # of which samples a batch of a cell's own size is made, as `Mode` has them

    @property
    def initial(self) -> dict[str, Array]:
        return weight_views(self.graph, self.smooth)

    @property
    def settings(self) -> Fields:
        """The settings of TrainConfig that level 3 is asked with: the optimiser's, and of what comes in front of it."""
        asked, schedule = self.optimizer, self.optimizer.schedule
        own = {"optimizer": asked.name, "learning_rate": asked.learning_rate}
        if asked.name == "sgd":
            own.update(asked.settings)
        else:
            own.update(epsilon=asked.settings["eps"], weight_decay=0.0)
            own.update({name: value for name, value in asked.settings.items() if name in ("beta2", "weight_decay")})
        rates = {"ramp_updates": schedule.ramp, "decay_updates": schedule.decay, "final_rate": schedule.final}
        return {**own, "clip_norm": asked.clip_norm, "accumulation": asked.accumulation, **rates}

    def after_first_step(self) -> dict[str, Array]:
        """The trained arrays after one step from the initial ones, whose optimiser has no past."""
        oracle = Oracle(self.graph, self.initial)
        oracle.apply(self.exact.gradients, self.optimizer)
        return {name: oracle.weights[name] for name in self.exact.gradients}

    @property
    def samples(self) -> Array:
        """The sample at each place of the first batch, by its number among those whose logits the answers have."""
        count = len(self.batches[0][1]) // self.replicas
        copies = np.arange(count) if self.copies is None else self.copies
        return (np.arange(self.replicas)[:, None] * count + copies).ravel()

    def full(self, size: int, draws: int) -> "Reference":
        """The first batch's samples in a batch of a cell's own size, in an order by chance; for levels 1 and 2.

        Where each sample is in it as often as any other, logits, batch statistics and the mean loss stay what they
        are, and so do gradients. Where that cannot be, the oracle counts the copies.
        """
        count = len(self.batches[0][1]) // self.replicas
        copies = np.random.default_rng(size).permutation(np.resize(np.arange(count), size))
        larger = dataclasses.replace(self, copies=copies)
        if size % count == 0 and self.precision != "fp16":  # whose gradients are smaller in a larger batch
            return dataclasses.replace(larger, yardstick=self._with_copies(max(1.0, size / count)))
        counted = dataclasses.replace(larger, batches=self.batches[:1]).answered().at(self.precision, draws)
        return dataclasses.replace(counted, yardstick=counted._with_copies(max(1.0, size / count)))

    def _with_copies(self, copies: float) -> Errors:
        """The yardstick of a batch of so many copies: larger where an answer comes from sums over samples, and only there.

        A kernel that adds samples one by one rounds once for each. Copies of the same numbers round alike, so that these
        errors do not cancel as those of independent numbers would (Higham and Mary 2019, SIAM Journal on Scientific
        Computing 41(5), A2815): they grow with the length of the sum, not with its square root. Logits in evaluation mode
        are of one sample each, as are those in training without batch statistics: were they let grow, a kernel for large
        batches that computes in tf32 would pass for fp32. Below fp32 the growth ends where all would pass.
        """
        most = math.inf if self.precision == "fp32" else GROWN
        normed = any(node.op == "BatchNorm2d" for node in self.graph.nodes)
        alone = (EVALUATION,) if normed else (EVALUATION, TRAINING)
        return {
            level: {
                where: error if where in alone else max(error, min(copies * error, most))
                for where, error in places.items()
            }
            for level, places in self.yardstick.items()
        }

    def answered(self) -> "Reference":
        """Return the reference with the oracle's answers in float64."""
        return dataclasses.replace(self, exact=answer(self, self.batches, np.float64))

    def at(self, precision: str, draws: int) -> "Reference":
        """The same questions and answers with the yardstick of another precision (as long as it takes in float32)."""
        found = draw_errors(self, precision, draws)
        finest = float(np.median(list(found[0][2].values())))
        return dataclasses.replace(
            self, precision=precision, yardstick=functools.reduce(larger, found, {}), finest=finest
        )

    @property
    def allowed(self) -> Errors:
        """The yardstick; in float32, where layers are recurrent, no less than cuDNN's kernels need."""
        recurrent = self.precision == "fp32" and any(node.op in RECURRENT for node in self.graph.nodes)
        least = RECURRENT_UNITS * unit("fp32") if recurrent else 0.0
        return larger(deviations.least_errors(self.exact, self.graph.task.loss, least), self.yardstick)

    def bounded_losses(self, bound: float) -> list[float]:
        """The exact losses of a framework that takes no logit for more than `bound` below the largest of its row."""
        task = self.graph.task
        if "cross_entropy" not in task.loss or task.loss == "binary_cross_entropy":
            return list(self.exact.losses)

        def loss(logits: Array, labels: Array) -> float:
            bounded = np.maximum(logits, logits.max(axis=-1, keepdims=True) - bound)
            return LOSSES[task.named_loss](bounded, labels, **task.loss_options)[0]

        ends = zip(self.exact.step_logits, (labels for _, labels in self.batches))
        parts = (map(loss, np.split(z, self.replicas), np.split(labels, self.replicas)) for z, labels in ends)
        return [float(np.mean(list(each))) for each in parts]

    def write(self, folder: Path) -> None:
        """The weights and batches as the probe reads them: weights.npy, smooth.npy, batches.npz."""
        np.save(folder / "weights.npy", self.flat)
        np.save(folder / "smooth.npy", self.smooth)
        save_batches(folder / "batches.npz", self.batches)


def save_batches(path: Path, batches: Sequence[tuple[Inputs, Array]]) -> None:
    """Save batch i: an only input as images<i>, the k-th of several as input<k>_<i>, the target as labels<i>."""
    arrays = {f"labels{i}": target for i, (_, target) in enumerate(batches)}
    for i, (inputs, _) in enumerate(batches):
        if isinstance(inputs, tuple):
            arrays.update({f"input{k:02}_{i}": array for k, array in enumerate(inputs)})
        else:
            arrays[f"images{i}"] = inputs
    np.savez(path, **arrays)  # type: ignore[arg-type]  # its stubs take one of them for allow_pickle


def least_batch(graph: Graph) -> int:
    """The samples that give every BatchNorm NORMED values of a channel."""
    shapes = graph.shapes()
    areas = [math.prod(shapes[node.name][1:]) for node in graph.nodes if node.op == "BatchNorm2d"]
    return math.ceil(NORMED / min(areas, default=NORMED))


def make_reference(graph: Graph, questions: Questions = Questions(), precision: str = "fp32") -> Reference:
    """Run the oracle (seconds to a minute): once in float64, `draws` times at the precision for its yardstick."""
    graph = without_dropout(graph)
    batches = make_batches(graph, questions)
    flat = asked_weights(graph, batches[0][0], questions.seed)
    smooth = flat.copy()
    smooth_views = weight_views(graph, smooth)
    calibration.smooth(graph, smooth_views, batches[0][0], questions.seed, questions.replicas)
    optimizer = asked_optimizer(graph, smooth_views, batches, questions)
    asked = Reference(graph, flat, smooth, optimizer, batches, NOTHING, {}, replicas=questions.replicas)
    return asked.answered().at(precision, questions.draws)


def draw_errors(found: Reference, precision: str, draws: int) -> list[Errors]:
    """Errors, place by place, of some runs of the oracle that round as the precision does; the first adds in blocks."""
    drawn = []
    share = min(1.0, len(found.batches[0][1]) / len(found.samples))
    for draw in range(draws):
        nearby = [(moved(images, draw, precision), labels) for images, labels in found.batches]
        with np.errstate(over="ignore", invalid="ignore"):  # of fp16; the judge says so
            said = answer(found, nearby, np.float32, draw > 0, rounding_of(precision, draw, share))
        off = deviations.errors(said, found.exact, found.initial, precision)
        off[3].update(deviations.loss_roundings(said, found.exact, found.graph.task.loss))
        scattered = deviations.scatter(off[3], found.exact)
        off[3].update({where: max(size, off[3][where]) for where, size in scattered.items()})
        drawn.append(off)
    return drawn


def make_batches(graph: Graph, questions: Questions) -> list[tuple[Inputs, Array]]:
    """One batch a step: the same inputs in each, as they are clear of kinks, in another order, so that a step which
    keeps those of the first is seen; other targets. Tokens of the first sequence are not in the second batch, so that
    an optimiser which leaves out the rows of absent tokens is seen. Of several batches each, every other update has one
    batch only, several times."""
    rng, task = np.random.default_rng(questions.seed), graph.task
    count = questions.batch_size * questions.replicas
    inputs = [
        rng.integers(0, field.vocabulary or 2, (count, *field.shape)).astype(field.dtype)
        if field.vocabulary or field.dtype == "bool"
        else _noise(rng, (count, *field.shape), field.positive)
        for field in task.inputs
    ]
    batches: list[tuple[Inputs, Array]] = []
    updates = max(questions.steps, SCHEDULED) if questions.schedules else questions.steps
    for number in range(updates * questions.accumulation):
        update = number // questions.accumulation
        step = update * questions.accumulation if update % 2 else number  # `clip_norm_of` says why
        # each replica keeps its inputs, as its batch statistics keep them clear of kinks
        order = np.roll(np.arange(count).reshape(questions.replicas, -1), step, axis=1).ravel()
        if step == 1 and any(field.vocabulary for field in task.inputs):
            order[order == 0] = questions.batch_size - 1
        arrays = tuple(array[order] for array in inputs)
        batches.append((arrays if len(arrays) > 1 else arrays[0], _targets(task, count, step)))
    return batches


def _noise(rng: np.random.Generator, shape: tuple[int, ...], positive: bool = False) -> Array:
    """Coarse and fine noise for images, fine noise for all else; float32. positive: its sizes."""
    if positive:
        return np.abs(_noise(rng, shape))
    if len(shape) != 4:
        return rng.standard_normal(shape).astype(np.float32)
    coarse = rng.standard_normal((*shape[:2], -(-shape[2] // 8), -(-shape[3] // 8)))
    coarse = coarse.repeat(8, axis=2).repeat(8, axis=3)[:, :, : shape[2], : shape[3]]
    return (0.8 * coarse + 0.6 * rng.standard_normal(shape)).astype(np.float32)


def _targets(task: Task, count: int, step: int) -> Array:
    """Labels in turn; numbers by chance, the same for the same step; of tokens about a quarter that do not count."""
    rng, shape = np.random.default_rng(step), (count, *task.target.shape)
    if task.loss == "mean_output":
        return np.zeros(shape, np.float32)
    if task.loss == "mse":
        return rng.standard_normal(shape).astype(np.float32)
    turn = np.arange(count * int(np.prod(task.target.shape))).reshape(shape) + step * count
    if task.loss == "binary_cross_entropy":
        return (turn % 2).astype(np.float32)
    labels = (turn % task.outputs).astype(np.int64)
    if task.loss == "token_cross_entropy":
        labels[rng.random(shape) < 0.25] = -1
    return labels


def asked_weights(graph: Graph, images: Inputs, seed: int) -> Array:
    """Initial weights whose biases, BatchNorm scales and running statistics all differ from their neutral values.

    With the neutral ones a network would not show a bias left out, a scale taken for a shift or an activation that
    is not capped. Running statistics are those of the batch, moved a little, so that evaluation mode is well scaled.
    """
    flat = np.empty(weights_size(graph), np.float32)
    views = initial_weights(graph, seed, flat)
    rng = np.random.default_rng(seed)
    capped = {source for node in graph.nodes if node.op in calibration.CAPPED for source in node.inputs}
    for node in graph.nodes:
        names = [name for name in views if name.rpartition(".")[0] == node.name]
        for name in names:
            kind = name.rpartition(".")[2]
            if node.op in ("BatchNorm2d", "GroupNorm", "LayerNorm", "RMSNorm") and kind in ("weight", "bias"):
                views[name][:] = rng.uniform(*{"weight": (0.5, 2.0), "bias": (-1.0, 1.0)}[kind], views[name].shape)
            elif kind.startswith("bias"):
                views[name][:] += (0.1 * rng.standard_normal(views[name].shape)).astype(np.float32)
            elif node.op in ("Parameter", "RelativeBias"):
                views[name][:] = rng.uniform(0.5, 1.5, views[name].shape) * rng.choice([-1, 1], views[name].shape)
            elif node.op == "Embedding" and node.attrs["init"] == "uniform_0.05":
                views[name][:] *= 20  # up to 1, where gates are no longer linear
            if kind == "bias" and node.name in capped:
                views[name][::4] += 5.0  # standard normal values hardly ever reach the cap of 6
    _move_statistics(graph, views, images, rng)
    return flat


def _move_statistics(graph: Graph, views: dict[str, Array], images: Inputs, rng: np.random.Generator) -> None:
    measured = Oracle(graph, views, np.float32).batch_statistics(images)
    for name in measured:
        if name.endswith("running_var"):  # read from a moved average, a tiny one may come out below zero
            measured[name] = np.maximum(measured[name], 0)
    for name, value in measured.items():
        if name.endswith("running_var"):
            views[name][:] = value * rng.uniform(0.8, 1.25, value.shape)
        else:
            spread = np.sqrt(measured[name.replace("running_mean", "running_var")])
            views[name][:] = value + 0.2 * spread * rng.standard_normal(value.shape)


def moved(images: Inputs, draw: int, precision: str = "fp32") -> Inputs:
    """Each number moved by chance, the same for the same draw; draw 0 moves none, and tokens stay.

    In float32, where images are not rounded, by one unit in the last place; below it by up to half a unit, so that
    about half of the numbers round to the other neighbour.
    """
    if isinstance(images, tuple):
        return tuple(_moved(array, draw, precision) for array in images)
    return _moved(images, draw, precision)


def _moved(images: Array, draw: int, precision: str) -> Array:
    if draw == 0 or images.dtype.kind != "f":
        return images
    rng = np.random.default_rng(draw)
    if precision != "fp32":
        return images * (1 + np.float32(unit(precision)) * (rng.random(images.shape, np.float32) - np.float32(0.5)))
    up = rng.random(images.shape) < 0.5
    return np.nextafter(images, np.where(up, np.float32(np.inf), np.float32(-np.inf)))


def answer(
    asked: Reference,
    batches: Sequence[tuple[Inputs, Array]],
    dtype: DTypeLike,
    plain_sums: bool = False,
    rounding: Rounding | None = None,
) -> Answers:
    """The oracle's answers at one precision: logits at the weights of level 1; gradients and steps from the smooth ones."""
    how: Fields = {"plain_sums": plain_sums, "rounding": rounding, "replicas": asked.replicas}
    oracle = Oracle(asked.graph, weight_views(asked.graph, asked.flat), dtype, **how)
    evaluation = oracle.forward(batches[0][0])
    training = oracle.forward(batches[0][0], training=True, copies=asked.copies)
    oracle = Oracle(asked.graph, asked.initial, dtype, **how)
    steps = [oracle.train_step(*batch, optimizer=asked.optimizer, copies=asked.copies) for batch in batches]
    losses, step_logits, gradients = zip(*steps)
    return Answers(evaluation, training, gradients[0], losses, oracle.weights, step_logits, oracle.biased)
