"""`framework-compare check`: a study against a baseline, for CI."""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING, Annotated, Any, Sequence

import typer

from framework_compare import registry
from framework_compare.cli import console
from framework_compare.cli.report import STUDY
from framework_compare.errors import UsageError
from framework_compare.plan.values import slowdown
from framework_compare.report.table_notes import plural, row_name

if TYPE_CHECKING:
    from framework_compare.results.columns import Record
    from framework_compare.results.regression_gate import Judgement

MAX_NAMED = 12  # cells of the baseline that are missing


def check(
    baseline: Annotated[str, typer.Option(help="The study to compare with: a folder, a name, or latest.")],
    study: Annotated[str, STUDY] = "latest",
    history: Annotated[
        list[str] | None,
        typer.Option(help="Another session of the baseline; two or more show by how much sessions differ. Repeatable."),
    ] = None,
    max_slowdown: Annotated[str, typer.Option(help="How much longer an epoch may take: 5% or 0.05.")] = "5%",
    strict: Annotated[
        bool, typer.Option("--strict", help="Also exit with 1 if a cell of the baseline is missing.")
    ] = False,
    allow_inconclusive: Annotated[
        bool, typer.Option("--allow-inconclusive", help="Also exit with 0 if intervals contain the limit.")
    ] = False,
) -> None:
    """Compare a study with a baseline of an earlier session on this machine.

    The exit code is 0 if every cell is within the limit, 1 if one is slower, does not work, fails parity or cannot be
    judged, 3 if the interval of one contains the limit. Sessions differ by several percent even if nothing changed:
    --history measures how much on this machine. In CI prefer `duel`, which measures both now, in turns.
    """
    from framework_compare.comparison import Comparison
    from framework_compare.results import regression_gate
    from framework_compare.study import names, resumption

    limit = slowdown("--max-slowdown", max_slowdown)
    for two in itertools.combinations([baseline, study, *(history or ())], 2):
        names.find_two(*two)
    before, after, *others = (Comparison.load(names.find(one)) for one in (baseline, study, *(history or ())))
    for one in (before, *others):
        cells = [*one.frame.itertuples()]
        if changes := resumption.other_kind(one.machine, after.machine, cells) if after.machine else []:
            raise UsageError(
                f"{one.folder} and {after.folder} were measured on different machines ({'; '.join(changes)}); measure both on one"
            )
    beside = before.beside(after, others)
    if beside.empty:
        raise UsageError(
            f"{after.folder} and {before.folder} have no cell in common; run the study with the baseline's settings"
        )
    judged = regression_gate.judge(beside, limit)
    missing = regression_gate.missing(before.frame, after.frame)
    _print(beside, judged, regression_gate.names(beside), limit, missing)
    for result in (before, after):
        console.print_damage(result)
    if strict and len(missing):
        console.fail(f"--strict: {len(missing)} cells of the baseline are missing; run them, too", 1)
    code = regression_gate.exit_code((one.outcome for one in judged), allow_inconclusive)
    if code:
        why = next((one.reason for one in judged if one.reason), "`framework-compare duel` is more precise")
        console.fail(f"{_counts(judged)}; {why}", code)


def _counts(judged: Sequence[Judgement]) -> str:
    """Return how many cells have each outcome."""
    counts = collections.Counter(one.outcome for one in judged)
    said = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    return f"{plural(len(judged), 'cell')}: {said}"


def _print(beside: Any, judged: list[Judgement], headings: list[str], limit: float, missing: Any) -> None:
    from framework_compare.report import renderers
    from framework_compare.report.table_spec import Column, named, tabulate
    from framework_compare.results import regression_gate

    def ratio(row: Record) -> str:
        return "-" if row.ratio != row.ratio else f"{row.ratio:.3f}"

    def interval(row: Record) -> str:
        known = row.ratio_ci_low == row.ratio_ci_low
        return f"{row.ratio_ci_low:.3f} to {row.ratio_ci_high:.3f}" if known else "-"

    def outcome(row: Record) -> str:
        one = judged[row.Index]
        return str(one.outcome) + (f" ({one.reason})" if one.reason else "")

    absent_too = f"; {len(missing)} of the baseline are missing" if len(missing) else ""
    caption = f"{_counts(judged)}{absent_too}. Epoch time relative to the baseline; allowed: {1 + limit:.3g}."
    absent = [" ".join(row_name(name, row[name]) for name in headings) for row in missing.to_dict("records")]
    more = f", and {len(absent) - MAX_NAMED} more" if len(absent) > MAX_NAMED else ""
    remarks = [f"Missing: {', '.join(absent[:MAX_NAMED])}{more}."] if absent else []
    remarks += [regression_gate.variance(beside).sentence, *registry.labels(beside["framework"])]
    names = [named(name, always=True) for name in headings]
    columns = (Column("ratio", ratio), Column("95 % interval", interval), Column("outcome", outcome))
    table = tabulate(caption, names, columns, beside.reset_index(drop=True).itertuples(), remarks=tuple(remarks))
    print(renderers.terminal(table), end="")
