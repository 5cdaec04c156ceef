"""What epochs cost: time and energy at the user's prices, with the interval of the time."""

from __future__ import annotations

import pytest
from command_line import run
from drawn_study import study

from framework_compare.errors import UsageError
from framework_compare.protocol import TrainConfig
from framework_compare.results.bills import COLUMNS, Prices, read_per_hour


def test_time_is_priced_with_the_interval_of_the_epoch(comparison):
    billed = comparison.cost(per_hour=3.6, epochs=10).frame
    frame = comparison.frame
    ok = frame["status"] == "ok"
    assert billed["bill_s"][ok].tolist() == pytest.approx((10 * frame["epoch_s_median"][ok]).tolist())
    assert billed["bill_time"][ok].tolist() == pytest.approx((0.01 * frame["epoch_s_median"][ok]).tolist())
    assert billed["bill_time_low"][ok].tolist() == pytest.approx((0.01 * frame["epoch_s_ci_low"][ok]).tolist())
    assert billed.loc[~ok, list(COLUMNS)].isna().all().all(), "a cell that failed has no bill"


def test_energy_is_priced_by_the_images_of_an_epoch(comparison):
    billed = comparison.cost(per_kwh=0.5, co2_g_per_kwh=400).frame
    cell, bill = comparison.frame.iloc[0], billed.iloc[0]
    joules = cell["host_j_per_image"] * cell["images_per_s"] * cell["epoch_s_median"]
    assert bill["bill_wh"] == pytest.approx(joules / 3600)
    assert bill["bill_energy"] == pytest.approx(joules / 3.6e6 * 0.5)
    assert bill["bill_co2_g"] == pytest.approx(joules / 3.6e6 * 400)
    assert bill["bill_time"] != bill["bill_time"], "no price, no figure"


def test_machines_have_prices_of_their_own(tmp_path):
    both = tuple(TrainConfig(device=device) for device in ("cpu", "cuda"))
    made = study(tmp_path / "study", ("torch",), ("alexnet",), configs=both, failing=())
    billed = made.cost(per_hour={"cpu": 1, "cuda": 10}).frame.set_index("device")
    assert billed.loc["cuda", "bill_time"] / billed.loc["cuda", "bill_s"] == pytest.approx(10 / 3600)
    assert billed.loc["cpu", "bill_time"] / billed.loc["cpu", "bill_s"] == pytest.approx(1 / 3600)
    assert billed.loc["cuda", "bill_wh"] != billed.loc["cuda", "bill_wh"], "the host alone is no bill of a GPU"
    alone = made.cost(per_hour={"cuda": 10}).frame.set_index("device")
    assert alone.loc["cpu", "bill_time"] != alone.loc["cpu", "bill_time"]


def test_the_table_says_its_prices_and_what_it_leaves_out(comparison):
    text = comparison.cost(2.5, 0.25, 300, epochs=90).to_markdown()
    assert "Cost of 90 epochs, in the currency of your prices (2.5 per hour, 0.25 per kWh, 300 g CO2 per kWh)" in text
    assert "start-up, validation and idle time" in text and "crashed" in text
    assert "±" in text and text.count("g CO2") == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "no price is given; give per_hour, per_kwh or co2_g_per_kwh"),
        ({"per_hour": -1}, "the price per_hour is -1; allowed: a number of at least 0"),
        ({"per_kwh": float("nan")}, "the price per_kwh is nan"),
        ({"per_hour": {"cuda": "dear"}}, "the price cuda is 'dear'"),
        ({"per_hour": 1, "epochs": 0}, "epochs is 0; allowed: a whole number of at least 1"),
    ],
)
def test_what_is_no_price_is_refused(comparison, given, words):
    with pytest.raises(UsageError, match=words.replace("(", r"\(")):
        comparison.cost(**given)


def test_prices_are_read_from_the_command_line(comparison):
    assert read_per_hour("3.5") == 3.5 and read_per_hour("cpu=0.2, cuda=3") == {"cpu": 0.2, "cuda": 3}
    with pytest.raises(UsageError, match="--per-hour is 'x'; allowed: a number"):
        read_per_hour("x")
    with pytest.raises(UsageError, match="no price"):
        Prices()
    text = run("cost", comparison.folder, "--per-hour", "3.5", "--co2-g-per-kwh", "300").stdout
    assert "PyTorch" in text and "g CO2" in text
