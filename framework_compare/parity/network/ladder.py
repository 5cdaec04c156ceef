"""Levels 0 to 3 and 5: the judgement of a worker's answers about one network.

An error passes within TOLERANCE times the yardstick: what the precision's rounding does to the oracle itself, in the
same place. No place's yardstick is taken to be smaller than the middle one of its level and kind: with a few draws some
come out better by luck.
"""

import dataclasses
import math
from pathlib import Path
from typing import Callable, Iterator, Mapping, Sequence

import numpy as np

from framework_compare.graph import Graph, Node, weight_views
from framework_compare.json_types import JSON
from framework_compare.parity.network import deviations, surgery
from framework_compare.parity.network.oracle import Oracle
from framework_compare.parity.network.reference import Reference
from framework_compare.parity.network.rounding import unit
from framework_compare.parity.network.tasks import FULL
from framework_compare.protocol import Document
from framework_compare.records import Run
from framework_compare.results.parity import Level

# Kernels round in other orders and by other algorithms (Winograd, blocked sums) than the oracle's. The table in
# docs/fairness.md has what honest frameworks and seeded mistakes come to in units of the yardstick.
TOLERANCE = 10.0
# A relative error of so much is none of rounding, where a unit is no more than a fifth of it. It matters below float32.
MOST = 0.75
FIRST_STEP = 0.1  # relative; momentum of three steps is more than the step itself
WIDER = 0.03  # units at level 1; a format of three more bits comes to 0.1
SEEN_TF32 = 0.125  # of the ratio of units: gradients in tf32 are off by at least so many times more than those in fp32
SIGMAS = 6.0
DEPTH_MOVES = 0.01  # relative; a branch is a part of the whole
# Of the largest logit: two programs of a framework, with dropout layers and without, may sum in two orders (MXNet's LSTM
# differs by 5e-7). A value that is dropped moves logits by far more. It is float32's in all precisions: where logits are
# rounded to fewer bits, equal is all that passes.
OFF = 64 * float(np.finfo(np.float32).eps)
KEPT = 1e-4  # relative, beside a unit: how far a value that dropout keeps may be from its scale
DRAWS = 8  # of the reference's dropout, while all move its gradient by far more than a framework's does
DRAW_MOVES = 0.1  # of the smallest of these moves; where few values decide, one is 7 times as far as another
FEW = 40  # values: so many are not dropped alike in two images by chance
# An adapter whose framework keeps the biased running variance says so in its settings under this name, with "biased":
# then that is what it is held to. Training is the same; evaluation differs by n / (n - 1) in each variance.
RUNNING_VARIANCE = "running_variance"
LOSS_BOUND = "loss_bound"  # likewise, of losses in which logits are at most so much below the largest; not gradients


def remark(precision: str, levels: Sequence[Level], found: Reference, full: Reference) -> str:
    """Return where a verdict says less than it seems to.

    Logits far closer to exact than the precision rounds: it is parity, but not of that precision. And sums so long, over
    copies in a batch or places of a GroupNorm, that as much is allowed for them as tf32 changes.
    """
    logits = next(level for level in levels if level.number == 1)
    if precision == "fp32":
        many = float(np.median(list(full.yardstick[2].values())))
        size = len(full.samples) // full.replicas
        coarse = f"at a batch of {size} level 2 may mistake gradients in tf32 for fp32"
        return coarse if TOLERANCE * many > SEEN_TF32 * found.finest * unit("tf32") / unit("fp32") else ""
    if logits.ratio is None or logits.ratio > WIDER:
        return ""
    return f"errors of logits are {logits.ratio:.1g} of the effect of {precision}: it computes in a wider format"


class LevelFailed(Exception):
    """A level does not hold; the message says where."""


class WorkerEndedEarly(LevelFailed):
    """The worker ended before it answered, as one does that is killed."""


def checked(number: int, check: Callable[[], Level], when: str = "") -> Level:
    """Return what a check finds of a level; `when` goes before the reason why it does not hold."""
    try:
        return check()
    except LevelFailed as wrong:
        return Level(number, False, f"{when}{wrong}", answered=not isinstance(wrong, WorkerEndedEarly))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # an answer of an unforeseen form
        reason = f"its answer cannot be judged: {type(error).__name__}: {error}"[:500]
        return Level(number, False, f"{when}{reason}")


