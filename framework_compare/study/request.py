"""A request: what `compare`, `largest_batch`, `ladder`, the command line and study.toml ask for, as one value."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Callable, Iterable, Mapping, Sequence, TypedDict

from framework_compare.datasets.own import DataOptions, Inputs
from framework_compare.errors import check_count, check_name
from framework_compare.launch.limits import Limits, PhaseTimeout
from framework_compare.launch.limits import check as check_limits
from framework_compare.plan import competitors
from framework_compare.plan.data_of_models import DataSets
from framework_compare.plan.ladders import Rungs
from framework_compare.plan.planning import Models, Names
from framework_compare.plan.settings import ANY_EPOCHS, SETTINGS, Settings, column
from framework_compare.protocol import Document, Fields
from framework_compare.records import Cell
from framework_compare.study import schedules
from framework_compare.study.run_options import (
    RETRIES,
    STORED,
    RunOptions,
    by_framework,
    check_budget,
    check_sample,
    check_whole_runs,
    run_options,
)
from framework_compare.study.strategies import Budget, Product, Strategy

if TYPE_CHECKING:
    from typing_extensions import Unpack


class LimitOptions(TypedDict, total=False):
    """Keywords for the limits of a run."""

    timeout_s: float | None
    phase_timeout_s: PhaseTimeout
    silence_timeout_s: float | None
    memory_limit: int | str | None


class CommonOptions(Settings, LimitOptions, total=False):
    """Keywords that all calls share which start from a request; `Request` says what each means."""

    devices: int | Sequence[int] | None
    weights: str | None
    as_written: bool
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
    disturbance_threshold: float | None
    retries_when_disturbed: int


class Options(CommonOptions, total=False):
    """Those of calls that do not say themselves how much of which cells is measured."""

    repeats: int | None
    across_models: bool
    sample: str | float | None
    budget: str | float | None
    precision_target: str | float | None
    reference: str | None


class CompareOptions(Options, total=False):
    """Keywords of `compare`."""

    rungs: Rungs | None
    one_at_a_time: bool


class RequestOptions(CompareOptions, total=False):
    """Keywords of `Request.of`."""

    dataset: DataSets | None


@dataclasses.dataclass(frozen=True)
class Request:
    """The request for a study, except for where it is stored and how it is resumed.

    frameworks: competitors: "torch" is the pinned version; "torch@2.12.0" and "torch@latest" are others, each in its
        own environment; "torch=/path/to/python" is the version in that interpreter.
    models: registered models, or your own: "my_net.py:build", "my_net.onnx", "my_net.keras", "torchvision:resnet18",
        "timm:NAME", an nn.Module, or a keras.Model. Models for images and workloads may be mixed.
    device: "cpu", "cuda", "cuda:1"; "cuda:0,1" trains one replica on each of two GPUs, "cpu:0,1" two replicas on a
        CPU.
    dataset: registered names, or folders with one folder of images per class; for a workload, the file with the real
        data (such as diabetes.csv); for your own models, also a file of arrays, a table, or arrays in memory
        (docs/own_data.md). Each model takes those that it can read; default: the model's own, "fire-smoke-small" for
        images, generated data for a workload.
    devices: number of devices, counted from the named one: 2, or [1, 2, 4] for cells on one, two and four.
    weights: for your own models: "file" starts from the weights in the file (drawn at random for zoos), "seeded" from
        weights drawn as for registered models; default: "seeded" for torchvision and timm, otherwise "file".
    as_written: if torch is compared, also train models from a file or a zoo as written, as another row: "PyTorch (as
        written)".
    repeats: runs per cell, 5 by default. Runs of different cells take turns, in a new order each time. Intervals and
        verdicts are over runs; a single run gives only figures.
    limit: number of images used, sampled from each class with the seed.
    classes: class folders, in this order; all by default.
    inputs, target, validation, normalize, window, tokenizer: how to read your own data; see
        `datasets.own.DataOptions`.
    model_output: the output of your model to train, a key or a number; default: the first.
    on_bad_image: "fail" refuses a data set with an image that does not decode, "skip" leaves it out and counts it.
    python: framework -> interpreter that already has it, instead of a managed environment.
    index: framework -> URL of a package index for it; "none": do not use PyTorch's index of CPU builds.
    timeout_s: wall seconds after which a run is ended as `timed-out`.
    phase_timeout_s: the same for a phase, by name; a single number applies to every phase except `epochs`.
    silence_timeout_s: the same for a worker that sends no event and prints nothing.
    memory_limit: for a run with all its processes, bytes or text such as "4GiB"; a run that uses more is
        `out-of-memory`.
    sampling_hz: readings of CPU, memory, threads and GPU per second, 0.01 to 100; 0 for none.
    verify: the parity check of `framework-compare verify`. "require" checks first and does not run a cell that fails;
        "warn" shows known verdicts; "off" shows none.
    profile: after the measured epochs, run a few untimed steps under the framework's own profiler, for the share of
        time of each operator, CUDA function and kernel (`Comparison.profile`), and a trace for Perfetto.
    schedule: "interleaved": workers that train the same model on the same samples take turns in rounds of short slices,
        as far as memory and devices allow. A slow period of the machine then affects all of them. "sequential": one run
        after another.
    across_models: also let models compete and take turns.
    disturbance_threshold: cores that other programs or the hypervisor may use, such as 0.1; a round, or an epoch of a
        sequential run, in which they use more is excluded. Default: 0.05 per core, at least 0.1.
    retries_when_disturbed: how often a run with such epochs is repeated after all others are done. Of a run and its
        repeats, only the one with the smallest disturbance counts; the others remain in the study and are marked.
    sample: measure about this much of each run, such as "10s": as many epochs as fit, at most `epochs` if given. The run
        ends in the epoch that exceeds this time; if that is the first epoch, the whole epoch is estimated
        (`epoch_estimate_s`).
    budget: wall time of all runs, such as "30min" or seconds. Cells get further runs where ratios are least certain,
        in blocks with their competitors, until each ratio to the reference is within precision_target or the time is
        spent. It also decides how much of each run is measured, as with `sample`. `Comparison.budget` reports the outcome.
    precision_target: with a budget, the larger half-width of the interval of a ratio, as a share; 0.05 by default.
    reference: with a budget, the framework whose ratios to the others are narrowed; by default the fastest of each model.
    rungs, one_at_a_time: as for `ladder`.
    settings: those of `plan.settings.SETTINGS` (batch_size, epochs, threads, pipeline, execution, ...). Each may be a
        list; every combination is then a cell.
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
    reference: str | None = None
    rungs: Rungs | None = None
    one_at_a_time: bool = False
    settings: Document = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, frameworks: Names, models: Models, device: Names = "cpu", **given: Unpack[RequestOptions]) -> Request:
        """Return the request with these keywords; those that are not fields are settings."""
        settings: Fields = {**given}
        own = {name: settings.pop(name) for name in FIELDS if name in settings}
        return cls(frameworks, models, device, settings=settings, **own)

    @property
    def own_loss(self) -> str:
        """The user's own loss function, FILE.py:FUNCTION; "" if the loss is a built-in one."""
        loss = self.settings.get("loss_function")
        return loss if isinstance(loss, str) and ":" in loss else ""

    @property
    def cell_settings(self) -> Document:
        """Return the settings of cells: the user's own loss function has a fixed name, and a sample ends its run."""
        own = {"loss_function": OWN_LOSS} if self.own_loss else {}
        sampled = self.sample is not None or self.budget is not None
        return {**({"epochs": ANY_EPOCHS} if sampled else {}), **self.settings, **own}

    def data_options(self) -> tuple[DataOptions, list[str]]:
        """Return the options for reading the user's own data, and the names of those that were given."""
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
        """Return the options of the runs; raise UsageError if one is not allowed."""
        given = {name: getattr(self, name) for name in STORED}
        return run_options(self.python, self.index, self.limits(), given)

    def check_runs(self) -> None:
        """Raise UsageError if the number of runs, the budget or the sample is wrong, or if two of them conflict."""
        if self.repeats is not None:
            check_count("repeats", self.repeats, 1, most=schedules.MOST_REPEATS)
        self._extent()

    def strategy(self, cells: Sequence[Cell]) -> Strategy:
        """Return the strategy that chooses the next run of these cells."""
        budget, sample_s = self._extent()
        if budget or sample_s:
            check_whole_runs(cells, "a budget" if budget else "a sample")
        in_turns = self.schedule == schedules.INTERLEAVED
        if self.reference is not None:
            check_name("reference", self.reference, sorted({cell.framework for cell in cells}))
        return Budget.of(*budget, len(cells), in_turns, self.reference or "") if budget else Product(sample_s)

    def _extent(self) -> tuple[tuple[float, float] | None, float]:
        """Return the budget, and how many seconds of each run a sample measures."""
        budget = check_budget(self.budget, self.precision_target, self.reference, self.repeats, self.rungs)
        return budget, check_sample(self.sample, self.budget, self.rungs)


OWN_LOSS = "mean_output"  # in settings and tasks: the network gives the losses
OF_DATA = ("inputs", "target", "validation", "normalize", "window", "tokenizer")
FIELDS = tuple(field.name for field in dataclasses.fields(Request) if field.name != "settings")
COMPETITORS = ("frameworks", "models", "device")  # the parameters that calls name themselves


def check_keywords(call: Callable[..., object], given: Iterable[str], more: Sequence[str] = ()) -> None:
    """Raise UnknownNameError for a keyword that is no parameter of a call, no field of a request, and no setting.

    more: parameters of others that the call passes on.
    """
    own = [one.name for one in inspect.signature(call).parameters.values() if one.kind is not one.VAR_KEYWORD]
    shared = [name for name in FIELDS if name not in COMPETITORS]
    allowed = list(dict.fromkeys([*own, *more, *shared, *sorted(map(column, SETTINGS))]))
    for name in given:
        if name not in SETTINGS:
            check_name("option", name, allowed)
