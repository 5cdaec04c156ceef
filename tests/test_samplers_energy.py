"""Energy: counters that turn over, readings when something ends, and power integrated where there is no counter."""

import math
import os
import subprocess
import sys
import threading
import time

import pytest
from processes import wait_until

from framework_compare.records import Energy, Sample
from framework_compare.samplers import energy as energy_module
from framework_compare.samplers.energy import EnergyRecorder, find_packages, integrate_power
from framework_compare.samplers.nvml import GpuMeter
from framework_compare.samplers.recorder import Recorder, open_gpu

SECOND = 1_000_000_000
RANGE_UJ = 262_143_328_850


def package(root, number, name, energy_uj=0):
    """A domain as /sys/class/powercap shows it."""
    folder = root / f"intel-rapl:{number}"
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    return folder / "energy_uj"


def test_packages_and_their_memory_are_found_and_their_parts_left_out(tmp_path):
    assert find_packages(tmp_path) == ([], f"there is no processor package in {tmp_path}")
    domains = ("0", "package-0"), ("1", "package-1"), ("0:0", "core"), ("0:1", "dram"), ("1:0", "dram"), ("2", "psys")
    for number, name in domains:
        package(tmp_path, number, name)
    found, reason = find_packages(tmp_path)
    devices = {"host-package-0", "host-package-1", "host-dram-0", "host-dram-1"}
    assert {one.device for one in found} == devices and len(found) == 4 and reason is None


def test_a_package_counts_from_its_first_reading_and_over_the_turn(tmp_path):
    counter = package(tmp_path, "0", "package-0", RANGE_UJ - 5_000_000)
    (found,), _ = find_packages(tmp_path)
    readings = [found.read()]
    for energy_uj in (RANGE_UJ - 1_000_000, 2_000_000, 9_000_000):
        counter.write_text(str(energy_uj))
        readings.append(found.read())
    assert readings == pytest.approx([0, 4, 7, 14])
    counter.write_text("")
    assert found.read() is None, "it fails now"


def test_a_package_that_root_alone_may_read_says_so(tmp_path):
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        pytest.skip("root reads every file: run the tests as another user")
    package(tmp_path, "0", "package-0").chmod(0)
    found, reason = find_packages(tmp_path)
    assert found == [] and "root only" in reason


class Counter:
    """A meter of 100 W."""

    device = "host-package-0"

    def __init__(self):
        self.read_j = []

    @property
    def calls(self):
        return len(self.read_j)

    def read(self):
        self.read_j.append(time.monotonic() * 100)
        return self.read_j[-1]


def test_energy_is_read_at_the_start_at_phases_and_at_the_end_but_not_after_each_short_epoch(monkeypatch):
    meter = Counter()
    with EnergyRecorder([meter]) as recorder:
        wait_until(lambda: meter.calls == 1, "the first reading")
        recorder.note("phase")
        wait_until(lambda: meter.calls == 2, "the reading of a phase")
    assert meter.calls == 3
    assert [one.energy_j for one in recorder.readings] == meter.read_j
    for asked_ns, one, next_ns in zip(recorder.times_ns, recorder.readings, [*recorder.times_ns[1:], math.inf]):
        assert asked_ns <= one.t_ns <= next_ns
    monkeypatch.setattr(energy_module, "LEAST_GAP_NS", 3600 * SECOND)
    meter = Counter()
    with EnergyRecorder([meter]) as recorder:
        wait_until(lambda: meter.calls == 1, "the first reading")
        for _ in range(500):
            recorder.note("epoch")
    assert meter.calls == 2


def test_a_meter_that_cannot_be_read_leaves_times_but_no_readings_and_nobody_waits_for_its_idle_power(monkeypatch):
    with EnergyRecorder([GpuMeter(lambda: None)]) as recorder:
        pass
    assert recorder.readings == [] and len(recorder.times_ns) == 2
    monkeypatch.setattr(energy_module, "_idle_w", {})
    monkeypatch.setattr(energy_module, "IDLE_S", 3600)
    unread = GpuMeter(lambda: None)
    energy_module.note_idle([unread])
    assert energy_module.idle_w([unread]) == {}


