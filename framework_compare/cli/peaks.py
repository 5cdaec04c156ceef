"""`framework-compare peaks`: what this machine can do, for the roofline of a study."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from framework_compare.cli.report import STUDY


def peaks(
    study: Annotated[str, STUDY] = "latest",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Start nothing: print what would be measured.")] = False,
) -> None:
    """Measure what this machine can do in the settings of a study: a matrix product and a copy, some seconds each.

    The table `roofline` stands beside them. They are kept in the cache folder with the load meanwhile, so run this while
    the machine is quiet. Exit code 1 if one could not be measured.
    """
    from framework_compare import peaks as measuring
    from framework_compare.report.machine_tables import peak_table
    from framework_compare.report.renderers import terminal

    if dry_run:
        print(measuring.dry_run(study))
        return
    found = measuring.measure_peaks(study, say=lambda message: print(message, file=sys.stderr, flush=True))
    print(terminal(peak_table(found)), end="")
    if not all(one.peak for one in found):
        raise typer.Exit(1)
