"""Captions of figures: a legend names only the marks that are drawn."""

import operator
import re
from collections.abc import Callable, Iterable

from framework_compare.protocol import Document
from framework_compare.report.figures import look
from framework_compare.report.figures.files import Drawn

Row = Document


def _has_band(row: Row) -> bool:
    """Return whether a bin of F4 holds different readings."""
    ends = ((row[key], row.get(f"{key[:-1]}h")) for key in row if re.fullmatch(r"y\d+l", key))
    return any(low != high for low, high in ends)


# What a mark means, and which rows of data have it: those with a value of this name, or by a function.
MARKS: tuple[tuple[str, str | Callable[[Row], object]], ...] = (
    ("Bold: significantly faster than every other framework that does not fail parity.", "fastest"),
    ("~: not significant after Holm's correction.", lambda row: row.get("unsure") and row.get("interval")),
    (
        "~ without an interval: one run, so nothing is tested.",
        lambda row: row.get("unsure") and not row.get("interval") and not row.get("throughout"),
    ),
    ("!: all epochs were disturbed.", "throughout"),
    (
        "Hollow mark: fewer than two runs count, so there is no interval.",
        lambda row: row.get("kind") == "cell" and row.get("x") is not None and row.get("low") is None,
    ),
    ("≈: estimated from the steps that were measured.", "about"),
    ("Hollow mark: disturbed epoch.", "marked"),
    ("Line: mean of neighbouring readings; band: their minimum to maximum.", _has_band),
    ("The time axis includes waiting for turns.", "waits"),
    ("Grey bars: CPU time of other programs; 100 % is one core.", lambda row: (row.get("disturbed_share") or 0) > 0),
    ("Grey backgrounds: stages of the run.", lambda row: row.get("stage") not in (None, "measured epochs")),
    ("Grey line: CPU time of other programs.", lambda row: row.get("others") is not None),
    ("Thin bar: copying to the device, which overlaps with the rest.", lambda row: (row.get("copying") or 0) > 0),
    ("Idle: power that the device draws before the first run.", lambda row: str(row.get("part")).endswith("idle")),
    ("Grey bar: not significant, or all epochs disturbed.", lambda row: row.get("shown") is False and "ratio" in row),
    ("So far: speed-up over the first rung.", lambda row: "so far" in str(row.get("label"))),
    (
        "Waiting calls (Synchronize) block the host until the GPU is done.",
        lambda row: "Synchronize" in str(row.get("name")),
    ),
    ("Red: quality is worse than that of the baseline.", "worse"),
    ("Dashed line: the memory limit of the study.", lambda row: row.get("limit") is not None),
    ("Red triangle: other programs took CPU time.", "disturbed"),
    ("Red dot: disturbed epoch.", lambda row: row.get("tint") == look.WARNING),
    (
        "Arrow: interval truncated.",
        lambda row: any(value is True for key, value in row.items() if key.endswith("_cut")),
    ),
    ("A line joins the batch sizes of a framework.", "joined"),
    ("Only the first cells are drawn; `framework-compare figure resources --models NAME` draws others.", "left_out"),
    ("A failed cell shows its status.", lambda row: row.get("worked") is False),
)


def caption(text: str, parts: Iterable[Drawn]) -> str:
    """Return how to read a figure, and what each mark in its parts means."""
    rows = [row for part in parts for values in part.spec.get("datasets", {}).values() for row in values]
    tests = ((words, operator.methodcaller("get", of) if isinstance(of, str) else of) for words, of in MARKS)
    return " ".join([text, *(words for words, has in tests if any(map(has, rows)))])
