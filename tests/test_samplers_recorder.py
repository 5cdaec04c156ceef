"""The recorder on real processes, and the machine sampler."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from array import array

import psutil
import pytest

from framework_compare.errors import UsageError
from framework_compare.records import Sample
from framework_compare.samplers import recorder as recorder_module
from framework_compare.samplers.machine_load import MachineSampler, parse_meminfo, parse_stat
from framework_compare.samplers.recorder import NO_GPU, Recorder, SampleLog, next_tick_ns

pytestmark = pytest.mark.alone  # its figures are of processor time and of moments
MB = 1 << 20
linux_only = pytest.mark.skipif(not psutil.LINUX, reason="needs Linux: /proc")


@pytest.fixture
def process():
    """A busy Python process."""
    code = "print('ready', flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.kill()


def wait_until(happened, what, limit_s=20.0):
    end = time.monotonic() + limit_s
    while not happened():
        assert time.monotonic() < end, f"waited {limit_s:g} s in vain for: {what}"
        time.sleep(0.02)


def test_recorder_takes_samples_in_order_of_time(process):
    before_ns = time.monotonic_ns()
    with Recorder(process.pid, hz=50) as recorder:
        wait_until(lambda: len(recorder.samples()) >= 10, "ten samples")
        assert recorder.running
    samples = recorder.samples()
    times_ns = [before_ns, *(sample.t_ns for sample in samples), time.monotonic_ns()]
    assert times_ns == sorted(set(times_ns))
    assert recorder.latest() == samples[-1]
    assert recorder.peak_rss_bytes == max(sample.rss_bytes for sample in samples)
    assert recorder.cpu_s > 0


def test_samples_have_every_reading_of_a_machine_without_gpu(process):
    with Recorder(process.pid, hz=20) as recorder:
        wait_until(lambda: len(recorder.samples()) >= 5, "five samples")
    first, *_, last = recorder.samples()
    assert first.cpu_percent is None and first.machine_cpu_percent is None
    assert last.cpu_percent > 0 and 0 < last.machine_cpu_percent <= 100 and 0 < last.machine_ram_percent < 100
    assert (last.threads, last.processes) == (1, 1) and isinstance(last.rss_bytes, int)
    assert last.gpu_percent is last.gpu_memory_bytes is last.gpu_power_w is None


def test_recorder_ends_when_the_process_does(process):
    with Recorder(process.pid, hz=20) as recorder:
        wait_until(recorder.latest, "a sample")
        process.kill()
        wait_until(lambda: not recorder.running, "the recorder to end")
        assert recorder.samples()
        assert recorder.pss_bytes() is None


def test_recorder_of_a_dead_pid_has_no_samples():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with Recorder(process.pid, hz=20) as recorder:
        wait_until(lambda: not recorder.running, "the recorder to end")
    assert recorder.samples() == () and recorder.latest() is None and recorder.peak_rss_bytes is None


def test_recorder_leaves_no_thread_and_no_file(process):
    threads, files = threading.active_count(), len(psutil.Process().open_files())
    with Recorder(process.pid, hz=20, device="cuda") as recorder:
        wait_until(recorder.latest, "a sample")
    assert threading.active_count() == threads
    assert len(psutil.Process().open_files()) == files


def test_rate_zero_takes_no_samples_but_still_reads_pss(process):
    with Recorder(process.pid, hz=0) as recorder:
        assert not recorder.running
        assert recorder.pss_bytes() is None or recorder.pss_bytes() > 0
    assert recorder.samples() == () and recorder.cpu_s == 0


@pytest.mark.parametrize("hz", [-1, 1000, float("nan")])
def test_rate_out_of_bounds_is_refused(hz):
    with pytest.raises(UsageError, match="0 .off. to 100"):
        Recorder(os.getpid(), hz=hz)


@pytest.mark.parametrize(
    "now, next_tick",
    [(0, 100), (1, 100), (49, 100), (51, 200), (99, 200), (100, 200), (730, 800), (760, 900)],
)
def test_missed_ticks_are_skipped_and_the_grid_kept(now, next_tick):
    assert next_tick_ns(5000, 5000 + now, 100) == 5000 + next_tick


def test_full_log_becomes_half_as_dense(process, monkeypatch):
    monkeypatch.setattr(recorder_module, "MAX_SAMPLES", 8)
    with Recorder(process.pid, hz=100) as recorder:
        wait_until(lambda: (seen := recorder.samples()) and seen[-1].t_ns - seen[0].t_ns > 4e8, "many samples")
    assert len(recorder.samples()) < 8


def test_thinned_log_keeps_the_mean_cpu_and_the_later_readings():
    log = SampleLog()
    for number, cpu_percent in enumerate([None, 10.0, 20.0, 40.0, 50.0]):
        log.append(number, cpu_percent, number * MB, 1, 1, cpu_percent, 50.0, *NO_GPU)
    log.thin()
    rows = [log[number] for number in range(len(log))]
    assert [row.t_ns for row in rows] == [1, 3, 4]
    assert [row.cpu_percent for row in rows] == [None, 30.0, 50.0]
    assert [row.rss_bytes for row in rows] == [MB, 3 * MB, 4 * MB]


def test_log_gives_back_what_it_was_given():
    log = SampleLog()
    readings = (399.5, 2**40 + 1, 43, 4, None, 12.5, 37.0, 2**37 + 1, None, None, 61.0, 1980.0, 2**31 + 1)
    log.append(2**62 + 1, *readings)
    assert log[0] == Sample(2**62 + 1, *readings)
    whole = ("rss_bytes", "threads", "processes", "gpu_memory_bytes", "gpu_throttle")
    assert all(type(log[0].__dict__[name]) is int for name in whole)


def test_an_hour_at_ten_hertz_stays_small():
    log = SampleLog()
    for number in range(36_000):
        log.append(number, *[1.0] * 13)
    columns = [log._t_ns, *log._columns.values()]
    assert all(isinstance(column, array) for column in columns)
    assert sum(sys.getsizeof(column) for column in columns) < 5 * MB


@pytest.mark.parametrize("procfs", [pytest.param(True, marks=linux_only), False], ids=["procfs", "psutil"])
def test_machine_reads_percent_and_no_cpu_at_first(procfs):
    with MachineSampler(procfs=procfs) as sampler:
        first = sampler.read()
        time.sleep(0.3)
        second = sampler.read()
    assert first.cpu_percent is None and 0 <= second.cpu_percent <= 100
    assert first.ram_percent == pytest.approx(psutil.virtual_memory().percent, abs=5)


@linux_only
def test_machine_counts_busy_time_as_psutil_does():
    with open("/proc/stat", "rb") as file:
        busy, total = parse_stat(file.readline())
    times = psutil.cpu_times()
    idle_s = times.idle + times.iowait
    ticks = os.sysconf("SC_CLK_TCK")
    assert (total - busy) / ticks == pytest.approx(idle_s, rel=0.01)
    assert busy / ticks == pytest.approx(sum(times) - idle_s - times.guest - times.guest_nice, rel=0.01)


def test_memory_of_a_kernel_that_does_not_tell_what_is_available_reads_none():
    assert parse_meminfo(b"MemTotal: 100 kB\nMemFree: 50 kB\nMemAvailable: 75 kB\nBuffers: 1 kB\n") == 25.0
    assert parse_meminfo(b"MemTotal: 100 kB\nMemFree: 50 kB\nBuffers: 7 kB\nCached: 1 kB\n") is None
