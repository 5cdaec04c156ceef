"""The tables of one kind of a study as an object: their data, and their text in every style."""

from __future__ import annotations

import dataclasses
import functools
import html as markup
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from framework_compare.errors import check_name
from framework_compare.report import renderers
from framework_compare.report.tables import Table, clean
from framework_compare.results.metrics import METRICS

if TYPE_CHECKING:
    import pandas as pd


class StudyTable:
    """One `Table` for each set of settings that the cells of a study share, in `parts`.

    Each part has a caption, columns, rows, notes and verdicts. If a study has no figures of this kind, there are no parts,
    and `absence` says why. `print` shows text for the terminal, Jupyter HTML.
    """

    def __init__(
        self, kind: str, parts: Sequence[Table], absence: Sequence[str], figures: Callable[[], "pd.DataFrame"]
    ) -> None:
        self.kind = kind
        self.parts: tuple[Table, ...] = tuple(parts)
        self.absence: tuple[str, ...] = tuple(absence)
        self._figures = figures

    @functools.cached_property
    def frame(self) -> "pd.DataFrame":
        """The figures as numbers, one row per cell, including failed cells; a missing value is NaN."""
        return self._figures()

    @property
    def units(self) -> dict[str, str]:
        """The unit of each figure in `frame`: SI, "" for shares, ratios and counts."""
        return {
            name: METRICS[name].si_unit if name in METRICS else ""
            for name in self.frame
            if name in METRICS or name.startswith("ratio")
        }

    def to_text(self, width: int | None = None, bold: bool | None = None) -> str:
        """Return text for the terminal, `width` columns wide; bold: with terminal codes. Defaults suit standard output."""
        return self._joined(functools.partial(renderers.terminal, width=width, bold=bold))

    def to_markdown(self) -> str:
        """Return Markdown with pipe tables."""
        return self._joined(renderers.markdown, renderers.escape_markdown)

    def to_github(self) -> str:
        """Return Markdown for summaries, issues and comments on GitHub, with collapsed notes."""
        return self._joined(renderers.github, renderers.escape_markdown)

    def to_html(self) -> str:
        """Return an HTML fragment without scripts or styles."""
        return self._joined(renderers.html, lambda sentence: f"<p>{markup.escape(clean(sentence))}</p>")

    def to_latex(self, label: str | None = None, caption: str | None = None, notes: bool = True) -> str:
        r"""Return tables for booktabs and siunitx 3, to paste.

        label: for `\ref`, "tab:" and the kind by default; parts after the first have a number appended.
        caption: replaces the caption with the settings, which becomes the first note. notes: whether to print verdicts
        and notes below.
        """
        name = f"tab:{self.kind}" if label is None else label
        texts = []
        for number, part in enumerate(self.parts, 1):
            if caption is not None:
                part = dataclasses.replace(part, caption=caption, remarks=(part.caption, *part.remarks))
            part = part if notes else part.without_notes()
            texts.append(renderers.latex(part, f"{name}{number if number > 1 else ''}"))
        return "\n".join(texts) if texts else self._sentences(lambda sentence: f"% {clean(sentence)}")

    def to_csv(self) -> str:
        """Return `frame` as CSV: SI units, 9 significant digits; a missing value is an empty field."""
        return renderers.csv(self.frame)

    def text(self, style: str = "terminal", **terminal: Any) -> str:
        """Return text in one of STYLES; width and bold apply to "terminal". UnknownNameError for an unknown style."""
        check_style(style)
        return STYLES[style](self, **(terminal if style == "terminal" else {}))

    def _joined(self, render: Callable[[Table], str], escape: Callable[[str], str] = clean) -> str:
        return "\n".join(map(render, self.parts)) if self.parts else self._sentences(escape)

    def _sentences(self, escape: Callable[[str], str]) -> str:
        return "".join(f"{escape(sentence)}\n" for sentence in self.absence)

    def __str__(self) -> str:
        return self.to_text()

    def __contains__(self, text: str) -> bool:
        return text in str(self)

    def _repr_html_(self) -> str:
        return self.to_html()

    def __repr__(self) -> str:
        return f"StudyTable({self.kind!r}, {len(self.parts)} parts)"


def check_style(style: str) -> None:
    """UnknownNameError for another style."""
    check_name("style", style, STYLES)


STYLES: dict[str, Callable[..., str]] = {
    "terminal": StudyTable.to_text,
    "markdown": StudyTable.to_markdown,
    "github": StudyTable.to_github,
    "html": StudyTable.to_html,
    "latex": StudyTable.to_latex,
    "csv": StudyTable.to_csv,
}
