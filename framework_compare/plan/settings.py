"""Every setting of a cell, once: what it means, what is allowed, where it counts. Its default is TrainConfig's."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Iterable, Iterator, Sequence, TypeAlias, TypedDict

from framework_compare.errors import UsageError
from framework_compare.graph import LOSSES, OPTIMIZERS
from framework_compare.protocol import (
    CROPS,
    EXECUTIONS,
    FLIPS,
    GPU_THREADS,
    INTERNALS,
    MODES,
    OPTIMIZER_VARIANTS,
    PIPELINES,
    PRECISIONS,
    TUNINGS,
    Document,
    Fields,
    TrainConfig,
)
from framework_compare.samplers.host import available_cores

DEFAULTS = TrainConfig()
OF_IMAGES = ("num_classes", "flip", "crop")  # settings that arrays have no use for
BY_ARRAYS = (*OF_IMAGES, "loss", "image_size", "loader_workers")  # settings that arrays decide

# Roles: where a setting is shown.
IDENTITY = "identity"  # a column beside every figure
QUIET = "quiet"  # a column further on
OF_DATASET = "of the data set"  # the data set decides it; no table is split by it

# Parts of a verdict on parity, which another value makes another verdict.
CODE_PATH = "code path"  # which code of a framework runs
NETWORK = "network"  # shapes of the model
FEEDING = "feeding"  # how images reach it
SIZES = "sizes"  # by which libraries choose kernels


@dataclasses.dataclass(frozen=True)
class Setting:
    """One field of TrainConfig.

    help: what it is, or what each choice is; no capital, no full stop.
    choices: the words that are allowed, or their forms where `pattern` says which are.
    least, below: a number is at least the one and less than the other.
    caption: how a table's caption says a value; a noun after "{} " is made plural. "" is the name and the value.
    column: its name for users where it is not the field's.
    all_cores: None, which the API and the command line start from, is as many as the cores that a run may use.
    """

    help: str
    role: str = QUIET
    choices: tuple[str, ...] = ()
    pattern: str = ""
    least: float = 0
    below: float = math.inf
    caption: str = ""
    column: str = ""
    verdict: str = ""
    may_be_list: bool = True
    all_cores: bool = False

    @property
    def meaning(self) -> str:
        """Return what it is and what is allowed, for `--help` and the docs."""
        if not self.choices:
            below = f", less than {self.below:.10g}" if self.below < math.inf else ""
            return f"{self.help}; at least {self.least:g}{below}"
        explained = all(f"{choice}: " in self.help for choice in self.choices)
        return self.help if explained else f"{self.help}: {', '.join(self.choices)}"

    def chooses(self, value: object) -> bool:
        """Return whether a value is one of the choices."""
        pattern = self.pattern or "|".join(self.choices)
        return isinstance(value, str) and re.fullmatch(pattern, value) is not None


_N = "(0|[1-9][0-9]*)"
_DEVICE = rf"cpu(:0(,{_N})+)?|cuda(:{_N}(,{_N})*)?"
_PIPELINE = (
    "native: the framework's own loader; shared: one loader, same batches for all; memory: one batch kept in memory"
)
_TUNING = "recommended: the settings of the framework's own performance guide; none: its defaults"
_THREADS = "number of threads in each compute pool"
_WORKERS = "processes (or threads) that only read images"
_MODE = (
    "train: forward, backward and update; inference: forward only, with the latency of single steps; generation:"
    " tokens one by one"
)
_PATIENCE = "training stops after this many epochs without a lower validation loss, as in Keras; 0: never"
_EPOCHS = "measured epochs (100 in the published study)"
ANY_EPOCHS = 10**6  # more than any sample holds, which then ends the run
_SIZE = "height and width in pixels; each model has a smallest size"
_CLASSES = "number of classes; `compare` takes it from the data set"
_INTERNALS = "public: only public calls of the framework; private: singa's grouped convolutions through a corrected private field"
_VARIANT = (
    "equal: one definition for all; native: each framework's own, with its own defaults except the learning rate, so"
    " training differs"
)
_GPU_THREADS = "shared: threads that launch GPU kernels are common to all GPUs; private: separate for each GPU"
_GROWTH = "growth factor from each batch of an epoch to the next; 1: constant"
_NODES = "nodes of a Slurm job that train together, each on the devices named"
_CROP = "random: a random crop; none: the whole image, stretched"
# In the order of the frames' columns.
SETTINGS: dict[str, Setting] = {
    "device": Setting(
        "the device to train on; with several, each trains a replica of the model",
        IDENTITY,
        ("cpu", "cuda", "cuda:N", "cuda:N,M", "cpu:0,1"),
        _DEVICE,
        caption="{}",
        verdict=CODE_PATH,
    ),
    "nodes": Setting(_NODES, IDENTITY, least=1, caption="{} node", verdict=CODE_PATH),
    "mode": Setting(_MODE, IDENTITY, MODES, caption="{}", verdict=CODE_PATH),
    "batch_size": Setting("images per step and device", IDENTITY, least=1, caption="batch {}", verdict=SIZES),
    "execution": Setting("how the framework runs a step", IDENTITY, EXECUTIONS, verdict=CODE_PATH),
    "pipeline": Setting(_PIPELINE, IDENTITY, PIPELINES, verdict=FEEDING),
    "precision": Setting("number format of the arithmetic", IDENTITY, PRECISIONS, verdict=CODE_PATH),
    "tuning": Setting(_TUNING, IDENTITY, TUNINGS, verdict=CODE_PATH),
    "threads": Setting(_THREADS, IDENTITY, least=1, caption="{} thread", verdict=SIZES, all_cores=True),
    "loader_workers": Setting(_WORKERS, IDENTITY, caption="{} loader worker", verdict=FEEDING, all_cores=True),
    "epochs": Setting(_EPOCHS, least=1, caption="{} epoch"),
    "learning_rate": Setting("step size of the optimizer"),
    "momentum": Setting("momentum of SGD", below=1),
    "weight_decay": Setting("weight decay: of all parameters in SGD, of those with two axes or more in AdamW"),
    "warmup_steps": Setting("untimed steps after the first one"),
    "seed": Setting("seed of weights, order and augmentation", below=2**32),  # what every framework takes
    "image_size": Setting(_SIZE, least=1, verdict=NETWORK),
    "num_classes": Setting(_CLASSES, OF_DATASET, least=2, verdict=NETWORK, may_be_list=False),
    "flip": Setting("axis along which half of the images are mirrored", choices=FLIPS),
    "crop": Setting(_CROP, choices=CROPS),
    "optimizer": Setting("the algorithm that updates the weights", choices=tuple(OPTIMIZERS)),
    "loss": Setting(
        "the function to minimise, by default that of the data set's task", choices=LOSSES, column="loss_function"
    ),
    "patience": Setting(_PATIENCE),
    "epsilon": Setting("epsilon of adam, adamw, rmsprop and nadam"),
    "internals": Setting(_INTERNALS, choices=INTERNALS, verdict=CODE_PATH),
    "optimizer_variant": Setting(_VARIANT, choices=OPTIMIZER_VARIANTS, verdict=CODE_PATH),
    "gpu_threads": Setting(_GPU_THREADS, choices=GPU_THREADS, verdict=CODE_PATH),
    "batch_growth": Setting(_GROWTH, least=1),
    "batch_size_limit": Setting("upper bound with batch_growth", least=1),
    "beta2": Setting("decay of the second moment of adam, adamw and nadam", below=1),
    "clip_norm": Setting("largest norm of all gradients together; 0: no clipping"),
    "ramp_updates": Setting("number of initial updates over which the learning rate rises linearly"),
    "decay_updates": Setting("update at which cosine decay reaches final_rate; 0: no decay"),
    "final_rate": Setting("share of the learning rate that remains after the decay", below=1),
    "accumulation": Setting("batches per update, which uses their mean gradient", least=1),
    "new_tokens": Setting("tokens generated per prompt (generation mode)", least=1),
    "label_smoothing": Setting("share of each label that is spread over all classes", below=1),
}

Words: TypeAlias = str | Sequence[str]
Counts: TypeAlias = int | Sequence[int]
Numbers: TypeAlias = float | Sequence[float]


class Settings(TypedDict, total=False):
    """Settings as keywords, by their columns: one value, or several that are cells of their own."""

    nodes: Counts
    mode: Words
    batch_size: Counts
    execution: Words
    pipeline: Words
    precision: Words
    tuning: Words
    threads: Counts | None
    loader_workers: Counts | None
    epochs: Counts
    learning_rate: Numbers
    momentum: Numbers
    weight_decay: Numbers
    warmup_steps: Counts
    seed: Counts
    image_size: Counts
    num_classes: int
    flip: Words
    crop: Words
    optimizer: Words
    loss_function: Words
    patience: Counts
    epsilon: Numbers
    internals: Words
    optimizer_variant: Words
    gpu_threads: Words
    batch_growth: Numbers
    batch_size_limit: Counts
    beta2: Numbers
    clip_norm: Numbers
    ramp_updates: Counts
    decay_updates: Counts
    final_rate: Numbers
    accumulation: Counts
    label_smoothing: Numbers
    new_tokens: Counts


# What cells may differ in whose workers take turns: all train on the same samples, and end together.
COMPARED = (
    *("execution", "precision", "tuning", "pipeline", "threads", "loader_workers"),
    *("batch_size", "internals", "optimizer_variant", "gpu_threads"),
)


def column(name: str) -> str:
    """Return what users call a setting: in requests, options and frames. `loss` there would be taken for a figure."""
    return SETTINGS[name].column or name


# By column, what cells have in common whose workers take turns.
OF_RIVALS = ("model", "dataset", *(column(name) for name in SETTINGS if name not in COMPARED))


def fields(given: Document) -> Fields:
    """Settings by the fields of TrainConfig, from the names that users give them."""
    known = {column(name): name for name in SETTINGS}
    return {known.get(name, name): value for name, value in given.items()}


def of_role(*roles: str) -> tuple[str, ...]:
    """Settings of these roles."""
    return tuple(name for name, setting in SETTINGS.items() if setting.role in roles)


def of_verdict(*parts: str) -> tuple[str, ...]:
    """Settings that these parts of a verdict on parity depend on, part by part."""
    return tuple(name for part in parts for name, setting in SETTINGS.items() if setting.verdict == part)


def beyond_cores(configs: Iterable[TrainConfig]) -> Iterator[str]:
    """A sentence on each number of threads and loader workers that is larger than that of the cores a run may use."""
    cores, configs = available_cores(), list(configs)
    for name in (name for name, setting in SETTINGS.items() if setting.all_cores):
        for count in sorted({getattr(config, name) for config in configs}):
            if count > cores:
                yield f"{name} is {count}, but a run may use only {cores} cores: the rest wait for a core, which takes time"


def check_number(name: str, value: object, *, low: float, high: float) -> None:
    """UsageError unless `value` is a number from `low` to below `high`."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not low <= value < high:
        bound = "" if high == math.inf else f" and less than {high:g}"
        raise UsageError(f"{name} is {value!r}; allowed: a finite number of at least {low:g}{bound}")
