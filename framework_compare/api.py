"""`compare()`: the whole library behind one call."""

from __future__ import annotations

import dataclasses
import functools
import os
from pathlib import Path
from typing import Any, Callable, Literal, Mapping, Optional, Sequence, Tuple, Union, overload

from framework_compare.comparison import Comparison
from framework_compare.errors import UsageError
from framework_compare.forecast import Forecast, forecast
from framework_compare.forecast import left as forecast_of_the_rest
from framework_compare.importing.as_written import with_written
from framework_compare.importing.imports import Models, resolve
from framework_compare.importing.tracing import Tracer
from framework_compare.launch import nodes
from framework_compare.launch.limits import Limits, PhaseTimeout
from framework_compare.launch.limits import check as check_limits
from framework_compare.plan import planning
from framework_compare.plan.ladders import LADDERS, Rungs, plan_ladder, read_rungs
from framework_compare.plan.planning import DataSets, Names
from framework_compare.plan.settings import takes_former_names
from framework_compare.results.verdicts import check_mode
from framework_compare.store.folder import FILE
from framework_compare.store.study_file import REQUEST, Store
from framework_compare.study import attachment, blocks, names, schedules, strategies, study_toml
from framework_compare.study.absorb import absorb as absorb_parts
from framework_compare.study.attachment import Attachment
from framework_compare.study.conditions import (
    RETRIES,
    RunOptions,
    as_planned,
    check_budget,
    check_disturbance,
    check_sample,
    check_whole_runs,
    run_options,
)
from framework_compare.study.dispatch import check_cores, run_parts
from framework_compare.study.executors import Executor
from framework_compare.study.imported_models import register_models
from framework_compare.study.interrupts import terminate_as_interrupt
from framework_compare.study.opening import (
    check_flag,
    check_folder,
    check_writable,
    new_study_folder,
    open_or_create,
    open_or_extend,
    tell_of_cores,
    tell_of_datasets,
    tell_of_imports,
)
from framework_compare.study.progress import Watcher, default_watcher
from framework_compare.study.resumption import check_machine, check_retry, check_same_limits
from framework_compare.study.strategies import Budget, Product, Strategy
from framework_compare.study.study import Study
from framework_compare.study.trust import check, note, programs


