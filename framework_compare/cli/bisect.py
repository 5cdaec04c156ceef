"""`framework-compare bisect`: which release of a framework changed its speed, its memory or its parity."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framework_compare.cli import console
from framework_compare.cli.options import ENVIRONMENTS, LIMITS, SETTINGS_OF_CELLS, stated, takes

if TYPE_CHECKING:
    from framework_compare.bisection import Bisection


@takes(
    *(name for name in SETTINGS_OF_CELLS if name not in ("epochs", "nodes")),
    *("limit", *ENVIRONMENTS, *LIMITS, "sampling_hz", "disturbance_threshold"),
    *("dry_run", "yes", "out", "quiet", "json"),
)
def bisect(
    context: typer.Context,
    framework: Annotated[str, typer.Argument(help="A framework, such as jax.")],
    versions: Annotated[str, typer.Argument(help="The range of versions, the older first: 0.9..0.12.")],
    model: Annotated[str, typer.Argument(help="The model that all releases train.")],
    data: Annotated[str | None, typer.Argument(help="A folder of images, or a name that `list` shows.")] = None,
    threshold: Annotated[str, typer.Option(help="The change to find, up or down.")] = "5%",
    metric: Annotated[
        str, typer.Option(help="time, memory (the peak of a run) or parity (whether the check passes).")
    ] = "time",
    sample: Annotated[str, typer.Option(help="Measured time per release and block.")] = "4s",
    quiet: bool = False,
    json: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    out: Path | None = None,
    **request: Any,
) -> None:
    """Find the release that changed speed, memory or parity: a binary search by duels against the oldest release.

    The probability of naming a wrong release is at most 5 %. The exit code is 0 if nothing changed, 1 if a release is
    named or either end does not work, 3 if the search is inconclusive. The same command with --out continues a search
    that was stopped.
    """
    from framework_compare import bisection
    from framework_compare.report.renderers import terminal
    from framework_compare.results.regression_gate import CODE_INCONCLUSIVE
    from framework_compare.study.opening import new_study_folder

    folder, watcher = out or new_study_folder(), console.watcher(quiet, yes=True)
    what = (framework, versions, model, data)
    asked = {**stated(context, request), "threshold": threshold, "metric": metric, "watcher": watcher}
    if metric != "parity":
        asked["sample"] = sample
    planned = bisection.dry_run(*what, out=folder, **asked)
    if dry_run:
        print(planned)
        return
    console.ask_about(0 if yes else planned.minutes[1] * 60, str(planned), watcher.say)
    with console.kept_on_interrupt(folder, watcher):
        result = bisection.bisect(*what, out=folder, **asked)
    print(json_text.dumps(_document(result), indent=1) if json else terminal(result.table()), end="\n" if json else "")
    watcher.say(f"search: {folder}; figure: {folder / 'bisect.svg'}")
    if result.outcome == bisection.INCONCLUSIVE:
        raise typer.Exit(CODE_INCONCLUSIVE)
    if result.outcome != bisection.UNCHANGED:
        raise typer.Exit(1)


def _document(result: Bisection) -> dict[str, object]:
    found = result.found
    return {
        "sentence": result.sentence,
        "outcome": result.outcome,
        "release": result.release,
        "before": result.versions[found.before],
        "after": result.versions[found.after],
        "threshold": result.threshold,
        "metric": result.metric,
        "releases": [
            {
                "version": result.versions[one.place],
                "outcome": one.outcome,
                "ratio": None if one.ratio != one.ratio else one.ratio,
                "low": one.low,
                "high": one.high if one.high < float("inf") else None,
                "blocks": one.blocks,
                "reason": result.reasons.get(result.versions[one.place], ""),
            }
            for one in found.answers
        ],
        "folder": str(result.folder),
    }
