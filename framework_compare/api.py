"""`compare()`: the whole library behind one call."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

from framework_compare.comparison import Comparison
from framework_compare.datasets.own import OwnData
from framework_compare.datasets.resolve import own_data
from framework_compare.errors import UsageError, check_name
from framework_compare.forecast import Forecast, forecast
from framework_compare.forecast import left as forecast_of_the_rest
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.importing.imports import are_own, resolve, with_written
from framework_compare.importing.tracing import Tracer
from framework_compare.launch import nodes
from framework_compare.launch.limits import Limits
from framework_compare.launch.limits import check as check_limits
from framework_compare.parity.asked import CheckForecast
from framework_compare.plan import planning
from framework_compare.plan.data_of_models import DataSets
from framework_compare.plan.ladders import LADDERS, Rungs, plan_ladder, read_rungs
from framework_compare.plan.planning import Models, Names, Plan
from framework_compare.protocol import Fields
from framework_compare.results.parity import VERDICT_MODES
from framework_compare.store.folder import FILE
from framework_compare.store.study_file import REQUEST, Store
from framework_compare.study import names, opening, parity_backfill, schedules, strategies, study_toml
from framework_compare.study.data_files import register_models
from framework_compare.study.executors import Executor, check_cores, run_parts
from framework_compare.study.parity_backfill import Backfill
from framework_compare.study.parts import PartPlan, plan_path, result_path
from framework_compare.study.parts import absorb as absorb_parts
from framework_compare.study.progress import Watcher, default_watcher
from framework_compare.study.request import COMPETITORS, Request, check_keywords
from framework_compare.study.resumption import check_machine, check_retry, check_same_limits
from framework_compare.study.run_options import RunOptions, as_planned, check_flag
from framework_compare.study.strategies import Budget, Product, Strategy
from framework_compare.study.study import Study, terminate_as_interrupt
from framework_compare.study.trust import check, note, programs

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from framework_compare.study.request import CompareOptions, LimitOptions, Options

Folder = str | os.PathLike[str]


def compare(
    frameworks: Names,
    models: Models,
    device: Names = "cpu",
    *,
    dataset: DataSets | None = None,
    out: Folder | None = None,
    retry: Names = (),
    extend: bool = False,
    executor: Executor | None = None,
    watcher: Watcher | None = None,
    **options: Unpack[CompareOptions],
) -> Comparison:
    """Train every model with every framework on every device, each cell in its own process, and compare.

    out: study folder, empty or new; default: one in the cache folder, named after the time. An existing study with
        the same plan is resumed: finished runs are kept, and the others run with the limits, interpreters and index
        of this call. If its plan differs, StudyError shows the difference.
    retry: statuses whose runs are repeated when a study is resumed, such as ["failed", "timed-out"].
    extend: add the cells to the study in `out`, whatever its plan, and keep finished runs. If there is no study
        there, one is created.
    executor: `Slurm(partition=...)` runs each block alone on a node of a cluster (docs/cluster.md); None runs it
        here.
    options: see `Request`, which also explains models, device and dataset.

    The result contains every cell, also those that did not work, with their status and reason. Only an invalid
    request raises an error (UsageError), and then nothing has been written.
    """
    check_keywords(compare, options)
    request = Request.of(frameworks, models, device, dataset=dataset, **options)
    return run(request, out, retry=retry, extend=extend, executor=executor, watcher=watcher)


def dry_run(
    frameworks: Names,
    models: Models,
    device: Names = "cpu",
    *,
    dataset: DataSets | None = None,
    executor: Executor | None = None,
    watcher: Watcher | None = None,
    **options: Unpack[CompareOptions],
) -> Forecast:
    """Return a forecast for `compare`: cells, runs, minutes, gigabytes. Nothing is started or written."""
    check_keywords(dry_run, options)
    request = Request.of(frameworks, models, device, dataset=dataset, **options)
    return prepare(request, watcher or default_watcher(), executor).forecast()


def compare_file(
    path: Folder,
    *,
    out: Folder | None = None,
    retry: Names = (),
    extend: bool = False,
    executor: Executor | None = None,
    watcher: Watcher | None = None,
    **more: Any,
) -> Comparison:
    """Call `compare` with the keywords in a TOML file, as `Comparison.to_toml` writes it; those given here take precedence.

    Raises UsageError for a file that is not TOML, and for an unknown key.
    """
    check_keywords(compare_file, more, COMPETITORS)
    request = Request.of(**study_toml.read(path, more))
    return run(request, out, retry=retry, extend=extend, executor=executor, watcher=watcher)


def ladder(
    frameworks: Names,
    model: str,
    rungs: Rungs | None = None,
    device: Names = "cpu",
    *,
    one_at_a_time: bool = False,
    dataset: DataSets | None = None,
    out: Folder | None = None,
    watcher: Watcher | None = None,
    **options: Unpack[Options],
) -> Comparison:
    """Train one model on a ladder of settings; `table("gains")` of the result shows the speed-up of each rung.

    model: as for `compare`, or a published ladder (`plan.ladders.LADDERS`), which has its own rungs.
    rungs: changed settings by name, such as {"batch 100": {"batch_size": 100}}; each rung keeps all earlier changes.
    one_at_a_time: each rung changes only the base.
    options: as for `compare`. A rung that a framework does not support gets a row with the reason.
    """
    check_keywords(ladder, options)
    given: Fields = {**options}
    if isinstance(model, str) and model in LADDERS:
        published = LADDERS[model]
        model, rungs, given = published.model, rungs or published.rungs, {**published.base, **given}
    if rungs is None:
        raise UsageError(f"no rungs are given; name settings by rung, or a ladder as the model: {', '.join(LADDERS)}")
    steps: Fields = {"rungs": rungs, "one_at_a_time": one_at_a_time}
    return run(Request.of(frameworks, model, device, dataset=dataset, **steps, **given), out, watcher=watcher)


@terminate_as_interrupt()
def run(
    request: Request,
    out: Folder | None = None,
    *,
    retry: Names = (),
    extend: bool = False,
    executor: Executor | None = None,
    watcher: Watcher | None = None,
) -> Comparison:
    """Run the study of a request; other arguments as for `compare`."""
    statuses = check_retry(retry)
    folder = opening.study_folder(out)
    check_flag("extend", extend)
    if executor is not None:
        executor.check()
    prepared = prepare(request, watcher or default_watcher(), executor)
    prepared.run(folder, statuses, extend)
    return _loaded(folder, prepared.watcher)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A request that was checked and whose data were read.

    repeats: runs of each cell; None is the default, or what a study has that is there. kept: what a new study stores.
    """

    plan: Plan
    options: RunOptions
    strategy: Strategy
    repeats: int | None
    kept: Mapping[str, object]
    watcher: Watcher
    executor: Executor | None = None

    def forecast(self) -> Forecast:
        """Return a forecast for the study."""
        runs = self.repeats or schedules.REPEATS
        return forecast(self.plan, self.options, self.strategy, runs, self.executor is None)

    def run(self, folder: Path, retry: Sequence[str] = (), extend: bool = False) -> None:
        """Run the study in a folder: a new one, or what is left of one that is there."""
        here = self.executor is None
        if here:
            nodes.check(max(cell.config.nodes for cell in self.plan.cells))
        if extend or not (folder / FILE).exists():
            self.watcher.expect(self.forecast)
        planning.make_datasets(self.plan, self.watcher.count)
        request = (folder, self.plan, self.options, self.strategy, self.repeats, self.kept)
        with opening.open_study(*request, extend=extend, here=here or extend) as store, self.watcher:
            _run(store, self.options, self.watcher, self.strategy, self.executor, retry)


