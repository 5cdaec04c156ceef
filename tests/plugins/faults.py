"""Models named after the faults of tests/plugins/faulty.py: one linear layer each."""

import functools
from typing import Any

from linear import build


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return functools.partial(build, name=name)
