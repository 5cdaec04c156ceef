"""Runs what a study has planned: environments first, then rivals in turns, or one worker by itself; ends are recorded."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from framework_compare import registry
from framework_compare.graph import Task
from framework_compare.launch.duel import run_duel
from framework_compare.launch.jobs import spec_of
from framework_compare.launch.launcher import WorkerSpec, run_worker
from framework_compare.launch.nodes import one_timing
from framework_compare.launch.rival import Member
from framework_compare.parity import in_study
from framework_compare.paths import file_name
from framework_compare.plan import searches
from framework_compare.plan.competitors import misnamed
from framework_compare.plan.planning import build_graph
from framework_compare.protocol import Fields, Job
from framework_compare.records import Cell, Run, idle_workers
from framework_compare.results import frames, precision, steadiness
from framework_compare.results.columns import row_of
from framework_compare.results.intervals import LEAST_RUNS
from framework_compare.results.metrics import percent
from framework_compare.results.parity import verdict_key
from framework_compare.results.runs import store_figures
from framework_compare.store.folder import STEPS
from framework_compare.store.study_file import Store
from framework_compare.study import schedules
from framework_compare.study.data_files import (
    WEIGHTS,
    arrays_path,
    check_arrays,
    images_path,
    task_of,
    warm_page_cache,
    weights_path,
    written_of,
)
from framework_compare.study.progress import Watcher, length
from framework_compare.study.readiness import Readiness
from framework_compare.study.run_options import RunOptions
from framework_compare.study.schedules import Planned
from framework_compare.study.strategies import Product, Progress, Strategy, half_width, run_s, with_anchor

NO_ROOM = "memory cannot hold it together with its rivals"
CROWDED_OUT = "out of memory together with its rivals"
NO_RIVAL = "its rivals ended before the first turn"
PARTED = "memory cannot hold it together with all its rivals, so it took turns with some of them"


class Study:
    """A store being filled: run() does all that is still planned in it."""

    def __init__(self, store: Store, options: RunOptions, watcher: Watcher, strategy: Strategy = Product()) -> None:
        self.store = store
        self.folder = store.folder
        self.options = options
        self.watcher = watcher
        self.strategy = strategy
        self._ready = Readiness(store, options, watcher.say)
        self._task_of = functools.partial(task_of, store)
        self._refused: dict[str, str] = {}
        self._wall_s: dict[Cell, list[float]] = {}
        self._peak_bytes: dict[Cell, int] = {}
        self._pace_s: dict[Cell, float] = {}
        self._parted: set[int] = set()  # run_ids of rivals that memory did not hold beside the others of their block
        self._waiting: dict[int, Cell] = {}  # what is planned and has not ended

    def run(self, retry: Sequence[str] = ()) -> None:
        """Run every planned run in turn, again those that ended with a status of `retry`, then what the strategy adds.

        Runs that others disturbed are repeated once all others are done.

        A KeyboardInterrupt is recorded with the run it hit, then raised again.
        """
        self._wall_s = self.store.wall_seconds()
        self._run_planned(retry)
        while self._plan_more():
            self._run_planned()

    def _plan_more(self) -> bool:
        progress = self._progress()
        # Under a budget at once, as a disturbed run gives no interval what another block would cost far more to give.
        if self.strategy.adds_blocks and self._repeat_disturbed(progress):
            return True
        following = self.strategy.next(progress)
        if following:
            self._plan_cells(following, progress)
            return True
        return self._repeat_disturbed(progress)

    def _repeat_disturbed(self, progress: Progress) -> bool:
        left_s = self.strategy.seconds - progress.spent_s
        costs = {cell_id: run_s(cell, self._wall_s) for cell_id, cell in self.store.cells()}
        repeated = self.store.repeat_disturbed(self.options.retries_when_disturbed, left_s, costs)
        if repeated:
            self.watcher.say(f"repeating {repeated} disturbed {'run' if repeated == 1 else 'runs'}")
        return repeated > 0

    def _plan_cells(self, cells: Sequence[Cell], progress: Progress) -> None:
        """New cells with one run each, or one more block of cells that are known."""
        if not set(cells) <= set(progress.outcomes):
            self.store.extend(cells)
            return
        seed = self.store.settings().get("order_seed")
        self.store.add_block(schedules.shuffled(cells, seed, sum(map(len, progress.outcomes.values()))))
        self.watcher.say(_why_more(cells, progress, self.strategy))

    def _progress(self) -> Progress:
        """Return the progress, with how sure ratios are and how slow cells if a strategy adds blocks by these."""
        outcomes = self.store.outcomes()
        if not self.strategy.adds_blocks:
            return Progress(outcomes, self._wall_s)
        cells = [cell for _, cell in self.store.cells()]
        ends = ("ok" if {*outcomes[cell]} == {"ok"} else "failed" for cell in cells)
        rows = [{**row_of(cell), "status": end} for cell, end in zip(cells, ends)]
        times, to = frames.looked_blocks(self.store), self.strategy.reference
        beside = {cells[place]: one for place, one in precision.to_reference(rows, times, to).items()}
        ratios = {cell: one.ratio for cell, one in beside.items() if one.ratio and one.ratio.runs >= LEAST_RUNS}
        half_widths = {cell: ratio.half_width for cell, ratio in ratios.items() if ratio.half_width is not None}
        slowness = {cell: one.slowness for cell, one in beside.items()}
        return Progress(outcomes, self._wall_s, half_widths, slowness)

    def _spent_s(self) -> float:
        return sum(map(sum, self._wall_s.values()))

    def _run_planned(self, retry: Sequence[str] = ()) -> None:
        planned = self.store.plan(retry)
        if not planned:
            return
        for _, cell, _ in planned:
            self._ready.of(cell)  # made now, so that nothing is downloaded between runs
        self._check_parity([cell for _, cell, _ in planned])
        described = self.store.settings().get("datasets") or {}
        names = {cell.dataset for _, cell, _ in planned}
        arrays = {name: described[name]["checksum"] for name in names if "task" in (described.get(name) or {})}
        check_arrays(self.folder, arrays)
        images = names - arrays.keys()
        warm_page_cache(self.folder, {name: (described.get(name) or {}).get("checksum") for name in images})
        self._waiting = {run_id: cell for run_id, cell, _ in planned}
        try:
            for group in schedules.groups(planned, self.options.schedule, self.options.across_models):
                if group[0][2] == 1 and self._spent_s() >= self.strategy.seconds:
                    return  # later blocks were planned as they fit
                while group:  # those that memory did not hold beside the others follow
                    group = with_anchor(self.store, group, self.options, self.strategy, self.watcher.say)
                    group = self._run_group(group, len(planned) - len(self._waiting), len(planned))
        finally:
            shutil.rmtree(self.folder / WEIGHTS, ignore_errors=True)

    def _tell_what_is_left(self, cells: Sequence[Cell]) -> None:
        """Seconds until these cells have run, by those that have; under a budget what is left of that."""
        if self.strategy.seconds < math.inf:
            self.watcher.left(max(self.strategy.seconds - self._spent_s(), 0.0), at_most=True)
        elif cells:
            self.watcher.left(sum(run_s(cell, self._wall_s) for cell in cells))

    def _check_parity(self, cells: Sequence[Cell]) -> None:
        for listed, ready in self._ready.by_device(cells).values():
            refused = in_study.record(
                self.folder, listed, ready, self.options.verify, self.watcher.say, task_of=self._task_of
            )
            self._refused.update(refused)

    def _run_group(self, group: Sequence[Planned], done: int, total: int) -> list[Planned]:
        """Run those that compete, in turns where they are several; those that memory could not hold are left."""
        able = []
        for run_id, cell, block in group:
            environment = self._ready.of(cell)
            refused = self._refused.get(verdict_key(row_of(cell)))
            if isinstance(environment, Run) or refused:
                ended = environment if isinstance(environment, Run) else Run("failed", refused or "")
                self._end({run_id: (cell, ended)})
            else:
                able.append((run_id, cell, block))
        for number, (_, cell, _) in enumerate(able, start=done + 1):
            self.watcher.begin(cell, number, max(total, done + len(able)))  # an anchor is not among those planned
        if len(able) > 1:
            return self._run_in_turns(able)
        for run_id, cell, _ in able:
            self._run_alone(run_id, cell)
        return []

    def _run_in_turns(self, able: Sequence[Planned]) -> list[Planned]:
        """Run rivals; those that memory could not hold beside the others are left."""
        reference = self.strategy.reference
        if self._parted or reference:  # all are compared with the anchor, which must be among those held
            able = sorted(able, key=lambda one: (one[1].framework != reference, self._pace_s.get(one[1], math.inf)))
        duel = able[0][0]  # memory always holds the first
        with self._begun([(run_id, cell) for run_id, cell, _ in able]):
            members = [
                Member(
                    f"run {run_id} ({cell.framework})",
                    self._spec(run_id, cell, turns=True),
                    functools.partial(self.watcher.event, cell),
                    self._peak_bytes.get(cell, 0),
                )
                for run_id, cell, _ in able
            ]
            with one_timing(self.watcher.say):
                outcomes = run_duel(members, f"{self.store.settings().get('order_seed')}-{duel}")
        ended, left, again = {}, [], []
        for (run_id, cell, block), (run, rivals) in zip(able, outcomes):
            if run is None:
                left.append((run_id, cell, block))
            elif rivals and run.status == "out-of-memory":  # perhaps for its rivals' sake
                again.append((run_id, cell))
            else:
                why = None if run.slices or run.status != "ok" else NO_RIVAL
                ended[run_id] = cell, dataclasses.replace(run, duel=duel if run.slices else None, alone_why=why)
        self._end(ended)
        for run_id, cell in again:
            self._run_alone(run_id, cell, CROWDED_OUT)
        self._parted.update(run_id for run_id, *_ in left)
        if len(left) < len(able) - 1:
            return left
        for run_id, cell, _ in left:
            self._run_alone(run_id, cell, NO_ROOM)
        return []

    def _run_alone(self, run_id: int, cell: Cell, why: str | None = None) -> None:
        """Run one worker without rivals and record it; why: what keeps it from taking turns, if not its own settings."""
        with self._begun([(run_id, cell)]):
            spec = self._spec(run_id, cell)
            with one_timing(self.watcher.say):
                run = run_worker(spec, functools.partial(self.watcher.event, cell))
        self._end({run_id: (cell, dataclasses.replace(run, alone_why=why or schedules.why_alone(cell)))})

    @contextlib.contextmanager
    def _begun(self, runs: Sequence[tuple[int, Cell]]) -> Iterator[None]:
        """Mark runs as running; one that the user stops before its worker is there, or a second time, is recorded."""
        for run_id, _ in runs:
            self.store.begin(run_id)
        try:
            yield
        except KeyboardInterrupt:
            stopped = {
                run_id: Run("interrupted", "stopped by the user", log_path=str(_run_folder(run_id, cell) / "log.txt"))
                for run_id, cell in runs
            }
            self.store.record_all(stopped)
            raise

    def _end(self, runs: Mapping[int, tuple[Cell, Run]]) -> None:
        """Record runs that have ended, all at once; a KeyboardInterrupt where the user stopped one."""
        if not runs:
            return
        finished = {run_id: self._completed(run_id, cell, run) for run_id, (cell, run) in runs.items()}
        self.store.record_all(finished)
        for run_id, run in finished.items():
            cell = runs[run_id][0]
            if run.started_at:
                store_figures(self.store, run_id)
            self._wall_s.setdefault(cell, []).append(run.wall_s or 0.0)
            if run.status == "ok" and (pace := run.pace_s):
                self._pace_s[cell] = pace
            self._peak_bytes[cell] = max(self._peak_bytes.get(cell, 0), run.peak_rss_bytes or 0)
            planned = self._waiting.pop(run_id, None)  # else it only accompanied others, and its cell had its runs
            if not planned and run.status not in ("ok", "interrupted"):
                self.store.set_aside(run_id)
            self._tell_what_is_left(list(self._waiting.values()))
            self.watcher.end(cell, run)
        if any(run.status == "interrupted" for run in finished.values()):
            raise KeyboardInterrupt

    def _completed(self, run_id: int, cell: Cell, run: Run) -> Run:
        """A run with what its folder and its model tell of it."""
        if not run.started_at:  # it had no worker
            return run
        folder = _run_folder(run_id, cell)
        # else steps differ by design, and none is the steady one
        if cell.config.batch_growth == 1 and not searches.is_search(cell.model):
            run = dataclasses.replace(run, **steadiness.marked(run.epochs, self.folder / folder / STEPS))
        return dataclasses.replace(
            run,
            log_path=str(folder / "log.txt"),
            trace_path=_trace_path(self.folder, folder) if run.profile else None,
            parameters=build_graph(cell.model, cell.config, self._task_of(cell)).parameter_count(),
            warnings=(*_warnings(cell, run), *[PARTED] * (run_id in self._parted and run.duel is not None)),
        )

    def _spec(self, run_id: int, cell: Cell, turns: bool = False) -> WorkerSpec:
        environment, task = self._ready.of(cell), self._task_of(cell)
        assert not isinstance(environment, Run)
        graph = build_graph(cell.model, cell.config, task)
        of_arrays = task is not None
        tasks = self._candidates(cell, task) if task is not None and searches.is_search(cell.model) else ()
        job = Job(
            cell.config,
            kind="search" if tasks else "train",
            tasks=tasks,
            graph=graph.to_dict(),
            images="" if of_arrays else str(images_path(self.folder, cell.dataset)),
            data={"kind": "arrays", "path": str(arrays_path(self.folder, cell.dataset))} if of_arrays else None,
            weights=str(weights_path(self.folder, graph, cell.config.seed)),
            profile=self.options.profile,
            written=written_of(cell),
            sample_s=self.strategy.sample_s,
            turns=turns,
        )
        return spec_of(
            registry.framework(cell.framework),
            environment,
            job,
            self.folder / _run_folder(run_id, cell),
            self.options.limits,
            self.options.sampling_hz,
            self.options.disturbance_threshold,
        )

    def _candidates(self, cell: Cell, task: Task) -> tuple[Fields, ...]:
        """Return the candidates of a search, as its worker takes them."""
        made = []
        for candidate in searches.candidates(cell.model):
            graph = searches.graph_of(cell.model, candidate, task)
            weights = str(weights_path(self.folder, graph, cell.config.seed))
            made.append({"graph": graph.to_dict(), "settings": dict(candidate.settings), "weights": weights})
        return tuple(made)


def _run_folder(run_id: int, cell: Cell) -> Path:
    """Relative to the study's."""
    return Path("runs") / f"{run_id:05d}-{file_name(cell.label)}"


