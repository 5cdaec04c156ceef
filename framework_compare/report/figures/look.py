"""The looks of figures: one colour and one shape per framework, in print and in grey too."""

from collections.abc import Sequence

from framework_compare import registry
from framework_compare.protocol import Fields

# Okabe and Ito 2008: told apart with any colour vision, and their greys differ. Frameworks take them in order.
COLOURS = ("#D55E00", "#E69F00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#7F7F7F", "#000000")
# No triangle: it marks a cell that others disturbed, and the end of an interval that goes on.
SHAPES = (
    "circle",
    "square",
    "M0,-1L0.22,-0.31L0.95,-0.31L0.36,0.12L0.59,0.81L0,0.38L-0.59,0.81L-0.36,0.12L-0.95,-0.31L-0.22,-0.31Z",  # a star
    "diamond",
    "cross",
    "M-1,-0.6L-0.6,-1L0,-0.4L0.6,-1L1,-0.6L0.4,0L1,0.6L0.6,1L0,0.4L-0.6,1L-1,0.6L-0.4,0Z",  # an x
    "M0,-1L0.95,-0.31L0.59,0.81L-0.59,0.81L-0.95,-0.31Z",  # a pentagon
    "M-0.9,-0.9L0.9,-0.9L-0.9,0.9L0.9,0.9Z",  # an hourglass
)
DASHES = ((1, 0), (6, 2), (2, 2), (8, 2, 2, 2), (1, 3), (4, 4), (10, 3), (3, 1))
DEVICE_DASHES = (DASHES[0], *DASHES[2:])  # told apart in the short line of a legend
LINE = 600  # size of a line in a legend, which is about 24 points long
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
WARNING = "#B00020"
GREY = "#6B6B6B"
# Everything that is not a framework is grey: tiles from light to dark, and the stages of a run behind its readings.
TILES = ("#F2F2F2", "#A6A6A6")
# Translucent, as the grid is, so that marks over them keep their hue where the page is dark.
STAGES = {
    "start-up": "rgba(0, 0, 0, 0.13)",
    "warm-up": "rgba(0, 0, 0, 0.34)",
    "measured epochs": "rgba(0, 0, 0, 0.02)",
    "after the epochs": "rgba(0, 0, 0, 0.24)",
}
OPACITIES = (1.0, 0.35, 0.65, 0.2)  # of the parts of a bar, which has its framework's colour


def place(name: str, names: Sequence[str]) -> int:
    """The number of a framework's colour and shape, the same in every study for the plain ones.

    Of several versions the first has the framework's own; others take what no framework of the study has.
    """
    known, taken = list(registry.PLAIN), {}
    firsts = {str(other).partition("@")[0]: other for other in reversed(names)}
    for base, first in firsts.items():
        if base in known:
            taken[first] = known.index(base) % len(COLOURS)
    others = [other for other in names if other not in taken]
    free = [n for n in (*range(len(known), len(COLOURS)), *reversed(range(len(known)))) if n not in taken.values()]
    taken.update(
        {other: (free or range(len(COLOURS)))[n % (len(free) or len(COLOURS))] for n, other in enumerate(others)}
    )
    return taken[name]


def config(font_size: float, width: float) -> Fields:
    """Vega-Lite's configuration, for a base size of text and a width of the whole figure in points."""
    return {
        "aria": False,  # each image has one text of its own, instead of one for each mark
        "font": FONT,
        "padding": {"left": font_size, "right": font_size, "top": 5, "bottom": 5},  # a reader's font may be wider
        "view": {"stroke": "#D0D0D0"},
        "axis": {
            "labelFontSize": font_size,
            "titleFontSize": font_size,
            "titleFontWeight": "normal",
            "titlePadding": font_size,
            "gridColor": "rgba(0, 0, 0, 0.08)",
            "domainColor": "#8A8A8A",
            "tickColor": "#8A8A8A",
            "labelColor": "#222222",
            "titleColor": "#222222",
            "labelLimit": min(220, 0.34 * width),
            "labelSeparation": 5,
        },
        "header": {"labelFontSize": font_size + 1, "labelFontWeight": "bold", "labelLimit": min(280, 0.9 * width)},
        "legend": {
            "labelFontSize": font_size,
            "titleFontSize": font_size,
            "titleFontWeight": "normal",
            "symbolSize": 60,
            "orient": "bottom",
            "columns": max(1, min(6, int(width / (10 * font_size)))),
            "columnPadding": 2 * font_size,
            "labelLimit": min(300, 0.8 * width),
            "symbolBaseFillColor": GREY,
            "symbolBaseStrokeColor": GREY,
        },
        "title": {"fontSize": font_size + 1, "anchor": "start", "fontWeight": "bold"},
        "text": {"fontSize": font_size - 0.5, "color": "#222222"},
        "background": "white",
    }
