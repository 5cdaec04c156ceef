"""Two studies side by side: which cells meet, and what is claimed of them."""

import numpy as np
import pytest
from bounds import rounding
from stored_study import ok, recorded

from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Run
from framework_compare.report.renderers import terminal
from framework_compare.report.side_by_side import table


def beside(a, b):
    return table(a.beside(b), (a.folder, b.folder), (len(a.frame), len(b.frame)))


def cell(framework, **config):
    return Cell(framework, "alexnet", "small", "cpu", TrainConfig(**config))


def study(folder, times):
    """A study whose cells took these epoch seconds, one run of one epoch each; None stands for a crash."""
    repeats = max(len(seconds) for seconds in times.values() if seconds) if any(times.values()) else 1
    lost = Run("crashed", "killed by SIGSEGV")

    def run_of(planned, repeat):
        seconds = times[planned] and times[planned][repeat - 1]
        return lost if seconds is None else ok(seconds, images=10, steps=1)

    return recorded(folder, list(times), run_of, repeats)


def test_the_ratio_is_of_medians_and_only_a_clear_one_is_claimed(tmp_path):
    steady = [1.0, 1.01, 0.99, 1.0, 1.02, 1.03, 0.98]
    a = study(tmp_path / "a", {cell("torch"): steady, cell("mxnet"): steady, cell("paddle"): [1, 2, 3] * 2 + [1]})
    half = [s / 2 for s in steady]
    b = study(tmp_path / "b", {cell("torch"): half, cell("mxnet"): steady, cell("paddle"): [3, 1, 2.1] * 2 + [1]})
    rows = {row["framework"]: row for row in a.beside(b).to_dict("records")}
    assert rows["torch"]["ratio"] == pytest.approx(0.5, rel=rounding(4)) and rows["torch"]["verdict"] == "faster"
    assert rows["mxnet"]["ratio"] == pytest.approx(1) and rows["mxnet"]["verdict"] == "not_shown"
    assert rows["paddle"]["verdict"] == "not_shown"
    assert rows["torch"]["ratio_ci_low"] < 0.5 < rows["torch"]["ratio_ci_high"] < 1
    assert {row["verdict"] for row in b.beside(a).to_dict("records")} == {"slower", "not_shown"}


def test_only_cells_with_the_same_settings_meet(tmp_path):
    a = study(tmp_path / "a", {cell("torch"): [1.0], cell("torch", batch_size=4): [1.0], cell("mxnet"): [1.0]})
    b = study(tmp_path / "b", {cell("torch"): [2.0], cell("torch", batch_size=8): [1.0]})
    frame = a.beside(b)
    assert list(zip(frame.framework, frame.batch_size)) == [("torch", 16)]
    text = terminal(beside(a, b), width=160)
    assert "2 cells are in A only" in text and "1 cells are in B only" in text
    other = study(tmp_path / "other", {cell("paddle"): [1.0]})
    assert len(a.beside(other)) == 0 and "3 cells are in A only" in terminal(beside(a, other), width=160)


def test_a_cell_that_failed_in_one_is_told_and_has_no_ratio(tmp_path):
    a, b = study(tmp_path / "a", {cell("torch"): [1.0] * 3}), study(tmp_path / "b", {cell("torch"): None})
    row = a.beside(b).iloc[0]
    assert (row.status_a, row.status_b) == ("ok", "crashed") and np.isnan(row.ratio) and row.verdict == ""
    assert "crashed" in terminal(beside(a, b), width=160)


def test_one_run_a_study_gives_a_ratio_and_no_verdict(tmp_path):
    a, b = study(tmp_path / "a", {cell("torch"): [1.0]}), study(tmp_path / "b", {cell("torch"): [2.0]})
    row = a.beside(b).iloc[0]
    assert row.ratio == pytest.approx(2) and np.isnan(row.ratio_ci_low) and row.verdict == ""
    assert "A verdict needs 2 runs in both studies" in terminal(beside(a, b), width=160)


def test_the_first_line_counts_what_changed(tmp_path):
    steady = [1.0, 1.01, 0.99, 1.0]
    a = study(tmp_path / "a", {cell(name): steady for name in ("torch", "mxnet", "paddle", "jax")})
    times = {"torch": [s * 2 for s in steady], "mxnet": [s / 2 for s in steady], "paddle": steady, "jax": None}
    b = study(tmp_path / "b", {cell(name): seconds for name, seconds in times.items()})
    lines = terminal(beside(a, b), width=200).splitlines()
    words = "1 slower in B, 1 faster, 1 without a significant difference, 1 failed in A or B"
    assert lines[0] == f"{words}; geometric mean of B / A 1.000."


def test_a_data_set_that_all_cells_have_stands_above_the_table_which_fits_a_terminal(tmp_path):
    a = study(tmp_path / "a", {cell("torch"): [1.0] * 3, cell("mxnet"): [1.0] * 3})
    b = study(tmp_path / "b", {cell("torch"): [2.0, 2.1, 2.2], cell("mxnet"): [2.0, 2.1, 2.2]})
    shown = beside(a, b)
    assert shown.headings == ("framework", "model") and "small" in shown.caption
    text = terminal(shown, width=80)
    assert text.count("B is") == 1 and max(map(len, text.splitlines())) <= 80
    assert sum(line.startswith(("PyTorch", "MXNet")) for line in text.splitlines()) == 2, "one row per cell"


def test_changed_leaves_out_cells_without_a_difference(tmp_path):
    steady = [1.0, 1.01, 0.99]
    a = study(tmp_path / "a", {cell("torch"): steady, cell("mxnet"): steady, cell("jax"): steady, cell("paddle"): None})
    times = {cell("torch"): [2 * s for s in steady], cell("mxnet"): steady, cell("jax"): None, cell("paddle"): None}
    b = study(tmp_path / "b", times)
    sides = a.beside(b), (a.folder, b.folder), (4, 4)
    assert [row.names[0] for row in table(*sides, changed=True).rows] == ["PyTorch", "JAX"]
    assert len(table(*sides).rows) == 4
