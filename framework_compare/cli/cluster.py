"""`framework-compare part` and `absorb`: a study in parts, each run alone on a node of a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from framework_compare.cli import console
from framework_compare.cli.options import takes
from framework_compare.cli.report import STUDY


@takes("trust", "dry_run", "yes")
def part(
    trust: bool,
    dry_run: bool,
    yes: bool,
    study: Annotated[str, STUDY],
    number: Annotated[int, typer.Argument(help="The part's number, from 1; STUDY/parts has one file for each.")],
) -> None:
    """Run one part of a study on this node, and put its complete result into STUDY/parts.

    `run --on parts` plans parts. A part that is already done is not run again; one that was stopped continues.

    Example: parallel --sshloginfile NODES --jobs 1 framework-compare part STUDY {} ::: 1 2 3
    """
    from framework_compare import api
    from framework_compare.study import names, part_run

    folder, watcher = names.find(study).absolute(), console.watcher(yes=yes)
    forecast = api.dry_part(folder, number)
    if dry_run:
        console.end_with_forecasts([forecast])
    watcher.expect(lambda: forecast)
    with console.kept_on_interrupt(folder, watcher):
        part_run.run_part(folder, number, watcher, trust)


def absorb(study: Annotated[str, STUDY]) -> None:
    """Absorb the finished parts of a study. Exit with 1 if one is refused."""
    from framework_compare import api
    from framework_compare.study import names

    watcher = console.watcher()
    result, refused = api.absorb(names.find(study), say=watcher.say)
    left = int(result.runs["status"].isin(["planned", "running", "interrupted"]).sum())
    watcher.say(f"{left} of {len(result.runs)} runs are still to do")
    if refused:
        raise typer.Exit(1)