def prepare(request: Request, watcher: Watcher, executor: Executor | None = None) -> Prepared:
    """Check a request and read its data; UsageError before anything is written."""
    request.check_runs()
    request = request.with_versions(watcher.say)
    rungs = None if request.rungs is None else read_rungs(request.rungs)
    options = request.run_options()
    if executor is not None:
        check_cores(request.settings)
    planning.expand_configs(request.cell_settings)  # refuse a wrong setting before models are traced
    tracer = Tracer(options.python, options.index, watcher.say)
    own, models, imported = with_own(request, tracer)
    plan = planning.plan(
        request.frameworks,
        models,
        request.device,
        own or request.dataset,
        request.cell_settings,
        limit=request.limit,
        classes=request.classes,
        on_bad_image=request.on_bad_image,
        progress=watcher.count,
        make=False,
        devices=request.devices,
    )
    plan = with_written(plan, imported) if check_flag("as_written", request.as_written) else plan
    stored = None
    if rungs is not None:
        plan, stored = plan_ladder(plan, rungs, check_flag("one_at_a_time", request.one_at_a_time))
    for remark in opening.remarks(plan, imported, here=executor is None):
        watcher.say(remark)
    strategy = request.strategy(plan.cells)
    repeats = 1 if isinstance(strategy, Budget) else request.repeats
    kept = {"rungs": stored, REQUEST: study_toml.stated(request)}
    return Prepared(plan, options, strategy, repeats, kept, watcher, executor)


