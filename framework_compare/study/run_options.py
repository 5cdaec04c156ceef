"""Options of running a study that do not affect the measurements: interpreters, package indexes, limits, sampling."""

import dataclasses
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from framework_compare.errors import UsageError, check_count, check_name
from framework_compare.launch import disturbances
from framework_compare.launch.disturbances import THRESHOLD
from framework_compare.launch.limits import Limits
from framework_compare.plan import searches
from framework_compare.plan.values import check_indexes, seconds, share
from framework_compare.protocol import Document
from framework_compare.records import Cell
from framework_compare.registry import framework as find_framework
from framework_compare.results.parity import VERDICT_MODES
from framework_compare.samplers.recorder import check_hz
from framework_compare.store import schema
from framework_compare.study import schedules
from framework_compare.study.schedules import MOST_REPEATS


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Options that do not affect the measurements."""

    python: Mapping[str, str] = dataclasses.field(default_factory=dict)  # framework -> interpreter of the user's own
    index: Mapping[str, str] = dataclasses.field(default_factory=dict)  # framework -> index of its own packages
    limits: Limits = Limits()
    sampling_hz: float = 10.0
    verify: str = "warn"  # require, warn or off: what is asked of a cell's parity before it is run
    disturbance_threshold: float = THRESHOLD  # of one core: an epoch in which others took more is marked
    retries_when_disturbed: int = 0  # how often a run with marked epochs is repeated
    profile: bool = False  # some more steps after the epochs, under the framework's own profiler
    schedule: str = schedules.SEQUENTIAL  # whether workers that compete take turns
    across_models: bool = False  # whether models compete, too
    makes_environments: bool = True  # False on nodes that may lack a way to an index: only what is there is used


# Those that a study stores under their own names.
STORED = (
    *("sampling_hz", "profile", "verify", "schedule", "across_models"),
    *("disturbance_threshold", "retries_when_disturbed"),
)


def run_options(
    python: Mapping[str, str] | None, index: Mapping[str, str] | None, limits: Limits, given: Document
) -> RunOptions:
    """RunOptions from a user's arguments; UsageError says what is allowed.

    given: those of STORED. A disturbance_threshold of None is the host's own.
    """
    interpreters = by_framework("python", python, "an interpreter")
    for name, path in interpreters.items():
        if shutil.which(path) is None and not Path(path).expanduser().exists():
            raise UsageError(
                f"python of {name} is {path!r}, which does not exist; allowed: an interpreter or its folder"
            )
    options = RunOptions(interpreters, check_indexes(by_framework("index", index, "a URL")), limits, **given)
    check_hz(options.sampling_hz)
    check_name("verify", options.verify, VERDICT_MODES)
    check_flag("profile", options.profile)
    check_name("schedule", options.schedule, schedules.SCHEDULES)
    check_flag("across_models", options.across_models)
    check_count("retries_when_disturbed", options.retries_when_disturbed, 0, most=MOST_REPEATS)
    return dataclasses.replace(options, disturbance_threshold=_threshold(options.disturbance_threshold))


def _threshold(given: float | None) -> float:
    threshold = disturbances.threshold() if given is None else given
    if not isinstance(threshold, (int, float)) or isinstance(threshold, bool) or not 0 < threshold < math.inf:
        raise UsageError(f"disturbance_threshold is {threshold!r}; allowed: a share of one core above 0, such as 0.1")
    return float(threshold)


def check_flag(name: str, value: object) -> bool:
    """UsageError for anything but True and False."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} is {value!r}; allowed: True or False")
    return value


RETRIES = 1  # of a disturbed run, where compare() is not told otherwise


PRECISION_TARGET = 0.05  # where a budget is given without one


def check_budget(
    budget: object, target: object, reference: object, repeats: object, rungs: object
) -> tuple[float, float] | None:
    """Seconds and the target of a budget, None without one; UsageError says what does not go with it."""
    if budget is None:
        for name, value in (("precision_target", target), ("reference", reference)):
            if value is not None:
                raise UsageError(f"{name} is {value!r} without a budget; name a budget, such as 30min")
        return None
    if repeats is not None:
        raise UsageError(f"repeats is {repeats!r} with a budget, which determines it; name one of the two")
    if rungs is not None:
        raise UsageError("a ladder takes no budget, because gains need complete training; leave the budget out")
    return seconds("budget", budget), share("precision_target", PRECISION_TARGET if target is None else target)


def check_sample(sample: object, budget: object, rungs: object) -> float:
    """Seconds of each run that are measured, 0 without a sample; UsageError says what does not go with it."""
    if sample is None:
        return 0.0
    for other, why in (
        (budget, "a budget decides how much of an epoch is measured"),
        (rungs, "gains need complete training"),
    ):
        if other is not None:
            raise UsageError(f"sample is {sample!r}, but {why}; name one of the two")
    return seconds("sample", sample)


def check_whole_runs(cells: Sequence[Cell], what: str) -> None:
    """UsageError for cells of which a part of an epoch would say nothing."""
    for cell in cells:
        if searches.is_search(cell.model):
            raise UsageError(f"{cell.model} is a search, and {what} cannot measure a part of it; leave it out")
        for name, usual, why in _OF_WHOLE_RUNS:
            if (value := getattr(cell.config, name)) != usual:
                raise UsageError(f"{name} is {value:g} under {what}, which {why}; leave one of the two out")


# Settings of which a part of an epoch would say nothing, unless they have this value.
_OF_WHOLE_RUNS = (
    ("patience", 0, "may measure only a part of an epoch"),
    ("nodes", 1, "may end an epoch by the clock of one node"),
    ("batch_growth", 1, "estimates an epoch from its first steps"),
)


def by_framework(option: str, given: Mapping[str, str] | None, what: str) -> dict[str, str]:
    """Values by the names that cells have; UsageError for what is not a mapping, and for an unknown name."""
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"{option} is {given!r}; allowed: {what} by framework, such as {{'torch': ...}}")
    return {find_framework(name).name: str(value) for name, value in (given or {}).items()}


def as_planned(
    settings: Document,
    path: Path,
    given: Limits = Limits(),
    index: Mapping[str, str] | None = None,
    python: Mapping[str, str] | None = None,
) -> RunOptions:
    """The options that a study's settings hold, with what is given now; `path` is the study's file."""
    try:
        limits = Limits(**{**(settings.get("limits") or {}), **given.to_dict()})
        interpreters = {**(settings.get("python") or {}), **by_framework("python", python, "an interpreter")}
        kept = {name: settings[name] for name in STORED if name in settings}
        return run_options(interpreters, index, limits, kept)
    except TypeError as error:
        raise schema.damaged(path, f"its settings: {error}") from None
