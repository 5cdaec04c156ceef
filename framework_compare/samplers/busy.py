"""Whether the machine is quiet now, and who is busy if not."""

import contextlib
import os
import time
from typing import Dict, NamedTuple, Tuple

import psutil

from framework_compare.samplers.disturbance import CoreCounter

SECONDS = 1.0
LEAST_SHARE = 0.02  # of a core, to be named
MOST_NAMED = 5

# By pid and start of every other process its name, which may change, and its CPU seconds.
Spent = Dict[Tuple[int, float], Tuple[str, float]]


class BusyProcess(NamedTuple):
    pid: int
    name: str
    share: float  # of one core


class Load(NamedTuple):
    """What others take of the cores that a run may use: shares of one core."""

    others: float
    stolen: float  # by the hypervisor, for other machines
    cores: int
    busiest: Tuple[BusyProcess, ...]


def watch(seconds: float = SECONDS) -> Load:
    """Look on for so long. OSError or ValueError where /proc/stat cannot be read."""
    with contextlib.closing(CoreCounter()) as cores:
        spent = _spent_s()
        _, before = cores.counters()
        time.sleep(seconds)
        _, after = cores.counters()
        whole_ns, *gained_ns = (end - start for end, start in zip(after, before))
        gained = _gained(spent, _spent_s(), whole_ns / 1e9)
    others, stolen = (max(0.0, ns / whole_ns) for ns in gained_ns[:2])
    return Load(others, stolen, cores.count, gained)


def _spent_s() -> Spent:
    spent = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error), process.oneshot():
            if process.pid != os.getpid():
                times = process.cpu_times()
                spent[process.pid, process.create_time()] = (process.name(), times.user + times.system)
    return spent


def _gained(before: Spent, after: Spent, seconds: float) -> Tuple[BusyProcess, ...]:
    shares = [
        BusyProcess(key[0], name, (spent_s - before.get(key, ("", 0.0))[1]) / seconds)
        for key, (name, spent_s) in after.items()
    ]
    busy = sorted((one for one in shares if one.share >= LEAST_SHARE), key=lambda one: -one.share)
    return tuple(busy[:MOST_NAMED])
