"""Joules of the measured epochs, from the readings of counters about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence

import numpy as np

if TYPE_CHECKING:
    from framework_compare.pool import Measured

# A counter is renewed every 20 to 100 ms: over less than this its difference is off by more than 10 %.
LEAST_S = 1.0


def joules_a_picture(runs: Sequence["Measured"], devices: str) -> Optional[float]:
    """Energy of all devices whose name begins so, over all measured epochs, by the pictures trained on in them.

    None where no run has readings before and after its epochs, or these last less than LEAST_S.
    """
    totals = [(joules(run, devices), float(np.sum(run.epochs["images"]))) for run in runs]
    known = [(energy_j, images) for energy_j, images in totals if energy_j is not None]
    images = sum(images for _, images in known)
    return sum(energy_j for energy_j, _ in known) / images if images else None


def joules(run: "Measured", devices: str) -> Optional[float]:
    """Energy from the start of a run's first epoch to the end of its last."""
    starts, ends = run.epochs["start_ns"], run.epochs["end_ns"]
    if not len(starts) or (ends[-1] - starts[0]) / 1e9 < LEAST_S:
        return None
    names = sorted({name for name in run.energy["device"] if name.startswith(devices)})
    parts = [_between(run.energy, name, starts[0], ends[-1]) for name in names]
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None


def _between(readings: Mapping[str, Sequence[Any]], device: str, start_ns: int, end_ns: int) -> Optional[float]:
    places = [place for place, name in enumerate(readings["device"]) if name == device]
    # Subtracted as integers: a clock of many days in nanoseconds does not fit a float.
    at_s = np.array([readings["t_ns"][place] - start_ns for place in places]) / 1e9
    energy_j = np.array([readings["energy_j"][place] for place in places])
    length_s = (end_ns - start_ns) / 1e9
    if not len(at_s) or at_s[0] > 0 or at_s[-1] < length_s:
        return None
    first, last = np.interp([0.0, length_s], at_s, energy_j)
    return float(last - first) if last > first else None
