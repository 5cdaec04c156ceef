"""Joules of the measured epochs, from the readings of counters about them."""

from collections.abc import Mapping, Sequence

import numpy as np

from framework_compare.results.intervals import Interval, geometric_mean
from framework_compare.results.measured import Columns, Measured, epoch_spans
from framework_compare.samplers.energy import COUNTER

# A counter is renewed every 20 to 100 ms: over less than this its difference is off by more than 10 %.
LEAST_S = 1.0
# NVML averages power over a second, so its integral lacks half a second of what the epochs draw more: 5 % of this.
LEAST_INTEGRAL_S = 10.0


def joules_per_image(runs: Sequence[Measured], devices: str) -> float | None:
    """Energy of all devices whose name begins so, over all measured epochs, by the images trained on in them.

    None where no run has readings before and after its epochs, or these last less than LEAST_S; LEAST_INTEGRAL_S where
    a device has no counter.
    """
    return _rate([(joules(run, devices), float(np.sum(run.epochs["images"]))) for run in runs])


def counted_power_w(runs: Sequence[Measured], devices: str) -> float | None:
    """Joules by counters over the seconds of the same interval; None where joules_per_image is, or is not by counters.

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
    """Seconds of a run's epochs, without validation and the turns of its rivals."""
    return sum(end - start for start, end in epoch_spans(run)) / 1e9


def joules(run: Measured, devices: str) -> float | None:
    """Energy during a run's epochs, without validation and the turns of its rivals."""
    if length_s(run) < _least_s(run, devices):
        return None
    names = _named(run, devices)
    energies = [energy_j for name in names if (energy_j := _within(run.energy, name, epoch_spans(run))) is not None]
    return sum(energies) if energies and len(energies) == len(names) else None


def _named(run: Measured, devices: str) -> list[str]:
    """The devices with readings whose name begins so."""
    return sorted({name for name in run.energy["device"] if name.startswith(devices)})


def above_idle(runs: Sequence[Measured], devices: str) -> float | None:
    """`joules_per_image` without what the devices take when idle; of runs that know it."""
    parts: list[tuple[float | None, float]] = []
    for run in runs:
        energy_j, idle = joules(run, devices), _idle_w(run, devices)
        above = None if energy_j is None or idle is None else energy_j - idle * length_s(run)
        parts.append((above, float(np.sum(run.epochs["images"]))))
    return _rate(parts)


def idle_power_w(runs: Sequence[Measured], devices: str) -> float | None:
    """Watts of the devices while nothing of the comparison ran, the mean over runs that know it."""
    known = [watts for run in runs if (watts := _idle_w(run, devices)) is not None]
    return sum(known) / len(known) if known else None


def _idle_w(run: Measured, devices: str) -> float | None:
    """Stored by a sampler, but any program may have written it: of every device with readings, or None."""
    found = run.run.get("gauges", {}).get("idle_w")
    watts = [found.get(name) if isinstance(found, Mapping) else None for name in _named(run, devices)]
    sound = [float(one) for one in watts if isinstance(one, (int, float)) and 0 <= one < np.inf]
    return sum(sound) if sound and len(sound) == len(watts) else None


def whole_j_per_image(runs: Sequence[Measured]) -> Interval | None:
    """Joules per image of GPU and host together, with the interval over runs; None where no run has any.

    A run that lacks a device that another run has is left out: its sum would be of fewer devices.
    """
    by_run = [{name: joules(run, name) for name in ("gpu", "host-")} for run in runs]
    met = {name for found in by_run for name, part in found.items() if part is not None}
    rates = [
        sum(found[name] for name in met) / float(np.sum(run.epochs["images"]))  # type: ignore[misc]
        for run, found in zip(runs, by_run)
        if met and all(found[name] is not None for name in met)
    ]
    return geometric_mean(rates) if rates else None


def _least_s(run: Measured, devices: str) -> float:
    named = zip(run.energy["device"], run.energy["source"])
    sources: list[str] = [source for name, source in named if name.startswith(devices)]
    return LEAST_S if all(source == COUNTER for source in sources) else LEAST_INTEGRAL_S


def _within(readings: Columns, device: str, spans: Sequence[tuple[int, int]]) -> float | None:
    """Joules of a device within these spans together; None where its readings do not cover them, or stood still."""
    places = [place for place, name in enumerate(readings["device"]) if name == device]
    energy_j = np.array([readings["energy_j"][place] for place in places])
    # Subtracted as integers: a clock of many days in nanoseconds does not fit a float.
    origin = spans[0][0]
    at_s = np.array([readings["t_ns"][place] - origin for place in places]) / 1e9
    ends_s = np.array([[start - origin, end - origin] for start, end in spans]) / 1e9
    if not len(at_s) or at_s[0] > ends_s.min() or at_s[-1] < ends_s.max():
        return None
    sum_j = float(np.diff(np.interp(ends_s, at_s, energy_j), axis=1).sum())
    return sum_j if sum_j > 0 else None
