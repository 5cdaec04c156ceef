"""Energy, power and notes of GPUs as tables, from studies with known figures."""

import dataclasses

import pytest
from command_line import run
from drawn_study import study as priced_study
from gpu_study import OOM, ok, study
from stored_study import SECOND, recorded
from table_study import csv_rows, rows

from framework_compare.errors import UsageError
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Sample
from framework_compare.results import energy
from framework_compare.results.bills import COLUMNS, Prices, read_per_hour
from framework_compare.results.measured import Measured


def test_energy_is_by_image_with_its_source(tmp_path):
    outcomes = [
        ("torch", {"device": "cuda"}, ok(1, 1, joules=1000.0, power_w=500.0, host=400.0)),
        ("torch", {"device": "cuda", "precision": "bf16"}, OOM),
    ]
    text = study(tmp_path, outcomes).table("energy", "markdown")
    assert "| precision | images/s | J/epoch | GPU / J/image | GPU / mean W | host / J/image |" in text
    assert rows(text) == [
        ["PyTorch", "AlexNet", "fp32", "100", "700", "5.00", "500", "2.00"],
        ["PyTorch", "AlexNet", "bf16", "out-of-memory (1)", "-", "-", "-", "-"],
    ]
    assert "GPU energy: of the whole device, including other users; source" in text and "processor packages" in text


@pytest.mark.parametrize(
    ("run", "source", "shown", "said"),
    [
        (ok(1, 1, joules=1000.0, power_w=300.0), "counter", "500", "GPU power by counter,"),
        (ok(1, 1, power_w=300.0), "samples", "300", "GPU power by samples,"),
        (ok(6, 6, joules=1000.0, power_w=300.0, source="power integral"), "samples", "300", "GPU power by samples,"),
        (ok(0.5, joules=1000.0, power_w=300.0), None, None, None),
    ],
    ids=["counter", "no-counter", "integral", "short"],
)
def test_mean_power_has_its_source(tmp_path, run, source, shown, said):
    comparison = study(tmp_path, [("torch", {"device": "cuda"}, run)])
    text = comparison.table("energy", "markdown")
    assert comparison.frame["gpu_power_source"][0] == source
    assert (f" {shown} |" in text) if shown else ("mean W" not in text)
    assert (said in text) if said else ("GPU power" not in text)
    assert "gpu_power_source" in comparison.table("energy", "csv")


def test_power_and_steps_of_gpus_say_how_they_are_measured(tmp_path):
    cells = [("torch", {"device": "cuda"}, ok(1, 1, joules=1000.0)), ("jax", {"device": "cuda"}, ok(2, power_w=300.0))]
    text = study(tmp_path, cells).table("resources", "markdown")
    assert "GPU power by counter," in text and "GPU power by samples (JAX AlexNet)," in text
    outcomes = [("torch", {}, ok(1)), ("torch", {"device": "cuda"}, ok(2, power_w=300.0))]
    text = study(tmp_path / "steps", outcomes).table("resources", "markdown")
    cpu, gpu = text.split("Resources during")[1:]
    assert "queueing times" in gpu and "queueing times" not in cpu
    assert "GPU / W" in gpu and "GPU / max" not in gpu


HOW = {
    "gpu": {"utilization_window": "1/6 s to 1 s, depending on the product", "utilization_period_s": 0.2},
    "host_energy": {"source": None, "reason": "energy_uj is readable by root only"},
}


@pytest.mark.parametrize("kind", ["energy", "resources"])
def test_the_time_over_which_a_gpu_is_read_stands_below_its_percent(tmp_path, kind):
    run = ok(2)
    shown = dataclasses.replace(run, gauges=HOW, samples=(Sample(2 * SECOND, gpu_percent=40.0),))
    cells = [("torch", {"device": "cuda"}, shown), ("jax", {"device": "cuda"}, run)]
    text = study(tmp_path / "shown", cells).table(kind, "markdown")
    assert "GPU / mean %" in text and " 40.0 |" in text
    assert "GPU % over a period of 1/6 s to 1 s, depending on the product; on this machine it updates the value" in text
    assert "averages GPU %" not in study(tmp_path / "not", cells[1:]).table(kind, "markdown")


