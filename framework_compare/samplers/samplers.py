"""The samplers of a run. A line here adds one: Sample, the store's table and the recorder's log are made from it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Dict, Tuple, Type

from framework_compare.samplers.cpu_clock import CpuClockSampler
from framework_compare.samplers.gpu import GpuSampler
from framework_compare.samplers.machine_load import MachineSampler
from framework_compare.samplers.others import OthersSampler
from framework_compare.samplers.sampler import Column, Sampler
from framework_compare.samplers.worker_load import WorkerSampler

SAMPLERS: Tuple[Type[Sampler], ...] = (WorkerSampler, MachineSampler, OthersSampler, CpuClockSampler, GpuSampler)

COLUMNS: Dict[str, Column] = {name: column for sampler in SAMPLERS for name, column in sampler.columns.items()}

if TYPE_CHECKING:

    class Sample:
        t_ns: int

        def __init__(self, t_ns: int, **readings: object) -> None: ...

        def __getattr__(self, column: str) -> Any: ...

else:
    Sample = dataclasses.make_dataclass(
        "Sample",
        [
            ("t_ns", "int"),
            *((name, f"Optional[{'int' if column.whole else 'float'}]", None) for name, column in COLUMNS.items()),
        ],
        frozen=True,
        namespace={
            "__doc__": "One reading of all SAMPLERS at CLOCK_MONOTONIC t_ns; what could not be read is None, never 0.",
            "__module__": __name__,
        },
    )
