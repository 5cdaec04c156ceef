"""Precisions, devices and answers that are the same in most frameworks."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Optional, Tuple

import numpy as np

from framework_compare.graph import OPTIMIZERS, Schedule
from framework_compare.graph.optimizer import options_of
from framework_compare.protocol import EXECUTIONS, PRECISIONS, UPDATES, Declared, DeviceTimes, TrainConfig

HALF_TYPES = {"bf16": "bfloat16", "fp16": "float16"}  # what is computed in, by precision; the others compute in float32
LOSS_SCALE = 8192.0  # of fp16 at the start; a power of two, low enough that the first steps do not overflow
STEPS = frozenset(EXECUTIONS) - {"fit", "max-autotune", "fast-math"}  # where the step is always the adapter's own
# What adapters declare who have the framework's own of these, too; that of SGD would be the same.
NATIVE_OPTIMIZERS = frozenset({"native adam", "native rmsprop", "native nadam", "native adamw"})
STEPS_BEFORE_GROWTH = 2000  # finite ones in a row, before the scale doubles; torch.amp.GradScaler's rule
OWN_STATISTICS = "BatchNorm of each replica's own batch"


def declare(ops: FrozenSet[str], losses: Iterable[str], optimizers: Iterable[str], **own: Any) -> Declared:
    """Return what an adapter declares: what PyTorch, TensorFlow and JAX have in common, and its own fields."""
    precisions = {"cpu": frozenset({"fp32", "bf16"}), "cuda": frozenset(PRECISIONS)}
    own.update(losses=frozenset(losses), optimizers=frozenset(optimizers) | NATIVE_OPTIMIZERS)
    return Declared(ops=ops, precisions=precisions, several_inputs=True, updates=frozenset(UPDATES), **own)


def each(function: Callable[[Any], Any], arrays: Any) -> Any:
    """The function of an only array, or of each of a tuple: a batch has several inputs where its network has."""
    return tuple(map(function, arrays)) if isinstance(arrays, tuple) else function(arrays)


def arguments(arrays: Any) -> Tuple[Any, ...]:
    """The inputs of a batch, of which an only one stands alone."""
    return arrays if isinstance(arrays, tuple) else (arrays,)


def gpu_number(device: str) -> int:
    """N of "cuda:N"; 0 of "cuda"."""
    return int(device.partition(":")[2] or 0)


def needs_capability(precision: str, ask: Callable[[], Iterable[int]]) -> Optional[str]:
    """Return why a GPU has no kernels for a precision, or None; `ask` gives its compute capability if that matters."""
    if precision not in ("tf32", "bf16"):
        return None
    major, minor = ask()
    if major >= 8:
        return None
    return f"precision {precision!r} needs compute capability 8.0; this GPU has {major}.{minor}"


def xla_flags(config: TrainConfig) -> Dict[str, str]:
    """The environment variable by which XLA compiles for a CPU as if floating-point sums could be reordered."""
    return {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"} if config.execution == "fast-math" else {}


def optimizer_settings(config: TrainConfig) -> Dict[str, float]:
    """The options of a config's optimiser, by their names in `graph.OPTIMIZERS`.

    Decays of moments are as float32 has them: some kernels take 1 - beta2 in float32, which is 1e-5 off, and the
    correction by its powers in float64, so that only with the same beta2 one makes up for the other.
    """
    options = {**OPTIMIZERS[config.optimizer], **options_of(config)}
    return {name: float(np.float32(value)) if name.startswith("beta") else value for name, value in options.items()}


def is_native(config: TrainConfig) -> bool:
    """Return whether the optimiser is the framework's own, with all its defaults but the learning rate."""
    return config.optimizer_variant == "native"


def rates(config: TrainConfig) -> np.ndarray:
    """The learning rates of all updates up to one from which on it stays the same: one where it never changes."""
    return np.array([config.learning_rate * share for share in Schedule.of(config).table()])


class Updates:
    """Batches that are gathered into updates, and the learning rate of each; for steps that Python begins."""

    def __init__(self, config: TrainConfig) -> None:
        self._config, self._schedule, self._batches = config, Schedule.of(config), 0

    def forget(self) -> None:
        self._batches = 0

    @property
    def begins(self) -> bool:
        """Return whether the next batch is the first of an update."""
        return self._batches % self._config.accumulation == 0

    def gathered(self) -> bool:
        """Count a batch; whether its update is due."""
        self._batches += 1
        return self.begins

    def rate(self) -> Optional[float]:
        """Return the learning rate of the next update; None if it never changes."""
        if self._schedule.is_constant:
            return None
        return self._config.learning_rate * self._schedule.share(self._batches // self._config.accumulation - 1)


def loss_scale_settings(config: TrainConfig) -> Dict[str, Any]:
    """Return what `settings` says of the scale of fp16's loss; nothing for another precision."""
    return {"loss_scale": f"dynamic, from {LOSS_SCALE:g}"} if config.precision == "fp16" else {}


class TrainerDefaults:
    """Answers of a Trainer whose framework has no more to say; a framework that has overrides them."""

    name: str  # of the framework, and of the module that it is imported as

    def version(self) -> str:
        return str(sys.modules[self.name].__version__)

    def host_array(self, shape: Tuple[int, ...]) -> np.ndarray:
        return np.empty(shape, dtype=np.float32)

    def read_losses(self, losses: List[Any]) -> List[float]:
        return [float(loss) for loss in losses]

    def device_times(self) -> Optional[DeviceTimes]:
        return None
