"""Keras 3 on three back ends: the graph as a functional model of its own layers, trained as its guides recommend.

`default` is the custom loop that Keras' guide has for each back end; `fit` is a compiled model's `train_on_batch`. Threads,
batches, input pipelines and profiles are those of the plain framework's adapter, which is staged with this one.
"""

import importlib
from typing import Any

PLACES = {"KerasJaxTrainer": "on_jax", "KerasTensorFlowTrainer": "on_tensorflow", "KerasTorchTrainer": "on_torch"}


def __getattr__(name: str) -> Any:
    """A trainer, whose module is imported when it is asked for: a worker has the adapter of its own back end alone."""
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{PLACES[name]}"), name)
