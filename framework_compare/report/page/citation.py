"""A study in a few lines to paste into a text: what was measured where, with which versions, and what came out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from framework_compare.plan.settings import column
from framework_compare.report import headlines, provenance
from framework_compare.report.study import Study
from framework_compare.report.table_notes import setting_words, shared_settings, varies
from framework_compare.report.tables import clean
from framework_compare.results.columns import Record
from framework_compare.results.speed_verdicts import Verdict

MAX_RESULTS = 20
MAX_VALUES = 12  # of a setting in which cells differ
STATED = ("batch_size", "image_size", "epochs", "threads")  # whether or not they are at their defaults


def citation(study: Study, verdicts: Iterable[Verdict], standing: str) -> str:
    """The citation as lines; standing: what the checks found, in words."""
    facts = dict(provenance.facts(study))
    cells = list(study.frame.itertuples())
    names = {"Machine": "Machine", "System": "System", "Frameworks": "Versions", "Data": "Data"}
    verdicts = sorted(verdicts, key=lambda verdict: not verdict.shown)  # what is shown comes first
    results = [clean(headlines.with_display_names(one).sentence).replace("`", "") for one in verdicts[:MAX_RESULTS]]
    left = [f"{len(verdicts) - MAX_RESULTS} more results are in the report."] if len(verdicts) > MAX_RESULTS else []
    return "\n".join(
        [
            f"Study {clean(Path(study.folder).name)}, measured {facts.get('Measured', '')} with {facts['Version']}.",
            *(f"{shown}: {facts[name]}." for name, shown in names.items() if name in facts),
            *([f"Settings: {clean(_settings(cells))}."] if cells else []),
            *(f"Result: {one.rstrip('.')}." for one in results),
            *left,
            *headlines.remarks(verdicts),
            f"Checks: {standing[0].lower()}{standing[1:]}.",
        ]
    )


def _settings(cells: Sequence[Record]) -> str:
    """Return what all cells share, then the values of STATED in which they differ."""
    differing = []
    for name in STATED:
        if varies(cells, column(name)):
            values = list(dict.fromkeys(setting_words(column(name), getattr(cell, column(name))) for cell in cells))
            differing.append(" or ".join([*values[:MAX_VALUES], *(["others"] if len(values) > MAX_VALUES else [])]))
    return ", ".join([shared_settings(cells, (), ("device", *STATED)), *differing])
