"""Parity as a table: one row per framework, model, precision and execution; one column per level."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from framework_compare import registry
from framework_compare.parity.network.ladder import TOLERANCE
from framework_compare.report.figures.look import title
from framework_compare.report.tables import Figure, Group, Row, Table
from framework_compare.results.parity import LEVELS, NOT_INSTALLED, UNSUPPORTED, Level, Parity

HEADINGS = ("framework", "version", "model", "precision", "execution")


def table(verdicts: Sequence[Parity]) -> Table:
    """Errors of levels 1 to 3 in units of the yardstick, of level 4 in units of its tolerance; notes of failures."""
    notes: List[str] = []
    rows = [Row(_names(one), tuple(_figures(one, notes))) for one in verdicts]
    meaning = [f"{number}: {text}" for number, text in LEVELS.items()]
    remarks = [
        f"Levels: {'; '.join(meaning)}.",
        f"Levels 1 to 3: error in units of what the precision's rounding changes in the reference; up to {TOLERANCE:g} "
        "is allowed. Level 4: error in units of what different decoders and resamplers explain.",
    ]
    remarks += registry.labels(one.framework for one in verdicts)
    columns = tuple(Group("", (heading,)) for heading in ("holds", *map(str, LEVELS), "worst error"))
    return Table("Parity with the float64 reference.", HEADINGS, columns, tuple(rows), tuple(notes), tuple(remarks))


def _names(one: Parity) -> Tuple[str, ...]:
    return title(one.framework), one.version, title(one.model), one.precision, one.execution


def _figures(one: Parity, notes: List[str]) -> List[Figure]:
    by_number: Dict[int, Level] = {level.number: level for level in one.levels}
    holds = one.holds() or "-"
    lacking = one.status in (UNSUPPORTED, NOT_INSTALLED)
    first = Figure(one.status, _note(one.reason, notes)) if lacking else Figure(holds, _remark(one, notes))
    worst = one.worst
    error = "-" if worst is None or worst.error is None else f"{worst.error:.1e} {worst.where}"
    return [first, *(_figure(by_number.get(number), one, notes) for number in LEVELS), Figure(error)]


def _figure(level: "Level | None", one: Parity, notes: List[str]) -> Figure:
    if level is None:
        return Figure("-")
    if not level.asked:
        return Figure("-" if level.passed else "not asked", _note(f"{title(one.framework)}: {level.where}", notes))
    if level.passed:
        return Figure("ok" if level.ratio is None else f"{level.ratio:.2f}")
    text = f"{title(one.framework)} {title(one.model)}: {level.where}"
    if one.diverges and level.number == one.worst.number:  # type: ignore[union-attr]
        text += f"; {one.diverges}"
    return Figure("no" if level.ratio is None else f"{level.ratio:.1f}", _note(text, notes))


def _remark(one: Parity, notes: List[str]) -> int:
    return _note(f"{title(one.framework)} {title(one.model)}: {one.remark}", notes) if one.remark else 0


def _note(text: str, notes: List[str]) -> int:
    if text not in notes:
        notes.append(text)
    return notes.index(text) + 1
