"""A duel: workers that compete, live at the same time, take turns in rounds of short slices.

One after another they start and warm up, so that compiling and tuning happen alone. Then each round gives every worker
one turn, in a balanced random order; the others wait, synchronised. What slows the machine for a second or longer meets
all of them alike, and falls out of their ratios. Rounds that others disturbed are void for all workers, by what others
used, never by their time. Loaders on a CPU are stopped between turns, so that none reads ahead in a rival's time.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import random
import statistics
import time
from typing import Callable, NamedTuple, Sequence

from framework_compare.launch import disturbances, memory_limit, rounds
from framework_compare.launch.launcher import INTERRUPTED, WorkerRun, WorkerSpec, listen, prepare_folder
from framework_compare.launch.rival import Member, Rival
from framework_compare.launch.rounds import Lengths
from framework_compare.launch.scratch import scratch
from framework_compare.records import Run
from framework_compare.samplers.disturbance import CoreCounter, DisturbanceLog

MEMORY_SHARE = 0.8  # of what is free before a duel: more is not taken by all its workers together
LEAST_TURN_S, TURN_FACTOR = 180.0, 30.0  # a turn may take so long, and so many times what is expected
ALONE_TURN_S = 60.0  # of a worker whose rivals have gone, so that it has a deadline, too
SAMPLED = 2.0  # times a sample that all rivals could train: their slices are then equally long
MOST_READINGS = 100_000
QUIET = disturbances.threshold()  # of a core that others take: above, a worker may have waited for the CPU in its turn


class Outcome(NamedTuple):
    """run: None of a worker that memory would not hold. rivals: whether any lived beside it."""

    run: Run | None
    rivals: bool


def run_duel(members: Sequence[Member], seed: str) -> list[Outcome]:
    """Run these workers against each other, to the end of each; never raises for what a worker does.

    Members are started in their order, those that memory cannot hold beside the others are not. A KeyboardInterrupt
    makes all of them `interrupted`.
    """
    with contextlib.ExitStack() as stack:
        duel = _Duel(members, random.Random(seed), stack)
        try:
            duel.run()
        except KeyboardInterrupt:
            duel.interrupt()
        finally:
            duel.close()
        return duel.outcomes()


class _Duel:
    def __init__(self, members: Sequence[Member], generator: random.Random, stack: contextlib.ExitStack) -> None:
        self._members, self._random, self._stack = members, generator, stack
        self._rivals: list[Rival] = []
        self._runs: dict[str, WorkerRun] = {}
        self._log = DisturbanceLog(MOST_READINGS)
        self._cores: CoreCounter | None = None
        with contextlib.suppress(OSError):
            self._cores = stack.enter_context(contextlib.closing(CoreCounter()))
        self._cpu_ns: dict[str, int] = {}
        self._voids: dict[int, str] = {}
        self._taken: dict[int, "tuple[float, float]"] = {}  # of a round that others disturbed: seconds, share of a core
        self._judged: set[int] = set()  # turns without a rival of which it is known what others took
        self._number = 0
        self._factors: dict[str, float] = {}  # steps of a rival's slice over those of Lengths
        self._in_time = False  # whether slices are equally long, not of equally many samples
        self._stopped: Run | None = None  # the record of a worker that was not started before the user stopped all

    def run(self) -> None:
        free = memory_limit.free_bytes()
        for member in self._members:
            if self._fits(member, free):
                self._start(member)
        if len(self._runs) == 1 < len(self._members) and not self._rivals[0].run.over:
            # The only one that memory holds is to be measured the way the others are, alone from the start.
            self._runs.pop(self._rivals[0].name).close()
        self._compete()
        for rival in self._rivals:
            self._finish_alone(rival)

    def _finish_alone(self, rival: Rival) -> None:
        """Let a worker that no rival is left for train to its end, or as long as a sample is."""
        sample_s = rival.spec.job.sample_s
        while rival.takes_turns:
            left_s = sample_s - sum(one.measured_s for one in rival.transcript.slices)
            turn_s = left_s if sample_s else ALONE_TURN_S
            began_ns = self._count()
            self._turn(rival, Lengths(max(0, math.ceil(turn_s / rival.step_s)), 0))
            share, others = self._others(rival.spec, (began_ns, self._count()))
            self._void(others or rounds.ALONE)
            if share is not None:
                self._judged.add(self._number)
            self._number += 1

    def interrupt(self) -> None:
        self._stopped = Run(INTERRUPTED.status, INTERRUPTED.reason)
        for run in self._runs.values():
            run.ending = INTERRUPTED

    def close(self) -> None:
        for rival in self._rivals:
            rival.go_on()
        for run in self._runs.values():
            run.close()
        for rival in self._rivals:
            rival.close()

    def outcomes(self) -> list[Outcome]:
        self._void_later_rounds()
        accompanied = {rival.name for rival in self._rivals if rival.accompanied}
        return [Outcome(self._record(self._runs.get(one.name)), one.name in accompanied) for one in self._members]

    def _void_later_rounds(self) -> None:
        """Void the rounds after a rival had finished, as with patience: its own time covers only the rounds before."""
        finished = [rival.transcript.slices[-1].round for rival in self._rivals if rival.transcript.last]
        last = min(finished, default=self._number)
        if sum(number not in self._voids for number in range(last)) >= rounds.LEAST_ROUNDS:
            for number in range(last + 1, self._number):
                self._voids.setdefault(number, rounds.FEWER)

    def _record(self, run: WorkerRun | None) -> Run | None:
        if run is None:
            return self._stopped
        return self._marked(run.run()) if run.by_rounds else dataclasses.replace(run.run(), slices=())

    def _marked(self, run: Run) -> Run:
        """The run with what became of its rounds, which count instead of its epochs and are the same for all rivals."""
        slices = tuple(dataclasses.replace(one, void=self._voids.get(one.round, "")) for one in run.slices)
        voids = collections.Counter(one.void for one in slices if one.void not in rounds.EXPECTED)
        void, counted = sum(voids.values()), sum(not one.void for one in slices)
        disturbed = void > counted and counted < rounds.LEAST_ROUNDS
        # whether the kernel says what others use, and any turn was judged by it
        judged = void or counted or self._judged & {one.round for one in slices}
        known = bool(self._log.last_ns()) and bool(judged)
        rounds_taken = {one.round for one in slices} & self._taken.keys() if rounds.blames_others(voids) else ()
        taken = [self._taken[number] for number in rounds_taken]
        seconds = sum(lasted_s for lasted_s, _ in taken)
        return dataclasses.replace(
            run,
            slices=slices,
            epochs=tuple(dataclasses.replace(one, disturbed=int(disturbed) if known else None) for one in run.epochs),
            gauges={**run.gauges, "void_rounds": dict(voids)},
            disturbed_epochs=(len(run.epochs) if disturbed else 0) if known else None,
            disturbed_s=seconds if known else None,
            disturbed_share=sum(lasted_s * share for lasted_s, share in taken) / seconds if taken else None,
        )

    def _fits(self, member: Member, free: int) -> bool:
        """Return whether memory holds one more worker beside the live ones; an unknown one is as large as the largest."""
        if all(rival.run.over for rival in self._rivals):
            return True
        known = [(rival, rival.run.recorder.peak_rss_bytes or 0) for rival in self._rivals if rival.run.recorder]
        peaks = [peak for _, peak in known]
        held = sum(peak for rival, peak in known if not rival.run.over)
        return held + (member.peak_bytes or max(peaks, default=0)) <= MEMORY_SHARE * free

    def _start(self, member: Member) -> None:
        job = prepare_folder(member.spec)
        temporary = self._stack.enter_context(scratch())
        holder = self._stack.enter_context(contextlib.closing(memory_limit.limit(member.spec.limits.memory_bytes)))
        run = self._runs[member.name] = WorkerRun(member.spec, holder, temporary, member.on_event)
        run.start(job)
        rival = Rival(member, run)
        beside = [one for one in self._rivals if not one.run.over]
        for one in (rival, *beside) if beside else ():
            one.accompanied, one.run.shares = True, self._log.shares  # unknown unless rounds follow
        self._rivals.append(rival)
        if run.over:
            return
        listen(self._live(), lambda: run.over or rival.transcript.ready)
        if not run.over:
            rival.rest()

    def _live(self) -> list[WorkerRun]:
        return [rival.run for rival in self._rivals]

    def _compete(self) -> None:
        rivals = [rival for rival in self._rivals if rival.takes_turns]
        if len(rivals) < 2:
            return
        lengths = self._lengths(rivals)
        self._count()
        order: Callable[[], list[Rival]] = _by(rivals, self._random)
        while len(rivals) > 1:
            for rival in rivals:
                rival.run.by_rounds = True
            if self._number == 1:  # the first round told how long steps are
                lengths = self._lengths(rivals)
            self._round(order(), lengths.drawn(self._random))
            left = [rival for rival in rivals if rival.takes_turns]
            if len(left) < len(rivals):
                rivals, order = left, _by(left, self._random)
            if self._enough(rivals):
                for rival in rivals:
                    self._turn(rival, Lengths(0, 0))
                return

    def _lengths(self, rivals: Sequence[Rival]) -> Lengths:
        spec = rivals[0].spec
        seconds, sample_s = [rival.step_s for rival in rivals], spec.job.sample_s
        batch_size = max(rival.batch_size for rival in rivals)
        factors = [batch_size / rival.batch_size for rival in rivals]
        # else all train to the end, together, or nearly so
        self._in_time = sample_s > 0 and all(
            rival.transcript.steps * step_s > SAMPLED * sample_s for rival, step_s in zip(rivals, seconds)
        )
        if self._in_time:
            middle_s = statistics.geometric_mean(seconds)
            factors = [middle_s / step_s for step_s in seconds]
        self._factors = {rival.name: factor for rival, factor in zip(rivals, factors)}
        steps = min(int(rival.transcript.steps / factor) for rival, factor in zip(rivals, factors))
        scaled_s = [step_s * factor for step_s, factor in zip(seconds, factors)]
        return Lengths.of(scaled_s, steps, spec.device != "cpu", sample_s, max(seconds) if self._in_time else 0.0)

    def _round(self, order: Sequence[Rival], lengths: Lengths) -> None:
        for rival in order:
            rival.note_idle()
            rival.idle_cpu_s = rival.idle_s = 0.0
        began_ns = self._count()
        for rival in order:
            of_rival = lengths.times(self._factors[rival.name])
            # else all train on the same batches in a round
            self._turn(rival, of_rival.shifted(self._random) if self._in_time else of_rival)
        for rival in order:
            if not rival.run.over:
                rival.note_idle()
        ended_ns = self._count()
        self._void(self._fault(order, (began_ns, ended_ns), lengths))
        self._number += 1

    def _void(self, fault: str) -> None:
        if fault:
            self._voids[self._number] = fault

    def _fault(self, order: Sequence[Rival], span: "tuple[int, int]", lengths: Lengths) -> str:
        """Return why a round does not count; "" where it does."""
        if not self._number:
            return rounds.REHEARSAL
        of_round = {rival.name: rival.transcript.slices[-1:] for rival in order}
        whole = [one[0] for one in of_round.values() if one and one[0].round == self._number]
        if len(whole) < len(order) or any(rival.run.over and not rival.transcript.last for rival in order):
            return rounds.ENDED
        asked = [lengths.times(self._factors[one.name]).steps for one in order]
        steps = [one.steps for one in whole]
        if steps != asked and (len({*steps}) > 1 or not steps[0]):  # the last round may be of few steps, or none
            return rounds.ENDED
        if any(part.samples > part.steps * one.batch_size for one, part in zip(order, whole)):
            return rounds.MORE
        by_batch = {(one.batch_size, part.samples) for one, part in zip(order, whole)}
        if not self._in_time and len(by_batch) > len({one.batch_size for one in order}):
            return rounds.UNEQUAL
        share, others = self._others(order[0].spec, span)
        return (
            others
            or rounds.idle_fault({one.name: one.idle_cpu_s for one in order}, {one.name: one.idle_s for one in order})
            or rounds.stop_fault([one.name for one in order if one.stopped])
            or rounds.faults_fault({one.name: one.transcript.slices[-1].major_faults for one in order})
            or "; ".join(filter(None, [one.false_claim(share <= QUIET) for one in order if share is not None]))
        )

    def _others(self, spec: WorkerSpec, span: "tuple[int, int]") -> "tuple[float | None, str]":
        """Return the share that other programs took of a turn or round, None if unknown, and why it does not count if so."""
        lost = self._log.shares(span, (0, span[1]))
        share = lost.disturbed if lost else None
        others = rounds.others_fault(share or 0.0, spec.disturbance_threshold)
        if others:
            self._taken[self._number] = ((span[1] - span[0]) / 1e9, share or 0.0)
        return share, others

    def _turn(self, rival: Rival, lengths: Lengths) -> None:
        """Let one worker train while the others wait, until it gives the turn back or has ended."""
        if rival.run.over:
            return
        rival.wake()
        steps = lengths.steps
        job = rival.spec.job
        # a turn in which an epoch ends has its validation, of fewer rows than an epoch
        validation = rival.transcript.steps // job.config.epochs if job.data else 0
        within_s = max(LEAST_TURN_S, TURN_FACTOR * max(steps + lengths.rewarm + validation, 1) * rival.step_s)
        rival.run.grant(self._number, steps, lengths.rewarm, within_s)
        transcript = rival.transcript
        listen(self._live(), lambda: rival.run.over or (steps > 0 and transcript.grant is None and not transcript.last))
        if not rival.run.over:
            rival.rest()

    def _enough(self, rivals: Sequence[Rival]) -> bool:
        """Return whether a sample is as long as it was asked to be, or others have voided too many of its rounds."""
        sample_s = max((rival.spec.job.sample_s for rival in rivals), default=0.0)
        slices = [one for rival in rivals for one in rival.transcript.slices]
        counted = [one for one in slices if one.round not in self._voids]
        if not sample_s:
            return False
        wanted_s, took_s = sample_s * len(rivals), sum(one.measured_s for one in counted)
        if sum(one.measured_s for one in slices) >= rounds.PATIENCE * wanted_s and self._number > rounds.FEWEST_ROUNDS:
            return True
        enough = rounds.least(sample_s, took_s / max(len(counted), 1)) * len(rivals)
        return len(counted) >= enough and took_s >= wanted_s

    def _count(self) -> int:
        """Note what all programs have used so far; the time."""
        for rival in self._rivals:
            self._cpu_ns[rival.name] = max(self._cpu_ns.get(rival.name, 0), rival.spent_ns())
        now_ns = time.monotonic_ns()
        with contextlib.suppress(OSError, ValueError, IndexError):
            if self._cores:
                self._log.add(self._cores.counters(sum(self._cpu_ns.values()))[1])
        return now_ns


def _by(rivals: Sequence[Rival], generator: random.Random) -> Callable[[], list[Rival]]:
    """The rivals in the order of the next round, each time it is called."""
    following = rounds.orders(len(rivals), generator)
    return lambda: [rivals[place] for place in next(following)]