def test_energy_per_epoch_has_an_interval_and_its_idle_power(tmp_path):
    runs = [dataclasses.replace(ok(4, joules=j), gauges={"gpu": {"energy_source": "counter"}, "idle_w": {"gpu": 60.0}})
            for j in (1000.0, 1100.0)]  # fmt: skip
    cells = [Cell("torch", "alexnet", "small", "cuda", TrainConfig(device="cuda"))]
    text = recorded(tmp_path / "s", cells, runs, repeats=2).table("energy", "markdown")
    assert "J/epoch" in text and "GPU / above idle" in text and "GPU / idle W" in text
    assert "| 1049 [" in text or "| 1049 ±" in text
    assert " 8.10 " in text and " 60.0 " in text
    assert "source: counter." in text and "No verdict uses energy." in text


def test_energy_that_is_not_known_says_why(tmp_path):
    run = ok(1, 1, joules=1000.0)
    cells = [(name, {"device": "cuda"}, dataclasses.replace(run, gauges=HOW)) for name in ("torch", "jax")]
    text = study(tmp_path, cells).table("energy", "markdown")
    assert text.count("Host energy not measured: energy_uj is readable by root only.") == 1 and "Energy not" not in text
    run = dataclasses.replace(ok(1, 1, host=5.0), gauges={"host_energy": {"source": "counter", "reason": None}})
    assert "Host energy not measured" not in study(tmp_path / "read", [("torch", {}, run)]).table("energy", "markdown")
    gauges = {"gpu": {"reason": "no readings of GPU 0: NVML Shared Library Not Found"}}
    run = dataclasses.replace(ok(1, 1), gauges=gauges)
    text = study(tmp_path / "gpu", [("torch", {"device": "cuda"}, run)]).table("energy", "markdown")
    assert "GPU energy not measured: no readings of GPU 0: NVML Shared Library Not Found." in text
    text = study(tmp_path / "none", [("torch", {}, ok(1, 1))]).table("energy", "markdown")
    assert rows(text) == [] and text.startswith("Energy not measured: this machine exposes no counter")


def test_csv_of_ratios_has_every_cell_and_what_it_is_held_against(tmp_path):
    cells = [("torch", {}, ok(4, 4, 4)), ("torch", {"device": "cuda"}, ok(1, 1, 1)), ("jax", {"device": "cuda"}, OOM)]
    text = study(tmp_path, cells, repeats=2).table("speedup", "csv")
    read = csv_rows(text)
    assert [(row["status"], row["ratio"] and round(float(row["ratio"]), 9), row["against"]) for row in read] == [
        ("ok", "", ""),
        ("ok", 4.0, "cpu, fp32, default, 1 threads"),
        ("out-of-memory", "", ""),
    ]
    assert float(read[1]["ratio_ci_low"]) == pytest.approx(4)


def test_time_and_energy_are_priced_by_the_epoch(comparison):
    billed = comparison.cost(per_hour=3.6, epochs=10).frame
    frame = comparison.frame
    ok = frame["status"] == "ok"
    assert billed["bill_s"][ok].tolist() == pytest.approx((10 * frame["epoch_s_median"][ok]).tolist())
    assert billed["bill_time"][ok].tolist() == pytest.approx((0.01 * frame["epoch_s_median"][ok]).tolist())
    assert billed["bill_time_low"][ok].tolist() == pytest.approx((0.01 * frame["epoch_s_ci_low"][ok]).tolist())
    assert billed.loc[~ok, list(COLUMNS)].isna().all().all(), "a cell that failed has no bill"
    billed = comparison.cost(per_kwh=0.5, co2_g_per_kwh=400).frame
    cell, bill = comparison.frame.iloc[0], billed.iloc[0]
    joules = cell["host_j_per_image"] * cell["images_per_s"] * cell["epoch_s_median"]
    assert bill["bill_wh"] == pytest.approx(joules / 3600)
    assert bill["bill_energy"] == pytest.approx(joules / 3.6e6 * 0.5)
    assert bill["bill_co2_g"] == pytest.approx(joules / 3.6e6 * 400)
    assert bill["bill_time"] != bill["bill_time"], "no price, no figure"


