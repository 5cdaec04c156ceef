"""Requests for checks of parity: refuse impossible ones, and forecast how long others take, before they start."""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from framework_compare.errors import UsageError
from framework_compare.graph import Graph
from framework_compare.launch.memory_limit import machine_bytes
from framework_compare.parity.network.questions import Questions
from framework_compare.parity.network.reference import least_batch
from framework_compare.plan.planning import build_graph
from framework_compare.plan.settings import beyond_cores
from framework_compare.protocol import TrainConfig, replicas_of
from framework_compare.results.timing_history import ASSUMED_START_S, Range, assumed_speed

# Multiply-accumulates per second of the oracle, in numpy on all cores: least, middle, most.
ORACLE_SPEED = (2e8, 3e9, 2e10)
CURVE_RUNS = 5  # of the oracle for a loss curve: in float64, and those of its yardstick
# Of a worker: batches of the cell's own size that levels 1 and 2 train on, and the workers that a whole verdict starts.
PASSES, STARTS = 4, 3
Check = tuple[Graph, TrainConfig]  # one verdict or curve to be sought


class CheckForecast(NamedTuple):
    """Forecast of checks: how many there are to do, how many are known already, and the seconds of all.

    lacks: why others cannot be done here, and what to do.
    """

    runs: int
    known: int
    seconds: Range
    lacks: tuple[str, ...] = ()

    def __str__(self) -> str:
        low, middle, high = (f"{value / 60:.2g}" for value in self.seconds)
        kept = f", {self.known} known from the cache" if self.known else ""
        return "\n".join(
            (
                f"{self.runs} check{'s' * (self.runs != 1)}{kept}. Nothing was started.",
                f"Total: about {middle} minute{'s' * (middle != '1')}, {low} to {high}; plus time to install environments.",
                *(f"Cannot run here: {lack}." for lack in dict.fromkeys(self.lacks)),
            )
        )


def check(models: Iterable[str], configs: Sequence[TrainConfig], say: Callable[[str], None]) -> None:
    """UsageError for the first model that cannot be built, or one batch of which this machine has no memory for.

    `say` gets a sentence on threads that outnumber the cores.
    """
    most = machine_bytes()
    for model, config in itertools.product(models, configs):
        graph = build_graph(model, config)
        size = config.batch_size * _largest_bytes(graph, config)
        if size > most:
            raise UsageError(
                f"batch_size is {config.batch_size}; one layer's output of {model} would take {size / 2**30:,.0f} GiB, "
                f"but this machine has {most / 2**30:.1f} GiB of memory: name a smaller batch or image"
            )
    for sentence in beyond_cores(configs):
        say(sentence)


def _largest_bytes(graph: Graph, config: TrainConfig) -> int:
    """The smallest memory that one sample must hold at once: on a CPU any layer's output, for a GPU the inputs."""
    shapes = (
        graph.shapes() if config.device.startswith("cpu") else {name: one.shape for name, one in graph.inputs.items()}
    )
    return 4 * max(map(math.prod, shapes.values()))


def of_checks(checks: Iterable[Check], known: int = 0) -> CheckForecast:
    """Estimate checks with unknown verdicts. A reference is made once per graph and precision, for all frameworks."""
    checks, made, seconds, questions = list(checks), set(), Range(0, 0, 0), Questions()
    for graph, config in checks:
        batch = max(questions.batch_size, least_batch(graph)) * len(replicas_of(config))
        if (id(graph), config.precision, config.batch_size) not in made:
            made.add((id(graph), config.precision, config.batch_size))
            # in a small batch, and its first step once more with the copies of a batch of the cell's own size
            seconds = seconds.plus(_oracle(graph, batch * (1 + questions.draws) * (questions.steps + 1)))
        small = batch * questions.steps
        seconds = seconds.plus(_worker(graph, small + PASSES * config.batch_size, config, STARTS))
    return CheckForecast(len(checks), known, seconds)


def of_curves(checks: Iterable[Check], steps: int) -> CheckForecast:
    """Estimate loss curves: the oracle's once per graph, and one per framework and execution."""
    checks, made, seconds = list(checks), set(), Range(0, 0, 0)
    for graph, config in checks:
        if id(graph) not in made:
            made.add(id(graph))
            seconds = seconds.plus(_oracle(graph, CURVE_RUNS * steps * config.batch_size))
        seconds = seconds.plus(_worker(graph, steps * config.batch_size, config, 1))
    return CheckForecast(len(checks), 0, seconds)


def _macs(graph: Graph) -> int:
    return graph.macs() + graph.backward_macs()


def _oracle(graph: Graph, samples: int) -> Range:
    return Range(*(samples * _macs(graph) / speed for speed in reversed(ORACLE_SPEED)))


def _worker(graph: Graph, samples: int, config: TrainConfig, starts: int) -> Range:
    computing = Range(*(samples * _macs(graph) / speed for speed in reversed(assumed_speed(config))))
    return computing.plus(Range(*ASSUMED_START_S).times(starts))
