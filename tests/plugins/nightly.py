"""Mark parameters for the night: each shows much the same as one that every run of the suite has."""

from typing import Any, Collection, Iterable, List

import pytest


def some_nightly(values: Iterable[Any], nightly: Collection[Any]) -> List[Any]:
    """Parameters, those in `nightly` marked so; KeyError where one of these is none of the values."""
    values = list(values)
    unknown = [value for value in nightly if value not in values]
    if unknown:
        raise KeyError(f"{unknown} are not among the parameters")
    return [pytest.param(value, marks=pytest.mark.nightly) if value in nightly else value for value in values]