def test_machines_have_prices_of_their_own(tmp_path):
    both = tuple(TrainConfig(device=device) for device in ("cpu", "cuda"))
    made = priced_study(tmp_path / "study", ("torch",), ("alexnet",), configs=both, failing=())
    billed = made.cost(per_hour={"cpu": 1, "cuda": 10}).frame.set_index("device")
    assert billed.loc["cuda", "bill_time"] / billed.loc["cuda", "bill_s"] == pytest.approx(10 / 3600)
    assert billed.loc["cpu", "bill_time"] / billed.loc["cpu", "bill_s"] == pytest.approx(1 / 3600)
    assert billed.loc["cuda", "bill_wh"] != billed.loc["cuda", "bill_wh"], "the host alone is no bill of a GPU"
    alone = made.cost(per_hour={"cuda": 10}).frame.set_index("device")
    assert alone.loc["cpu", "bill_time"] != alone.loc["cpu", "bill_time"]


def test_the_table_says_its_prices_and_what_is_no_price_is_refused(comparison):
    text = comparison.cost(2.5, 0.25, 300, epochs=90).to_markdown()
    assert "Cost of 90 epochs, in the currency of your prices (2.5 per hour, 0.25 per kWh, 300 g CO2 per kWh)" in text
    assert "start-up, validation and idle time" in text and "crashed" in text
    assert "±" in text and text.count("g CO2") == 2
    assert read_per_hour("3.5") == 3.5 and read_per_hour("cpu=0.2, cuda=3") == {"cpu": 0.2, "cuda": 3}
    with pytest.raises(UsageError, match="--per-hour is 'x'; allowed: a number"):
        read_per_hour("x")
    with pytest.raises(UsageError, match="no price"):
        Prices()
    text = run("cost", comparison.folder, "--per-hour", "3.5", "--co2-g-per-kwh", "300").stdout
    assert "PyTorch" in text and "g CO2" in text
    for given, words in (
        ({}, "no price is given; give per_hour, per_kwh or co2_g_per_kwh"),
        ({"per_hour": -1}, "the price per_hour is -1; allowed: a number of at least 0"),
        ({"per_kwh": float("nan")}, "the price per_kwh is nan"),
        ({"per_hour": {"cuda": "dear"}}, "the price cuda is 'dear'"),
        ({"per_hour": 1, "epochs": 0}, "epochs is 0; allowed: a whole number of at least 1"),
    ):
        with pytest.raises(UsageError, match=words.replace("(", r"\(")):
            comparison.cost(**given)


def _measured(epochs, turns, readings):
    """A run of these spans, in seconds, with joules of a GPU's counter at these seconds."""
    spans = [{"start_ns": [a * SECOND for a, _ in x], "end_ns": [b * SECOND for _, b in x]} for x in (epochs, turns)]
    counter = {
        "t_ns": [at * SECOND for at, _ in readings],
        "energy_j": [float(joules) for _, joules in readings],
        "device": ["gpu"] * len(readings),
        "source": ["counter"] * len(readings),
    }
    return Measured({}, {}, {**spans[0], "images": [10] * len(epochs)}, {}, counter, spans[1])


# 100 W in epochs, 500 W while validation compiles from second 4 to 8 and again from 12 to 16.
READINGS = [(0, 0), (4, 400), (8, 2400), (12, 2800), (16, 4800)]


@pytest.mark.parametrize("turns, seconds", [([], 8), ([(0, 3), (3, 8), (8, 16)], 8), ([(1, 3), (8, 10), (11, 16)], 5)])
def test_energy_is_that_of_training_not_of_validation_nor_of_rivals(turns, seconds):
    run = _measured([(0, 4), (8, 12)], turns, READINGS)
    assert energy.length_s(run) == seconds
    assert energy.joules(run, "gpu") == pytest.approx(100 * seconds)
    assert energy.joules_per_image([run], "gpu") == pytest.approx(100 * seconds / 20)


def test_epochs_shorter_than_the_steps_of_a_counter_have_energy_together():
    epochs = [(second / 10, (second + 1) / 10) for second in range(40)]
    spans = {"start_ns": [int(a * SECOND) for a, _ in epochs], "end_ns": [int(b * SECOND) for _, b in epochs]}
    run = _measured([(0, 4)], [], [(0, 0), (1, 0), (2, 200), (4, 400)])
    short = dataclasses.replace(run, epochs={**spans, "images": [1] * 40})
    assert energy.joules(short, "gpu") == pytest.approx(400)
