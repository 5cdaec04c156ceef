"""Data that models train on: one protocol for images in folders and for arrays. Parent side."""

import os
from typing import ClassVar, Iterator, Protocol

from framework_compare.graph import Task
from framework_compare.protocol import Fields, TrainConfig


class Dataset(Protocol):
    """Samples with a task. `suffix` is that of the file which `write` makes for workers."""

    suffix: ClassVar[str]

    @property
    def name(self) -> str: ...

    @property
    def task(self) -> Task | None:
        """The task of arrays; None for folders of images, whose size in pixels is a setting."""

    @property
    def bytes_to_make(self) -> int:
        """Bytes of disk that the data still have to be rendered into; 0 if they are there."""

    def __len__(self) -> int:
        """Return the number of samples in an epoch."""

    def configured(self, config: TrainConfig) -> TrainConfig:
        """Return the config with what the data decide."""

    def describe(self) -> Fields:
        """Return what a study keeps of the data, as JSON; no samples."""

    def remarks(self) -> Iterator[str]:
        """Yield what was read, and everything about it that a user may not expect."""

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file that workers read."""
