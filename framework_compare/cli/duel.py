"""`framework-compare duel`: two competitors in turns, one verdict, and with a limit an exit code for CI."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framework_compare.cli import console
from framework_compare.cli.options import ENVIRONMENTS, LIMITS, OF_DATA, SETTINGS_OF_CELLS, stated, takes

if TYPE_CHECKING:
    from framework_compare.duels import Duel


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
    data: Annotated[str | None, typer.Argument(help="A folder of images, or a name that `list` shows.")] = None,
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
    print(json_text.dumps(_document(result, a, b), indent=1) if json else result.sentence)
    watcher.say(f"study: {folder}")
    raise typer.Exit(regression_gate.exit_code(filter(None, [result.outcome]), allow_inconclusive))


def _document(result: Duel, *asked: str) -> dict[str, object]:
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
