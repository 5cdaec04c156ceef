"""The GPU sampler: on a real GPU where there is one, and everywhere on a recording, as most machines have none."""

from __future__ import annotations

from types import SimpleNamespace

import pynvml
import pytest

from framework_compare.errors import UsageError
from framework_compare.samplers.nvml import GpuReading, NvmlSampler, describe_gpus, find_handle, gpu_index


class RecordedNvml:
    """Not the real module: answers it gave on an H200 at work; `refuse` maps functions that fail to NVML's error."""

    NVMLError = pynvml.NVMLError
    NVMLError_NotSupported = pynvml.NVMLError_NotSupported
    NVMLError_FunctionNotFound = pynvml.NVMLError_FunctionNotFound

    answers = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetCount": 1,
        "nvmlSystemGetDriverVersion": "580.159.04",
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=100, memory=23),
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=150_754_820_096, free=149_184_184_320, used=1_570_635_776),
        "nvmlDeviceGetPowerUsage": 692_477,
    }

    def __init__(self, **refuse):
        self.refuse, self.calls = refuse, []

    def __getattr__(self, name):
        def answer(*arguments):
            self.calls.append(name)
            if name in self.refuse:
                raise pynvml.NVMLError(self.refuse[name])
            return (name, *arguments) if "GetHandle" in name else self.answers[name]

        return answer


@pytest.fixture(autouse=True)
def all_gpus_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_recorded_gpu_reads_in_our_units():
    with NvmlSampler(0, nvml=RecordedNvml()) as gpu:
        assert gpu.read() == GpuReading(percent=100.0, memory_bytes=1_570_635_776, power_w=692.477)
        assert gpu.reason is None


def test_reading_a_gpu_does_not_support_is_asked_for_once():
    nvml = RecordedNvml(nvmlDeviceGetPowerUsage=pynvml.NVML_ERROR_NOT_SUPPORTED)
    with NvmlSampler(0, nvml=nvml) as gpu:
        assert [gpu.read().power_w for _ in range(3)] == [None] * 3
        assert gpu.read().percent == 100.0
    assert nvml.calls.count("nvmlDeviceGetPowerUsage") == 1


def test_reading_that_fails_now_is_asked_for_again():
    nvml = RecordedNvml(nvmlDeviceGetUtilizationRates=pynvml.NVML_ERROR_UNKNOWN)
    with NvmlSampler(0, nvml=nvml) as gpu:
        assert gpu.read().percent is None
        nvml.refuse.clear()
        assert gpu.read().percent == 100.0


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetHandleByIndex"])
def test_without_driver_or_gpu_all_readings_are_none(function):
    with NvmlSampler(0, nvml=RecordedNvml(**{function: pynvml.NVML_ERROR_NOT_FOUND})) as gpu:
        assert gpu.read() == GpuReading(None, None, None)
        assert gpu.reason.startswith("no readings of GPU 0: ")


@pytest.mark.parametrize(
    "visible, index, handle",
    [
        (None, 1, ("nvmlDeviceGetHandleByIndex", 1)),
        ("3,2", 1, ("nvmlDeviceGetHandleByIndex", 2)),
        ("GPU-8f6d, 0", 0, ("nvmlDeviceGetHandleByUUID", "GPU-8f6d")),
    ],
)
def test_gpu_is_the_one_cuda_would_take(visible, index, handle):
    assert find_handle(index, nvml=RecordedNvml(), visible=visible) == handle


@pytest.mark.parametrize("visible", ["", "0"])
def test_hidden_gpu_reads_none(monkeypatch, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with NvmlSampler(1, nvml=RecordedNvml()) as gpu:
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
    device = {"name": "NVIDIA H200", "memory_bytes": 150_754_820_096}
    assert describe_gpus(nvml=RecordedNvml()) == {"driver": "580.159.04", "devices": [device]}
    assert describe_gpus(nvml=RecordedNvml(nvmlInit=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)) is None


def test_real_gpu_reads_or_says_why_not():
    with NvmlSampler(0) as gpu:
        reading = gpu.read()
        if gpu.reason:
            assert reading == GpuReading()
            pytest.skip(f"no NVIDIA GPU or driver here ({gpu.reason})")
    assert reading.percent is None or 0 <= reading.percent <= 100
    assert reading.memory_bytes is None or reading.memory_bytes > 0
    assert reading.power_w is None or 1 < reading.power_w < 5000
