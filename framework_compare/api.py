"""`compare()`: the whole library behind one call."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from framework_compare.comparison import Comparison
from framework_compare.errors import UsageError
from framework_compare.importing.imports import Models, resolve
from framework_compare.importing.tracing import Tracer
from framework_compare.launch.disturbances import THRESHOLD
from framework_compare.launch.limits import Limits, PhaseTimeout
from framework_compare.launch.limits import check as check_limits
from framework_compare.plan import planning
from framework_compare.plan.ladders import LADDERS, Rungs, plan_ladder, read_rungs
from framework_compare.plan.planning import DataSets, Names
from framework_compare.results.verdicts import check_mode
from framework_compare.samplers import host
from framework_compare.store import schema
from framework_compare.store.study_file import Store
from framework_compare.study import attachment, strategies
from framework_compare.study.attachment import Attachment
from framework_compare.study.conditions import RETRIES, RunOptions, check_disturbance, run_options
from framework_compare.study.imported_models import register_models
from framework_compare.study.interrupts import terminate_as_interrupt
from framework_compare.study.opening import (
    check_flag,
    check_folder,
    new_study_folder,
    open_or_create,
    tell_of_datasets,
    tell_of_imports,
)
from framework_compare.study.progress import Watcher, default_watcher
from framework_compare.study.resumption import check_retry, check_same_limits, check_same_machine
from framework_compare.study.strategies import Product
from framework_compare.study.study import Study


@terminate_as_interrupt()
def compare(
    frameworks: Names,
    models: Models,
    device: Names = "cpu",
    *,
    dataset: DataSets = planning.OWN,
    weights: Optional[str] = None,
    out: Union[str, "os.PathLike[str]", None] = None,
    repeats: Optional[int] = None,
    limit: Optional[int] = None,
    classes: Optional[Sequence[str]] = None,
    on_bad_picture: str = "fail",
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
    disturbance_threshold: float = THRESHOLD,
    retries_when_disturbed: int = RETRIES,
    rungs: Optional[Rungs] = None,
    one_at_a_time: bool = False,
    watcher: Optional[Watcher] = None,
    **settings: Any,
) -> Comparison:
    """Train every model with every framework on every device, each in a process of its own, and compare.

    models: networks for images, or workloads that have data sets of their own (`registry.WORKLOADS`); or networks of
        yours: "my_net.py:build", "torchvision:resnet18", "timm:NAME", or an nn.Module.
    weights: of your networks: "file", those they come with (of zoos those that are drawn), or "seeded", as registered
        models start; default: "seeded" of torchvision and timm, "file" of all else.
    dataset: names of the registry, or folders with one folder of images per class; default: "fire-smoke-small". For a
        workload the file with the real data (such as diabetes.csv); without one they are generated, and it says so.
    out: study folder, empty or not there yet; default: one in the cache folder, named by the time. An existing study is
        resumed if its plan is the same (if not, StudyError shows the difference): finished runs stay, the others run
        with the limits, interpreters, index and installer of this call.
    repeats: runs of each cell, 5 by default; runs of different cells take turns, in a new order each turn. Intervals and
        verdicts are over runs: one run gives figures only.
    limit: use this many images, drawn by class and seed.
    on_bad_picture: "fail" refuses a data set with an image that does not decode, "skip" leaves it out and counts it.
    python: framework -> interpreter that already has it, instead of a managed environment.
    index: framework -> URL of an extra package index for its environment (such as that of PyTorch's CPU builds).
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
    disturbance_threshold: share of one core; an epoch in which other programs or the hypervisor took more is marked,
        its time is left out, and no verdict stands on a cell that has no other. With sampling_hz 0 nobody knows.
    retries_when_disturbed: how often a run with such epochs is repeated, when all others are done; of it and its
        repeats the one that lost the least counts, and the others stay in the study, told as such.
    rungs, one_at_a_time: as `ladder` has them.
    settings: those of `plan.settings.SETTINGS` (batch_size, epochs, threads, pipeline, execution, ...); they may be
        lists, and then every combination is a cell.

    A cell that does not work is in the result with its status and reason; only a wrong request raises (UsageError),
    and then nothing has been written.
    """
    watcher = watcher or default_watcher()
    retry = check_retry(retry)
    if repeats is not None:
        planning.check_count("repeats", repeats, 1)
    limits = check_limits(timeout_s, phase_timeout_s, silence_timeout_s, memory_limit)
    options = run_options(python, index, installer, limits, sampling_hz)
    quiet = check_disturbance(disturbance_threshold, retries_when_disturbed)
    options = dataclasses.replace(options, verify=check_mode(verify), profile=check_flag("profile", profile), **quiet)
    folder = check_folder("out", new_study_folder() if out is None else out)
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
        on_bad_picture=on_bad_picture,
        progress=watcher.count,
    )
    stored = None
    if rungs is not None:
        plan, stored = plan_ladder(plan, read_rungs(rungs), check_flag("one_at_a_time", one_at_a_time))
    tell_of_datasets(plan, watcher)
    tell_of_imports(imported, plan, watcher)
    with open_or_create(folder, plan, options, Product(), repeats, stored) as store, watcher:
        Study(store, options, watcher).run(retry)
    return Comparison.load(folder)


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
    if model in LADDERS:
        published = LADDERS[model]
        model, rungs, request = published.model, rungs or published.rungs, {**published.base, **request}
    if rungs is None:
        raise UsageError(f"no rungs are given; name settings by rung, or a ladder as the model: {', '.join(LADDERS)}")
    return compare(frameworks, model, device, rungs=rungs, one_at_a_time=one_at_a_time, **request)


@terminate_as_interrupt()
def resume(
    study: Union[str, "os.PathLike[str]"],
    *,
    retry: Names = (),
    index: Optional[Mapping[str, str]] = None,
    timeout_s: Optional[float] = None,
    phase_timeout_s: PhaseTimeout = None,
    silence_timeout_s: Optional[float] = None,
    memory_limit: Union[None, int, str] = None,
    verify: Optional[str] = None,
    watcher: Optional[Watcher] = None,
) -> Comparison:
    """Run what a study planned and has not finished, on the machine it was begun on; finished runs stay.

    retry: statuses whose runs are run again as well. Limits and verify given here take the place of the study's own
    for what is run now; each run's record says which limits it had. StudyError where the study cannot be resumed.
    """
    watcher = watcher or default_watcher()
    retry = check_retry(retry)
    given = check_limits(timeout_s, phase_timeout_s, silence_timeout_s, memory_limit)
    mode = None if verify is None else check_mode(verify)
    folder = check_folder("study", study)
    register_models(folder)
    with Store.open(folder, readonly=False) as store, watcher:
        check_same_machine(store, host.describe())
        options = _as_planned(store, given, index)
        check_same_limits(store, options.limits.to_dict())
        options = dataclasses.replace(options, verify=mode or options.verify)
        Study(store, options, watcher, strategies.of_settings(store.settings(), store.path)).run(retry)
    return Comparison.load(folder)


def verify_study(
    study: Union[str, "os.PathLike[str]"],
    *,
    index: Optional[Mapping[str, str]] = None,
    fresh: bool = False,
    say: Callable[[str], None] = lambda message: None,
) -> Attachment:
    """Attach verdicts on parity to a study that has run, for its tables: the check of `framework-compare verify`.

    Only cells are checked whose environment and worker's source are still what they ran with; `reasons` says why the
    others are not. Verdicts that the study has are not sought again, unless `fresh`.
    """
    folder = check_folder("study", study)
    register_models(folder)
    with Store.open(folder) as store:
        options = _as_planned(store, Limits(), index)
    return attachment.attach(folder, options, fresh, say)


def _as_planned(store: Store, given: Limits, index: Optional[Mapping[str, str]]) -> RunOptions:
    """The options a study was begun with, with the limits and the index given now."""
    settings = store.settings()
    try:
        limits = Limits(**{**(settings.get("limits") or {}), **given.to_dict()})
        hz, installer = settings.get("sampling_hz", 10.0), settings.get("installer", "pip")
        options = run_options(settings.get("python"), index, installer, limits, hz)
        mode = check_mode(settings.get("verify", "warn"))
        # Studies of an earlier version were planned without repeats.
        threshold = settings.get("disturbance_threshold", THRESHOLD)
        quiet = check_disturbance(threshold, settings.get("retries_when_disturbed", 0))
    except TypeError as error:
        raise schema.damaged(store.path, f"its settings: {error}") from None
    return dataclasses.replace(options, profile=bool(settings.get("profile")), verify=mode, **quiet)
