"""Tests that need an NVIDIA GPU: `pytest tests/gpu --fc-python torch=/path/to/python --fc-python jax=/path/to/python`.

Frameworks are those that --fc-python names, so that nothing is downloaded on a machine that has them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict

import pytest

from framework_compare.samplers.nvml import describe_gpus

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list) -> None:
    found = describe_gpus()
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("gpu")
            if not found or not found["devices"]:
                item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU answers here; run tests/gpu on a machine with one"))


@pytest.fixture(scope="session")
def pythons(pytestconfig: pytest.Config) -> Dict[str, str]:
    given = pytestconfig.getoption("--fc-python") or []
    return dict(pair.split("=", 1) for pair in given)


@pytest.fixture
def python_of(pythons: Dict[str, str]):
    """The interpreter of a framework as `python=` wants it; skips where none was named."""

    def find(framework: str) -> Dict[str, str]:
        if framework not in pythons:
            pytest.skip(f"name an interpreter that has {framework}: --fc-python {framework}=PATH")
        return {framework: pythons[framework]}

    return find
