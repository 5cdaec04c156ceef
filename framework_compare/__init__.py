"""Compare deep-learning frameworks: the same models, the same images, every cost measured."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

# Resolved on demand (PEP 562): the worker imports this package too, and must never load the parent side.
_PUBLIC = {
    "compare": "framework_compare.api",
    "duel": "framework_compare.duels",
    "Comparison": "framework_compare.comparison",
    "ladder": "framework_compare.api",
    "measure_peaks": "framework_compare.peaks",
    "reproduce": "framework_compare.reproduction",
    "resume": "framework_compare.api",
    "TrainConfig": "framework_compare.protocol",
    "largest_batch": "framework_compare.stability_sweep",
    "Slurm": "framework_compare.study.executors",
    "sweep": "framework_compare.pytest_plugin",
}
__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_PUBLIC[name]), name)
