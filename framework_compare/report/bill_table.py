"""What epochs cost in money, energy and CO2, one row per cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from framework_compare.plan.settings import SETTINGS, column
from framework_compare.report.names import title
from framework_compare.report.resource_tables import NO_ENERGY, unmeasured_energy
from framework_compare.report.table_notes import caption, plural, unit_of, warning_lines
from framework_compare.report.table_spec import NAMES, Column, named, tabulate
from framework_compare.report.tables import Table, number, with_interval
from framework_compare.results.bills import Prices
from framework_compare.results.columns import SHARED, Record


def bill_table(cells: Sequence[Record], prices: Prices, epochs: int) -> Table:
    """One row per cell of a `bill_frame`; the settings in which cells differ name the rows."""
    varied = [column(name) for name in SETTINGS if column(name) in SHARED]
    settings = caption(cells, (), unit_of(cells))
    return tabulate(
        f"Cost of {plural(epochs, 'epoch')}, in the currency of the prices given{_given(prices)}. {settings}",
        (*NAMES, *map(named, varied)),
        _columns(prices),
        cells,
        noted=True,
        remarks=tuple(_remarks(cells)),
        warnings=tuple(warning_lines(cells)),
    )


def _columns(prices: Prices) -> list[Column]:
    def of(name: str) -> Callable[[Record], str]:
        return lambda cell: number(getattr(cell, name))

    def price(cell: Record) -> str:
        return with_interval(cell.bill_time, cell.bill_time_low, cell.bill_time_high)

    columns = (
        (Column("s", of("bill_s"), "time"), True),
        (Column("price", price, "time"), prices.per_hour is not None),
        (Column("Wh", of("bill_wh"), "energy"), True),
        (Column("price", of("bill_energy"), "energy"), prices.per_kwh is not None),
        (Column("g CO2", of("bill_co2_g"), "energy"), prices.co2_g_per_kwh is not None),
    )
    return [one for one, given in columns if given]


def _given(prices: Prices) -> str:
    parts = []
    if isinstance(prices.per_hour, dict):
        parts += [f"{value:g} an hour on {title(name)}" for name, value in prices.per_hour.items()]
    elif prices.per_hour is not None:
        parts.append(f"{prices.per_hour:g} an hour")
    parts += [f"{prices.per_kwh:g} a kWh"] if prices.per_kwh is not None else []
    parts += [f"{prices.co2_g_per_kwh:g} g CO2 a kWh"] if prices.co2_g_per_kwh is not None else []
    return f" ({', '.join(parts)})"


def _remarks(cells: Sequence[Record]) -> Iterable[str]:
    yield "Of measured epochs alone: start-up, validation and idle time of the machine come on top."
    if any(cell.bill_wh > 0 for cell in cells):
        yield (
            "Energy is that of the GPU and of the processor packages, where they have counters; memory, fans, power supply and "
            "cooling come on top."
        )
    elif any(cell.status == "ok" for cell in cells):
        yield from unmeasured_energy(cells) or [NO_ENERGY]
