"""The memory that a large study takes to open and tabulate, in a process of its own, stays within what is promised."""

import runpy
from pathlib import Path

import pytest

from framework_compare.store.study_file import Store

COSTS = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "store_cost.py"))
PROMISED_MIB = 300e6 / 2**20  # docs/promises.md


@pytest.mark.parametrize("models", [1, 5])
@pytest.mark.parametrize("cells", [2_000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_a_study_of_thousands_of_cells_is_tabulated_in_the_memory_promised(cells, models, tmp_path, monkeypatch):
    """The memory of pairs grew with the square of the cells of one model; 2,000 took 364 MB."""
    monkeypatch.setitem(COSTS["fill"].__globals__, "MODELS", COSTS["MODELS"][:models])
    COSTS["fill"](tmp_path / "study", cells, samples=2, epochs=2)
    with Store.open(tmp_path / "study") as store:
        assert len(store.cells()) == cells
    read = COSTS["measure_reading"](tmp_path / "study", "terminal", 1)
    assert read["cells"] == cells and read["peak_mib"] < PROMISED_MIB


@pytest.mark.nightly
def test_a_sweep_of_a_thousand_cells_in_a_hundred_parts_is_light(benchmark):
    """Its time is in benchmarks/results/part_cost.json; here its memory and what is stored."""
    found = benchmark("part_cost").measure(samples=100)
    assert found["stored"] == {"cells": 1000, "parts": 100, "runs": 2000, "epochs": 6000}
    assert found["peak_mib"] < 300
