"""`framework-compare peaks`: what this machine can do, for the roofline of a study."""

from __future__ import annotations

from typing import Annotated

import typer

from framework_compare.cli import console
from framework_compare.cli.options import takes
from framework_compare.cli.report import STUDY


@takes("dry_run", "yes")
def peaks(dry_run: bool, yes: bool, study: Annotated[str, STUDY] = "latest") -> None:
    """Measure this machine's peak performance in the settings of a study: a matrix product and a copy, seconds each.

    The table `roofline` compares cells with these peaks. They are stored in the cache folder, together with the load at
    that time, so run this while the machine is quiet. Exit code 1 if a peak could not be measured.
    """
    from framework_compare import peaks as measuring
    from framework_compare.report.machine_tables import peak_table
    from framework_compare.report.renderers import terminal

    forecast = measuring.dry_run(study)
    if dry_run:
        print(forecast)
        return
    say = console.watcher().say
    console.announce([forecast], say, yes, "peak")
    found = measuring.measure_peaks(study, say=say)
    print(terminal(peak_table(found)), end="")
    if not all(one.peak for one in found):
        raise typer.Exit(1)
