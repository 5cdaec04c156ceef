"""The GPU sampler, and which programs use a GPU: on a real GPU where there is one, and everywhere on a recording."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import closing
from types import SimpleNamespace

import pynvml
import pytest
from recorded_nvml import RecordedNvml

from framework_compare.errors import UsageError
from framework_compare.samplers.gpu_users import BY_DIFFERENCE, BY_PROCESS, IDLE_BYTES, GpuProcess, GpuUsers
from framework_compare.samplers.nvml import GpuReading, NvmlSampler, describe_gpus, find_handle, gpu_index
from framework_compare.samplers.throttle import words

OURS = SimpleNamespace(pid=100_000_002, usedGpuMemory=1 << 30)


@pytest.fixture(autouse=True)
def all_gpus_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_recorded_gpu_reads_in_our_units():
    with closing(NvmlSampler(0, nvml=RecordedNvml())) as gpu:
        assert gpu.read(pids=[4321]) == GpuReading(
            percent=100.0,
            memory_bytes=1_570_635_776,
            power_w=692.477,
            process_memory_bytes=1_048_576_000,
            temperature_c=61.0,
            sm_clock_mhz=1980.0,
            throttle=0x4,
        )
        assert gpu.energy_j() == 123_456.789
        assert gpu.reason is None


def test_a_process_that_draws_and_came_during_the_run_is_named(monkeypatch):
    with closing(NvmlSampler(0, nvml=RecordedNvml())) as gpu:
        gpu.note_baseline()
        monkeypatch.setitem(RecordedNvml.answers, "nvmlDeviceGetComputeRunningProcesses", [OURS])
        gpu.read(pids=[OURS.pid])
        drawing = SimpleNamespace(pid=100_000_001, usedGpuMemory=1 << 28)
        monkeypatch.setitem(RecordedNvml.answers, "nvmlDeviceGetGraphicsRunningProcesses", [drawing])
        assert gpu.warnings()[-1] == "another process is on the GPU: pid 100000001, 0.25 GiB"


def test_recorded_gpu_says_how_its_readings_were_had():
    with closing(
        NvmlSampler(0, nvml=RecordedNvml(nvmlDeviceGetComputeRunningProcesses=pynvml.NVML_ERROR_NO_PERMISSION))
    ) as gpu:
        gpu.note_baseline()
        gpu.read(pids=[1])
        facts = gpu.facts()
    assert (facts["name"], facts["driver"]) == ("NVIDIA H200", "580.159.04")
    assert (facts["baseline_bytes"], facts["memory_source"]) == (1_570_635_776, "device minus baseline")
    assert "1/6 s" in facts["utilization_window"] and facts["utilization_period_s"] == 0.2


def test_throttling_of_an_older_driver_is_asked_for_by_its_older_name():
    nvml = RecordedNvml(nvmlDeviceGetCurrentClocksEventReasons=pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    with closing(NvmlSampler(0, nvml=nvml)) as gpu:
        assert gpu.read().throttle == 0x40


def test_energy_is_not_asked_for_when_a_sample_is_taken():
    nvml = RecordedNvml()
    with closing(NvmlSampler(0, nvml=nvml)) as gpu:
        gpu.read()
    assert not {"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetSamples"} & set(nvml.calls)


@pytest.mark.parametrize(
    "mask, text",
    [(0, "none"), (0x1, "idle"), (0x44, "power cap, hardware thermal slowdown"), (0x4000, "0x4000")],
)
def test_throttle_reasons_are_told_in_words(mask, text):
    assert words(mask) == text


def test_reading_a_gpu_does_not_support_is_asked_for_once():
    nvml = RecordedNvml(nvmlDeviceGetPowerUsage=pynvml.NVML_ERROR_NOT_SUPPORTED)
    with closing(NvmlSampler(0, nvml=nvml)) as gpu:
        assert [gpu.read().power_w for _ in range(3)] == [None] * 3
        assert gpu.read().percent == 100.0
    assert nvml.calls.count("nvmlDeviceGetPowerUsage") == 1


def test_reading_that_fails_now_is_asked_for_again():
    nvml = RecordedNvml(nvmlDeviceGetUtilizationRates=pynvml.NVML_ERROR_UNKNOWN)
    with closing(NvmlSampler(0, nvml=nvml)) as gpu:
        assert gpu.read().percent is None
        nvml.refuse.clear()
        assert gpu.read().percent == 100.0


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetHandleByIndex"])
def test_without_driver_or_gpu_all_readings_are_none(function):
    with closing(NvmlSampler(0, nvml=RecordedNvml(**{function: pynvml.NVML_ERROR_NOT_FOUND}))) as gpu:
        gpu.note_baseline()
        assert gpu.read(pids=[1]) == GpuReading()
        assert gpu.energy_j() is None and gpu.warnings() == [] and gpu.facts() == {"reason": gpu.reason}
        assert gpu.reason.startswith("no readings of GPU 0: ")


class TwoGpus(RecordedNvml):
    uuids = ["GPU-8f6d1c00-1d2b-b333-c3b5-85a7d0741f00", "GPU-2cc37887-837a-097f-54c5-c8977eb03b00"]
    answers = {**RecordedNvml.answers, "nvmlDeviceGetCount": 2}

    def nvmlDeviceGetUUID(self, handle):
        return self.uuids[handle[1]]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != "MIG-whole":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return uuid


def shown(visible):
    """Numbers of the GPUs that are found under CUDA_VISIBLE_DEVICES, and why there are no more."""
    found = []
    while True:
        try:
            found.append(find_handle(len(found), nvml=TwoGpus(), visible=visible))
        except LookupError as error:
            return [handle if isinstance(handle, str) else handle[1] for handle in found], str(error)


# what cuDeviceGetCount and cuDeviceGetUuid of driver 580.159 told under each of these, on a machine of two GPUs
@pytest.mark.parametrize(
    "visible, gpus",
    [
        ("0", [0]),
        ("1,0", [1, 0]),
        (" 1 ,0", [1, 0]),
        ("+0", [0]),
        ("1gpu,0", [1, 0]),
        ("1,0,", [1, 0]),
        ("GPU-8f6d1c00-1d2b-b333-c3b5-85a7d0741f00", [0]),
        ("GPU-2cc3,GPU-8", [1, 0]),
        ("GPU-8F6D", [0]),
    ],
)
def test_gpus_are_those_that_cuda_shows(visible, gpus):
    assert shown(visible)[0] == gpus


NO_GPU, TWICE = (
    "hides it: CUDA reads it up to {!r}, which names no GPU here",
    "names a GPU twice, and CUDA then shows none",
)
NAMELESS = [
    ("0,-1,1", [0], "-1"),
    ("0,9,1", [0], "9"),
    ("-1", [], "-1"),
    ("NoDevFiles", [], "NoDevFiles"),
    ("GPU-", [], "GPU-"),
    ("GPU-8f6dzz,GPU-2cc3", [], "GPU-8f6dzz"),
    ("gpu-8f6d", [], "gpu-8f6d"),
    (" GPU-8f6d", [], " GPU-8f6d"),
    ("GPU-8f6d ", [], "GPU-8f6d "),
    ("GPU-8f6d,1", [0], "1"),
    ("0,GPU-2cc3", [0], "GPU-2cc3"),
]


@pytest.mark.parametrize(
    "visible, gpus, why",
    [
        *((visible, gpus, NO_GPU.format(end)) for visible, gpus, end in NAMELESS),
        *((visible, gpus, "hides it") for visible, gpus in [("", []), (",0", []), ("0,,1", [0])]),
        *((visible, [], TWICE) for visible in ("0,0", "0,1,0", "GPU-8f6d,GPU-8f6d1c00")),
    ],
)
def test_the_first_entry_that_names_no_gpu_ends_the_list_and_one_named_twice_hides_all(visible, gpus, why):
    assert shown(visible) == (gpus, f"CUDA_VISIBLE_DEVICES={visible!r} {why}")


def test_a_part_of_a_gpu_is_asked_for_by_its_uuid():
    assert shown("MIG-whole,MIG-gone")[0] == ["MIG-whole"]


@pytest.mark.parametrize("visible", ["", "0"])
def test_hidden_gpu_reads_none(monkeypatch, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with closing(NvmlSampler(1, nvml=RecordedNvml())) as gpu:
        assert gpu.read() == GpuReading()
        assert "CUDA_VISIBLE_DEVICES" in gpu.reason


@pytest.mark.parametrize(
    "device, index", [("cpu", None), ("mps", None), ("gpu", 0), ("cuda", 0), ("cuda:3", 3), ("gpu:1", 1)]
)
def test_gpu_number_of_a_device(device, index):
    assert gpu_index(device) == index


def test_device_that_is_no_number_is_refused():
    with pytest.raises(UsageError, match="cuda:<number>"):
        gpu_index("cuda:first")


def test_recorded_machine_describes_its_gpus():
    device = {"name": "NVIDIA H200", "memory_bytes": 150_754_820_096, "compute_capability": "9.0"}
    assert describe_gpus(nvml=RecordedNvml()) == {"driver": "580.159.04", "devices": [device]}
    assert describe_gpus(nvml=RecordedNvml(nvmlInit=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)) is None


def test_real_gpu_reads_or_says_why_not():
    with closing(NvmlSampler(0)) as gpu:
        reading = gpu.read()
        if gpu.reason:
            assert reading == GpuReading()
            pytest.skip(f"no NVIDIA GPU or driver here ({gpu.reason})")
    assert reading.percent is None or 0 <= reading.percent <= 100
    assert reading.memory_bytes is None or reading.memory_bytes > 0
    assert reading.power_w is None or 1 < reading.power_w < 5000
    assert reading.temperature_c is None or 0 < reading.temperature_c < 150


MIB = 1 << 20
WORKER, LOADER, OTHER = 100_000_001, 100_000_002, 100_000_003
TREE = (WORKER, LOADER)


def users(device=0, reserved=0, *processes):
    found = GpuUsers()
    found.note_baseline(device, reserved, processes)
    return found


def test_memory_is_that_of_the_workers_processes_where_the_driver_lists_them():
    found = users(600 * MIB)
    listed = [GpuProcess(WORKER, 300 * MIB), GpuProcess(LOADER, 20 * MIB), GpuProcess(OTHER, 900 * MIB)]
    assert found.own_bytes(listed, TREE, 2000 * MIB) == 320 * MIB
    assert found.memory_source == BY_PROCESS


def test_memory_that_the_worker_has_let_go_of_is_zero():
    found = users(600 * MIB)
    found.own_bytes([GpuProcess(WORKER, MIB)], TREE, 700 * MIB)
    assert found.own_bytes([], TREE, 650 * MIB) == 0


@pytest.mark.parametrize(
    "listed",
    [[], [GpuProcess(OTHER, 300 * MIB)], [GpuProcess(WORKER, None)], [GpuProcess(WORKER, 0)]],
    ids=["empty", "other-namespace", "no-memory", "zero-memory"],
)
def test_memory_is_the_devices_less_the_baseline_where_processes_are_hidden(listed):
    found = users(600 * MIB)
    assert found.own_bytes(listed, TREE, 950 * MIB) == 350 * MIB
    assert found.memory_source == BY_DIFFERENCE


def test_memory_is_none_without_list_and_baseline():
    found = GpuUsers()
    assert found.own_bytes([], TREE, 950 * MIB) is None
    assert users(600 * MIB).own_bytes([], TREE, None) is None
    assert found.memory_source is None


def test_another_worker_of_this_process_is_no_stranger():
    rival = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        listed = [GpuProcess(rival.pid, 900 * MIB), GpuProcess(os.getppid(), 800 * MIB)]
        found = users(1700 * MIB, 0, *listed)
        found.own_bytes([*listed, GpuProcess(WORKER, 300 * MIB)], TREE, 2000 * MIB)
        assert found.warnings() == [f"another process is on the GPU: pid {os.getppid()}, 0.78 GiB"]
    finally:
        rival.communicate()


def test_a_process_that_was_there_before_is_named_with_its_most_memory():
    found = users(800 * MIB, 0, GpuProcess(OTHER, 256 * MIB))
    found.own_bytes([GpuProcess(WORKER, 300 * MIB), GpuProcess(OTHER, 512 * MIB)], TREE, 1400 * MIB)
    found.own_bytes([GpuProcess(OTHER, 128 * MIB)], TREE, 1400 * MIB)
    assert found.warnings() == [f"another process is on the GPU: pid {OTHER}, 0.50 GiB"]


def test_a_process_that_comes_during_the_run_is_named():
    found = users(0)
    found.own_bytes([GpuProcess(WORKER, 300 * MIB)], TREE, 300 * MIB)
    found.own_bytes([GpuProcess(WORKER, 300 * MIB), GpuProcess(OTHER, None)], TREE, 900 * MIB)
    assert found.warnings() == [f"another process is on the GPU: pid {OTHER}, memory unknown"]


def test_one_new_process_of_another_namespace_may_be_the_worker_but_two_may_not():
    found = users(0)
    found.own_bytes([GpuProcess(7, 300 * MIB)], TREE, 300 * MIB)
    assert found.warnings() == []
    found.own_bytes([GpuProcess(7, 300 * MIB), GpuProcess(8, 300 * MIB)], TREE, 600 * MIB)
    assert ["2 processes" in text and "1 was expected" in text for text in found.warnings()] == [True]


def test_memory_of_nobody_that_is_listed_is_told():
    held = users(IDLE_BYTES + 700 * MIB, 500 * MIB).warnings()
    assert held == ["0.70 GiB were in use on the GPU before the worker started, by processes that are not visible here"]
    assert users(IDLE_BYTES + 400 * MIB, 500 * MIB).warnings() == []


def test_a_thread_of_the_worker_is_the_worker():
    ready, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (ready.set(), done.wait()))
    thread.start()
    ready.wait()
    found = users(0)
    found.own_bytes([GpuProcess(thread.native_id, 0)], [os.getpid()], MIB)
    done.set()
    thread.join()
    assert found.warnings() == []
