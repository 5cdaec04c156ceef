"""The recorder on real processes, and the machine sampler."""

import contextlib
import math
import os
import re
import subprocess
import sys
import threading
import time
from array import array
from pathlib import Path

import numpy as np
import psutil
import pytest
from bounds import decimals
from processes import wait_until

from framework_compare.errors import UsageError
from framework_compare.records import Sample
from framework_compare.samplers import recorder as recorder_module
from framework_compare.samplers.disturbance import parse_cores
from framework_compare.samplers.process import ProcessTreeSampler
from framework_compare.samplers.recorder import Recorder, SampleLog, check_hz, next_tick_ns
from framework_compare.samplers.samplers import (
    COLUMNS,
    SAMPLERS,
    Column,
    MachineSampler,
    Sampler,
    Watched,
    parse_meminfo,
)

pytestmark = pytest.mark.alone  # its figures are of processor time and of moments
MB = 1 << 20


@pytest.fixture
def process():
    """A busy Python process."""
    code = "print('ready', flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.kill()


def reads(process):
    """Whether a thread reads a process now."""
    return any(thread.name == f"sampler-{process.pid}" for thread in threading.enumerate())


def test_recorder_takes_samples_in_order_of_time_and_ends_when_the_process_does(process):
    threads, files = threading.active_count(), len(psutil.Process().open_files())
    before_ns = time.monotonic_ns()
    with Recorder(process.pid, hz=50) as recorder:
        wait_until(lambda: len(recorder.samples()) >= 10, "ten samples")
        assert reads(process)
        process.kill()
        wait_until(lambda: not reads(process), "the recorder to end")
    assert (threading.active_count(), len(psutil.Process().open_files())) == (threads, files)
    samples = recorder.samples()
    times_ns = [before_ns, *(sample.t_ns for sample in samples), time.monotonic_ns()]
    assert times_ns == sorted(set(times_ns))
    assert recorder.peak_rss_bytes == max(sample.rss_bytes for sample in samples)
    process.wait()
    with Recorder(process.pid, hz=20) as recorder:  # of a dead process
        wait_until(lambda: not reads(process), "the recorder to end")
    assert recorder.samples() == () and recorder.peak_rss_bytes is None


def test_samples_have_every_reading_of_a_machine_without_gpu(process):
    with Recorder(process.pid, hz=20) as recorder:
        wait_until(lambda: len(recorder.samples()) >= 5, "five samples")
    first, *_, last = recorder.samples()
    assert first.cpu_percent is None and first.machine_cpu_percent is None
    assert last.cpu_percent > 0 and 0 < last.machine_cpu_percent <= 100 and 0 < last.machine_ram_percent < 100
    assert (last.threads, last.processes) == (1, 1) and isinstance(last.rss_bytes, int)
    assert last.gpu_percent is last.gpu_memory_bytes is last.gpu_power_w is None


def test_rate_zero_takes_no_samples_and_one_out_of_bounds_is_refused(process):
    with Recorder(process.pid, hz=0) as recorder:
        assert not reads(process)
    assert recorder.samples() == ()
    for hz in (-1, 1e-300, 1000, float("nan"), True):
        with pytest.raises(UsageError, match="0 .off., or 0.01 to 100"):
            check_hz(hz)


def test_missed_ticks_are_skipped_and_the_grid_kept():
    ticks = {0: 100, 1: 100, 49: 100, 51: 200, 99: 200, 100: 200, 730: 800, 760: 900}
    assert {now: next_tick_ns(5000, 5000 + now, 100) - 5000 for now in ticks} == ticks


def test_full_log_becomes_half_as_dense(process, monkeypatch):
    monkeypatch.setattr(recorder_module, "MAX_SAMPLES", 8)
    with Recorder(process.pid, hz=100) as recorder:
        wait_until(lambda: (seen := recorder.samples()) and seen[-1].t_ns - seen[0].t_ns > 4e8, "many samples")
    assert len(recorder.samples()) < 8


def test_a_log_gives_back_what_it_was_given_and_stays_small():
    log = SampleLog()
    for number, cpu_percent in enumerate([None, 10.0, 20.0, 40.0, 50.0]):
        log.append(number, {"cpu_percent": cpu_percent, "machine_cpu_percent": cpu_percent, "rss_bytes": number * MB})
    log.thin()
    rows = [log[number] for number in range(len(log))]
    assert [row.t_ns for row in rows] == [1, 3, 4]
    assert [row.cpu_percent for row in rows] == [None, 30.0, 50.0]
    assert [row.rss_bytes for row in rows] == [MB, 3 * MB, 4 * MB]
    log = SampleLog()
    readings = dict(gpu_throttle=2**31 + 1, cpu_percent=399.5, gpu_percent=None, rss_bytes=2**40 + 1, threads=43)
    log.append(2**62 + 1, {**readings, "no column of ours": 7})
    assert log[0] == Sample(2**62 + 1, **readings)
    assert all(type(getattr(log[0], name)) is int for name in ("rss_bytes", "threads", "gpu_throttle"))
    log = SampleLog()
    for number in range(36_000):
        log.append(number, dict.fromkeys(COLUMNS, 1.0))
    columns = [log._t_ns, *log._columns.values()]
    assert all(isinstance(column, array) for column in columns)
    assert sum(sys.getsizeof(column) for column in columns) < 8.6 * 36_000 * len(columns)
    page = (Path(__file__).parents[1] / "docs" / "frames.md").read_text()
    assert not [name for name in COLUMNS if not re.search(rf"\b{name}\b", page)]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: sampler.__name__)
