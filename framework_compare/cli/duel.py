"""`framework-compare duel` and `bisect`: two competitors in turns, and by such duels which release changed a framework.

Each gives one verdict, and an exit code for CI.
"""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framework_compare.cli import console
from framework_compare.cli.options import ENVIRONMENTS, LIMITS, OF_DATA, SETTINGS_OF_CELLS, stated, takes

if TYPE_CHECKING:
    from framework_compare.bisection import Bisection
    from framework_compare.duels import Duel


DATA = typer.Argument(help="A folder of images, or a name that `list` shows.")


@takes(
    *(name for name in SETTINGS_OF_CELLS if name != "epochs"),
    *("limit", *OF_DATA, *ENVIRONMENTS, *LIMITS, "sampling_hz", "verify", "disturbance_threshold"),
    *("dry_run", "yes", "out", "quiet", "json"),
)
def duel(
    context: typer.Context,
    a: Annotated[
        str, typer.Argument(help="A framework: torch, torch@2.12.0, or torch=PYTHON for your own; or a model.")
    ],
    b: Annotated[str, typer.Argument(help="Its competitor, likewise.")],
    model: Annotated[str, typer.Argument(help="The model that both train, or the framework if A and B are models.")],
    data: Annotated[str | None, DATA] = None,
    max_slowdown: Annotated[
        str | None, typer.Option(help="How much longer B may take than A, such as 5%; sets the exit code.")
    ] = None,
    allow_inconclusive: Annotated[
        bool, typer.Option("--allow-inconclusive", help="Also exit with 0 if the interval contains the limit.")
    ] = False,
    blocks: Annotated[int, typer.Option(help="Blocks, each with fresh workers.")] = 8,
    sample: Annotated[str, typer.Option(help="Measured time per competitor and block.")] = "3s",
    quiet: bool = False,
    json: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    out: Path | None = None,
    **request: Any,
) -> None:
    """Measure two competitors now, in turns, and give one verdict.

    With --max-slowdown the exit code is 0 if B is within the limit, 1 if B is slower, fails parity or does not work, or if
    there is no verdict, 3 if the duel is inconclusive: its interval contains the limit.
    """
    from framework_compare import duels
    from framework_compare.results import regression_gate

    folder, watcher = console.study_folder(out), console.watcher(quiet, yes)
    asked = {**stated(context, request), "max_slowdown": max_slowdown, "blocks": blocks, "sample": sample}
    asked["watcher"] = watcher
    if dry_run:
        console.end_with_forecasts([duels.dry_run(a, b, model, data, **asked)])
    with console.kept_on_interrupt(folder, watcher):
        result = duels.duel(a, b, model, data, out=folder, **asked)
    print(json_text.dumps(_duel_document(result, a, b), indent=1) if json else result.sentence)
    watcher.say(f"study: {folder}")
    raise typer.Exit(regression_gate.exit_code(filter(None, [result.outcome]), allow_inconclusive))


def _duel_document(result: Duel, *asked: str) -> dict[str, object]:
    ratio, competitors = result.ratio, zip("ab", asked, result.names)
    return {
        **{place: {"asked": one, "name": name} for place, one, name in competitors},
        "sentence": result.sentence,
        "outcome": result.outcome,
        "reason": result.reason,
        "max_slowdown": result.max_slowdown,
        "ratio": None if ratio.value != ratio.value else ratio.value,
        "ratio_ci_low": ratio.low,
        "ratio_ci_high": ratio.high,
        "blocks": ratio.runs,
        "alone_why": result.alone_why,
        "alone_blocks": result.alone_blocks[0],
        "study": str(result.comparison.folder),
    }


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
    data: Annotated[str | None, DATA] = None,
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
    print(
        json_text.dumps(_bisect_document(result), indent=1) if json else terminal(result.table()),
        end="\n" if json else "",
    )
    watcher.say(f"search: {folder}; figure: {folder / 'bisect.svg'}")
    if result.outcome == bisection.INCONCLUSIVE:
        raise typer.Exit(CODE_INCONCLUSIVE)
    if result.outcome != bisection.UNCHANGED:
        raise typer.Exit(1)


def _bisect_document(result: Bisection) -> dict[str, object]:
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
