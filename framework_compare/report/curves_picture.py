"""The plot of loss curves, drawn with matplotlib, which only this module imports."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Sequence

from framework_compare.errors import UsageError
from framework_compare.parity.training.curves import Curves

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = "os^Dv*"
SMALLEST = 1e-9  # a distance of zero has no place on a logarithmic axis


def import_matplotlib() -> Any:
    """Return matplotlib; UsageError says how to install it."""
    try:
        import matplotlib
    except ImportError:
        raise UsageError(
            "drawing loss curves needs matplotlib, which is not installed; run: pip install 'framework-compare[plots]'"
        ) from None
    return matplotlib


def draw(curves: Sequence[Curves], path: Path) -> None:
    """One column per model: losses above, distances from float64 below; the suffix sets the format."""
    matplotlib = import_matplotlib()
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "framework-compare", "font.size": 9}):
        figure = Figure(figsize=(2.9 * len(curves) + 0.6, 5.6), layout="constrained", facecolor="white")
        axes = figure.subplots(2, len(curves), sharex=True, squeeze=False)
        for one, (above, below) in zip(curves, axes.T):
            _draw_losses(above, one)
            _draw_distances(below, one)
        axes[0][0].set_ylabel("loss")
        axes[1][0].set_ylabel("distance from the float64 loss")
        legends = [axis.get_legend_handles_labels() for row in axes for axis in row]
        handles = {label: line for legend in legends for line, label in zip(*legend)}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), frameon=False)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw_losses(axis: Any, one: Curves) -> None:
    steps = range(1, len(one.exact) + 1)
    axis.set_title(one.model)
    for number, (name, losses) in enumerate(one.losses.items()):
        # larger marks below smaller ones, as the curves lie on each other
        axis.plot(steps, losses, MARKERS[number % 6], markersize=9 - 2 * number, color=COLOURS[number % 6], label=name)
    axis.plot(steps, one.exact, "-", color="black", linewidth=0.8, label="float64")
    axis.grid(alpha=0.3)


def _draw_distances(axis: Any, one: Curves) -> None:
    steps = range(1, len(one.exact) + 1)
    for number, name in enumerate(one.losses):
        distances = [max(distance, SMALLEST) for distance in one.off(name)]
        axis.plot(steps, distances, MARKERS[number % 6] + "-", markersize=3, linewidth=0.7, color=COLOURS[number % 6])
    axis.plot(steps, one.yardstick, "--", color="black", linewidth=1.2, label="yardstick")
    axis.set_yscale("log")
    axis.set_xlabel("step")
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(alpha=0.3)