def test_a_sampler_reads_only_columns_of_its_own(sampler, process):
    watched = Watched(ProcessTreeSampler(process.pid))
    watched.reading = watched.tree.read()
    with contextlib.closing(watched.tree), contextlib.closing(sampler(watched)) as made:
        made.read()
        found = {name for name, reading in made.read().items() if reading is not None}
        assert found <= {"t_ns", "spent_ns", *sampler.columns}
    others = [name for other in SAMPLERS if other is not sampler for name in other.columns]
    assert not set(sampler.columns) & set(others)


class Broken(Sampler):
    columns = {"broken_s": Column()}

    def read(self):
        raise OSError("no such file")


def test_a_sampler_that_cannot_read_gives_none_and_disturbs_no_other(process, monkeypatch):
    monkeypatch.setattr(recorder_module, "SAMPLERS", (Broken, *SAMPLERS))
    monkeypatch.setattr(recorder_module, "COLUMNS", {**Broken.columns, **COLUMNS})
    log = SampleLog()
    assert "broken_s" in log._columns
    with Recorder(process.pid, hz=50) as recorder:
        wait_until(lambda: len(recorder._log) >= 3, "three samples")
    assert all(math.isnan(value) for value in recorder._log._columns["broken_s"])
    assert all(value > 0 for value in recorder._log._columns["rss_bytes"])


def test_machine_reads_the_memory_that_psutil_reads(process):
    watched = Watched(ProcessTreeSampler(process.pid))
    readings = []

    def steady():
        before, own, after = psutil.virtual_memory(), sampler.read()["machine_ram_percent"], psutil.virtual_memory()
        readings[:] = [before.percent, own, after.percent]
        return readings[0] == readings[2]

    with contextlib.closing(watched.tree), contextlib.closing(MachineSampler(watched)) as sampler:
        wait_until(steady, "two equal readings of memory")
    assert readings[1] == pytest.approx(readings[0], abs=2 * decimals(1))  # psutil's, and a change that it rounds away


def test_cores_and_memory_are_counted_as_psutil_does():
    def by_psutil():
        times = psutil.cpu_times()
        idle_s = times.idle + times.iowait
        return np.array([idle_s, sum(times) - idle_s - times.guest - times.guest_nice]) * os.sysconf("SC_CLK_TCK")

    before = by_psutil()
    with open("/proc/stat", "rb") as file:
        found = parse_cores(file.read(), {b"cpu"})
    after, tick_each = by_psutil(), os.cpu_count()
    assert found.idle == found.total - found.busy
    counted = np.array([found.idle, found.busy])
    assert (before - tick_each <= counted).all() and (counted <= after + tick_each).all()
    assert parse_meminfo(b"MemTotal: 100 kB\nMemFree: 50 kB\nMemAvailable: 75 kB\nBuffers: 1 kB\n") == 25.0
    assert parse_meminfo(b"MemTotal: 100 kB\nMemFree: 50 kB\nBuffers: 7 kB\nCached: 1 kB\n") is None


def test_the_edges_of_epochs_are_read_between_two_samples(process):
    with Recorder(process.pid, hz=0.5) as recorder:
        wait_until(recorder.samples, "a sample")
        times = []
        for event in ({"event": "phase", "name": "epochs", "edge": "start"}, {"event": "epoch"}):
            time.sleep(0.1)
            times.append(time.monotonic_ns())
            recorder.note(event)
            wait_until(lambda: recorder._disturbance.last_ns() >= times[-1], "a reading of the counters")
        taken = len(recorder.samples())
    assert taken <= 2 and len(recorder._disturbance._columns["t_ns"]) >= taken + 2


def test_readings_that_end_by_a_fault_leave_a_warning_and_the_samples_so_far(process, monkeypatch):
    class Failing(Sampler):
        reads = 0

        def read(self):
            Failing.reads += 1
            if Failing.reads > 3:
                raise RuntimeError("a sensor is gone")
            return {}

    monkeypatch.setattr(recorder_module, "SAMPLERS", (*SAMPLERS, Failing))
    with Recorder(process.pid, hz=50) as recorder:
        wait_until(lambda: not reads(process), "the end of the thread")
    (warning,) = recorder.warnings()
    assert warning == "readings ended before the run did: RuntimeError: a sensor is gone"
    assert len(recorder.samples()) == 3


def test_nothing_is_read_while_a_worker_waits_for_its_turn(process):
    with Recorder(process.pid, hz=50) as recorder:
        wait_until(lambda: len(recorder.samples()) >= 5, "samples")
        recorder.hold()
        time.sleep(0.1)
        held = len(recorder.samples())
        time.sleep(0.3)
        assert len(recorder.samples()) == held
        recorder.go_on()
        wait_until(lambda: len(recorder.samples()) >= held + 3, "samples of the next turn")
    times_ns = [sample.t_ns for sample in recorder.samples()]
    assert max(b - a for a, b in zip(times_ns, times_ns[1:])) > 0.3e9
    assert all(sample.cpu_percent is None or sample.cpu_percent < 250 for sample in recorder.samples())
