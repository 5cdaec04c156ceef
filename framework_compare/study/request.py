"""A request: what `compare`, `largest_batch`, `ladder`, the command line and study.toml ask for, as one value."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, Callable, Mapping, Sequence, TypedDict

from framework_compare.datasets.own import DataOptions, Inputs
from framework_compare.errors import check_count
from framework_compare.launch.limits import Limits, PhaseTimeout
from framework_compare.launch.limits import check as check_limits
from framework_compare.plan import competitors
from framework_compare.plan.data_of_models import DataSets
from framework_compare.plan.ladders import Rungs
from framework_compare.plan.planning import Models, Names
from framework_compare.plan.settings import Settings
from framework_compare.records import Cell
from framework_compare.results.verdicts import check_mode
from framework_compare.study import blocks, schedules
from framework_compare.study.run_options import (
    RETRIES,
    RunOptions,
    by_framework,
    check_budget,
    check_disturbance,
    check_flag,
    check_sample,
    check_whole_runs,
    run_options,
)
from framework_compare.study.strategies import Budget, Product, Strategy

# Keywords before version 0.1; they go with version 0.2.
FORMER = {"loss": "loss_function", "on_bad_picture": "on_bad_image"}


class LimitOptions(TypedDict, total=False):
    """Keywords for the limits of a run."""

    timeout_s: float | None
    phase_timeout_s: PhaseTimeout
    silence_timeout_s: float | None
    memory_limit: int | str | None


class Options(Settings, LimitOptions, total=False):
    """Keywords that all calls share which start from a request; `Request` says what each means."""

    devices: int | Sequence[int] | None
    weights: str | None
    as_written: bool
    repeats: int | None
    limit: int | None
    classes: Sequence[str] | None
    on_bad_image: str
    inputs: Inputs
    target: str | Sequence[str] | None
    validation: float | None
    normalize: str | None
    window: int | None
    tokenizer: str | None
    model_output: str | None
    python: Mapping[str, str] | None
    index: Mapping[str, str] | None
    sampling_hz: float
    verify: str
    profile: bool
    schedule: str
    across_models: bool
    disturbance_threshold: float | None
    retries_when_disturbed: int
    sample: str | float | None
    budget: str | float | None
    precision_target: str | float | None


class CompareOptions(Options, total=False):
    """Keywords of `compare`."""

    rungs: Rungs | None
    one_at_a_time: bool


@dataclasses.dataclass(frozen=True)
class Request:
    """What a study is asked for; where it is stored and how it is resumed is no part of it.

    frameworks: competitors: "torch", the pinned version; "torch@2.12.0" or "torch@latest", another one in an environment
        of its own; "torch=/path/to/python", what that interpreter has.
    models: registered ones; or networks of yours: "my_net.py:build", "my_net.onnx", "my_net.keras",
        "torchvision:resnet18", "timm:NAME", an nn.Module, or a keras.Model. Models for images and workloads may be mixed.
    device: "cpu", "cuda", "cuda:1"; "cuda:0,1" trains a replica of the network on each of two GPUs, "cpu:0,1" two on a CPU.
    dataset: names of the registry, or folders with one folder of images per class; for a workload the file with the real
        data (such as diabetes.csv); for your own models also a file of arrays or a table, or arrays in hand
        (docs/own_data.md). Each model takes those that it can read; default: the one that it is for,
        "fire-smoke-small" for images, generated data for a workload.
    devices: how many of them from that number on, such as 2, or [1, 2, 4] for cells on one, two and four.
    weights: of your networks: "file", those they come with (of zoos those that are drawn), or "seeded", as registered
        models start; default: "seeded" of torchvision and timm, "file" of all else.
    as_written: train your networks in torch as they are written, too, where torch is compared and a file or a zoo has
        them: a row of their own, "PyTorch (as written)".
    repeats: runs of each cell, 5 by default; runs of different cells take turns, in a new order each turn. Intervals and
        verdicts are over runs: one run gives figures only.
    limit: use this many images, drawn by class and seed.
    classes: class folders, in this order; all by default.
    inputs, target, validation, normalize, window, tokenizer: how own data are read, as `datasets.own.DataOptions` has them.
    model_output: the output of your model that is trained, a key or a number; default: the first.
    on_bad_image: "fail" refuses a data set with an image that does not decode, "skip" leaves it out and counts it.
    python: framework -> interpreter that already has it, instead of a managed environment.
    index: framework -> URL of the package index of its own packages; "none": without that of PyTorch's CPU builds.
    timeout_s: wall seconds after which a run is ended as `timed-out`.
    phase_timeout_s: the same for a phase, by name; one number applies to every phase but `epochs`.
    silence_timeout_s: the same for a worker that sends no event and prints nothing.
    memory_limit: of a run with all its processes, bytes or text such as "4GiB"; more ends it as `out-of-memory`.
    sampling_hz: readings per second of CPU, memory, threads and GPU, 0.01 to 100; 0 for none.
    verify: the parity check of `framework-compare verify`. "require" checks first and does not run a cell that fails;
        "warn" shows known verdicts; "off" shows none.
    profile: after the measured epochs, run a few more steps under the framework's own profiler, untimed: the share of
        time of each operator, CUDA function and kernel (`Comparison.profile`), and a trace to open in Perfetto.
    schedule: "interleaved": workers that compete (they train the same model on the same samples) are live at the same
        time and take turns in rounds of short slices, wherever memory and devices allow; what slows the machine meets
        all of them. "sequential": one run after another.
    across_models: models compete as well, and take turns.
    disturbance_threshold: cores that other programs or the hypervisor may take, such as 0.1; a round, or an epoch of
        a sequential run, in which they took more is left out. Default: 0.05 for each core, 0.1 at least.
    retries_when_disturbed: how often a run with such epochs is repeated, when all others are done; of it and its
        repeats the one that lost the least counts; the others stay in the study and are marked.
    sample: measure about so much of each run, such as "10s": the epoch in which that is reached is not finished, and a
        whole one is estimated (`epoch_estimate_s`) where it is the first.
    budget: wall time of all runs, such as "30min" or seconds. Cells get more runs where ratios are least sure, in blocks
        with those they compete with, until each ratio to the fastest is within precision_target or the time is spent;
        of an epoch that takes long only some steps are measured, as with `sample`. `Comparison.budget` says how it
        ended.
    precision_target: with a budget, the larger half-width of the interval of a ratio, as a share; 0.05 by default.
    rungs, one_at_a_time: as `ladder` has them.
    settings: those of `plan.settings.SETTINGS` (batch_size, epochs, threads, pipeline, execution, ...); they may be
        lists, and then every combination is a cell.
    """

    frameworks: Names
    models: Models
    device: Names = "cpu"
    dataset: DataSets | None = None
    devices: int | Sequence[int] | None = None
    weights: str | None = None
    as_written: bool = True
    repeats: int | None = None
    limit: int | None = None
    classes: Sequence[str] | None = None
    on_bad_image: str = "fail"
    inputs: Inputs = None
    target: str | Sequence[str] | None = None
    validation: float | None = None
    normalize: str | None = None
    window: int | None = None
    tokenizer: str | None = None
    model_output: str | None = None
    python: Mapping[str, str] | None = None
    index: Mapping[str, str] | None = None
    timeout_s: float | None = None
    phase_timeout_s: PhaseTimeout = None
    silence_timeout_s: float | None = None
    memory_limit: int | str | None = None
    sampling_hz: float = 10.0
    verify: str = "warn"
    profile: bool = False
    schedule: str = schedules.INTERLEAVED
    across_models: bool = False
    disturbance_threshold: float | None = None
    retries_when_disturbed: int = RETRIES
    sample: str | float | None = None
    budget: str | float | None = None
    precision_target: str | float | None = None
    rungs: Rungs | None = None
    one_at_a_time: bool = False
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, frameworks: Names, models: Models, device: Names = "cpu", **given: Any) -> Request:
        """Return the request of these keywords, of which those that are no fields are settings."""
        for old in FORMER.keys() & given.keys():
            new = FORMER[old]
            warnings.warn(f"{old} is called {new} now; the old name goes with version 0.2", FutureWarning, stacklevel=3)
            given.setdefault(new, given.pop(old))
        own = {name: given.pop(name) for name in FIELDS if name in given}
        return cls(frameworks, models, device, settings=given, **own)

    @property
    def own_loss(self) -> str:
        """A loss function of the user's, FILE.py:FUNCTION; "" for one by name."""
        loss = self.settings.get("loss_function")
        return loss if isinstance(loss, str) and ":" in loss else ""

    @property
    def cell_settings(self) -> Mapping[str, Any]:
        """Return the settings of cells, where a loss function of the user's stands under the name that it gets there."""
        return {**self.settings, "loss_function": OWN_LOSS} if self.own_loss else self.settings

    def data_options(self) -> tuple[DataOptions, list[str]]:
        """Return how own data are read, and the names of those options that were given."""
        asked = [name for name in OF_DATA if getattr(self, name) is not None]
        loss, seed = self.own_loss and OWN_LOSS or self.settings.get("loss_function"), self.settings.get("seed", 0)
        given = {name: getattr(self, name) for name in asked}
        first = seed[0] if isinstance(seed, (list, tuple)) and seed else seed
        return DataOptions(**given, loss=loss if isinstance(loss, str) else None, seed=first), asked

    def with_versions(self, say: Callable[[str], None]) -> Request:
        """Return the request with the names, interpreters and indexes of its competitors."""
        python = by_framework("python", self.python, "an interpreter")
        index = by_framework("index", self.index, "a URL")
        found = competitors.read(self.frameworks, python, index, str(self.device), say)
        return dataclasses.replace(self, frameworks=found.names, python=found.python or None, index=found.index or None)

    def limits(self) -> Limits:
        return check_limits(self.timeout_s, self.phase_timeout_s, self.silence_timeout_s, self.memory_limit)

    def run_options(self) -> RunOptions:
        """Return how runs are run; UsageError says what is allowed."""
        return dataclasses.replace(
            run_options(self.python, self.index, self.limits(), self.sampling_hz),
            verify=check_mode(self.verify),
            profile=check_flag("profile", self.profile),
            schedule=schedules.check(self.schedule),
            across_models=check_flag("across_models", self.across_models),
            **check_disturbance(self.disturbance_threshold, self.retries_when_disturbed),
        )

    def check_runs(self) -> None:
        """UsageError for a number of runs, a budget or a sample that is wrong or rules out another."""
        if self.repeats is not None:
            check_count("repeats", self.repeats, 1, most=blocks.MOST_REPEATS)
        check_budget(self.budget, self.precision_target, self.repeats, self.rungs)
        check_sample(self.sample, self.budget, self.rungs)

    def strategy(self, cells: Sequence[Cell]) -> Strategy:
        """Return how runs of these cells are picked."""
        budget = check_budget(self.budget, self.precision_target, self.repeats, self.rungs)
        sample_s = check_sample(self.sample, self.budget, self.rungs)
        if budget or sample_s:
            check_whole_runs(cells, "a budget" if budget else "a sample")
        in_turns = self.schedule == schedules.INTERLEAVED
        return Budget.of(*budget, len(cells), in_turns) if budget else Product(sample_s)


OWN_LOSS = "mean_output"  # in settings and tasks: the network gives the losses
OF_DATA = ("inputs", "target", "validation", "normalize", "window", "tokenizer")
FIELDS = tuple(field.name for field in dataclasses.fields(Request) if field.name != "settings")
