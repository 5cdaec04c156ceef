"""Seconds of cells by block, and ratios of them, whose intervals share what all pairs say of the noise of the machine."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from framework_compare.results import moderation, repeats
from framework_compare.results.intervals import Interval, mean_of_ratios, paired_ratio
from framework_compare.results.moderation import Prior

if TYPE_CHECKING:
    import pandas as pd

Seconds = Mapping[int, float]  # by block
CellKey = Any  # the place of a cell in the study's frame, or what stands for several cells


class Stratum(NamedTuple):
    """The groups of a cell. pool: where noise is the same, such as a machine; None: nowhere else.

    group: whose members are compared, such as a model; what a block does to all of them falls out of their ratios.
    """

    pool: Hashable = ""
    group: Hashable = ""


class BlockTimes(dict[CellKey, Seconds]):
    """Seconds by block, by the place of the cell in the study's frame.

    strata: of cells, one and the same where not given; images: of an epoch of each cell, where they are known.
    """

    def __init__(
        self,
        seconds: Mapping[CellKey, Seconds] = {},
        strata: Mapping[CellKey, Stratum] = {},
        images: Mapping[CellKey, float] = {},
        looked: bool = False,
    ) -> None:
        super().__init__(seconds)
        self.images, self.looked = images, looked
        self._strata = {cell: strata.get(cell, Stratum()) for cell in seconds}

    def ratio(self, slower: CellKey, faster: CellKey) -> Interval | None:
        """Seconds of one cell over those of another, of blocks that both have; None where there is no such block."""
        pools = {self._strata[cell].pool for cell in (slower, faster) if cell in self}
        prior = self._priors.get(pools.pop()) if len(pools) == 1 and slower != faster else None
        return paired_ratio(self.get(slower, {}), self.get(faster, {}), prior, self.looked)

    def ratio_over(self, slower: Sequence[CellKey], faster: Sequence[CellKey]) -> Interval | None:
        """The geometric mean of the ratios of pairs of cells, each pair in the blocks that both have."""
        by_pair = []
        for two in zip(slower, faster):
            first, second = (self.get(cell, {}) for cell in two)
            by_pair.append([first[block] / second[block] for block in sorted(first.keys() & second.keys())])
        return mean_of_ratios(by_pair, self.looked)

    def means(self, cells: Mapping[CellKey, Sequence[CellKey]]) -> BlockTimes:
        """Geometric means over several cells each, block by block, in the blocks that all of them have."""
        means, strata = {}, {}
        for place, several in cells.items():
            shared = sorted(set.intersection(*({*self[cell]} for cell in several)))
            means[place] = {block: math.exp(np.log([self[one][block] for one in several]).mean()) for block in shared}
            pools = {self._strata[cell].pool for cell in several}
            strata[place] = Stratum(pools.pop() if len(pools) == 1 else None)
        return BlockTimes(means, strata, looked=self.looked)

    @functools.cached_property
    def _priors(self) -> dict[Hashable, Prior | None]:
        pools: dict[Hashable, dict[Hashable, list[Seconds]]] = {}
        for cell, stratum in self._strata.items():
            if stratum.pool is not None:
                pools.setdefault(stratum.pool, {}).setdefault(stratum.group, []).append(self[cell])
        return {pool: moderation.fit([_logs(cells) for cells in groups.values()]) for pool, groups in pools.items()}


def block_seconds(epochs: pd.DataFrame, looked: bool = False) -> BlockTimes:
    """Epoch seconds by block, by the place of the cell in the cell frame: by turns, else the median of its epochs.

    An epoch that was sampled is estimated. looked: as BlockTimes has it.
    """
    epochs = repeats.counted(epochs)
    timed = epochs[repeats.undisturbed(epochs["disturbed"], epochs["cell"])]
    whole_s = timed["turn_s"].fillna(timed["estimate_s"]).fillna(timed["epoch_s"])
    medians = whole_s.groupby([timed["cell"], timed["block"]], sort=True).median()
    seconds: dict[int, dict[int, float]] = {}
    for (cell, block), median in medians.items():
        if median > 0:
            seconds.setdefault(int(cell), {})[int(block)] = float(median)
    images = timed["whole_images"].fillna(timed["images"]).groupby(timed["cell"]).median()
    return BlockTimes(seconds, strata(timed), {int(cell): float(count) for cell, count in images.items()}, looked)


def strata(epochs: pd.DataFrame) -> dict[int, Stratum]:
    """Return for each cell the device and the node, which noise is of, and the model and data set, which competitors share.

    A cell that ran on several nodes is of no pool, nor is one that others disturbed in every epoch.
    """
    quiet = {*epochs["cell"][epochs["disturbed"] != 1]}
    cells = epochs[["cell", "device", "node_id", "model", "dataset"]].drop_duplicates()
    found: dict[int, Stratum] = {}
    for cell, device, node, model, dataset in cells.itertuples(index=False, name=None):
        pool = None if int(cell) in found or cell not in quiet else (device, "" if node != node else node)
        found[int(cell)] = Stratum(pool, (model, dataset))
    return found


def _logs(cells: Sequence[Seconds]) -> np.ndarray:
    blocks = sorted({block for of in cells for block in of})
    return np.log([[of.get(block, math.nan) for block in blocks] for of in cells])
