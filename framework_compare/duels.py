"""Two competitors against each other, now: one verdict and, with a limit, one outcome for CI."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from framework_compare import api, registry
from framework_compare.comparison import Comparison
from framework_compare.errors import UsageError, check_count
from framework_compare.forecast import Forecast
from framework_compare.plan import competitors
from framework_compare.plan.data_of_models import DataSets
from framework_compare.plan.settings import SETTINGS, column
from framework_compare.plan.values import slowdown
from framework_compare.protocol import Fields
from framework_compare.results import repeats, speed_verdicts
from framework_compare.results.intervals import Interval
from framework_compare.results.regression_gate import FAILED, NOT_SLOWER, UNJUDGED, judgement
from framework_compare.results.speed_verdicts import Bar, Verdict, blocking_reason, verified
from framework_compare.study import schedules
from framework_compare.study.request import CommonOptions
from framework_compare.study.schedules import MOST_REPEATS

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from framework_compare.plan.planning import Names
    from framework_compare.study.executors import Executor
    from framework_compare.study.progress import Watcher

BLOCKS = 8  # fresh workers differ by more than rounds of the same ones do
SAMPLE_S = 3.0  # of each competitor in a block


class DuelOptions(CommonOptions, total=False):
    """Keywords of `duel` that it passes to `compare`."""

    out: api.Folder | None
    retry: Names
    extend: bool
    executor: Executor | None
    watcher: Watcher | None


class BisectOptions(CommonOptions, total=False):
    """Keywords of `bisect` that it passes to `duel`."""

    device: str
    sample: str | float
    executor: Executor | None


@dataclasses.dataclass(frozen=True)
class Duel:
    """The result of a duel.

    ratio: seconds of B over seconds of A, with its 95 % interval; NaN if there is none. max_slowdown: how much longer B
    may take, as a share. outcome: FAILED if a competitor did not work or fails parity; otherwise "" without a limit, and
    with one as `regression_gate.judgement` has it; reason: why there is no verdict. alone_why: why the two did not take
    turns in some or all blocks; "" if they did in all. alone_blocks: in how many they did not, of how many.
    """

    verdict: Verdict
    ratio: Interval
    max_slowdown: float | None
    outcome: str
    reason: str
    comparison: Comparison
    alone_why: str = ""
    alone_blocks: tuple[int, int] = (0, 0)

    @property
    def passed(self) -> bool:
        """Return whether B is shown to be within the limit; without a limit, whether both worked."""
        return self.outcome in (NOT_SLOWER, "")

    @property
    def sentence(self) -> str:
        apart = f" {self._apart}: {self.alone_why}." if self.alone_why else ""
        if self.outcome in (FAILED, UNJUDGED):
            return f"No verdict: {self.reason}.{apart}"
        said = speed_verdicts.statement(self.verdict)
        if not self.outcome:
            return f"{said}.{apart}"
        preposition = "within" if self.outcome == NOT_SLOWER else "at"
        words = f"{self.outcome} {preposition} a limit of {self.max_slowdown:.3g}"
        return f"{said}; {self.names[1]} takes {_times(self.ratio)} as long as {self.names[0]}: {words}.{apart}"

    @property
    def _apart(self) -> str:
        alone, blocks = self.alone_blocks
        if alone == blocks:
            return "They did not take turns"
        return f"{alone} of {blocks} blocks {'was' if alone == 1 else 'were'} not in turns"

    @property
    def names(self) -> tuple[str, str]:
        """The names of A and B in the study."""
        turned = self.ratio.value < 1
        names = (self.verdict.faster, self.verdict.slower)
        return names[::-1] if turned else names


def duel(
    a: str,
    b: str,
    model: str,
    dataset: DataSets | None = None,
    *,
    device: str = "cpu",
    max_slowdown: None | str | float = None,
    blocks: int = BLOCKS,
    sample: str | float = SAMPLE_S,
    **request: Unpack[DuelOptions],
) -> Duel:
    """Measure two competitors now, in turns, and give one verdict.

    a, b: competitors as for `compare` ("torch", "torch@2.12.0", "torch=/path/to/python"), or two models, in which case
    `model` is the framework that trains both. dataset: as for `compare`; None: the model's own.
    blocks: number of sets of fresh workers. sample: measured time per competitor and block, in seconds or "10s".
    max_slowdown: how much longer B may take than A, such as "5%" or 0.05; it determines `outcome`.
    request: as for `compare`. Raises UsageError for an invalid request.
    """
    limit = _limit(max_slowdown)
    return judge(api.compare(**_request(a, b, model, dataset, device, blocks, sample, **request)), limit)


def _limit(max_slowdown: None | str | float) -> float | None:
    return None if max_slowdown is None else slowdown("max_slowdown", max_slowdown)


def dry_run(
    a: str,
    b: str,
    model: str,
    dataset: DataSets | None = None,
    *,
    max_slowdown: None | str | float = None,
    **request: Any,
) -> Forecast:
    """Return a forecast for `duel`; nothing is started."""
    _limit(max_slowdown)
    return api.dry_run(**_request(a, b, model, dataset, **request))


def _request(
    a: str,
    b: str,
    model: str,
    dataset: DataSets | None,
    device: str = "cpu",
    blocks: int = BLOCKS,
    sample: str | float = SAMPLE_S,
    **request: Any,
) -> Fields:
    """The arguments of `compare`."""
    check_count("blocks", blocks, 1, most=MOST_REPEATS)
    for name in ("repeats", "budget"):
        if request.get(name) is not None:
            raise UsageError(f"{name} is {request[name]!r}, but a duel has blocks; allowed: blocks and sample")
    frameworks, models = _competitors(a, b, model)
    competitors.check_interpreters(frameworks, request.get("python"))
    if dataset is None:
        _check_same_data(models)
    _check_one_cell_each({**request, "device": device, "dataset": dataset})
    asked: Fields = {"frameworks": frameworks, "models": models, "device": device, "repeats": blocks, "sample": sample}
    return {**asked, "dataset": dataset, "as_written": False, **request, "across_models": len(models) > 1}


def _check_one_cell_each(request: Fields) -> None:
    """UsageError for a setting of several values, which would make more than two cells."""
    for name in ("dataset", "devices", *map(column, SETTINGS)):
        value = request.get(name)
        if isinstance(value, (list, tuple)) and len(value) > 1:
            raise UsageError(f"{name} is {', '.join(map(str, value))}; allowed in a duel: one value, which both have")


def _check_same_data(models: list[str]) -> None:
    """UsageError for models whose own data sets differ: an epoch of one is not an epoch of the other."""
    own = {name: registry.MODELS[name].dataset for name in models if name in registry.MODELS}
    if len(set(own.values())) > 1:
        each = " and ".join(f"{name} on {data}" for name, data in own.items())
        raise UsageError(f"by default {each} are trained; allowed: two models on one data set, which DATA names")


def judge(result: Comparison, limit: float | None) -> Duel:
    """Return what a study of two cells shows: the second against the first."""
    rows = list(result.frame.itertuples())
    if len(rows) != 2:
        raise UsageError(f"{result.folder} has {len(rows)} cells; allowed: a study of two competitors")
    first, second = rows
    of = "framework" if first.framework != second.framework else "model"
    names = str(getattr(first, of)), str(getattr(second, of))
    subject = str(first.model if of == "framework" else first.framework)
    bars = [blocking_reason(row, of=of) for row in rows]
    failed = "; ".join(bar.reason for bar in bars if bar.failed)
    ratio = (None if failed else result.block_times.ratio(second.Index, first.Index)) or Interval(math.nan)
    bar = Bar(failed) if failed else next((bar for bar in bars if bar.reason), Bar())
    verdict = speed_verdicts.of_two(subject, names, ratio, bar, verified(first, second), str(first.device))
    outcome = judgement(ratio, limit or 0.0, failed, verdict.reason).outcome if failed or limit is not None else ""
    return Duel(verdict, ratio, limit, outcome, verdict.reason, result, *(() if failed else _alone(result)))


def _alone(result: Comparison) -> tuple[str, tuple[int, int]]:
    """Return why runs had the machine to themselves, "" if none had; and in how many blocks, of how many."""
    runs = repeats.counted(result.runs)
    in_turns = runs["run_id"].isin(result.slices["run_id"])
    alone = (~in_turns).groupby(runs["block"]).any()
    blocks = int(alone.sum()), len(alone)
    if set(result.frame["schedule"]) == {schedules.INTERLEAVED}:
        return "", blocks
    if result.settings.get("schedule") == schedules.SEQUENTIAL:
        return "the schedule asked for is sequential", blocks
    why = next((why for why in result.frame["alone_why"] if isinstance(why, str) and why), "their settings differ")
    return why, blocks


def _times(ratio: Interval) -> str:
    ends = "" if ratio.low is None else f" [{ratio.low:.3f}, {ratio.high:.3f}]"
    return f"{ratio.value:.3f}{ends} times"


def _competitors(a: str, b: str, shared: str) -> tuple[list[str], list[str]]:
    """Frameworks and models."""
    named = [competitors.is_framework(name) for name in (a, b)]
    if all(named):
        return list(competitors.twice(a, b)), [shared]
    if any(named) or not competitors.is_framework(shared):
        odd = (b if named[0] else a) if any(named) else shared
        raise UsageError(
            f"{a}, {b} and {shared} are not a duel, because {odd} is not a framework; "
            "allowed: two frameworks and a model, or two models and a framework"
        )
    return [shared], [a, b]