def with_own(request: Request, tracer: Tracer) -> tuple[OwnData | None, Any, list[ImportedModel]]:
    """Return the user's own data, None where a request has none, the names of its models, and those it imports for them."""
    own = own_data(request.dataset, *request.data_options(), are_own(request.models))
    tasks, size = own.tasks if own else (), request.settings.get("image_size")
    return own, *resolve(request.models, size, request.weights, tracer, tasks, request.model_output, request.own_loss)


def _loaded(folder: Path, watcher: Watcher) -> Comparison:
    """Load the results of a study that has run, and say whether its budget sufficed."""
    comparison = Comparison.load(folder)
    if comparison.settings.get("strategy", {}).get("name") == Budget.name and comparison.budget:
        watcher.say(comparison.budget.sentence)
    return comparison


@terminate_as_interrupt()
def resume(
    study: Folder,
    *,
    retry: Names = (),
    python: Mapping[str, str] | None = None,
    index: Mapping[str, str] | None = None,
    verify: str | None = None,
    trust: bool = False,
    executor: Executor | None = None,
    watcher: Watcher | None = None,
    **limits: Unpack[LimitOptions],
) -> Comparison:
    """Run the unfinished runs of a study, on the machine where it was started; finished runs are kept.

    retry: statuses whose runs are also repeated. Interpreters, limits and verify given here replace those of the study
    for the runs of this call; each run's record has its limits. executor: as for `compare`.
    trust: execute interpreters and model files that the study names even if this user never requested them.
    Finished parts of the study are absorbed first. Raises StudyError if the study cannot be resumed.
    """
    watcher, statuses = watcher or default_watcher(), check_retry(retry)
    folder = _registered(study)
    given, mode = check_limits(**limits), None if verify is None else check_name("verify", verify, VERDICT_MODES)
    with Store.open(folder, readonly=False) as store:
        absorb_parts(store, watcher.say)
        if executor is None:
            nodes.check(max((cell.config.nodes for _, cell, _ in store.plan(statuses)), default=1))
            check_machine(store)
        options, strategy = _as_planned(store, given, index, python, mode)
        note(programs((), {name: path for name, path in options.python.items() if python and name in python}))
        check(folder, programs([cell for _, cell in store.cells()], options.python), check_flag("trust", trust))
        watcher.expect(lambda: _rest(store, options, strategy, statuses, executor is None))
        with watcher:
            _run(store, options, watcher, strategy, executor, statuses)
    return _loaded(folder, watcher)


