"""`framework-compare cost`: what epochs cost at prices that the user gives."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from framework_compare.cli import console
from framework_compare.cli.report import CO2, PER_HOUR, PER_KWH, STUDY
from framework_compare.errors import UsageError


def cost(
    study: Annotated[str, STUDY] = "latest",
    per_hour: Annotated[Optional[str], PER_HOUR] = None,
    per_kwh: Annotated[Optional[float], PER_KWH] = None,
    co2_g_per_kwh: Annotated[Optional[float], CO2] = None,
    epochs: Annotated[int, typer.Option(help="Number of epochs to price.")] = 1,
    style: Annotated[str, typer.Option(help="terminal, markdown, github, html, latex or csv.")] = "terminal",
) -> None:
    """Show what the epochs of a study cost: machine time, energy, and the CO2 of that energy.

    Prices may be in any currency, as long as it is the same for all.
    """
    from framework_compare.comparison import Comparison
    from framework_compare.report import resource_tables
    from framework_compare.results.bills import read_per_hour

    hours = read_per_hour(per_hour)
    result = Comparison.load(study)
    bill = result.cost(hours, per_kwh, co2_g_per_kwh, epochs)
    if hours is None and not (bill.frame["bill_wh"] > 0).any():
        reasons = resource_tables.unmeasured_energy(list(result.frame.itertuples())) or [resource_tables.NO_ENERGY]
        raise UsageError(f"the study has no energy readings; give --per-hour ({' '.join(reasons)})")
    print(bill.text(style))
    console.print_damage(result)