def test_power_is_integrated_where_there_is_no_counter():
    powers = [(0, None), (10, 100.0), (11, 300.0), (12, None), (13, 300.0)]
    samples = [Sample(t * SECOND, gpu_power_w=power) for t, power in powers]
    times_ns = [5 * SECOND, 10 * SECOND, 11 * SECOND, 12 * SECOND, 20 * SECOND]
    assert integrate_power(samples, times_ns) == [
        Energy("gpu", 10 * SECOND, 0.0, "power integral"),
        Energy("gpu", 11 * SECOND, 200.0, "power integral"),
        Energy("gpu", 12 * SECOND, 500.0, "power integral"),
    ]
    assert integrate_power(samples[:2], times_ns) == []


@pytest.fixture
def process():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def test_idle_power_is_read_once_per_device_before_the_first_run(process, monkeypatch):
    monkeypatch.setattr(energy_module, "_idle_w", {})
    monkeypatch.setattr(energy_module, "IDLE_S", 0.1)
    meter = Counter()
    monkeypatch.setattr(energy_module, "find_packages", lambda: ([meter], None))
    start_s = time.monotonic()
    for _ in range(2):
        with open_gpu("cpu", 20):
            pass
    assert meter.calls == 2
    least_w = 100 * energy_module.IDLE_S / (time.monotonic() - start_s)  # on a machine that has no time for it
    with Recorder(process.pid, hz=20) as recorder:
        wait_until(recorder.energy, "the first reading")
    (found_w,) = recorder.gauges()["idle_w"].values()
    assert least_w <= found_w and round(found_w, 6) <= 100 and [*recorder.gauges()["idle_w"]] == ["host-package-0"]


def test_a_recorder_without_anything_to_meter_starts_no_thread_for_it(process, monkeypatch):
    monkeypatch.setattr(energy_module, "find_packages", lambda: ([], "none here"))
    with Recorder(process.pid, hz=20) as recorder:
        wait_until(recorder.samples, "a sample")
        recorder.note({"event": "phase"})
        names = [thread.name for thread in threading.enumerate()]
    assert "energy" not in names
    assert recorder.energy() == () and recorder.warnings() == ()
    assert recorder.gauges() == {"host_energy": {"source": None, "reason": "none here"}}


def test_a_recorder_reads_the_host_where_it_can(process, monkeypatch, tmp_path):
    counter = package(tmp_path, "0", "package-0", 1_000_000)
    monkeypatch.setattr(energy_module, "find_packages", lambda: find_packages(tmp_path))
    with Recorder(process.pid, hz=20) as recorder:
        wait_until(recorder.energy, "the first reading")
        counter.write_text("3500000")
        recorder.note({"event": "epoch"})
        recorder.note({"event": "phase", "name": "epochs", "edge": "end"})
        wait_until(lambda: len(recorder.energy()) > 1, "the reading of a phase")
    readings = recorder.energy()
    assert {reading.device for reading in readings} == {"host-package-0"}
    assert [readings[0].energy_j, readings[-1].energy_j] == [0.0, 2.5]
    assert recorder.gauges() == {"host_energy": {"source": "counter", "reason": None}}


def test_a_device_without_a_driver_is_told_and_reads_nothing(process):
    if os.path.exists("/dev/nvidia0"):
        pytest.skip("an NVIDIA driver is here; run this on a machine without one")
    with open_gpu("cuda:7", 20) as gpu, Recorder(process.pid, hz=20, gpu=gpu) as recorder:
        wait_until(recorder.samples, "a sample")
    assert recorder.gauges()["gpu"]["reason"].startswith("no readings of GPU 7: ")
    assert recorder.gauges()["gpu"]["energy_source"] is None


def test_a_meter_that_fails_leaves_a_fault_and_the_readings_of_others(tmp_path):
    class Broken:
        device = "host-package-1"

        def read(self):
            raise RuntimeError("gone")

    with EnergyRecorder([Broken(), GpuMeter(lambda: 1.0)]) as recorder:
        recorder.note("phase")
    assert recorder.fault == "energy of host-package-1 could not be read: RuntimeError: gone"
    assert {one.device for one in recorder.readings} == {"gpu"}
