"""The memory that a large study takes to open and tabulate, in a process of its own, stays within what is promised."""

import pytest
from nightly import some_nightly

PROMISED_MIB = 300e6 / 2**20  # docs/promises.md


@pytest.mark.parametrize("models", some_nightly([1, 5], nightly=[5]))
@pytest.mark.parametrize("cells", some_nightly([2_000, 10_000], nightly=[10_000]))
def test_a_study_of_thousands_of_cells_is_tabulated_in_the_memory_promised(cells, models, tmp_path, benchmark):
    """The memory of pairs grew with the square of the cells of one model; 2,000 took 364 MB."""
    costs = benchmark("store_cost")
    few = {"models": costs.MODELS[:models], "samples": 2, "epochs": 2, "styles": ["terminal"]}
    read = costs.reading(tmp_path / "study", cells, **few)
    assert read["terminal"]["peak_mib"] < PROMISED_MIB


@pytest.mark.nightly
def test_a_sweep_of_a_thousand_cells_in_a_hundred_parts_is_light(tmp_path, benchmark):
    """Its time is in benchmarks/results/part_cost.json; here its memory and what is stored."""
    found = benchmark("store_cost").sweep(tmp_path / "study")
    assert [found[name] for name in ("cell", "part", "run", "epoch")] == [1000, 100, 2000, 6000]
    assert all(found[step]["peak_mib"] < 300 for step in ("plan", "absorb", "markdown"))
