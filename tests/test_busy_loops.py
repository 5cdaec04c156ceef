"""Real busy loops beside real cells: told by epoch with their share, and a disturbed run is repeated."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from bounds import ticks
from heard import Heard
from stored_study import selected

from framework_compare import compare
from framework_compare.cli.doctor import load_words
from framework_compare.samplers import disturbance
from framework_compare.samplers import recorder as recorder_module

# A step takes a tenth of a second, so that an epoch of 13 images lasts long enough for a share of it to be known.
BUSY = """
def on_step(self):
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        pass
"""
SETTINGS = dict(batch_size=1, epochs=2, threads=1, loader_workers=1, warmup_steps=1, image_size=32, verify="off")
LOGGED_S = 0.05  # from one reading of a loop to the next
WATCHED_S = 1.5
LEAST_QUIET = 0.03  # of a core, of the machine without us
pytestmark = [pytest.mark.usefixtures("told"), pytest.mark.cold]


class Loop:
    """A busy loop that sleeps until it is woken; what the kernel says it used, and when."""

    def __init__(self, core=None):
        self.process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        if core is not None:
            os.sched_setaffinity(self.process.pid, {core})
        self.sleep()
        self._log, self._ended = [], threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def sleep(self):
        self.process.send_signal(signal.SIGSTOP)

    def wake(self):
        self.process.send_signal(signal.SIGCONT)

    def used_ns(self):
        return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[0])

    def _watch(self):
        while not self._ended.wait(LOGGED_S):
            self._log.append((time.monotonic_ns(), self.used_ns()))

    def share(self, start_ns, end_ns):
        times, used = np.array(self._log, dtype=np.int64).T
        before, after = np.interp([0, end_ns - start_ns], times - start_ns, used - used[0])
        return (after - before) / (end_ns - start_ns)

    def end(self):
        self._ended.set()
        self._thread.join()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def loop():
    with contextlib.closing(contextlib.ExitStack()) as stack:

        def start(core=None):
            made = Loop(core)
            stack.callback(made.end)
            return made

        yield start


@pytest.fixture
def steady(paced, own_cache):
    return paced("steady", BUSY, pace_s=0.0)


def epochs_of(folder):
    return selected(folder, "SELECT run_id, start_ns, end_ns, disturbed_share, disturbed FROM epoch ORDER BY rowid")


def only_the_loop(loop, monkeypatch):
    """A machine on which nothing else runs: whoever else is busy on this one is not what these tests are about."""
    counters = disturbance.CoreCounter.counters

    def only(self, worker_ns=0):
        cores, found = counters(self, worker_ns)
        return cores._replace(stolen=0), found._replace(others_ns=loop.used_ns(), stolen_ns=0)

    monkeypatch.setattr(disturbance.CoreCounter, "counters", only)


@pytest.mark.alone
@pytest.mark.parametrize(
    "same_core",
    [pytest.param(False, marks=pytest.mark.nightly, id="another-core"), pytest.param(True, id="the-same-core")],
)
def test_a_busy_loop_beside_a_cell_is_told_with_its_share(steady, images, tmp_path, loop, same_core):
    allowed = os.sched_getaffinity(0)
    if not same_core and len(allowed) < 2:
        pytest.skip("a loop on another core needs two; run it where this process may use two cores")
    core = min(allowed)
    beside = loop(core if same_core else max(allowed))
    try:
        os.sched_setaffinity(0, {core} if same_core else allowed)
        before = disturbance.watch()
        beside.wake()
        compare(steady, "linear", dataset=images, out=tmp_path / "s", retries_when_disturbed=0, **SETTINGS)
        beside.sleep()
        after = disturbance.watch()
    finally:
        os.sched_setaffinity(0, allowed)
    more = []
    for _, start_ns, end_ns, told, marked in epochs_of(tmp_path / "s"):
        used = beside.share(start_ns, end_ns)
        assert told > used - 0.05, "less is told than the loop took"
        assert marked == int(told > 0.1)
        more.append(told - used)
    if max(load.others + load.stolen for load in (before, after)) < LEAST_QUIET:
        # Of the quietest epoch: what else wakes up on this machine for a moment is told, too, and rightly.
        assert min(more) < 0.05


@pytest.mark.alone
def test_the_cell_itself_and_its_parent_are_no_disturbance(steady, images, tmp_path):
    """What is told of an epoch is what was not idle, less the cell: what all three are told to have taken adds up."""
    before = disturbance.watch()
    result = compare(steady, "linear", dataset=images, out=tmp_path / "s", **SETTINGS)
    samples = result.samples[(result.samples.phase == "epochs") & (result.samples.run_id == 1)].iloc[1:]
    columns = ["cpu_percent", "others_cpu_percent", "steal_percent", "parent_cpu_percent"]
    whole = samples[columns].mean().sum()
    busy_percent = samples.machine_cpu_percent.mean() * os.cpu_count()
    if len(os.sched_getaffinity(0)) == os.cpu_count():
        span_s = samples.t_s.iloc[-1] - samples.t_s.iloc[0]
        # A tick that falls into the next reading belongs to a core that was idle, and what others took is never below 0.
        idle = ticks(os.cpu_count(), span_s / (len(samples) - 1)) * (1 - samples.machine_cpu_percent.mean() / 100)
        assert whole == pytest.approx(busy_percent, rel=0, abs=100 * (idle + ticks(os.cpu_count(), span_s)))
    assert result.frame.load_before[0] > 0
    load = max((before, disturbance.watch()), key=lambda one: one.others + one.stolen)
    if load.others + load.stolen > LEAST_QUIET:
        pytest.skip(f"whether a quiet machine marks nothing: this one is {load_words(load)}; run it when it is quiet")
    # A disturbed run is repeated once: what wakes up for a moment is not there twice.
    counted = result.epochs[result.epochs.counts]
    assert counted.disturbed.tolist() == [0, 0]
    assert (counted.parent_share < 0.05).all()


@pytest.mark.alone
def test_doctor_finds_a_busy_loop_and_its_share(loop, monkeypatch):
    monkeypatch.setattr(disturbance, "MOST_NAMED", 1000)
    beside = loop()
    beside.wake()
    time.sleep(0.2)
    start_ns = time.monotonic_ns()
    load = disturbance.watch(WATCHED_S)
    end_ns = time.monotonic_ns()
    time.sleep(0.2)
    used = beside.share(start_ns, end_ns)
    assert load.others > used - 0.05
    share = next(one.share for one in load.busiest if one.pid == beside.process.pid)
    # Each end lies between two readings of the loop, and looking at all processes takes time before and after.
    seconds = (end_ns - start_ns) / 1e9
    assert share == pytest.approx(used, rel=0, abs=ticks(2, WATCHED_S) + (LOGGED_S + seconds - WATCHED_S) / WATCHED_S)


class InTheSecondRun(Heard):
    """Has a loop run beside the second run that begins, and beside no other."""

    def __init__(self, loop):
        super().__init__()
        self.loop, self.begun = loop, 0

    def begin(self, cell, number, total):
        self.begun += 1
        (self.loop.wake if self.begun == 2 else self.loop.sleep)()


@pytest.mark.alone
def test_the_one_disturbed_run_of_several_is_repeated_and_set_aside(steady, images, tmp_path, loop, monkeypatch):
    beside = loop()
    only_the_loop(beside, monkeypatch)
    watcher = InTheSecondRun(beside)
    asked = {
        **SETTINGS,
        "dataset": images,
        "out": tmp_path / "s",
        "epochs": 1,
        "repeats": 2,
        "disturbance_threshold": 0.02,
    }
    result = compare(steady, "linear", watcher=watcher, **asked)
    assert watcher.begun == 3 and "repeating 1 disturbed run" in watcher.said
    row = result.frame.iloc[0]
    assert (row.status, row.runs, row.runs_ok, row.epochs_disturbed, row.runs_set_aside) == ("ok", 2, 2, 0, 1)
    assert "run 2 does not count, because other programs took" in row.warnings
    for run_id, start_ns, end_ns, told, marked in epochs_of(tmp_path / "s"):
        assert marked == (run_id == 2)
        # Either end lies between two readings, of the loop and of the cell, and is off by half the time between at most.
        between_s = LOGGED_S + recorder_module.LEAST_GAP_NS / 1e9
        assert told == pytest.approx(beside.share(start_ns, end_ns), rel=0, abs=between_s / ((end_ns - start_ns) / 1e9))
    assert compare(steady, "linear", watcher=watcher, **asked).frame.equals(result.frame), "it was run again"
    assert watcher.begun == 3