@overload
def compare(
    frameworks: Names, models: Names, device: Names = ..., *, dry_run: Literal[False] = ..., **request: Any
) -> Comparison: ...
@overload
def compare(
    frameworks: Names, models: Names, device: Names = ..., *, dry_run: Literal[True], **request: Any
) -> Forecast: ...
@terminate_as_interrupt()
@takes_former_names
def compare(
    frameworks: Names,
    models: Models,
    device: Names = "cpu",
    *,
    devices: Union[None, int, Sequence[int]] = None,
    dataset: Optional[DataSets] = None,
    weights: Optional[str] = None,
    as_written: bool = True,
    out: Union[str, "os.PathLike[str]", None] = None,
    repeats: Optional[int] = None,
    limit: Optional[int] = None,
    classes: Optional[Sequence[str]] = None,
    on_bad_image: str = "fail",
    python: Optional[Mapping[str, str]] = None,
    index: Optional[Mapping[str, str]] = None,
    installer: str = "pip",
    timeout_s: Optional[float] = None,
    phase_timeout_s: PhaseTimeout = None,
    silence_timeout_s: Optional[float] = None,
    memory_limit: Union[None, int, str] = None,
    retry: Names = (),
    sampling_hz: float = 10.0,
    verify: str = "warn",
    profile: bool = False,
    schedule: str = schedules.INTERLEAVED,
    across_models: bool = False,
    disturbance_threshold: Optional[float] = None,
    retries_when_disturbed: int = RETRIES,
    sample: Union[None, str, float] = None,
    budget: Union[None, str, float] = None,
    precision_target: Union[None, str, float] = None,
    dry_run: bool = False,
    rungs: Optional[Rungs] = None,
    one_at_a_time: bool = False,
    extend: bool = False,
    executor: Optional[Executor] = None,
    watcher: Optional[Watcher] = None,
    **settings: Any,
) -> Union[Comparison, Forecast]:
    """Train every model with every framework on every device, each in a process of its own, and compare.

    models: networks for images, or workloads that have data sets of their own; or networks of
        yours: "my_net.py:build", "my_net.onnx", "my_net.keras", "torchvision:resnet18", "timm:NAME", an nn.Module, or a
        keras.Model.
    weights: of your networks: "file", those they come with (of zoos those that are drawn), or "seeded", as registered
        models start; default: "seeded" of torchvision and timm, "file" of all else.
    as_written: train your networks in torch as they are written, too, where torch is compared and a file or a zoo has
        them: a row of their own, "PyTorch (as written)".
    device: "cpu", "cuda", "cuda:1"; "cuda:0,1" trains a replica of the network on each of two GPUs, "cpu:0,1" two on a CPU.
    devices: how many of them from that number on, such as 2, or [1, 2, 4] for cells on one, two and four.
    dataset: names of the registry, or folders with one folder of images per class; default: "fire-smoke-small". For a
        workload the file with the real data (such as diabetes.csv); without one they are generated, and it says so.
    out: study folder, empty or not there yet; default: one in the cache folder, named by the time. An existing study is
        resumed if its plan is the same (if not, StudyError shows the difference): finished runs stay, the others run
        with the limits, interpreters, index and installer of this call.
    repeats: runs of each cell, 5 by default; runs of different cells take turns, in a new order each turn. Intervals and
        verdicts are over runs: one run gives figures only.
    limit: use this many images, drawn by class and seed.
    on_bad_image: "fail" refuses a data set with an image that does not decode, "skip" leaves it out and counts it.
    python: framework -> interpreter that already has it, instead of a managed environment.
    index: framework -> URL of the package index of its own packages; "none": without that of PyTorch's CPU builds.
    timeout_s: wall seconds after which a run is ended as `timed-out`.
    phase_timeout_s: the same for a phase, by name; one number applies to every phase but `epochs`.
    silence_timeout_s: the same for a worker that sends no event and prints nothing.
    memory_limit: of a run with all its processes, bytes or text such as "4GiB"; more ends it as `out-of-memory`.
    retry: statuses of a resumed study whose runs are run again, such as ["failed", "timed-out"].
    sampling_hz: readings per second of CPU, memory, threads and GPU; 0 for none.
    verify: the parity check of `framework-compare verify`. "require" checks first and does not run a cell that fails;
        "warn" shows known verdicts; "off" shows none.
    profile: after the measured epochs, run a few more steps under the framework's own profiler, untimed: the share of
        time of each operator, CUDA function and kernel (`Comparison.profile`), and a trace to open in Perfetto.
    schedule: "interleaved": workers that compete (they train the same model on the same samples) are live at the same
        time and take turns in rounds of short slices, wherever memory and devices allow; what slows the machine meets
        all of them. "sequential": one run after another. across_models: models compete as well, and take turns.
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
    precision_target: with a budget, the longer arm of the interval of a ratio, as a share; 0.05 by default.
    dry_run: start nothing, and return a Forecast instead: cells, runs, minutes, gigabytes.
    rungs, one_at_a_time: as `ladder` has them.
    extend: add the cells to the study in `out`, whatever its plan; finished runs stay. A new study if there is none.
    executor: `Slurm(partition=...)` runs each block alone on a node of a cluster (docs/cluster.md); None, here.
    settings: those of `plan.settings.SETTINGS` (batch_size, epochs, threads, pipeline, execution, ...); they may be
        lists, and then every combination is a cell.

    A cell that does not work is in the result with its status and reason; only a wrong request raises (UsageError),
    and then nothing has been written.
    """
    given = dict(locals())
    watcher = watcher or default_watcher()
    retry = check_retry(retry)
    if repeats is not None:
        planning.check_count("repeats", repeats, 1, most=blocks.MOST_REPEATS)
    limited = check_budget(budget, precision_target, repeats, rungs)
    sample_s = check_sample(sample, budget, rungs)
    steps = [] if rungs is None else read_rungs(rungs)
    limits = check_limits(timeout_s, phase_timeout_s, silence_timeout_s, memory_limit)
    options = run_options(python, index, installer, limits, sampling_hz)
    quiet = check_disturbance(disturbance_threshold, retries_when_disturbed)
    if executor is not None:
        if not check_flag("dry_run", dry_run):
            executor.check()
        check_cores(settings)
    options = dataclasses.replace(
        options,
        verify=check_mode(verify),
        profile=check_flag("profile", profile),
        schedule=schedules.check(schedule),
        across_models=check_flag("across_models", across_models),
        **quiet,
    )
    folder = check_writable(check_folder("out", new_study_folder() if out is None else out))
    tracer = Tracer(options.python, options.index, options.installer, watcher.say)
    names, imported = resolve(models, settings.get("image_size"), weights, tracer)
    plan = planning.plan(
        frameworks,
        names,
        device,
        dataset,
        settings,
        limit=limit,
        classes=classes,
        on_bad_image=on_bad_image,
        progress=watcher.count,
        make=False,
        devices=devices,
    )
    plan = with_written(plan, imported) if check_flag("as_written", as_written) else plan
    stored = None
    if rungs is not None:
        plan, stored = plan_ladder(plan, steps, check_flag("one_at_a_time", one_at_a_time))
    tell_of_datasets(plan, watcher)
    tell_of_imports(imported, plan, watcher)
    if executor is None:
        tell_of_cores(plan, watcher)
    if limited or sample_s:
        check_whole_runs(plan.cells, "a budget" if limited else "a sample")
    strategy: Strategy = Budget.of(*limited, len(plan.cells)) if limited else Product(sample_s)
    expected = functools.partial(forecast, plan, options, strategy, repeats or blocks.REPEATS, executor is None)
    if check_flag("dry_run", dry_run):
        return expected()
    if executor is None:
        nodes.check(max(cell.config.nodes for cell in plan.cells))
    if extend or not (folder / FILE).exists():
        watcher.expect(expected)
    planning.make_datasets(plan, watcher.count)
    kept = {"rungs": stored, REQUEST: study_toml.stated(compare, given)}
    times = 1 if limited else repeats
    if check_flag("extend", extend):
        opened = open_or_extend(folder, plan, options, strategy, times, kept)
    else:
        opened = open_or_create(folder, plan, options, strategy, times, kept, here=executor is None)
    with opened as store, watcher:
        _run(store, options, watcher, strategy, executor, retry)
    return _loaded(folder, watcher)


