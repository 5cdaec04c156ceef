"""Loss curves as files: a table in Markdown, the numbers in JSON, a plot."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, List, Sequence

from framework_compare import registry
from framework_compare.parity.training.curves import Curves
from framework_compare.report import curves_picture, renderers
from framework_compare.report.figures.look import title
from framework_compare.report.tables import Figure, Group, Row, Table


def write(curves: Sequence[Curves], folder: Path) -> None:
    """Write curves.md, curves.json and curves.svg; the folder is made if absent."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "curves.md").write_text(renderers.markdown(table(curves)), encoding="utf-8")
    documents = [dataclasses.asdict(one) for one in curves]
    (folder / "curves.json").write_text(json.dumps(documents, indent=1) + "\n", encoding="utf-8")
    curves_picture.draw(curves, folder / "curves.svg")


def table(curves: Sequence[Curves]) -> Table:
    """One row per model: largest distances from float64 and between two frameworks, in units of the yardstick."""
    names = list(dict.fromkeys(name for one in curves for kind in _kinds(one) for name in kind))
    notes: List[str] = []
    rows = []
    for one in curves:
        apart = Figure(f"{one.ratio(one.apart()):.2f}" if one.losses else "-")
        first, last = (Figure(f"{one.yardstick[step]:.1e}") for step in (0, -1))
        each = (_figure(one, name, notes) for name in names)
        rows.append(Row((title(one.model),), (first, last, *each, apart, Figure("yes" if one.hold else "no"))))
    groups = (
        Group("yardstick at", ("first step", "last step")),
        Group("off float64", tuple(map(title, names))),
        Group("", ("furthest apart", "within")),
    )
    remarks = (
        "Each figure is the largest of all steps, in units of the yardstick of its step: the distance from the float64 "
        "loss, and between the two frameworks that are furthest apart.",
    )
    said = (*remarks, *registry.labels(names))
    return Table(_caption(curves[0].setting), ("model",), groups, tuple(rows), tuple(notes), said)


def _kinds(one: Curves) -> List[Any]:
    return [one.losses, one.failures, one.unsupported]


def _caption(setting: Any) -> str:
    return (
        f"Losses of {setting['steps']} steps on {setting['dataset']}: batches of {setting['batch_size']}, "
        f"{setting['image_size']} x {setting['image_size']} pixels, learning rate {setting['learning_rate']:g}, "
        f"momentum {setting['momentum']:g}, no dropout."
    )


def _figure(one: Curves, name: str, notes: List[str]) -> Figure:
    if name in one.losses:
        return Figure(f"{one.ratio(one.off(name)):.2f}")
    reason = one.failures.get(name) or one.unsupported.get(name)
    if reason is None:
        return Figure("-")
    text = f"{title(name)} {title(one.model)}: {reason}"
    if text not in notes:
        notes.append(text)
    return Figure("failed" if name in one.failures else "unsupported", notes.index(text) + 1)