def dry_resume(
    study: Folder,
    *,
    retry: Names = (),
    python: Mapping[str, str] | None = None,
    index: Mapping[str, str] | None = None,
    executor: Executor | None = None,
    **limits: Unpack[LimitOptions],
) -> Forecast:
    """Return a forecast for `resume`; nothing is started or written."""
    statuses = check_retry(retry)
    with Store.open(_registered(study), readonly=True) as store:
        if executor is None:
            nodes.check(max((cell.config.nodes for _, cell, _ in store.plan(statuses)), default=1))
            if store.machine():
                check_machine(store)
        options, strategy = _as_planned(store, check_limits(**limits), index, python, None)
        return _rest(store, options, strategy, statuses, executor is None)


def _rest(store: Store, options: RunOptions, strategy: Strategy, retry: Sequence[str], here: bool) -> Forecast:
    """Return a forecast for the remaining runs of a study and those to `retry`."""
    planned = store.plan(retry)
    return forecast_of_the_rest(planned, store.settings(), store.path, options, strategy, here, store.paces)


def _registered(study: Folder) -> Path:
    """The folder of a study whose imported models the registry knows from now on."""
    folder = names.find(study)
    register_models(folder)
    return folder


def _as_planned(
    store: Store, given: Limits, index: Mapping[str, str] | None, python: Mapping[str, str] | None, verify: str | None
) -> tuple[RunOptions, Strategy]:
    """Return how a study is run, with what is given now in the place of its own."""
    options = as_planned(store.settings(), store.path, given, index, python)
    check_same_limits(store, options.limits.to_dict())
    options = dataclasses.replace(options, verify=verify or options.verify)
    return options, strategies.of_settings(store.settings(), store.path)


def _run(
    store: Store,
    options: RunOptions,
    watcher: Watcher,
    strategy: Strategy,
    executor: Executor | None,
    retry: Sequence[str],
) -> None:
    if executor is None:
        Study(store, options, watcher, strategy).run(retry)
    elif strategy.name == Product.name:
        run_parts(store, options, executor, watcher, retry)
    else:
        raise UsageError(
            "a sweep of batch sizes, or a budget, chooses each run from earlier results; run it on this machine, without --on"
        )


def absorb(study: Folder, *, say: Callable[[str], None] = lambda message: None) -> tuple[Comparison, Mapping[int, str]]:
    """Absorb the finished parts of a study, each completely or not at all; return why others are refused, by number."""
    folder = names.find(study)
    with Store.open(folder, readonly=False) as store:
        refused = absorb_parts(store, say)
    return Comparison.load(folder), refused


def verify_study(
    study: Folder,
    *,
    index: Mapping[str, str] | None = None,
    fresh: bool = False,
    trust: bool = False,
    say: Callable[[str], None] = lambda message: None,
) -> Backfill:
    """Check the parity of the cells of a finished study, as `framework-compare verify` does, and store the verdicts in it.

    Cells are checked only if their environment and the worker's source have not changed since; `reasons` explains why
    others were not checked. Existing verdicts are kept unless `fresh` is set. trust: as for `resume`.
    """
    folder = _registered(study)
    with Store.open(folder) as store:
        options = as_planned(store.settings(), store.path, index=index)
        check(folder, programs([], options.python), check_flag("trust", trust))
    return parity_backfill.attach(folder, options, fresh, say)


def dry_verify_study(study: Folder, *, fresh: bool = False) -> CheckForecast:
    """Return a forecast for `verify_study`; nothing is started, not even an interpreter that the study names."""
    with Store.open(_registered(study)) as store:
        return parity_backfill.forecast(store, fresh)


def dry_part(study: Folder, number: int) -> Forecast:
    """Return a forecast for one part of a study on this node; nothing is started or written."""
    folder = _registered(study)
    part = PartPlan.read(folder, number)
    path, cells = plan_path(folder, number), () if result_path(folder, number).is_dir() else part.cells
    nodes.check(part.nodes)
    options, strategy = as_planned(part.settings, path), strategies.of_settings(part.settings, path)
    planned = [(run_id, cell, part.turn) for run_id, cell in enumerate(cells)]
    return forecast_of_the_rest(planned, part.settings, path, options, strategy)