def _loaded(folder: Path, watcher: Watcher) -> Comparison:
    """The results of a study that has run, with a word on its budget."""
    comparison = Comparison.load(folder)
    if comparison.settings.get("strategy", {}).get("name") == Budget.name and comparison.budget:
        watcher.say(comparison.budget.sentence)
    return comparison


def compare_file(path: Union[str, "os.PathLike[str]"], **more: Any) -> Comparison:
    """`compare` with the arguments in a TOML file, such as `Comparison.to_toml` writes; those given here come first.

    UsageError for a file that is no TOML, and for a key that `compare` does not take.
    """
    return compare(**study_toml.read(path, compare, more))


def ladder(
    frameworks: Names,
    model: str,
    rungs: Optional[Rungs] = None,
    device: str = "cpu",
    *,
    one_at_a_time: bool = False,
    **request: Any,
) -> Comparison:
    """Train one model in steps, each rung with settings changed, and see what each gains: `table("gains")`.

    model: of `compare`, or a published ladder (`plan.ladders.LADDERS`), which has rungs of its own.
    rungs: settings by name, such as {"batch 100": {"batch_size": 100}}; each rung keeps the changes of those before.
    one_at_a_time: each rung changes the base alone.
    request: as `compare` takes it. A rung that a framework cannot do is a row that says so.
    """
    if isinstance(model, str) and model in LADDERS:
        published = LADDERS[model]
        model, rungs, request = published.model, rungs or published.rungs, {**published.base, **request}
    if rungs is None:
        raise UsageError(f"no rungs are given; name settings by rung, or a ladder as the model: {', '.join(LADDERS)}")
    return compare(frameworks, model, device, rungs=rungs, one_at_a_time=one_at_a_time, **request)


