"""What epochs cost in money, energy and CO2, one row per cell."""

from __future__ import annotations

import math
from typing import List, Sequence, Tuple

from framework_compare.plan.settings import SETTINGS, column
from framework_compare.report import cost_tables
from framework_compare.report.figures.look import title
from framework_compare.report.parts import Notes, caption, names_of, plural, row_names, unit_of, warned, with_interval
from framework_compare.report.tables import NOTHING, Figure, Group, Row, Table
from framework_compare.results.bills import Prices
from framework_compare.results.columns import SHARED, Record
from framework_compare.results.metrics import digits


def bill_table(cells: Sequence[Record], prices: Prices, epochs: int) -> Table:
    """One row per cell of a `bill_frame`; the settings in which cells differ name the rows."""
    notes = Notes()
    varied = [column(name) for name in SETTINGS if column(name) in SHARED]
    headings = row_names(cells, *varied)
    groups, rows = _groups(prices), []
    for cell in cells:
        figures = [NOTHING if math.isnan(cell.bill_s) else digits(cell.bill_s)]
        if prices.per_hour is not None:
            figures.append(_money(cell.bill_time, cell.bill_time_low, cell.bill_time_high))
        figures.append(_shown(cell.bill_wh))
        if prices.per_kwh is not None:
            figures.append(_shown(cell.bill_energy))
        if prices.co2_g_per_kwh is not None:
            figures.append(_shown(cell.bill_co2_g))
        first = notes.first(cell, figures[0])
        rows.append(Row(names_of(cell, headings), (first, *map(Figure, figures[1:]))))
    settings = caption(cells, (), unit_of(cells))
    return Table(
        f"Cost of {plural(epochs, 'epoch')}, in the currency of the prices given{_given(prices)}. {settings}",
        headings,
        groups,
        tuple(rows),
        tuple(notes.texts),
        tuple(_remarks(cells)),
        warnings=tuple(warned(cells)),
    )


def _groups(prices: Prices) -> Tuple[Group, ...]:
    energy = ["Wh"] + ["price"] * (prices.per_kwh is not None) + ["g CO2"] * (prices.co2_g_per_kwh is not None)
    time = ["s"] + ["price"] * (prices.per_hour is not None)
    return Group("time", tuple(time)), Group("energy", tuple(energy))


def _given(prices: Prices) -> str:
    parts = []
    if isinstance(prices.per_hour, dict):
        parts += [f"{value:g} an hour on {title(name)}" for name, value in prices.per_hour.items()]
    elif prices.per_hour is not None:
        parts.append(f"{prices.per_hour:g} an hour")
    parts += [f"{prices.per_kwh:g} a kWh"] if prices.per_kwh is not None else []
    parts += [f"{prices.co2_g_per_kwh:g} g CO2 a kWh"] if prices.co2_g_per_kwh is not None else []
    return f" ({', '.join(parts)})"


def _shown(value: float) -> str:
    return NOTHING if math.isnan(value) else digits(value)


def _money(value: float, low: float, high: float) -> str:
    return NOTHING if math.isnan(value) else with_interval(value, low, high)


def _remarks(cells: Sequence[Record]) -> List[str]:
    lines = ["Of measured epochs alone: start-up, validation and idle time of the machine come on top."]
    if any(cell.bill_wh > 0 for cell in cells):
        lines.append(
            "Energy is that of the GPU and of the processor packages, where they have counters; memory, fans, power supply and "
            "cooling come on top."
        )
    elif any(cell.status == "ok" for cell in cells):
        lines += cost_tables.reasons(cells) or [cost_tables.NO_ENERGY]
    return lines
