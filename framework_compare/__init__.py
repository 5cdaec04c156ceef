"""Compare deep-learning frameworks: the same models, the same images, every cost measured."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from framework_compare.api import compare as compare
    from framework_compare.api import dry_run as dry_run
    from framework_compare.api import ladder as ladder
    from framework_compare.api import resume as resume
    from framework_compare.archive.validate import load_submission as load_submission
    from framework_compare.bisection import bisect as bisect
    from framework_compare.comparison import Comparison as Comparison
    from framework_compare.duels import duel as duel
    from framework_compare.forecast import Forecast as Forecast
    from framework_compare.peaks import measure_peaks as measure_peaks
    from framework_compare.protocol import TrainConfig as TrainConfig
    from framework_compare.pytest_plugin import sweep as sweep
    from framework_compare.reproduction import reproduce as reproduce
    from framework_compare.stability_sweep import Stability as Stability
    from framework_compare.stability_sweep import largest_batch as largest_batch
    from framework_compare.study.executors import Slurm as Slurm
    from framework_compare.study.request import Request as Request

__version__ = "0.1.0"

# Resolved on demand (PEP 562): the worker imports this package too, and must never load the parent side.
_PUBLIC = {
    "bisect": "framework_compare.bisection",
    "compare": "framework_compare.api",
    "dry_run": "framework_compare.api",
    "duel": "framework_compare.duels",
    "Comparison": "framework_compare.comparison",
    "Forecast": "framework_compare.forecast",
    "ladder": "framework_compare.api",
    "load_submission": "framework_compare.archive.validate",
    "measure_peaks": "framework_compare.peaks",
    "reproduce": "framework_compare.reproduction",
    "Request": "framework_compare.study.request",
    "resume": "framework_compare.api",
    "TrainConfig": "framework_compare.protocol",
    "largest_batch": "framework_compare.stability_sweep",
    "Slurm": "framework_compare.study.executors",
    "Stability": "framework_compare.stability_sweep",
    "sweep": "framework_compare.pytest_plugin",
}
# `import *` asks for each of these; `sweep` needs pytest, which a user may not have.
__all__ = ["__version__", *(name for name in _PUBLIC if name != "sweep" or find_spec("pytest"))]


if not TYPE_CHECKING:  # a type checker would take any name for one of the package

    def __getattr__(name: str) -> object:
        if name not in _PUBLIC:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    """Return what there is, with what is not imported yet, so that shells complete it."""
    return sorted({*globals(), *__all__})
