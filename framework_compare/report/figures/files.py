"""A figure as a file: SVG, PDF or PNG of a given width, and the specification that a browser draws."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from framework_compare import registry
from framework_compare.errors import UnknownNameError, UsageError
from framework_compare.report.figures import look
from framework_compare.report.figures.catalogue import FIGURES
from framework_compare.report.figures.subject import Subject

SUFFIXES = (".svg", ".pdf", ".png")
UNITS = {"mm": 72 / 25.4, "cm": 720 / 25.4, "in": 72.0, "pt": 1.0, "px": 0.75}  # points
PAGE_WIDTH = 980.0  # of a figure in the report, in pixels
COLUMN = "84mm"  # one column of a journal's page
FONT = 11.0
PAPER_FONT = 8.0  # points, so that no text is below 7
LEAST_FONT = 6.9
PNG_PPI = 300
LEAST_WIDTH = 60.0  # points of a whole figure
LEAST_PANEL = 130.0  # points that a panel takes at least
_TAG = re.compile(r"<[^<>]*>")
_WASTE = re.compile(r' (aria-[a-z]+|role|class|pointer-events|font-family)="[^"<>]*"| opacity="1"')
# Paths without a place, and rectangles without a colour: grounds that Vega puts below its groups.
_UNSEEN = re.compile(r'<path d="" display="none"/>|<path d="M0,0h[-\d.]+v[-\d.]+h[-\d.]+Z"/>')
_LONG = re.compile(r"\d+\.\d{2,}")
_COORDINATES = re.compile(r' (d|transform|x|y|x1|y1|x2|y2|width|height)="[^"<>]*"')


class Drawn(NamedTuple):
    """A chart as a Vega-Lite specification and as SVG, with its size in points."""

    spec: dict[str, Any]
    svg: str
    width: float
    height: float


def draw(
    subject: Subject, name: str, width: float = PAGE_WIDTH, font: float = FONT, view: str = "", still: bool = True
) -> dict[str, Drawn]:
    """The parts of a figure by title, empty where the study has no data for it; about `width` points wide.

    view: one of the figure's views, "" the usual one; UnknownNameError for another. still: with SVG, which takes most of
    the time.
    """
    columns = max(1, min(4, len(subject.conditions), int(width / (LEAST_PANEL + 8 * font))))
    charts = FIGURES[name].seen_as(view).draw(subject, width, columns)
    return {title: render(chart, font, still=still) for title, chart in charts.items()}


def render(chart: Any, font: float, legend_columns: int = 6, *, still: bool = True) -> Drawn:
    """A chart of Altair's, drawn with the looks that all figures share; still: with SVG."""
    import vl_convert

    # Tests hold every figure to the schema; here that would take as long as drawing.
    spec: dict[str, Any] = chart.configure(**look.config(font, legend_columns)).to_dict(validate=False)
    if not still:
        return Drawn(spec, "", 0.0, 0.0)
    svg = _short(vl_convert.vegalite_to_svg(json.dumps(spec)))
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', svg)
    width, height = map(float, size.groups()) if size else (0.0, 0.0)
    return Drawn(spec, svg, width, height)


def _short(svg: str) -> str:
    """The image without what nobody sees and what only a browser's script or reader asks for, coordinates to a tenth of
    a pixel: 70 % less. Texts stay as they are.
    """
    plain = _ungrouped(_UNSEEN.sub("", _TAG.sub(lambda tag: _WASTE.sub("", tag[0]), svg)))
    rounded = _COORDINATES.sub(lambda place: _LONG.sub(lambda one: f"{float(one[0]):.1f}", place[0]), plain)
    return rounded.replace("<svg ", f'<svg font-family="{look.FONT}" ', 1)


def _ungrouped(svg: str) -> str:
    """The image without groups that say nothing of what they hold."""
    open_groups: list[bool] = []

    def kept(tag: "re.Match[str]") -> str:
        if tag[0] == "</g>":
            return tag[0] if open_groups.pop() else ""
        if tag[0].startswith(("<g>", "<g ")):
            says = tag[0] not in ("<g>", '<g transform="translate(0,0)">')
            open_groups.append(says)
            return tag[0] if says else ""
        return tag[0]

    return _TAG.sub(kept, svg)


