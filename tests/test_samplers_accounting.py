"""How the process tree sampler adds up CPU time, on processes whose every reading is written down."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from framework_compare.samplers.process import ProcessTreeSampler
from framework_compare.samplers.sources import Usage


class ScriptedTree:
    """A source whose processes read what `script` says, tick by tick: {pid: [cpu seconds or None when gone]}."""

    def __init__(self, script, parents):
        self.script, self.parents, self.tick = script, parents, 0

    def __call__(self, pid):
        if self.script[pid][self.tick] is None:
            raise ProcessLookupError(pid)
        return SimpleNamespace(pid=pid, usage=lambda: self._usage(pid), close=lambda: None)

    def _usage(self, pid):
        cpu_s = self.script[pid][self.tick]
        return None if cpu_s is None else Usage(round(cpu_s * 1e9), 1 << 20, 1)

    def children_of(self, processes, *, thorough):
        pids = [pid for process in processes for pid in self.parents.get(process.pid, ())]
        return [pid for pid in pids if self.script[pid][self.tick] is not None]


@pytest.mark.parametrize(
    "script, spent_s",
    [
        pytest.param({1: [1, 2, 3], 2: [1, 1, 2]}, [1, 2], id="both-run"),
        pytest.param({1: [1, 6, 7], 2: [5, None, None]}, [0, 1], id="reaped-by-its-parent"),
        pytest.param({1: [1, 2, 3], 2: [5, None, None]}, [0, 1], id="reaped-by-nobody"),
        pytest.param({1: [1, 1, 1], 2: [None, 3, 4]}, [3, 1], id="started-later"),
    ],
)
def test_cpu_is_never_negative_nor_counted_twice(script, spent_s):
    tree = ScriptedTree(script, {1: [2]})
    sampler, readings = ProcessTreeSampler(1, source=tree), []
    for tree.tick in range(3):
        readings.append(sampler.read())
    spent = [now.cpu_percent / 100 * (now.t_ns - before.t_ns) / 1e9 for before, now in zip(readings, readings[1:])]
    assert spent == pytest.approx(spent_s)


def test_process_whose_parent_ended_is_still_followed():
    tree = ScriptedTree({1: [1, 1, 1], 2: [1, None, None], 3: [1, 2, 4]}, {1: [2], 2: [3]})
    sampler, readings = ProcessTreeSampler(1, source=tree), []
    for tree.tick in range(3):
        readings.append(sampler.read())
    assert [reading.processes for reading in readings] == [3, 2, 2]
    assert readings[2].cpu_percent / 100 * (readings[2].t_ns - readings[1].t_ns) / 1e9 == pytest.approx(2)