def _warnings(cell: Cell, run: Run) -> tuple[str, ...]:
    """Return the warnings of a run, and what its settings do to its figures."""
    config = cell.config
    least = registry.framework(cell.framework).whole_batches_from
    batches = config.pipeline == "native" and 0 < least <= config.loader_workers
    idle = idle_workers(config.loader_workers, run.epochs[0].whole_steps) if batches and run.epochs else ""
    return (*run.warnings, *filter(None, (idle, misnamed(cell.framework, run.framework_version))))


def _why_more(cells: Sequence[Cell], progress: Progress, strategy: Strategy) -> str:
    """Return which of the cells, the reference first, another block is for."""
    cell = max(cells[1:] or cells, key=lambda one: half_width(one, progress))
    width = half_width(cell, progress)
    why = (
        f"has fewer than {LEAST_RUNS} runs that count"
        if math.isinf(width)
        else f"has a ±{percent(width, 1)} interval relative to {strategy.reference or 'the fastest'}"
    )
    return f"one more block of {cell.model}: {cell.label} {why}; {length(progress.spent_s)} of {length(strategy.seconds)} used"


def _trace_path(study: Path, run: Path) -> str | None:
    """Return what a profiler wrote in the folder of a run: the file for Perfetto, else all of it; relative to the study."""
    folder = run / "profile"
    names = (folder / "trace.json.gz", folder / "trace.json", folder)
    return next((str(path) for path in names if (study / path).exists()), None)


@contextlib.contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM within, so that it, too, ends the worker and keeps what was measured.

    A handler of the caller's own, or another thread, is left alone. Also a decorator.
    """
    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
