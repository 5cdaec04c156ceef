"""What a trainer's methods, values and arrays are, in JSON, for the conformance suite to judge. Worker side."""

from __future__ import annotations

import inspect
import json
from typing import Type

import numpy as np

from framework_compare.protocol import Fields, Trainer

# Of the protocol, what training or the ladder cannot do without.
METHODS = (
    "environment",
    "version",
    "unsupported",
    "settings",
    "build",
    "load_weights",
    "weights",
    "host_array",
    "to_device_batch",
    "read_batch",
    "open_pipeline",
    "epoch",
    "train_step",
    "gradients",
    "read_losses",
    "forward",
    "synchronize",
    "release",
)


def fault(trainer: Type[Trainer], name: str) -> str:
    """Return why a method cannot be called as the protocol has it, or ""."""
    method = getattr(trainer, name, None)
    if not callable(method) or method is getattr(Trainer, name):  # inherited from the protocol: a stub
        return "it is missing"
    wanted, found = inspect.signature(getattr(Trainer, name)), inspect.signature(method)
    keywords = [p.name for p in wanted.parameters.values() if p.kind is p.KEYWORD_ONLY]
    try:
        found.bind(*range(len(wanted.parameters) - len(keywords)), **dict.fromkeys(keywords))
    except TypeError:
        names = [f"({', '.join(signature.parameters)})" for signature in (found, wanted)]
        return f"it takes {names[0]}, the protocol's takes {names[1]}"
    return ""


def value_of(value: object) -> Fields:
    """A value as JSON if it can be, else None; its type, and how it prints."""
    try:
        plain = json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        return {"type": type(value).__name__, "value": None, "repr": repr(value)[:200], "no JSON": str(error)}
    return {"type": type(value).__name__, "value": plain, "repr": repr(value)[:200]}


def array_of(array: object) -> Fields:
    if not isinstance(array, np.ndarray):
        return {"type": type(array).__name__, "shape": [], "dtype": ""}
    return {"type": "ndarray", "shape": list(array.shape), "dtype": str(array.dtype)}