class Judge:
    """A worker's answers, read from its folder, against the reference, and that in a batch of the cell's own size."""

    def __init__(
        self,
        graph: Graph,
        found: Reference,
        full: Reference,
        folder: Path,
        said: Document,
        run: Run,
        generates: bool = False,
    ) -> None:
        self.generates = generates
        self.settings = run.settings
        self.end = "" if run.status == "ok" else f" ({run.status}: {run.reason})"  # of the worker
        self.graph = graph
        self.reference = found
        self.full = full
        self.at_full_size = f" at a batch of {len(full.samples) // full.replicas}"
        self.folder = folder
        self.said = said
        self.ratios: dict[int, dict[str, float]] = {}  # of each level, in units of the yardstick
        self.compared: dict[int, dict[str, tuple[np.ndarray, np.ndarray]]] = {}  # found and exact, by array

    def levels(self) -> list[Level]:
        checks = {0: self.parameters, 1: self.logits, 2: self.gradients, 3: self.steps, 5: self.dropout}
        return [checked(number, check) for number, check in checks.items()]

    def parameters(self) -> Level:
        self._said("build")
        answer = self._said("weights")
        expected = {p.name: list(p.shape) for p in self.reference.graph.parameters()}
        for name in {**expected, **answer["shapes"]}:
            theirs, ours = answer["shapes"].get(name, "missing"), expected.get(name, "none")
            if theirs != ours:
                raise LevelFailed(f"{name}: {theirs}, the graph has {ours}")
        if answer["changed"]:
            raise LevelFailed(f"{answer['changed'][0]} is not read back as it was loaded")
        return Level(0, True, f"{self.graph.parameter_count():,} parameters", 0.0)

    def logits(self) -> Level:
        errors = {}
        for asked, name_end, where_end in self._both_sizes():
            for name, where in (("evaluation", deviations.EVALUATION), ("training", deviations.TRAINING)):
                found, exact = self._array(name + name_end)["values"][0], getattr(asked.exact, name)[asked.samples]
                if asked.replicas > 1:  # of several processes rank 0 answers for its own part
                    exact = exact[: len(found)]
                errors[where + where_end] = deviations.relative(_shaped(found, exact, where), exact)
        if self.generates:
            self._said("build to generate")
            answer = self._array("generated")
            errors[deviations.GENERATED] = generation_error(self.reference, answer["tokens"], answer["logits"])
        return self._level(1, errors)

    def gradients(self) -> Level:
        errors: dict[str, float] = {}
        self.compared[2] = {}
        for asked, name_end, where_end in self._both_sizes():
            exact = asked.exact.gradients
            found = self._named("gradients" + name_end, exact)
            self.compared[2].update({name + where_end: (found[name], exact[name]) for name in exact})
            off = deviations.gradient_errors(found, exact, asked.precision)
            errors.update({name + where_end: error for name, error in off.items()})
        return self._level(2, errors)

    def _both_sizes(self) -> list[tuple[Reference, str, str]]:
        """References with the ends of the names of answers and of places; the one that says most is the last."""
        return [(self.full, FULL, self.at_full_size), (self.reference, "", "")]

    def steps(self) -> Level:
        exact = self.reference.exact
        losses = [math.nan if loss is None else loss for loss in self._said("steps")["losses"]]
        if self.settings.get(RUNNING_VARIANCE) == "biased":
            exact = dataclasses.replace(exact, weights={**exact.weights, **exact.biased})
        if LOSS_BOUND in self.settings:
            exact = dataclasses.replace(exact, losses=self.reference.bounded_losses(self.settings[LOSS_BOUND]))
        found = dataclasses.replace(exact, losses=losses, weights=self._named("steps", exact.weights))
        pairs = {name: (found.weights[name], array) for name, array in exact.weights.items()}
        steps = enumerate(zip(losses, exact.losses), start=1)
        self.compared[3] = {**pairs, **{f"loss of step {n}": (np.array(a), np.array(b)) for n, (a, b) in steps}}
        level = self._level(3, deviations.step_errors(found, exact, self.reference.initial))
        if level.passed:
            self._again()
            self._ranks_agree()
        where = level.where
        if exact.weights is not self.reference.exact.weights and any(n.op == "BatchNorm2d" for n in self.graph.nodes):
            where += " (biased running variance)"
        if not np.allclose(exact.losses, self.reference.exact.losses, rtol=1e-9, atol=0):
            where += f" (losses of logits at most {self.settings[LOSS_BOUND]:g} below the largest)"
        return dataclasses.replace(level, where=where)

    def _again(self) -> None:
        """LevelFailed if momentum outlives load_weights(): the first step from loaded weights moves by its gradient alone."""
        found, reference = self._named("again", self.reference.exact.weights), self.reference
        for name, after in reference.after_first_step().items():
            error = deviations.moved_relative(found[name], after, reference.initial[name])[0]
            if error > max(FIRST_STEP, TOLERANCE * _unit(reference.yardstick[3][name])):
                raise LevelFailed(f"{name} after load_weights() and one step: it keeps momentum from earlier steps")

    def _ranks_agree(self) -> None:
        """LevelFailed if what several processes trained is not the same, bit for bit, as the mean of their gradients is."""
        ours = self._array("steps")
        for other in sorted(self.folder.glob("rank-*")):
            theirs = np.load(other / "steps.npz")
            for name in self.reference.exact.gradients:
                if not np.array_equal(ours[name], theirs[name]):
                    raise LevelFailed(f"{name} of {other.name} is not that of rank 0 after the steps")

    def dropout(self) -> Level:
        nodes = surgery.dropout_nodes(surgery.asked_dropout(self.graph))
        if not nodes:
            return Level(5, True, "the model has none")
        for number, node in enumerate(nodes):
            with_it, without = self._pair(f"dropout {number}")
            of_samples = node.op == "StochasticDepth"
            check_dropout(node.name, node.attrs["p"], with_it, without[0], self.reference.precision, of_samples)
            if not of_samples:
                self._replicas_drop_apart(node.name, f"dropout {number}")
        check_off(*self._pair("dropout off"))
        self._in_steps(nodes)
        return Level(5, True, f"{len(nodes)} layers")

    def _replicas_drop_apart(self, layer: str, name: str) -> None:
        """LevelFailed where another replica drops the same values of its first image as replica 0 does."""
        passes, plain = (self._by_replica(f"{name} {kind}") for kind in ("with", "without"))
        for other in range(1, self.reference.replicas):
            both = (plain[0][0, 0] != 0) & (plain[other][0, 0] != 0)
            ours, theirs = (passes[number][0, 0][both] == 0 for number in (0, other))
            if both.sum() >= FEW and np.array_equal(ours, theirs):
                raise LevelFailed(f"{layer}: replicas 0 and {other} drop the same values")

    def _by_replica(self, name: str) -> list[np.ndarray]:
        """An answer (passes, N, ...) of each replica, whether one process gave them or several."""
        folders = [self.folder, *sorted(self.folder.glob("rank-*"))]
        answers = [np.load(folder / f"{name}.npz")["values"] for folder in folders]
        return [part for one in answers for part in np.split(one, self.reference.replicas // len(answers), axis=1)]

    def _in_steps(self, nodes: Sequence[Node]) -> None:
        """Dropping a share p of its inputs moves a layer's gradient by sqrt(p / (1 - p)) of itself: half is asked.

        Where what is dropped is averaged later, as in front of pooling, a share of the smallest of several draws is.
        Of a StochasticDepth one batch is enough to see that samples are dropped or scaled, not to say how many.
        """
        shares = [node.attrs["p"] for node in nodes if node.op == "Dropout"]
        least = 0.5 * math.sqrt(min(shares) / (1 - min(shares))) if shares else DEPTH_MOVES
        for kind in ("with", "without"):
            self._said(f"dropout in steps {kind} build")
        with_it, without = self._array("dropout in steps with"), self._array("dropout in steps without")
        both = (np.concatenate([part[name].ravel() for name in without]) for part in (with_it, without))
        moved = deviations.relative(*both)
        if moved < least and not any(0 < DRAW_MOVES * share <= moved for share in self._dropout_moves()):
            raise LevelFailed("dropout is off in training steps: their gradients are those of the model without it")

    def _dropout_moves(self) -> Iterator[float]:
        """Yield by what share each of DRAWS draws of dropout moves the reference's gradient of the first batch."""
        reference, graph = self.reference, surgery.asked_dropout(self.graph)
        oracle = Oracle(graph, weight_views(reference.graph, reference.flat), replicas=reference.replicas)
        draws = (None, *map(np.random.default_rng, range(DRAWS)))
        found = (oracle.gradients(*reference.batches[0], dropout=one)[2] for one in draws)
        gradients = (np.concatenate([each[name].ravel() for name in sorted(each)]) for each in found)
        without = next(gradients)
        yield from (deviations.relative(with_it, without) for with_it in gradients)

    def _pair(self, name: str) -> list[np.ndarray]:
        for kind in ("with", "without"):
            self._said(f"{name} {kind} build")
        return [self._array(f"{name} {kind}")["values"] for kind in ("with", "without")]

    def _level(self, number: int, errors: Mapping[str, float]) -> Level:
        yardstick = dict(self.reference.allowed[number])
        if deviations.GENERATED in errors:
            yardstick[deviations.GENERATED] = yardstick[deviations.EVALUATION]
        if number < 3:
            yardstick.update({k + self.at_full_size: size for k, size in self.full.allowed[number].items()})
        ratios = ratios_of(errors, yardstick, self.reference.precision)
        self.ratios[number] = ratios
        small = {name: ratio for name, ratio in ratios.items() if not name.endswith(self.at_full_size)}
        if max(small.values()) > TOLERANCE:  # then that is where to look
            ratios = small
        where = max(ratios, key=lambda name: ratios[name])
        if number == 2 and ratios[where] > TOLERANCE:
            # backward order: the last parameter that is wrong is where the gradient went wrong first
            where = [name for name, ratio in ratios.items() if ratio > TOLERANCE][-1]
        return Level(number, ratios[where] <= TOLERANCE, where, errors[where], ratios[where])

    def _said(self, name: str) -> JSON:
        if name not in self.said:
            raise WorkerEndedEarly(f"{name}: the worker ended before it was asked{self.end}")
        if "error" in self.said[name]:
            raise LevelFailed(f"{name}: {self.said[name]['error']}")
        return self.said[name]

    def _array(self, name: str) -> Mapping[str, np.ndarray]:
        self._said(name)
        return np.load(self.folder / f"{name}.npz")

    def _named(self, name: str, exact: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        held = self._array(name)
        missing = [key for key in exact if key not in held]
        if missing:
            raise LevelFailed(f"{missing[0]} is missing from the {name}")
        return {key: _shaped(held[key], array, key) for key, array in exact.items()}


def ratios_of(errors: Mapping[str, float], yardstick: Mapping[str, float], precision: str) -> dict[str, float]:
    """Errors in units of the yardstick, place by place; LevelFailed where that is not finite, as it would pass anything."""
    overflown = next((where for where, size in yardstick.items() if not math.isfinite(size)), None)
    if overflown is not None:
        raise LevelFailed(f"{overflown} overflows in {precision} even in the reference, so nothing is proved")
    least = _middles(yardstick)
    return {where: error / _unit(max(yardstick[where], least[_kind(where)], 1e-12)) for where, error in errors.items()}


def _unit(yardstick: float) -> float:
    """A TOLERANCE-th of the relative error that is allowed."""
    return yardstick if yardstick > MOST / 5 else min(yardstick, MOST / TOLERANCE)


def _kind(where: str) -> str:
    """Losses, running statistics and weights are rounded very differently; each is judged among its own."""
    return next((kind for kind in ("loss of", "running_", *deviations.ALONG.values()) if kind in where), "")


def _middles(yardstick: Mapping[str, float]) -> dict[str, float]:
    """Return the median error of each kind; frozen arrays, which do not move at all, are left out."""
    kinds: dict[str, list[float]] = {}
    for where, size in yardstick.items():
        sizes = kinds.setdefault(_kind(where), [])
        if size:
            sizes.append(size)
    return {kind: float(np.median(sizes or [0.0])) for kind, sizes in kinds.items()}


def _shaped(found: np.ndarray, exact: np.ndarray, where: str) -> np.ndarray:
    if found.shape != exact.shape:
        raise LevelFailed(f"{where}: shape {found.shape}, expected {exact.shape}")
    return found


def generation_error(asked: Reference, tokens: np.ndarray, logits: np.ndarray) -> float:
    """Relative error of the logits (N, new, vocabulary) of tokens (N, new), against the whole prefix of each in float64.

    The prefix has the tokens that were given: one that differs where two logits are the same up to rounding is no fault.
    """
    window, count = np.asarray(asked.batches[0][0]), tokens.shape[1]
    if not np.array_equal(tokens, logits.argmax(axis=-1)):
        raise LevelFailed(f"{deviations.GENERATED}: a token does not have the largest of its logits")
    whole = np.concatenate([window[:, :-count], tokens], axis=1).astype(window.dtype)
    exact = Oracle(asked.graph, weight_views(asked.graph, asked.flat)).forward(whole)[:, -count - 1 : -1]
    return deviations.relative(_shaped(logits, exact, deviations.GENERATED), exact)


def check_off(with_it: np.ndarray, without: np.ndarray) -> None:
    """LevelFailed unless logits in evaluation are those of the network without its dropout layers."""
    if not np.abs(with_it - without).max() <= OFF * np.abs(without).max():  # a NaN fails, too
        raise LevelFailed("dropout is on in evaluation mode")


def check_dropout(
    name: str, p: float, passes: np.ndarray, without: np.ndarray, precision: str, of_samples: bool = False
) -> None:
    """LevelFailed unless a share p of what is not zero anyhow is dropped, by chance, and the rest scaled by 1 / (1 - p).

    of_samples: they are dropped as a whole, as by a StochasticDepth.
    """
    alive = np.broadcast_to(without != 0, passes.shape)
    dropped = alive & (passes == 0)
    if of_samples:
        values, lost = (each.reshape(*passes.shape[:2], -1).sum(axis=2) for each in (alive, dropped))
        if ((lost > 0) & (lost < values)).any():
            raise LevelFailed(f"{name}: a part of a sample is dropped, expected all of it or nothing")
        dropped, alive = lost > 0, np.ones(lost.shape, bool)
    what = "samples" if of_samples else "values"
    share, count = dropped.sum() / alive.sum(), alive.sum()
    if abs(share - p) > SIGMAS * math.sqrt(p * (1 - p) / count):
        raise LevelFailed(f"{name}: {share:.4f} of {count} {what} dropped, expected {p}")
    _check_scale(name, p, passes, without, precision)
    if of_samples:
        if (dropped == dropped[0]).all():
            raise LevelFailed(f"{name}: each pass drops the same samples")
        if dropped.shape[1] > 1 and (dropped == dropped[:, :1]).all():
            raise LevelFailed(f"{name}: all images of a batch are dropped together")
        return
    if np.array_equal(dropped[0], dropped[1]):
        raise LevelFailed(f"{name}: two passes drop the same values")
    both = alive[0, 0] & alive[0, -1]
    if passes.shape[1] > 1 and both.sum() >= FEW and np.array_equal(dropped[0, 0][both], dropped[0, -1][both]):
        raise LevelFailed(f"{name}: all images of a batch drop the same values")


def _check_scale(name: str, p: float, passes: np.ndarray, without: np.ndarray, precision: str) -> None:
    without = np.broadcast_to(without, passes.shape)
    kept = (without != 0) & (passes != 0)
    plain, left = without[kept], passes[kept]
    # Two programs may sum by two algorithms: a value near zero carries the rounding of the large terms that it is a sum of,
    # so that what is smaller than most is judged by what most are.
    size = np.maximum(np.abs(plain), np.median(np.abs(plain)))
    off = np.abs(left * (1 - p) - plain) / size
    worst = int(off.argmax())
    if not off[worst] <= KEPT + unit(precision):  # NaN fails, too
        raise LevelFailed(
            f"{name}: kept values are scaled by {left[worst] / plain[worst]:.6g}, expected {1 / (1 - p):.6g}"
        )
