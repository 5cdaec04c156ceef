"""A figure as an object: shown by Jupyter, saved as SVG, PDF or PNG of a given width."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from framework_compare import registry
from framework_compare.errors import UnknownNameError, UsageError
from framework_compare.paths import fault
from framework_compare.protocol import Fields
from framework_compare.report.figures import files, marks
from framework_compare.report.figures.catalogue import FIGURES, find
from framework_compare.report.figures.files import Drawn
from framework_compare.report.figures.subject import Subject
from framework_compare.report.study import Study
from framework_compare.report.table_notes import caption

SUFFIXES = (".svg", ".pdf", ".png")
UNITS = {"mm": 72 / 25.4, "cm": 720 / 25.4, "in": 72.0, "pt": 1.0, "px": 0.75}  # points
COLUMN = "84mm"  # one column of a journal's page
PAPER_FONT = 8.0  # points, so that no text is below 7
LEAST_FONT = 6.9
PNG_PPI = 300
LEAST_WIDTH, MOST_WIDTH = 60.0, 6000.0  # points of a whole figure


class Plot:
    """A figure of a study, by name or number. frameworks, models: one or several names to draw; None draws all.

    view: another view of the same data, such as "images per second" of F2, or its name in a report, such as
    "sequences per second"; "" is the usual one.
    """

    def __init__(
        self,
        study: Study,
        name: str,
        *,
        frameworks: str | Sequence[str] | None = None,
        models: str | Sequence[str] | None = None,
        view: str = "",
    ) -> None:
        self.name, self.view = find(name), view
        self._figure = FIGURES[self.name]
        only = ([one] if isinstance(one, str) else one for one in (frameworks, models))
        self._subject = Subject(study, *only)
        self._seen = self._figure.seen_as(view, self._subject.worded)

    @functools.cached_property
    def parts(self) -> dict[str, Drawn]:
        """The drawn parts by title; UsageError if the study has no data for the figure."""
        return files.draw(self._subject, self.name, view=self.view) or self._absent()

    @property
    def specifications(self) -> list[Fields]:
        """The Vega-Lite specification of each part."""
        return [part.spec for part in self.parts.values()]

    @property
    def caption(self) -> str:
        """The caption for a paper: how to read the figure, the settings of its cells, labels of its frameworks."""
        cells = list(self._subject.cells.itertuples())
        labels = registry.labels(cell.framework for cell in cells)
        text = self._subject.worded(marks.caption(self._seen.caption, self.specifications))
        return " ".join((f"{self._figure.title}. {text} Settings: {caption(cells, ())}", *labels))

    def save(self, path: str | Path, width: str = COLUMN) -> Path:
        """Write .svg, .pdf or .png, exactly `width` wide ("84mm"), with the caption next to it as .txt; return the path.

        Text has at least 7 points. UsageError for another suffix, a width without unit, or a figure without data.
        """
        import vl_convert

        file = Path(path).absolute()
        suffix, target = file.suffix.lower(), points(width)
        if suffix not in SUFFIXES:
            raise UnknownNameError("kind of file", file.suffix or file.name, SUFFIXES)
        if why := fault(file.parent):
            raise UsageError(f"{file} cannot be written, as {why}; name another file")
        drawn = self.fitted(target)
        scale = target / drawn.width
        if PAPER_FONT * scale < LEAST_FONT:
            least = drawn.width * LEAST_FONT / PAPER_FONT / UNITS["mm"]
            raise UsageError(
                f"figure {self.name} of this study would have text below {LEAST_FONT:.0f} points at {width}; give a width of "
                f"{least:.0f}mm or more, or draw fewer frameworks or models (--frameworks, --models)"
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        # In PDF a pixel becomes a point.
        unit = "" if suffix == ".pdf" else "pt"
        size = f'width="{drawn.width * scale:.2f}{unit}" height="{drawn.height * scale:.2f}{unit}"'
        svg = re.sub(r'width="[\d.]+" height="[\d.]+"', size, drawn.svg, count=1)
        made: dict[str, Callable[[], bytes]] = {
            ".svg": svg.encode,
            ".pdf": partial(vl_convert.svg_to_pdf, svg),
            ".png": partial(vl_convert.svg_to_png, drawn.svg, scale=scale, ppi=PNG_PPI),
        }
        file.write_bytes(made[suffix]())
        file.with_suffix(".txt").write_text(self.caption + "\n", encoding="utf-8")
        return file

    def fitted(self, target: float) -> Drawn:
        """The figure, about `target` points wide, with its parts one below the other."""
        import altair as alt

        width = target
        columns = max(1, min(len(self._subject.conditions), int(target / files.LEAST_PANEL)))
        for _ in range(3):
            parts = self._seen.draw(self._subject, width, columns) or self._absent()
            charts = [chart.properties(title=title) if title else chart for title, chart in parts.items()]
            whole = charts[0] if len(charts) == 1 else alt.vconcat(*charts)
            drawn = files.render(whole, PAPER_FONT, target, words=self._subject.worded)
            if abs(drawn.width - target) < 0.02 * target:
                break
            width = max(40.0, width + target - drawn.width)
        return drawn

    def _absent(self) -> NoReturn:
        """UsageError that says why the study has no such figure."""
        raise UsageError(f"the study has no figure {self.name}: {self._figure.absent}")

    def _repr_html_(self) -> str:
        fits = '<svg style="max-width: 100%; height: auto"'
        return "".join(part.svg.replace("<svg", fits, 1) for part in self.parts.values())

    def __repr__(self) -> str:
        return f"Plot({self.name!r})"


def points(width: str) -> float:
    """A length in points, from "84mm", "3.3in", "240pt"; UsageError for another text."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(mm|cm|in|pt|px)", str(width).strip())
    if not match:
        raise UsageError(f"the width is {width!r}; allowed: a number and a unit of {', '.join(UNITS)}, such as 84mm")
    found = float(match[1]) * UNITS[match[2]]
    if not LEAST_WIDTH <= found <= MOST_WIDTH:
        least, most = (f"{end / UNITS['mm']:.0f}mm" for end in (LEAST_WIDTH, MOST_WIDTH))
        raise UsageError(f"the width is {width!r}; allowed: {least} to {most}, such as {COLUMN}")
    return found
