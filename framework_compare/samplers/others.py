"""What others took of the CPU, as a series; see `disturbance`."""

from __future__ import annotations

from typing import Optional

from framework_compare.samplers.disturbance import Counters
from framework_compare.samplers.sampler import Column, Readings, Sampler, Watched


class OthersSampler(Sampler):
    """Percent of one core since the reading before: other programs, the hypervisor, and this process itself."""

    columns = {
        name: Column(since_before=True) for name in ("others_cpu_percent", "steal_percent", "parent_cpu_percent")
    }

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._before: Optional[Counters] = None

    def read(self) -> Readings:
        now, before = self._watched.counters, self._before
        self._before = now
        if now is None or before is None or now.t_ns <= before.t_ns:
            return {}
        gained = (now.others_ns - before.others_ns, now.stolen_ns - before.stolen_ns, now.parent_ns - before.parent_ns)
        # Ticks of 10 ms are counted at other moments than they pass: a share of little may come out below 0.
        return {name: 100.0 * max(0, ns) / (now.t_ns - before.t_ns) for name, ns in zip(self.columns, gained)}
