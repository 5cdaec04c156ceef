"""What readings cost: the rates in turns, ratios with intervals, and what the comparing process takes itself."""

from __future__ import annotations

import sys

import pytest

from framework_compare import Comparison, compare
from framework_compare.cli import root
from framework_compare.errors import StudyError, UsageError
from framework_compare.overhead import overhead
from framework_compare.samplers.disturbance import DisturbanceLog, Shares
from framework_compare.store.study_file import Store

SETTINGS = {"batch_size": 1, "epochs": 2, "threads": 1, "loader_workers": 0, "image_size": 32, "pipeline": "memory"}


@pytest.mark.alone
def test_each_rate_runs_once_a_block_and_is_compared_with_none(paced, pictures, own_cache, tmp_path):
    name, lines = paced("even", pace_s=0.01), []
    asked = {"dataset": pictures, "folder": tmp_path / "o", "say": lines.append, **SETTINGS}
    none, some = overhead(name, "linear", rates_hz=(0, 20), repeats=3, **asked)
    assert len(lines) == 6 and sorted(path.name for path in (tmp_path / "o").iterdir()) == [
        f"{block}-{rate}" for block in (1, 2, 3) for rate in (0, 20)
    ]
    for rate in (0, 20):
        with Store.open(tmp_path / "o" / f"2-{rate}") as store:
            assert store.settings()["sampling_hz"] == rate
            assert (store.select("SELECT count(*) FROM sample")[1][0][0] > 0) == (rate > 0)
    assert (none.ratio.value, none.ratio.p, some.ratio.runs) == (1.0, 1.0, 3)
    assert some.ratio.low < some.ratio.value < some.ratio.high and 0.5 < some.ratio.value < 2
    assert 0 < some.parent_cpu_percent < 200 and some.parent_peak_rss_bytes > 1e7


def test_no_rate_leaves_out_epochs_that_another_keeps(tiny, pictures, own_cache, tmp_path, monkeypatch):
    """What others take is known at some rates only."""
    monkeypatch.setattr(DisturbanceLog, "shares", lambda *_: Shares(disturbed=2.0, stolen=0.0, parent=0.0))
    overhead(tiny, "linear", rates_hz=(0, 20), repeats=1, dataset=pictures, folder=tmp_path / "o", **SETTINGS)
    epochs = Comparison.load(tmp_path / "o" / "1-20").epochs
    assert epochs.disturbed_share.eq(2).all() and epochs.disturbed.eq(0).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rates_hz": (1, 10)}, "allowed: 0 and others"),
        ({"rates_hz": (0,)}, "allowed: 0 and others"),
        ({"rates_hz": (0, 0, 1)}, "each once"),
        ({"batch_size": [1, 2]}, "as one cell is measured"),
        ({"repeats": 0}, "repeats is 0"),
    ],
)
def test_a_request_that_compares_nothing_is_refused(tiny, pictures, wrong, message):
    with pytest.raises(UsageError, match=message):
        overhead(tiny, "linear", dataset=pictures, **{**SETTINGS, **wrong})


def test_a_run_that_does_not_end_well_ends_it(faulty, pictures, own_cache):
    with pytest.raises(StudyError, match="ended as failed"):
        overhead(faulty, "raise", dataset=pictures, rates_hz=(0, 1), repeats=1, **SETTINGS)


def test_the_command_prints_a_table(tiny, pictures, own_cache, monkeypatch, capsys):
    options = {"frameworks": tiny, "models": "linear", "rates": "0,5", "repeats": 2, "dataset": pictures, "epochs": 1}
    words = [f"--{name}={value}" for name, value in options.items()]
    monkeypatch.setattr(sys, "argv", ["framework-compare", "overhead", "--style=markdown", "--threads=1", *words])
    with pytest.raises(SystemExit) as ended:
        root.main()
    text = capsys.readouterr().out
    assert not ended.value.code and "tiny linear, 2 runs at each rate" in text
    assert [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")] == [
        "| readings/s",
        "| :---",
        "| 0",
        "| 5",
    ]


def test_every_study_has_what_the_comparing_process_took(tiny, pictures, own_cache, tmp_path):
    row = compare(tiny, "linear", dataset=pictures, out=tmp_path / "s", **SETTINGS).frame.iloc[0]
    assert 0 < row.parent_cpu_percent < 400 and 1e7 < row.parent_peak_rss_bytes < 1e10
