"""What a sampler is: columns of the samples, and how they are read while a worker runs."""

from __future__ import annotations

import abc
from typing import ClassVar, Mapping, NamedTuple, Optional, Union

from framework_compare.samplers.disturbance import Cores, Counters
from framework_compare.samplers.gpu_group import GpuReadings
from framework_compare.samplers.process import ProcessTreeSampler, TreeReading

Reading = Optional[Union[int, float]]
Readings = Mapping[str, Reading]  # by column


class Column(NamedTuple):
    """How the values of a column are stored.

    whole: integers. since_before: a value stands for the time since the reading before, so two become their mean where
    every second row is left out; of other columns the later value stays.
    """

    whole: bool = False
    since_before: bool = False


class Watched:
    """The worker that is sampled: its process tree and the cores, read anew at each tick, and its GPU if it has one."""

    def __init__(self, tree: ProcessTreeSampler, gpu: Optional[GpuReadings] = None) -> None:
        self.tree = tree
        self.gpu = gpu
        self.reading: Optional[TreeReading] = None
        self.cores: Optional[Cores] = None  # None where /proc/stat cannot be read
        self.counters: Optional[Counters] = None


class Sampler(abc.ABC):
    """Reads the columns it names, at each tick, in the parent; one object per run. Listed in `samplers.SAMPLERS`.

    What `read` leaves out or gives as None is stored as missing, never as 0; so is all of a reading that raises OSError
    or ValueError.
    """

    columns: ClassVar[Mapping[str, Column]] = {}

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    @abc.abstractmethod
    def read(self) -> Readings:
        """Values by column, in the units that the columns' names end in."""

    def close(self) -> None:  # noqa: B027 - most have nothing open
        """The run has ended."""
