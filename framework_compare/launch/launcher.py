"""Starts a worker, listens to its events, watches its limits, and turns what became of it into a Run."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import resource
import selectors
import signal
import time
from pathlib import Path
from typing import Callable, Collection, Iterator, Sequence

from framework_compare.errors import ProtocolError
from framework_compare.events import TOLD_FAILURE, EventReader
from framework_compare.launch import memory_limit, nodes
from framework_compare.launch.disturbances import Span, marked, summary
from framework_compare.launch.disturbances import warnings as disturbance_warnings
from framework_compare.launch.limits import Clock, Limits, shorten_if_long
from framework_compare.launch.memory_limit import MemoryLimit
from framework_compare.launch.scratch import make_way, scratch
from framework_compare.launch.staging import worker_environment
from framework_compare.launch.statuses import Ending, Evidence, judge, log_tail, stuck_at
from framework_compare.launch.supervised_worker import SupervisedWorker, SupervisionError
from framework_compare.launch.transcript import Grant, Transcript
from framework_compare.protocol import Fields, Job
from framework_compare.records import Run
from framework_compare.samplers.disturbance import Shares
from framework_compare.samplers.process import STOPPED, any_thread
from framework_compare.samplers.recorder import Recorder, open_gpu
from framework_compare.store import schema
from framework_compare.store.folder import STEPS

INTERRUPTED = Ending("interrupted", "stopped by the user")
STACKS_S = 0.2  # until a worker that hangs has written where its threads are
MOST_KEPT_BYTES = 64 << 20  # of a worker's events; a hostile one would fill the disk
OnEvent = Callable[[Fields], None]


@dataclasses.dataclass(frozen=True)
class WorkerSpec:
    """All that one run of a worker needs."""

    python: Path
    source: Path  # staged worker side
    folder: Path  # of this run: job, log
    job: Job
    ranks: int  # processes that train together on a node
    managed: bool  # a managed environment is kept from the user's site-packages
    hz: float
    limits: Limits
    disturbance_threshold: float  # of one core: an epoch in which others took more is marked

    @property
    def device(self) -> str:
        return self.job.config.device

    @property
    def nodes(self) -> int:
        return self.job.config.nodes

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def events(self) -> Path:
        return self.folder / "events.jsonl"

    @property
    def steps(self) -> Path:
        return self.folder / STEPS


def run_worker(spec: WorkerSpec, on_event: OnEvent = lambda event: None) -> Run:
    """Run one worker to its end; never raises for what the worker does. The callback holds up the listening.

    A KeyboardInterrupt ends the worker's tree and is a Run that is `interrupted`, with what was measured: the caller
    records it and stops. StudyError where the folder cannot be written.
    """
    job = prepare_folder(spec)
    with scratch() as temporary, contextlib.closing(memory_limit.limit(spec.limits.memory_bytes)) as holder:
        attempt = WorkerRun(spec, holder, temporary, on_event)
        try:
            attempt.start(job)
            listen([attempt])
        except KeyboardInterrupt:
            attempt.ending = INTERRUPTED
        finally:
            attempt.close()
        return attempt.run()


def prepare_folder(spec: WorkerSpec) -> Path:
    job = spec.folder / "job.json"
    with schema.study_errors(spec.folder):
        make_way(spec.folder)  # Python imports from the folder it runs in, and a study may be of somebody else
        spec.folder.mkdir(parents=True)
        document = (
            dataclasses.replace(spec.job, steps=str(spec.steps)) if spec.job.kind in ("train", "search") else spec.job
        )
        job.write_text(json.dumps(document.to_dict()), encoding="utf-8")
        spec.log.write_bytes(b"")
        spec.events.write_bytes(b"")
    return job


def listen(runs: Sequence["WorkerRun"], until: Callable[[], bool] = lambda: False) -> None:
    """Take in what live workers send until `until`, or until all are over; ends each whose time or memory is up."""
    with selectors.DefaultSelector() as selector:
        while not until():
            live = [run for run in runs if not run.over]
            if not live:
                return
            _watch(selector, [descriptor for run in live for descriptor in run.descriptors])
            ready = {key.fd for key, _ in selector.select(min(run.wait_s for run in live))}
            for run in live:
                run.attend(ready)


def _watch(selector: selectors.BaseSelector, wanted: Sequence[int]) -> None:
    for descriptor in {*selector.get_map()}.difference(wanted):
        selector.unregister(descriptor)
    for descriptor in {*wanted}.difference(selector.get_map()):
        selector.register(descriptor, selectors.EVENT_READ)


def _read(descriptor: int) -> bytes | None:
    """Return what has arrived, b"" at the end of the pipe, None if nothing has."""
    try:
        return os.read(descriptor, 1 << 16)
    except BlockingIOError:
        return None


class WorkerRun:
    """One worker from its start to the record of its run."""

    def __init__(self, spec: WorkerSpec, holder: MemoryLimit, temporary: Path, on_event: OnEvent) -> None:
        self.spec, self.holder, self.temporary, self._on_event = spec, holder, temporary, on_event
        self.started_at = schema.now()
        self.began, self.began_cpu_s = time.monotonic(), time.process_time()
        self.load = os.getloadavg()[0]
        self.kills = memory_limit.kernel_kills()
        self.transcript = Transcript(
            time.monotonic_ns(),
            1 if spec.job.kind == "search" else spec.job.config.epochs,
            may_stop=spec.job.config.patience > 0 or spec.job.sample_s > 0,
            ranks=spec.ranks * spec.nodes,
        )
        self.worker: SupervisedWorker | None = None
        self.recorder: Recorder | None = None
        self.ending: Ending | None = None  # the parent's own, which stands before what the worker says
        self.over = False
        self.wall_s = 0.0  # once it is over, without the time in which it waited for turns
        self.shares: Callable[[Span, Span], Shares | None] = lambda *spans: None  # what an epoch lost to others
        self.by_rounds = False  # whether rounds are judged, not epochs, in which its rivals had turns too
        self._stack, self._reader = contextlib.ExitStack(), EventReader()
        self._turns = -1  # descriptor that turns are written to
        self._rested: float | None = None
        self._waited_s = 0.0

    def start(self, job: Path) -> None:
        """Start the worker; where that fails it is over at once."""
        try:
            self._start(job)
        except SupervisionError as error:
            self.ending = Ending("failed", str(error))
            self.close()

    def _start(self, job: Path) -> None:
        spec, enter = self.spec, self._stack.enter_context
        command = [str(spec.python), "-u", str(spec.source / "run_worker.py"), str(job)]
        environment = worker_environment(managed=spec.managed, temporary=self.temporary)
        others = nodes.names(spec.nodes)[1:] if spec.nodes > 1 else []
        if others:
            environment.update(nodes.variables())
        place = enter(nodes.place(job)) if others else None
        self._record = enter(open(spec.events, "ab", buffering=0))
        gpu = enter(open_gpu(spec.device, spec.hz))
        with self._open_turns() as turns:
            self.worker = enter(
                SupervisedWorker(
                    [*command, *map(str, turns)],
                    log=spec.log,
                    folder=spec.folder,
                    environment=environment,
                    group=self.holder.group,
                    temporary=self.temporary,
                    ranks=spec.ranks,
                    others=others,
                    place=place,
                    inherited=turns,
                )
            )
        self.transcript.open["spawn"] = self.worker.started_ns
        self.holder.watch(self.worker.supervisor_pid)
        self.recorder = enter(Recorder(*self.worker.pids, hz=spec.hz, gpu=gpu))
        self.shares = self.recorder.shares
        self.clock = Clock(spec.limits, spec.log)

    @contextlib.contextmanager
    def _open_turns(self) -> Iterator[Sequence[int]]:
        """The end of a pipe that the worker inherits, if it takes turns; ours is closed with the run."""
        if not self.spec.job.turns:
            yield ()
            return
        theirs, self._turns = os.pipe()
        self._stack.callback(os.close, self._turns)
        try:
            yield (theirs,)
        finally:
            os.close(theirs)

    @property
    def descriptors(self) -> list[int]:
        """Return the descriptors to wait on while the worker lives."""
        worker = self.worker
        return [] if worker is None else [number for number in (worker.events, worker.status) if number >= 0]

    @property
    def wait_s(self) -> float:
        """Seconds until its limits must be looked at."""
        soon = self.holder.wait_s()
        return self.clock.wait_s() if soon is None else min(soon, self.clock.wait_s())

    def attend(self, ready: Collection[int]) -> None:
        """Take in what has arrived; over where it has ended, or has to be ended."""
        assert self.worker
        try:
            if self._hear(self.worker) and self.worker.ended:
                self.close()
                return
        except ProtocolError as error:
            self.ending = Ending("failed", str(error))
        if self.worker.status in ready and not self.worker.ended:
            self.worker.read_status()  # its last events may have come since: one more round
        self.ending = self.ending or self.holder.ending() or self._late(self.worker)
        if self.ending:
            self.close()

    def _late(self, worker: SupervisedWorker) -> Ending | None:
        """Return the ending of a limit that has passed, with the line the worker is at; its log gets every thread's stack."""
        ending = self.clock.ending()
        if ending is None:
            return None
        if any_thread(worker.pids, STOPPED):
            return dataclasses.replace(ending, reason=f"{ending.reason}; it was stopped by a signal")
        for pid in worker.pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGUSR1)
        time.sleep(STACKS_S)
        place = stuck_at(self.spec.log)
        return dataclasses.replace(ending, reason=f"{ending.reason}; it was {place}") if place else ending

    def _hear(self, worker: SupervisedWorker) -> bool:
        """Take in its events; True where there are none.

        They are written down as they come: of a run whose parent is killed that is what remains.
        """
        chunk = _read(worker.events) if worker.events >= 0 else b""
        with contextlib.suppress(OSError):  # a full disk is told when the run is recorded
            if chunk and self._record.tell() < MOST_KEPT_BYTES:
                self._record.write(chunk)
        for event in self._reader.feed(chunk or b""):
            self.transcript.add(event)
            if not event.get("rank"):
                if self.recorder:
                    self.recorder.note(event)
                self._on_event(event)
        if chunk:
            self.clock.hear(self.transcript.died_in)
        elif chunk == b"":
            worker.close_events()
        return not chunk

    def rest(self) -> None:
        """Note that it has given its turn back, or is ready for its first."""
        self._rested = time.monotonic()
        self.clock.pause()
        if self.recorder:
            self.recorder.hold()

    def grant(self, number: int, steps: int, rewarm: int, within_s: float) -> None:
        """Give it a turn: so many steps that are not counted, then the slice; or, with no steps, have it end."""
        if self._rested is not None:
            self._waited_s += time.monotonic() - self._rested
            self._rested = None
        self.clock.go_on(within_s, last=not steps)
        if self.recorder:
            self.recorder.go_on()
        self.transcript.grant = Grant(number, steps, rewarm, time.monotonic_ns()) if steps else None
        line = f"turn {number} {steps} {rewarm}\n" if steps else "stop\n"
        with contextlib.suppress(BrokenPipeError):  # it has ended, which the pipe of its events tells
            os.write(self._turns, line.encode())

    def close(self) -> None:
        """Leave no process of it; harmless where there is none."""
        if self.over:
            return
        self.over = True
        if self._rested is not None:
            self._waited_s += time.monotonic() - self._rested
        self._stack.close()
        self.wall_s = time.monotonic() - self.began - self._waited_s

    def run(self) -> Run:
        """The record: the parent's ending stands before the worker's own, and that before what its death tells."""
        seen, transcript = self._evidence(), self.transcript
        final = self._judge(seen)
        code = seen.returncode
        gauges = {"load": {"before": self.load}, "parent": self._parent()}
        threshold = math.inf if self.by_rounds else self.spec.disturbance_threshold
        epochs = marked(transcript.epochs, self.shares, threshold)
        return Run(
            status=final.status,
            reason=final.reason,
            started_at=self.started_at,
            wall_s=self.wall_s,
            exit_code=code if code is not None and code >= 0 and not self.ending else None,
            signal=None if self.ending else seen.signal,
            died_in=None if final.status == "ok" else seen.died_in,
            traceback=final.traceback,
            framework_version=transcript.framework.get("version"),
            interpreter=transcript.python,
            settings=transcript.framework.get("settings", {}),
            peak_rss_bytes=seen.peak_bytes,
            warnings=(*transcript.warnings, *self._complaints(), *disturbance_warnings(epochs)),
            gauges={**(self.recorder.gauges() if self.recorder else {}), **gauges},
            **summary(epochs),
            limits={**self.spec.limits.to_dict(), **({"memory_by": self.holder.by} if self.holder.by else {})},
            log_tail=None if final.status == "ok" else seen.log_tail,
            phases=tuple(transcript.phases),
            epochs=epochs,
            slices=tuple(transcript.slices),
            quality=tuple(transcript.quality),
            samples=self.recorder.samples() if self.recorder else (),
            energy=self.recorder.energy() if self.recorder else (),
            profile=tuple(transcript.profile),
        )

    def _judge(self, seen: Evidence) -> Ending:
        transcript = self.transcript
        final = self.ending or judge(transcript.reported_outcome(seen.rank or 0), seen)
        if final.status in ("ok", "interrupted") or transcript.died_in != "profile" or not transcript.all_epochs:
            return final
        # All that was asked for is measured: what the profiler does to the worker is no end of the cell.
        transcript.warnings.append(f"no profile: {final.status}: {final.reason}")
        return Ending("ok", "")

    def _parent(self) -> dict[str, float]:
        """Return what this process itself took: CPU of one core during the run, and its largest memory since it began."""
        cpu_s, wall_s = time.process_time() - self.began_cpu_s, self.wall_s + self._waited_s
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {"cpu_percent": 100 * cpu_s / max(wall_s, 1e-9), "peak_rss_bytes": float(peak)}

    def _evidence(self) -> Evidence:
        worker, holder = self.worker, self.holder
        shorten_if_long(self.spec.log)
        sampled = self.recorder.peak_rss_bytes if self.recorder else None
        peaks = (sampled, holder.peak_bytes(), worker.max_rss_bytes if worker else None)
        rank = self._rank()
        return Evidence(
            returncode=worker.returncode if worker else None,
            rank=rank,
            lost=worker is not None and worker.lost,
            node=f"node {rank // self.spec.ranks + 1} of {self.spec.nodes}" if rank and self.spec.nodes > 1 else "",
            died_in=self.transcript.phase_of_end(rank or 0),
            log_tail=log_tail(self.spec.log),
            kernel_kills=memory_limit.kernel_kills() - self.kills,
            group_kills=holder.kills(),
            peak_bytes=max((peak for peak in peaks if peak), default=None),
            memory_bytes=holder.limit_bytes or memory_limit.machine_bytes(),
            limit=holder.words,
        )

    def _rank(self) -> int | None:
        """Return which of several ranks ended the others: of those that told of a failure the one that was heard first."""
        if self.worker is None or self.spec.ranks * self.spec.nodes == 1:
            return None
        failed = self.transcript.first_failed() if self.worker.returncode == TOLD_FAILURE else None
        return self.worker.rank if failed is None else failed

    def _complaints(self) -> list[str]:
        left = self.worker.left if self.worker else 0
        seen = self.recorder.warnings() if self.recorder else ()
        unread = [f"readings except PSS cover the first of {self.spec.nodes} nodes only"] if self.spec.nodes > 1 else []
        return [*([f"{left} processes of the worker could not be killed"] if left else []), *unread, *seen]
