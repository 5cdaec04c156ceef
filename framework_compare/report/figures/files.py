"""A chart as SVG, and as the specification that a browser draws."""

import base64
import contextlib
import gzip
import importlib.metadata
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from framework_compare.json_types import JSON
from framework_compare.paths import cache_dir, write_whole
from framework_compare.protocol import Document, Fields
from framework_compare.report.figures import look
from framework_compare.report.figures.catalogue import FIGURES
from framework_compare.report.figures.subject import Subject

PAGE_WIDTH = 980.0  # of a figure in the report, in pixels
FONT = 11.0
LEAST_PANEL = 130.0  # points that a panel takes at least
ROOM = 14  # pixels at both sides of an image: the reader's font may be wider than ours
_TAG = re.compile(r"<[^<>]*>")
_WASTE = re.compile(
    r' (aria-[a-z]+|role|class|pointer-events|font-family)="[^"<>]*"'
    r'| ((fill-|stroke-)?opacity|stroke-width)="1"| text-anchor="start"'
)
# Paths without a place, rectangles without a colour (grounds that Vega puts below its groups), and labels that it hides.
_UNSEEN = re.compile(
    r'<path d="" display="none"/>|<path d="M0,0h[-\d.]+v[-\d.]+h[-\d.]+Z"/>|<text [^<>]* opacity="0"[^<>]*>[^<>]*</text>'
)
_TO_ZERO = re.compile(r' [xy]2="0"')  # where a line ends unless it says otherwise
_LONG = re.compile(r"\d+\.\d{2,}")
_BOX = re.compile(r'width="[\d.]+" height="([\d.]+)" viewBox="0 0 ([\d.]+) ([\d.]+)"')
_PAPER = re.compile(r'<rect width="[\d.]+" height="[\d.]+" fill="white"/>')
_COORDINATES = re.compile(r' (d|transform|x|y|x1|y1|x2|y2|width|height)="[^"<>]*"')


class Drawn(NamedTuple):
    """A chart as a Vega-Lite specification and as SVG, with its size in points."""

    spec: Fields
    svg: str
    width: float
    height: float


def draw(
    subject: Subject, name: str, width: float = PAGE_WIDTH, view: str = "", still: bool = True
) -> dict[str, Drawn]:
    """The parts of a figure by title, empty where the study has no data for it; about `width` points wide.

    view: one of the figure's views, "" the usual one; UnknownNameError for another. still: with SVG, which takes most of
    the time.
    """
    columns = max(1, min(4, len(subject.conditions), int(width / (LEAST_PANEL + 8 * FONT))))
    charts = FIGURES[name].seen_as(view, subject.worded).draw(subject, width, columns)
    return {title: render(chart, FONT, width, still=still, words=subject.worded) for title, chart in charts.items()}


def render(
    chart: Any,
    font: float,
    width: float = PAGE_WIDTH,
    *,
    still: bool = True,
    words: Callable[[str], str] | None = None,
) -> Drawn:
    """A chart of Altair's, drawn with the looks that all figures share; still: with SVG. words: rewrites each title."""
    import vl_convert

    # Tests hold every figure to the schema; here that would take as long as drawing.
    spec: Fields = chart.configure(**look.config(font, width)).to_dict(validate=False)
    if words:
        spec = {name: part if name == "datasets" else _reworded(part, words) for name, part in spec.items()}
    if not still:
        return Drawn(spec, "", 0.0, 0.0)
    svg = _short(vl_convert.vegalite_to_svg(json.dumps(spec)))
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', svg)
    width, height = map(float, size.groups()) if size else (0.0, 0.0)
    return Drawn(spec, svg, width, height)


def roomy(drawn: Drawn, paper: str = "") -> Drawn:
    """The same with ROOM at both sides of its SVG, on paper of a colour; "" for the paper of the page."""
    wide = drawn.width + 2 * ROOM
    box = rf'width="{wide:g}" height="\1" viewBox="{-ROOM} 0 {wide:g} \3"'
    ground = f'<rect x="{-ROOM}" width="{wide:g}" height="{drawn.height:g}" fill="{paper}"/>' if paper else ""
    svg = _PAPER.sub(ground, _BOX.sub(box, drawn.svg, count=1), count=1)
    return drawn._replace(svg=svg, width=wide)


def _reworded(part: JSON, words: Callable[[str], str]) -> JSON:
    if isinstance(part, list):
        return [_reworded(one, words) for one in part]
    if not isinstance(part, dict):
        return part
    titles = {name: words(text) for name, text in part.items() if name == "title" and isinstance(text, str)}
    return {name: _reworded(one, words) for name, one in part.items()} | titles


def responsive(specs: Sequence[Document]) -> Fields:
    """Specifications of the same data for pages of several widths, which share tables that are equal."""
    tables = {name: rows for spec in specs for name, rows in spec.get("datasets", {}).items()}
    bare = [{**spec, "background": "transparent"} for spec in specs]  # the page has its own paper, light or dark
    for spec in bare:
        spec.pop("datasets", None)
    return {"specs": bare, "datasets": tables}


def _short(svg: str) -> str:
    """The image without what nobody sees and what only a browser's script or reader asks for, coordinates to a tenth of
    a pixel: 70 % less. Texts stay as they are.
    """
    plain = _ungrouped(_UNSEEN.sub("", _TAG.sub(lambda tag: _without_defaults(tag[0]), svg)))
    rounded = _COORDINATES.sub(
        lambda place: _LONG.sub(lambda one: f"{float(one[0]):.1f}".removesuffix(".0"), place[0]), plain
    )
    return rounded.replace("<svg ", f'<svg font-family="{look.FONT}" ', 1)


def _without_defaults(tag: str) -> str:
    """Return a tag without attributes that nobody sees, or that have the value that they have by default."""
    kept = _WASTE.sub("", tag)
    return _TO_ZERO.sub("", kept) if kept.startswith("<line ") else kept


def _ungrouped(svg: str) -> str:
    """The image without groups that say nothing of what they hold."""
    open_groups: list[bool] = []

    def kept(tag: "re.Match[str]") -> str:
        if tag[0] == "</g>":
            return tag[0] if open_groups.pop() else ""
        if tag[0].startswith("<g ") and tag[0].endswith("/>"):  # a group of nothing
            return ""
        if tag[0].startswith(("<g>", "<g ")):
            says = tag[0] not in ("<g>", '<g transform="translate(0,0)">')
            open_groups.append(says)
            return tag[0] if says else ""
        return tag[0]

    return _TAG.sub(kept, svg)


def javascript() -> str:
    """The bundle, which sets window.vegaEmbed, as `packed` gives it; made once per version (seconds), then cached."""
    import vl_convert

    path = cache_dir() / "report" / f"vega-{importlib.metadata.version('vl-convert-python')}.txt"
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        text = _in_gzip(vl_convert.javascript_bundle())  # type: ignore[call-arg]
    with contextlib.suppress(OSError):  # a cache that cannot be written costs seconds, not the report
        write_whole(path, text)
    return text


def javascript_file() -> str:
    """The bundle as a file of a site, for pages that load it when they draw."""
    return f"(function () {{{gzip.decompress(base64.b64decode(javascript())).decode()}\n}})();"


def packed(document: JSON) -> str:
    """A document as JSON, in gzip, in base64: what the page's script unpacks, and no text that a page could misread."""
    return _in_gzip(json.dumps(document, separators=(",", ":")))


def _in_gzip(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
