"""Data sets of arrays read from the public files beside the project, and what is known of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from framework_compare.batches.quality import evaluate
from framework_compare.datasets.arrays import ArrayData

REAL = Path(__file__).parents[3] / "shared" / "data" / "workloads"


def real(name: str) -> Path:
    if not (REAL / name).exists():
        pytest.skip(
            f"the public data {name} are not in ../shared/data/workloads; CONTRIBUTING.md says where they are published"
        )
    return REAL / name


def quality(data: ArrayData, outputs: np.ndarray) -> dict:
    held = data.validation
    return evaluate(data.task, outputs, held.target, extras=held.extras, facts=data.facts)


def baseline(data: ArrayData) -> dict:
    return quality(data, data.baseline.outputs)


def known(data: ArrayData) -> list:
    return [one["known_as"] for one in data.facts["source"]]
