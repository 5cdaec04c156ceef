"""What reading costs, to read."""

from __future__ import annotations

import math
from typing import Any, Sequence

from framework_compare import registry
from framework_compare.report.parts import with_interval
from framework_compare.report.tables import Figure, Group, Row, Table
from framework_compare.results.intervals import Interval


def table(rates: Sequence[Any], cell: str, framework: str = "") -> Table:
    """One row per rate; `rates` are `overhead.Overhead` records of one cell of a framework."""
    rows = [
        Row(
            (f"{one.sampling_hz:g}",),
            (
                Figure(_shown(one.epoch_s)),
                Figure("1" if not one.sampling_hz else _shown(one.ratio)),
                Figure(f"{one.parent_cpu_percent:.2f}"),
                Figure(f"{one.parent_peak_rss_bytes / 1e6:.0f}"),
            ),
        )
        for one in rates
    ]
    return Table(
        f"What reading CPU, memory and threads costs: {cell}, {rates[0].ratio.runs} runs at each rate, in randomised "
        "blocks; medians ± longer arm of the 95 % interval over runs.",
        ("readings/s",),
        (Group("", ("epoch s", "over none")), Group("comparing process", ("CPU % of a core", "peak RSS MB"))),
        tuple(rows),
        remarks=(
            "No epoch is left out as disturbed, as nobody would know of it without readings.",
            "CPU of the comparing process over whole runs; its memory since it began, so for all rates together.",
            *registry.labels([framework]),
        ),
    )


def _shown(one: Interval) -> str:
    return with_interval(one.value, *(math.nan if end is None else end for end in (one.low, one.high)))
