"""Records of a study: cells to run, and the measurements of each run. Frozen, in SI units."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Optional, Tuple, get_args, get_type_hints

from framework_compare.protocol import Fields, TrainConfig
from framework_compare.samplers.energy import Energy
from framework_compare.samplers.samplers import Sample

STATUSES = tuple(
    """
planned running ok unsupported not-installed out-of-memory crashed timed-out diverged failed interrupted
""".split()
)
PHASES = tuple("spawn import build load-weights open-data first-step warm-up epochs profile release".split())


@dataclasses.dataclass(frozen=True)
class Cell:
    """One (framework, model, data set, device, TrainConfig): the unit that succeeds or fails."""

    framework: str
    model: str
    dataset: str
    device: str
    config: TrainConfig

    @property
    def label(self) -> str:
        return f"{self.framework}-{self.model}-{self.device}"


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of a run, CLOCK_MONOTONIC; PSS of the whole process tree at its end, None where unreadable."""

    name: str
    start_ns: int
    end_ns: int
    pss_bytes: Optional[int] = None

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


@dataclasses.dataclass(frozen=True)
class Epoch:
    """One measured pass over the images. Step seconds run from one step's end to the next, data wait included.

    disturbed_share: what other programs and the hypervisor took meanwhile, 1 being one core; steal_share is the
    hypervisor's part, parent_share what this process took. disturbed is 1 where that is more than the run's threshold,
    0 where it is not; None where nobody knows.
    whole_images: of an epoch that was ended early, how many it would have had; None of a whole one. Of such a sample
    pipeline_s are seconds per batch of the input pipeline alone, and estimate_s is what the whole epoch would take.
    waited_s: of a worker that takes turns with others, seconds of the epoch in which it waited for one.
    copy_s and compute_s: copying batches to the device and computing there, by its clock or as IsolatedTimes has it; None
    on a CPU.
    """

    number: int
    start_ns: int
    end_ns: int
    data_wait_s: float
    images: int
    steps: int
    loss: Optional[float]  # None in mode "inference"
    step_s_median: float
    step_s_p05: float
    step_s_p95: float
    copy_s: Optional[float] = None
    compute_s: Optional[float] = None
    disturbed_share: Optional[float] = None
    steal_share: Optional[float] = None
    parent_share: Optional[float] = None
    swap_in_bytes: Optional[int] = None
    cpu_throttles: Optional[int] = None
    disturbed: Optional[int] = None
    whole_images: Optional[int] = None
    pipeline_s: Optional[float] = None
    estimate_s: Optional[float] = None
    waited_s: Optional[float] = None

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9 - (self.waited_s or 0.0)

    @property
    def whole_steps(self) -> int:
        """Steps of the whole epoch, also where only some of them were measured."""
        return self.steps if self.whole_images is None else math.ceil(self.whole_images * self.steps / self.images)


@dataclasses.dataclass(frozen=True)
class Slice:
    """Work of a worker in one turn: CLOCK_MONOTONIC from the start of its turn to its end, and the part on the clock.

    round: the number of the round in which each rival had a turn. steps and samples are those on the clock, measured_s
    their seconds, without the steps before that fill caches again. void: why the round does not count, "" where it does.
    """

    round: int
    start_ns: int
    end_ns: int
    steps: int
    samples: int
    measured_s: float
    cpu_s: float  # of the worker's process, while on the clock
    major_faults: int
    void: str = ""


@dataclasses.dataclass(frozen=True)
class Quality:
    """A metric of the network after an epoch, of a split that it was not trained on; None where it is undefined."""

    epoch: int
    split: str  # "validation"
    name: str  # "loss", or of batches.quality.METRICS
    value: Optional[float]


# Operators are the host's, CUDA functions what it calls of that API, kernels the device's.
PROFILE_KINDS = ("operator", "cuda-runtime", "kernel")


@dataclasses.dataclass(frozen=True)
class ProfileRow:
    """Time that the profiled steps of a run spent under one name, without the time of others called from it."""

    kind: str  # of PROFILE_KINDS
    name: str
    calls: int
    self_s: float


@dataclasses.dataclass(frozen=True)
class Run:
    """One execution of a cell, whatever became of it."""

    status: str
    reason: str = ""
    started_at: str = ""  # ISO 8601, UTC
    wall_s: Optional[float] = None
    exit_code: Optional[int] = None
    signal: Optional[str] = None  # "SIGSEGV"
    died_in: Optional[str] = None  # the phase in which it ended, None when it ended well
    log_path: Optional[str] = None  # relative to the study folder
    trace_path: Optional[str] = None  # what the profiler wrote, to open in Perfetto; relative to the study folder
    traceback: Optional[str] = None
    framework_version: Optional[str] = None
    interpreter: Optional[str] = None
    settings: Fields = dataclasses.field(default_factory=dict)  # what `default` and `recommended` came to
    parameters: Optional[int] = None
    peak_rss_bytes: Optional[int] = None
    warnings: Tuple[str, ...] = ()
    limits: Fields = dataclasses.field(default_factory=dict)  # it ran under, and what held its memory
    log_tail: Optional[str] = None  # the last lines of the log, None when it ended well
    gauges: Fields = dataclasses.field(default_factory=dict)  # how the samplers got their readings
    disturbed_epochs: Optional[int] = None  # None where nobody knows
    disturbed_s: Optional[float] = None  # their seconds, and the mean of what others took of a core in them
    disturbed_share: Optional[float] = None
    settled: Optional[int] = None  # whether step times are steady after the warm-up
    duel: Optional[int] = None  # run_id of the first of the runs that took turns with this one; None: it ran alone
    alone_why: Optional[str] = None  # why it took turns with none, where others compete with it
    phases: Tuple[Phase, ...] = ()
    epochs: Tuple[Epoch, ...] = ()
    slices: Tuple[Slice, ...] = ()
    quality: Tuple[Quality, ...] = ()
    samples: Tuple[Sample, ...] = ()
    energy: Tuple[Energy, ...] = ()
    profile: Tuple[ProfileRow, ...] = ()

    @property
    def pace_s(self) -> Optional[float]:
        """Seconds per sample in the turns that count, or in all if none does; None without any."""
        counted = [one for one in self.slices if not one.void] or self.slices
        samples = sum(one.samples for one in counted)
        return sum(one.measured_s for one in counted) / samples if samples else None


def oversize(batch_size: int, samples: int, dataset: str, unit: str = "image") -> str:
    """The warning for a batch size larger than the data set, "" for others."""
    if batch_size <= samples:
        return ""
    return (
        f"batch size {batch_size} is larger than {dataset}, which has {samples} {unit}s: each step trains on {samples}"
    )


def idle_workers(workers: int, batches: int) -> str:
    """The warning for loader workers that make whole batches where an epoch has too few of them, else ""."""
    if workers <= batches:
        return ""
    return (
        f"{workers - batches} of {workers} loader workers are idle, because each makes whole batches and an epoch has only "
        f"{batches}: images/s and the wait for data do not show what this pipeline can do; use at least {10 * workers} "
        "batches per epoch, or fewer loader workers"
    )


@functools.cache  # evaluating hints takes a twentieth of reading a study
def types_of(record: Any) -> dict[str, str]:
    """The type of each field by its name: "int", "float | None"; others than numbers and texts as Python shows them."""
    return {name: _named(hint) for name, hint in get_type_hints(record).items()}


def _named(hint: Any) -> str:
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    if len(kinds) == 1 and type(None) in get_args(hint):
        return f"{_named(kinds[0])} | None"
    return hint.__name__ if isinstance(hint, type) and not kinds else str(hint)