def save(subject: Subject, name: str, path: Path, width: str = COLUMN, view: str = "") -> None:
    """Write a figure as .svg, .pdf or .png, exactly `width` wide ("84mm"), with its caption beside it as .txt.

    Text is 7 points or more. view: as in `draw`. UsageError for another suffix, a width without unit, or a figure
    without data.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UnknownNameError("kind of file", path.suffix or path.name, SUFFIXES)
    target = points(width)
    drawn = fitted(subject, name, target, view)
    scale = target / drawn.width
    if PAPER_FONT * scale < LEAST_FONT:
        least = drawn.width * LEAST_FONT / PAPER_FONT / UNITS["mm"]
        raise UsageError(
            f"figure {name} of this study would have text below {LEAST_FONT:.0f} points at {width}; give a width of "
            f"{least:.0f}mm or more, or draw fewer frameworks or models (--frameworks, --models)"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_converted(drawn, suffix, scale))
    path.with_suffix(".txt").write_text(caption(subject, name, view) + "\n", encoding="utf-8")


def _converted(drawn: Drawn, suffix: str, scale: float) -> bytes:
    import vl_convert

    # In PDF a pixel becomes a point.
    unit = "" if suffix == ".pdf" else "pt"
    size = f'width="{drawn.width * scale:.2f}{unit}" height="{drawn.height * scale:.2f}{unit}"'
    svg = re.sub(r'width="[\d.]+" height="[\d.]+"', size, drawn.svg, count=1)
    if suffix == ".svg":
        return svg.encode()
    if suffix == ".pdf":
        return vl_convert.svg_to_pdf(svg)
    return vl_convert.svg_to_png(drawn.svg, scale=scale, ppi=PNG_PPI)


def fitted(subject: Subject, name: str, target: float, view: str = "") -> Drawn:
    """A figure whose panels are as wide as makes it about `target` points wide in all, its parts one below the other."""
    import altair as alt

    width = target
    for _ in range(3):
        columns = max(1, min(len(subject.conditions), int(target / LEAST_PANEL)))
        parts = FIGURES[name].seen_as(view).draw(subject, width, columns)
        if not parts:
            raise UsageError(absence(subject, name, view))
        charts = [chart.properties(title=title) if title else chart for title, chart in parts.items()]
        drawn = render(charts[0] if len(charts) == 1 else alt.vconcat(*charts), PAPER_FONT, max(1, int(target / 75)))
        if abs(drawn.width - target) < 0.02 * target:
            break
        width = max(40.0, width + target - drawn.width)
    return drawn


def absence(subject: Subject, name: str, view: str) -> str:
    """Why a study has no figure, or not this view of one."""
    own = FIGURES[name].seen_as(view).absent
    if own and len(subject.worked):
        return f"the study has no such view of figure {name}: {own}"
    return f"the study has no figure {name}: {FIGURES[name].absent}"


def points(width: str) -> float:
    """A length in points, from "84mm", "3.3in", "240pt"; UsageError for another text."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(mm|cm|in|pt|px)", str(width).strip())
    if not match:
        raise UsageError(f"the width is {width!r}; allowed: a number and a unit of {', '.join(UNITS)}, such as 84mm")
    if float(match[1]) * UNITS[match[2]] < LEAST_WIDTH:
        raise UsageError(
            f"the width is {width!r}; allowed: {LEAST_WIDTH / UNITS['mm']:.0f}mm or more, such as {COLUMN}"
        )
    return float(match[1]) * UNITS[match[2]]


def caption(subject: Subject, name: str, view: str = "") -> str:
    """What a paper says below the figure: how to read it, the settings of its cells, labels of its frameworks."""
    from framework_compare.report.table_notes import caption as settings

    cells = list(subject.cells.itertuples())
    labels = registry.labels(cell.framework for cell in cells)
    reading = FIGURES[name].seen_as(view).caption
    return " ".join((f"{FIGURES[name].title}. {reading} Settings: {settings(cells, ())}", *labels))
