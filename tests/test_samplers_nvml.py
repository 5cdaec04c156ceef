"""The GPU sampler, and which programs use a GPU: on a real GPU where there is one, and everywhere on a recording."""

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
from framework_compare.samplers.nvml import (
    GpuReading,
    NvmlSampler,
    describe_gpus,
    find_handle,
    gpu_indices,
    throttle_words,
)

OURS = SimpleNamespace(pid=100_000_002, usedGpuMemory=1 << 30)


@pytest.fixture(autouse=True)
def all_gpus_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_recorded_gpu_reads_in_our_units_and_says_how():
    nvml = RecordedNvml()
    with closing(NvmlSampler(0, nvml=nvml)) as gpu:
        memory = dict(memory_bytes=1_570_635_776, process_memory_bytes=1_048_576_000)
        rest = dict(percent=100.0, power_w=692.477, temperature_c=61.0, sm_clock_mhz=1980.0, throttle=0x4)
        assert gpu.read(pids=[4321]) == GpuReading(**memory, **rest)
        later = {"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetSamples"}
        assert not later & set(nvml.calls), "energy is not asked for when a sample is taken"
        assert gpu.energy_j() == 123_456.789 and gpu.reason is None
    nvml = RecordedNvml(nvmlDeviceGetComputeRunningProcesses=pynvml.NVML_ERROR_NO_PERMISSION)
    with closing(NvmlSampler(0, nvml=nvml)) as gpu:
        gpu.note_baseline()
        gpu.read(pids=[1])
        facts = gpu.facts()
    assert (facts["name"], facts["driver"]) == ("NVIDIA H200", "580.159.04")
    assert (facts["baseline_bytes"], facts["memory_source"]) == (1_570_635_776, "device minus baseline")
    assert "1/6 s" in facts["utilization_window"] and facts["utilization_period_s"] == 0.2
    nvml = RecordedNvml(nvmlDeviceGetCurrentClocksEventReasons=pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    with closing(NvmlSampler(0, nvml=nvml)) as gpu:
        assert gpu.read().throttle == 0x40
    reasons = {0: "none", 0x1: "idle", 0x44: "power cap, hardware thermal slowdown", 0x4000: "0x4000"}
    assert {mask: throttle_words(mask) for mask in reasons} == reasons


def test_a_process_that_draws_and_came_during_the_run_is_named(monkeypatch):
    with closing(NvmlSampler(0, nvml=RecordedNvml())) as gpu:
        gpu.note_baseline()
        monkeypatch.setitem(RecordedNvml.answers, "nvmlDeviceGetComputeRunningProcesses", [OURS])
        gpu.read(pids=[OURS.pid])
        drawing = SimpleNamespace(pid=100_000_001, usedGpuMemory=1 << 28)
        monkeypatch.setitem(RecordedNvml.answers, "nvmlDeviceGetGraphicsRunningProcesses", [drawing])
        assert gpu.warnings()[-1] == "another process is on the GPU: pid 100000001, 0.25 GiB"


def test_a_reading_a_gpu_does_not_support_is_asked_for_once_and_one_that_fails_now_again():
    nvml = RecordedNvml(nvmlDeviceGetPowerUsage=pynvml.NVML_ERROR_NOT_SUPPORTED)
    with closing(NvmlSampler(0, nvml=nvml)) as gpu:
        assert [gpu.read().power_w for _ in range(3)] == [None] * 3
        assert gpu.read().percent == 100.0
    assert nvml.calls.count("nvmlDeviceGetPowerUsage") == 1
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
        *((visible, [0]) for visible in ("0", "+0", "GPU-8f6d1c00-1d2b-b333-c3b5-85a7d0741f00", "GPU-8F6D")),
        *((visible, [1, 0]) for visible in ("1,0", " 1 ,0", "1gpu,0", "1,0,", "GPU-2cc3,GPU-8")),
        ("MIG-whole,MIG-gone", ["MIG-whole"]),  # a part of a GPU is asked for by its uuid
    ],
)
def test_gpus_are_those_that_cuda_shows(visible, gpus):
    assert shown(visible)[0] == gpus


NO_GPU, TWICE = (
    "hides it: CUDA reads it up to {!r}, which names no GPU here",
    "names a GPU twice, and CUDA then shows none",
)
NAMELESS = [
    *((name, [], name) for name in ("-1", "NoDevFiles", "GPU-", "gpu-8f6d", " GPU-8f6d", "GPU-8f6d ")),
    *(("0,-1,1", [0], "-1"), ("0,9,1", [0], "9"), ("GPU-8f6dzz,GPU-2cc3", [], "GPU-8f6dzz")),
    *(("GPU-8f6d,1", [0], "1"), ("0,GPU-2cc3", [0], "GPU-2cc3")),
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


def test_hidden_gpu_reads_none(monkeypatch):
    for visible in ("", "0"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with closing(NvmlSampler(1, nvml=RecordedNvml())) as gpu:
            assert gpu.read() == GpuReading() and "CUDA_VISIBLE_DEVICES" in gpu.reason


@pytest.mark.parametrize("device, numbers", [("cpu", ()), ("mps", ()), ("cuda", (0,)), ("cuda:3", (3,))])
def test_gpu_numbers_of_a_device(device, numbers):
    assert gpu_indices(device) == numbers
    with pytest.raises(UsageError, match="cuda:<number>"):
        gpu_indices("cuda:first")


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
    found = GpuUsers()  # of neither list nor baseline
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


def test_processes_of_others_are_named_with_their_most_memory():
    found = users(800 * MIB, 0, GpuProcess(OTHER, 256 * MIB))
    found.own_bytes([GpuProcess(WORKER, 300 * MIB), GpuProcess(OTHER, 512 * MIB)], TREE, 1400 * MIB)
    found.own_bytes([GpuProcess(OTHER, 128 * MIB)], TREE, 1400 * MIB)
    assert found.warnings() == [f"another process is on the GPU: pid {OTHER}, 0.50 GiB"]
    found = users(0)
    found.own_bytes([GpuProcess(WORKER, 300 * MIB)], TREE, 300 * MIB)
    found.own_bytes([GpuProcess(WORKER, 300 * MIB), GpuProcess(OTHER, None)], TREE, 900 * MIB)
    assert found.warnings() == [f"another process is on the GPU: pid {OTHER}, memory unknown"]
    found = users(0)
    found.own_bytes([GpuProcess(7, 300 * MIB)], TREE, 300 * MIB)
    assert found.warnings() == []
    found.own_bytes([GpuProcess(7, 300 * MIB), GpuProcess(8, 300 * MIB)], TREE, 600 * MIB)
    assert ["2 processes" in text and "1 was expected" in text for text in found.warnings()] == [True]
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