@overload
def resume(study: Union[str, "os.PathLike[str]"], *, dry_run: Literal[False] = ..., **request: Any) -> Comparison: ...
@overload
def resume(study: Union[str, "os.PathLike[str]"], *, dry_run: Literal[True], **request: Any) -> Forecast: ...
@terminate_as_interrupt()  # type: ignore[misc]  # mypy takes **request of the overloads for any keyword
def resume(
    study: Union[str, "os.PathLike[str]"],
    *,
    retry: Names = (),
    python: Optional[Mapping[str, str]] = None,
    index: Optional[Mapping[str, str]] = None,
    timeout_s: Optional[float] = None,
    phase_timeout_s: PhaseTimeout = None,
    silence_timeout_s: Optional[float] = None,
    memory_limit: Union[None, int, str] = None,
    verify: Optional[str] = None,
    trust: bool = False,
    dry_run: bool = False,
    executor: Optional[Executor] = None,
    watcher: Optional[Watcher] = None,
) -> Union[Comparison, Forecast]:
    """Run what a study planned and has not finished, on the machine it was begun on; finished runs stay.

    retry: statuses whose runs are run again as well. Interpreters, limits and verify given here take the place of the
    study's own for what is run now; each run's record says which limits it had. executor: as `compare` takes it.
    trust: execute interpreters and model files that the study names, although this user never asked for them.
    dry_run: start nothing, and return a Forecast of what is left.
    Parts of the study that are done are absorbed first. StudyError where the study cannot be resumed.
    """
    watcher = watcher or default_watcher()
    retry = check_retry(retry)
    given = check_limits(timeout_s, phase_timeout_s, silence_timeout_s, memory_limit)
    mode = None if verify is None else check_mode(verify)
    folder = names.find(check_folder("study", study))
    register_models(folder)
    with Store.open(folder, readonly=check_flag("dry_run", dry_run)) as store:
        if not dry_run:
            absorb_parts(store, watcher.say)
        if executor is None:
            nodes.check(max((cell.config.nodes for _, cell, _ in store.plan(retry)), default=1))
            if store.machine() or not dry_run:
                check_machine(store)
        options = as_planned(store.settings(), store.path, given, index, python)
        if not dry_run:
            note(programs((), {name: path for name, path in options.python.items() if python and name in python}))
            check(folder, programs([cell for _, cell in store.cells()], options.python), check_flag("trust", trust))
        check_same_limits(store, options.limits.to_dict())
        options = dataclasses.replace(options, verify=mode or options.verify)
        strategy = strategies.of_settings(store.settings(), store.path)
        expected = functools.partial(forecast_of_the_rest, store, options, strategy, retry, executor is None)
        if dry_run:
            return expected()
        watcher.expect(expected)
        with watcher:
            _run(store, options, watcher, strategy, executor, retry)
    return _loaded(folder, watcher)


def _run(
    store: Store,
    options: RunOptions,
    watcher: Watcher,
    strategy: Strategy,
    executor: Optional[Executor],
    retry: Sequence[str],
) -> None:
    if executor is None:
        Study(store, options, watcher, strategy).run(retry)
    elif strategy.name == Product.name:
        run_parts(store, options, executor, watcher, retry)
    else:
        raise UsageError(
            "a sweep of batch sizes and a budget pick each run by those before it; allowed: to run it here"
        )


def absorb(
    study: Union[str, "os.PathLike[str]"], *, say: Callable[[str], None] = lambda message: None
) -> Tuple[Comparison, Mapping[int, str]]:
    """Take the parts of a study that are done into it, each whole or not at all; why others are refused, by number."""
    folder = names.find(check_folder("study", study))
    with Store.open(folder, readonly=False) as store:
        refused = absorb_parts(store, say).refused
    return Comparison.load(folder), refused


def verify_study(
    study: Union[str, "os.PathLike[str]"],
    *,
    index: Optional[Mapping[str, str]] = None,
    fresh: bool = False,
    trust: bool = False,
    say: Callable[[str], None] = lambda message: None,
) -> Attachment:
    """Attach verdicts on parity to a study that has run, for its tables: the check of `framework-compare verify`.

    Only cells are checked whose environment and worker's source are still what they ran with; `reasons` says why the
    others are not. Verdicts that the study has are not sought again, unless `fresh`. trust: as `resume` has it.
    """
    folder = names.find(check_folder("study", study))
    register_models(folder)
    with Store.open(folder) as store:
        options = as_planned(store.settings(), store.path, Limits(), index)
        check(folder, programs([], options.python), check_flag("trust", trust))
    return attachment.attach(folder, options, fresh, say)
