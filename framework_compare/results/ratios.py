"""Ratios of epoch times of two cells of one study over paired blocks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from framework_compare.plan.settings import DEFAULTS
from framework_compare.protocol import replicas_of
from framework_compare.registry import FRAMEWORKS, device_kind
from framework_compare.results.block_times import BlockTimes
from framework_compare.results.columns import NAMES, SHARED, Record, grouped, values_of
from framework_compare.results.intervals import geometric_mean

COLUMNS = ("against", "ratio", "ratio_ci_low", "ratio_ci_high")


class Ratio(NamedTuple):
    """The speed of a cell over that of its baseline `base`, with its 95 % interval; NaN if there is none.

    strong: of a cell on several devices, over that of the one on a single device whose batch they share out. fastest: of
    a framework in its best mode, over that of the fastest framework in its own.
    """

    base: Record
    ratio: float = math.nan
    ratio_ci_low: float = math.nan
    ratio_ci_high: float = math.nan
    strong: float = math.nan
    fastest: Ratio | None = None

    @property
    def against(self) -> str:
        base = self.base
        return f"{base.device}, {base.precision}, {base.execution}, {base.threads} threads"


def epoch_seconds(cell: Record) -> float:
    """Epoch seconds, estimated where a part of an epoch was measured."""
    return float(cell.epoch_estimate_s if math.isnan(cell.epoch_s_median) else cell.epoch_s_median)


def timed(cells: Iterable[Record]) -> list[Record]:
    """The cells that worked and have an epoch time."""
    return [cell for cell in cells if cell.status == "ok" and epoch_seconds(cell) > 0]


def to_best(cells: Sequence[Record]) -> dict[int, float]:
    """Each cell's epoch time over the shortest of the same model, data set and settings, by its place."""
    found = {}
    for rivals in grouped(timed(cells), alike_but("framework")).values():
        least = min(map(epoch_seconds, rivals))
        found.update({cell.Index: epoch_seconds(cell) / least for cell in rivals})
    return found


def speedups(cells: Sequence[Record], blocks: BlockTimes) -> dict[int, Ratio]:
    """Each cell on a device other than the CPU against the cell on the CPU, other settings equal, by its place.

    Where no cell on the CPU has as many threads, the one with the most is taken.
    """
    key = alike_but("device", "threads")
    bases = grouped((cell for cell in cells if cell.device == "cpu"), key)

    def base_of(cell: Record) -> Record | None:
        near = bases.get(key(cell), []) if device_kind(cell.device) != "cpu" else []
        return max(near, key=lambda one: (one.threads == cell.threads, one.threads), default=None)

    return _against(base_of, cells, blocks)


def devices(cells: Sequence[Record], blocks: BlockTimes) -> dict[int, Ratio]:
    """Each cell on several devices against the one on a single device of that kind, other settings equal, by its place.

    It is of images per second: several devices leave out of an epoch the images that they cannot share.
    """

    def key(cell: Record, devices: int = 1) -> tuple[object, ...]:
        settings = alike_but("device", "nodes", "batch_size")(cell)
        return device_kind(cell.device), settings, devices * cell.batch_size

    def of_images(cell: Record, base: Record) -> Ratio:
        one, images = _ratio(cell, base, blocks), blocks.images
        share = images.get(cell.Index, 1.0) / images.get(base.Index, 1.0)
        return Ratio(base, share * one.ratio, share * one.ratio_ci_low, share * one.ratio_ci_high)

    bases = grouped((cell for cell in cells if len(replicas_of(cell)) == 1), key)
    ratios = {}
    for cell in cells:
        count, base = len(replicas_of(cell)), bases.get(key(cell))
        if base and count > 1:
            whole = bases.get(key(cell, count))
            strong = of_images(cell, whole[0]).ratio if whole else math.nan
            ratios[cell.Index] = of_images(cell, base[0])._replace(strong=strong)
    return ratios


def ladder(cells: Sequence[Record], blocks: BlockTimes) -> dict[int, Ratio]:
    """Each cell against the one in fp32 and eager execution, other settings equal, by its place."""
    key = alike_but("precision", "execution")
    bases = {key(cell): cell for cell in cells if (cell.precision, cell.execution) == ("fp32", "eager")}
    return _against(lambda cell: bases.get(key(cell)), cells, blocks)


def modes(cells: Sequence[Record], blocks: BlockTimes) -> dict[int, Ratio]:
    """The fastest execution of each framework against its default one, other settings equal, by its place."""
    rivals = alike_but("execution", "framework")
    groups = grouped(timed(cells), alike_but("execution")).values()
    best = [min(several, key=epoch_seconds) for several in groups]
    fastest = grouped(sorted(best, key=epoch_seconds), rivals)
    found = {}
    for cell, several in zip(best, groups):
        base = next((one for one in several if one.execution == DEFAULTS.execution), cell)
        beside = _ratio(cell, fastest[rivals(cell)][0], blocks)
        found[cell.Index] = _ratio(cell, base, blocks)._replace(fastest=beside)
    return found


def stacks(cells: Sequence[Record], blocks: BlockTimes) -> dict[int, Ratio]:
    """Each cell of a library against the plain framework below it, other settings equal, by its place.

    In the same execution where that has been measured, else in the plain framework's default; in no other version than the
    library ran on.
    """
    key = alike_but("framework", "execution")
    plain = grouped(cells, lambda cell: (key(cell), cell.framework.partition("@")[0], cell.execution))

    def base_of(cell: Record) -> Record | None:
        known = FRAMEWORKS.get(cell.framework.partition("@")[0])
        if known is None or not known.backend:
            return None
        found = (plain.get((key(cell), known.backend, execution), []) for execution in (cell.execution, "default"))
        bases = [base for several in found if (base := _below(cell, several)) is not None]
        return next((base for base in bases if base.status == "ok"), bases[-1] if bases else None)

    return _against(base_of, cells, blocks)


def _below(library: Record, several: Sequence[Record]) -> Record | None:
    """The competitor with the version that a library ran on; the only one where either is unknown."""
    ran_on = _release(library.backend).rpartition(" ")[2]
    versions = [_release(one.framework_version) or one.framework.partition("@")[2] for one in several]
    if ran_on and ran_on in versions:
        return several[versions.index(ran_on)]
    return several[0] if len(several) == 1 and not (ran_on and versions[0]) else None


def _release(version: object) -> str:
    """A version without the name of its build; "" where it is unknown."""
    return version.partition("+")[0] if isinstance(version, str) else ""


def _against(
    base_of: Callable[[Record], Record | None], cells: Sequence[Record], blocks: BlockTimes
) -> dict[int, Ratio]:
    pairs = ((cell, base_of(cell)) for cell in cells)
    return {cell.Index: _ratio(cell, base, blocks) for cell, base in pairs if base is not None}


@functools.cache
def alike_but(*without: str) -> Callable[[Record], tuple[object, ...]]:
    """Return a function from a cell to its names and settings without these."""
    return values_of(*(name for name in (*NAMES, *SHARED) if name not in without))


def _ratio(cell: Record, base: Record, blocks: BlockTimes) -> Ratio:
    now, before = (blocks.get(one.Index) if one.status == "ok" else None for one in (cell, base))
    if not now or not before:
        return Ratio(base)
    if cell.Index == base.Index:
        return Ratio(base, 1.0, 1.0, 1.0)
    paired = blocks.ratio(base.Index, cell.Index)
    if paired is None:  # a resumed study may have runs of no common block
        means = [geometric_mean(list(side.values())).value for side in (before, now)]
        return Ratio(base, means[0] / means[1])
    return Ratio(base, paired.value, *paired.ends)
