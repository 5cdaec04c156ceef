"""`framework-compare verify`: climb the parity ladder and print its table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Dict, Optional

import typer

from framework_compare.cli.options import ENVIRONMENTS, FRAMEWORKS, MODELS, takes
from framework_compare.errors import UsageError
from framework_compare.plan.settings import CODE_PATH, FEEDING, NETWORK, of_verdict

STYLES = ("terminal", "markdown", "latex")


@takes(
    *("frameworks", "models", *of_verdict(CODE_PATH, FEEDING, NETWORK), "threads", *ENVIRONMENTS),
    frameworks=FRAMEWORKS,
    models=MODELS,
)
def verify(
    python: Dict[str, str],
    index: Dict[str, str],
    installer: str,
    fresh: Annotated[bool, typer.Option(help="Climb again, whatever is cached.")] = False,
    style: Annotated[str, typer.Option(help=f"{', '.join(STYLES)}.")] = "terminal",
    keep: Annotated[Optional[Path], typer.Option(help="Folder in which the workers' logs are kept.")] = None,
    **request: Any,
) -> None:
    """Prove that the frameworks train the same function: level by level against a float64 reference.

    Exit code 1 if a level does not hold or could not be asked, a framework cannot be installed, or nothing could be proved
    at all. Verdicts are cached; another state of the worker's source, the environment's packages or the GPU asks anew.
    """
    if style not in STYLES:
        raise UsageError(f"unknown style {style!r}; allowed: {', '.join(STYLES)}")
    from framework_compare.parity import verify as ladder
    from framework_compare.report import parity_tables, renderers
    from framework_compare.results.parity import NOT_INSTALLED, UNSUPPORTED, all_hold

    found = ladder.verify(
        fresh=fresh,
        folder=keep,
        where=ladder.Where(python, index, installer),
        say=lambda message: print(message, file=sys.stderr, flush=True),
        **request,
    )
    print(renderers.RENDERERS[style](parity_tables.table(found)))
    if all(one.status in (UNSUPPORTED, NOT_INSTALLED) for one in found):
        print("framework-compare: nothing was proved: the notes above say what is lacking", file=sys.stderr)
    if not all_hold(found):
        raise typer.Exit(1)
