"""NVML without a GPU."""

from types import SimpleNamespace

import pynvml


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
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=100, memory=23),
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=150_754_820_096, free=149_184_184_320, used=1_570_635_776),
        "nvmlDeviceGetPowerUsage": 692_477,
        "nvmlDeviceGetTemperature": 61,
        "nvmlDeviceGetClockInfo": 1_980,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
        "nvmlDeviceGetCurrentClocksThrottleReasons": 0x40,
        "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=4321, usedGpuMemory=1_048_576_000)],
        "nvmlDeviceGetGraphicsRunningProcesses": [],
        "nvmlDeviceGetTotalEnergyConsumption": 123_456_789,
        "nvmlDeviceGetSamples": (1, [SimpleNamespace(timeStamp=t) for t in (0, 100_000, 300_000, 500_000, 700_000)]),
    }

    def __init__(self, **refuse):
        self.refuse, self.calls = refuse, []

    def __getattr__(self, name):
        def answer(*arguments):
            self.calls.append(name)
            if name in self.refuse:
                raise pynvml.NVMLError(self.refuse[name])
            if arguments[1:] == (pynvml.nvmlMemory_v2,):
                return SimpleNamespace(reserved=500 << 20)
            return (name, *arguments) if "GetHandle" in name else self.answers[name]

        return answer
