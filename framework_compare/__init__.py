"""Compare deep-learning frameworks: the same models, the same images, every cost measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from framework_compare.api import compare, dry_run, ladder, resume
    from framework_compare.archive.validate import load_submission
    from framework_compare.bisection import bisect
    from framework_compare.comparison import Comparison
    from framework_compare.duels import duel
    from framework_compare.forecast import Forecast
    from framework_compare.peaks import measure_peaks
    from framework_compare.protocol import TrainConfig
    from framework_compare.pytest_plugin import sweep
    from framework_compare.reproduction import reproduce
    from framework_compare.stability_sweep import Stability, largest_batch
    from framework_compare.study.executors import Slurm
    from framework_compare.study.request import Request

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
__all__ = [
    "Comparison",
    "Forecast",
    "Request",
    "Slurm",
    "Stability",
    "TrainConfig",
    "__version__",
    "bisect",
    "compare",
    "dry_run",
    "duel",
    "ladder",
    "largest_batch",
    "load_submission",
    "measure_peaks",
    "reproduce",
    "resume",
    "sweep",
]


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_PUBLIC[name]), name)
