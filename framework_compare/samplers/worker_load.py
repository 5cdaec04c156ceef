"""What the worker's process tree uses: CPU, memory, threads."""

from __future__ import annotations

from framework_compare.samplers.sampler import Column, Readings, Sampler


class WorkerSampler(Sampler):
    """cpu_percent is of one core, summed over the worker and its descendants, since the reading before."""

    columns = {
        "cpu_percent": Column(since_before=True),
        "rss_bytes": Column(whole=True),
        "threads": Column(whole=True),
        "processes": Column(whole=True),
    }

    def read(self) -> Readings:
        reading = self._watched.reading
        return {} if reading is None else reading._asdict()
