"""Joules of the measured epochs, from the readings of counters about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from framework_compare.results.measured import Measured, turn_spans
from framework_compare.samplers.energy import COUNTER

if TYPE_CHECKING:
    import pandas as pd

# A counter is renewed every 20 to 100 ms: over less than this its difference is off by more than 10 %.
LEAST_S = 1.0
# NVML averages power over a second, so its integral lacks half a second of what the epochs draw more: 5 % of this.
LEAST_INTEGRAL_S = 10.0


def joules_a_picture(runs: Sequence[Measured], devices: str) -> float | None:
    """Energy of all devices whose name begins so, over all measured epochs, by the images trained on in them.

    None where no run has readings before and after its epochs, or these last less than LEAST_S; LEAST_INTEGRAL_S where
    a device has no counter.
    """
    return _rate([(joules(run, devices), float(np.sum(run.epochs["images"]))) for run in runs])


def counted_power_w(runs: Sequence[Measured], devices: str) -> float | None:
    """Joules by counters over the seconds of the same interval; None where joules_a_picture is, or is not by counters.

    Unlike NVML's power it is no average over the second before.
    """
    counted = [run for run in runs if _least_s(run, devices) == LEAST_S]
    return _rate([(joules(run, devices), length_s(run)) for run in counted])


def _rate(parts: Sequence[tuple[float | None, float]]) -> float | None:
    """The sum of what is known over the sum of what it is known for."""
    measured = [(energy_j, amount) for energy_j, amount in parts if energy_j is not None]
    whole = sum(amount for _, amount in measured)
    return sum(energy_j for energy_j, _ in measured) / whole if whole else None


def length_s(run: Measured) -> float:
    """From the start of a run's first epoch to the end of its last; of one that took turns, all of these."""
    return sum(end - start for start, end in turn_spans(run)) / 1e9


def joules(run: Measured, devices: str) -> float | None:
    """Energy from the start of a run's first epoch to the end of its last; of one that took turns, in all of these."""
    if length_s(run) < _least_s(run, devices):
        return None
    names = sorted({name for name in run.energy["device"] if name.startswith(devices)})
    parts = [_between(run.energy, name, *span) for name in names for span in turn_spans(run)]
    energies = [part for part in parts if part is not None]
    return sum(energies) if energies and len(energies) == len(parts) else None


def joules_per_run(
    epochs: pd.DataFrame, energy: pd.DataFrame, devices: tuple[str, ...], turns: pd.DataFrame
) -> dict[int, float | None]:
    """`joules` by run_id, of frames of epochs, energy and slices, over all devices whose name begins with one of these.

    None for a run that lacks one that another run of its cell has: its sum would be of fewer devices than theirs.
    """
    found: dict[int, dict[str, float]] = {}
    readings = dict(list(energy.groupby("run_id")))
    slices = dict(list(turns.groupby("run_id")))
    for run_id, mine in epochs[epochs["run_id"].isin(readings)].groupby("run_id"):
        of_run = readings[run_id]
        of_turns = slices.get(run_id, turns[:0])
        columns, spans = (
            {"start_ns": _whole_ns(part["start_s"]), "end_ns": _whole_ns(part["start_s"] + part[name])}
            for part, name in ((mine, "epoch_s"), (of_turns, "seconds"))
        )
        taken = {
            "device": list(of_run["meter"]),
            "t_ns": _whole_ns(of_run["t_s"]),
            "energy_j": list(of_run["energy_j"]),
            "source": list(of_run["source"]),
        }
        run = Measured({}, {}, columns, {}, taken, spans)
        parts = {one: joules(run, one) for one in devices}
        found[int(run_id)] = {one: part for one, part in parts.items() if part is not None}
    cell_of = epochs.drop_duplicates("run_id").set_index("run_id")["cell"]
    met: dict[Any, set[str]] = {}
    for run_id, known in found.items():
        met.setdefault(cell_of[run_id], set()).update(known)
    return {
        run_id: sum(known.values()) if known and set(known) == met[cell_of[run_id]] else None
        for run_id, known in found.items()
    }


def _whole_ns(seconds: pd.Series) -> list[int]:
    return [round(second * 1e9) for second in seconds]


def _least_s(run: Measured, devices: str) -> float:
    named = zip(run.energy["device"], run.energy["source"])
    sources: list[str] = [source for name, source in named if name.startswith(devices)]
    return LEAST_S if all(source == COUNTER for source in sources) else LEAST_INTEGRAL_S


def _between(readings: Mapping[str, Sequence[Any]], device: str, start_ns: int, end_ns: int) -> float | None:
    places = [place for place, name in enumerate(readings["device"]) if name == device]
    # Subtracted as integers: a clock of many days in nanoseconds does not fit a float.
    at_s = np.array([readings["t_ns"][place] - start_ns for place in places]) / 1e9
    energy_j = np.array([readings["energy_j"][place] for place in places])
    length_s = (end_ns - start_ns) / 1e9
    if not len(at_s) or at_s[0] > 0 or at_s[-1] < length_s:
        return None
    first, last = np.interp([0.0, length_s], at_s, energy_j)
    return float(last - first) if last > first else None
