"""Frames read back from real studies with known figures."""

import dataclasses
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from stored_study import epochs, recorded

from framework_compare.comparison import Comparison
from framework_compare.protocol import TrainConfig
from framework_compare.records import STATUSES, Cell, Energy, Phase, Run, Sample
from framework_compare.results import columns
from framework_compare.results.frames import CELL_COLUMNS, WORST_FIRST
from framework_compare.results.metrics import METRICS
from framework_compare.store.study_file import Store

SECOND = 1_000_000_000
ORIGIN = 50 * SECOND
SETTINGS = {"datasets": {"small": {"images": 791, "skipped": 2, "classes": ["fire", "smoke", "none"]}}}
FRAMES = ("frame", "epochs", "samples", "phases")


def cell(framework="torch", model="alexnet", **config):
    return Cell(framework, model, "small", "cpu", TrainConfig(**config))


def ok(*seconds, **fields):
    phases = [Phase("import", ORIGIN, ORIGIN + 2 * SECOND), Phase("build", ORIGIN + 3 * SECOND, ORIGIN + 4 * SECOND, 5)]
    found = epochs(*seconds, start_ns=ORIGIN + 4 * SECOND, wait=0.25)
    phases.append(Phase("epochs", found[0].start_ns, found[-1].end_ns))
    times = (-1.0, 1.0, 2.5, 4.5, 5.0)
    samples = tuple(Sample(ORIGIN + int(t * SECOND), cpu_percent=100.0, rss_bytes=2**30, threads=11) for t in times)
    run = Run("ok", phases=tuple(phases), epochs=found, samples=samples, framework_version="2.1")
    return dataclasses.replace(run, log_path="logs/1.log", parameters=57_016_131, **fields)


def study(folder, outcomes, cells=None, repeats=1, settings=SETTINGS):
    cells = cells if cells is not None else [cell(str(number)) for number in range(len(outcomes) // repeats)]
    return recorded(folder, cells, outcomes, repeats, settings=settings, machine={"cores": 2})


def test_a_cell_is_a_row_with_its_settings_and_figures(tmp_path):
    row = study(tmp_path, [ok(1, 2, 6)], [cell(batch_size=32, execution="graph", threads=2)]).frame.iloc[0]
    known = {
        **{"framework": "torch", "framework_version": "2.1", "model": "alexnet", "dataset": "small", "device": "cpu"},
        **{"batch_size": 32, "execution": "graph", "threads": 2, "status": "ok", "reason": "", "runs": 1},
        **{"epoch_s": 3.0, "epoch_s_median": 2.0, "data_wait_share": 0.25, "peak_rss_bytes": 2**30, "threads_max": 11},
        **{"parameters": 57_016_131, "import_s": 2.0, "images": 791, "skipped_images": 2, "log_path": "logs/1.log"},
        **{"learning_rate": 0.001, "loss_function": "cross_entropy"},
    }
    assert {name: row[name] for name in known} == known
    assert np.isnan(row["epoch_s_ci_low"]) and np.isnan(row["epoch_s_ci_high"]), "one run says nothing of the next"


def test_the_columns_are_the_same_whatever_was_measured_and_csv_reads_back(tmp_path):
    for number, outcomes in enumerate([[], [Run("not-installed")], [ok(1)]]):
        frame = study(tmp_path / str(number), outcomes).frame
        assert tuple(frame.columns) == CELL_COLUMNS
        assert frame["epoch_s"].dtype == frame["gpu_percent_mean"].dtype == frame["images"].dtype == float
    comparison = study(tmp_path / "csv-study", [ok(1, 2, 6), Run("crashed", reason='a "quoted", reason\nof two lines')])
    comparison.to_csv(tmp_path / "csv-frame.csv")
    back = pd.read_csv(tmp_path / "csv-frame.csv", dtype={"framework": str})
    assert list(back.columns) == list(comparison.frame.columns)
    assert list(back["epoch_s"].fillna(-1)) == [3.0, -1]
    assert back["reason"][1] == 'a "quoted", reason of two lines'
    assert back["parameters"][0] == 57_016_131
    assert study(tmp_path / "none", [ok(1)], settings={}).frame["images"].isna().all()


def test_a_cell_of_any_outcome_is_a_row(tmp_path):
    ended = [status for status in STATUSES if status not in ("planned", "running")]
    frame = study(tmp_path, [*(Run(status, reason="why") for status in ended), ok(1)]).frame
    assert list(frame["status"]) == [*ended, "ok"] and list(frame["reason"]) == ["why"] * len(ended) + [""]
    assert sorted(WORST_FIRST) == sorted(STATUSES)


def test_repeats_are_taken_together_and_a_bad_one_is_the_status_of_its_cell(tmp_path):
    row = study(tmp_path, [ok(1, 2), ok(3, 6)], [cell()], repeats=2).frame.iloc[0]
    assert (row["epoch_s"], row["runs"], row["runs_ok"], row["epochs_measured"]) == (3.0, 2, 2, 4)
    crashed = Run("crashed", reason="broke", log_path="logs/2.log")
    row = study(tmp_path / "bad", [ok(1, 2), crashed, ok(3, 6)], [cell()], repeats=3).frame.iloc[0]
    assert (row["status"], row["reason"], row["log_path"]) == ("crashed", "run 2 of 3: broke", "logs/2.log")
    assert (row["epoch_s"], row["runs_ok"]) == (3.0, 2)
    frame = study(tmp_path / "crash", [Run("crashed", signal="SIGSEGV", died_in="first-step")]).frame
    assert frame["reason"][0] == "SIGSEGV in first-step"


def test_epochs_and_energy_are_frames_of_their_own(tmp_path):
    frame = study(tmp_path, [ok(1, 2), Run("failed"), ok(3)]).epochs
    assert list(frame["framework"]) == ["0", "0", "2"]
    assert list(frame["epoch"]) == [1, 2, 1]
    assert list(frame["epoch_s"]) == [1.0, 2.0, 3.0]
    assert list(frame["start_s"]) == [4.0, 5.0, 4.0]
    assert {"model", "device", "batch_size", "repeat", "data_wait_s", "images", "steps", "loss"} <= set(frame)
    readings = (Energy("gpu", ORIGIN + SECOND, 5.0, "counter"), Energy("gpu", ORIGIN + 3 * SECOND, 605.0, "counter"))
    energy = study(tmp_path / "energy", [ok(1, energy=readings)]).energy
    assert list(energy["meter"]) == ["gpu", "gpu"] and list(energy["t_s"]) == [1.0, 3.0]
    assert list(energy["energy_j"]) == [5.0, 605.0] and energy["device"][0] == "cpu"


def test_samples_and_phases_have_the_time_since_the_first_phase(tmp_path):
    samples = study(tmp_path, [ok(1)]).samples
    assert list(samples["t_s"]) == [-1.0, 1.0, 2.5, 4.5, 5.0]
    assert [*samples["phase"].fillna("")] == ["", "import", "", "epochs", "epochs"]
    assert samples["gpu_percent"].isna().all()
    samples = study(tmp_path / "none", [Run("crashed", samples=(Sample(7 * SECOND), Sample(9 * SECOND)))]).samples
    assert list(samples["t_s"]) == [0.0, 2.0]
    phases = study(tmp_path / "phases", [ok(1)]).phases
    assert list(phases["phase"]) == ["import", "build", "epochs"]
    assert list(phases["start_s"]) == [0.0, 3.0, 4.0]
    assert list(phases["seconds"]) == [2.0, 1.0, 1.0]
    assert list(phases["pss_bytes"].fillna(-1)) == [-1, 5, -1]


def test_frames_are_equal_each_time_they_are_loaded_and_have_all_columns_where_they_are_empty(tmp_path):
    first = study(tmp_path / "full", [ok(1, 2, 3), Run("crashed", reason="broke"), ok(2, 2, 9)])
    empty, again = study(tmp_path / "empty", []), Comparison.load(tmp_path / "full")
    for name in FRAMES:
        pd.testing.assert_frame_equal(getattr(first, name), getattr(again, name))
        assert getattr(first, name) is getattr(first, name)
        assert len(getattr(empty, name)) == 0
        assert list(getattr(empty, name).columns) == list(getattr(first, name).columns)


def test_results_can_be_read_while_they_are_written_without_pandas(tmp_path):
    with Store.create(tmp_path, settings={}, machine={}, cells=[cell()], repeats=1) as store:
        assert list(Comparison(store.folder).frame["status"]) == ["planned"]
        store.begin(1)
        assert list(Comparison(store.folder).frame["status"]) == ["running"]
        store.record(1, ok(1, 2, 3))
        assert list(Comparison.load(tmp_path).frame["epoch_s"]) == [2.0]
    study(tmp_path / "pandas", [ok(1)])
    code = "import sys; from framework_compare import Comparison; Comparison.load(sys.argv[1]); "
    code += "sys.exit('pandas' in sys.modules or 'rich' in sys.modules)"
    subprocess.run([sys.executable, "-c", code, tmp_path / "pandas"], check=True, cwd=tmp_path / "pandas")


def test_a_cell_says_how_its_gpu_and_its_host_were_read(tmp_path):
    told = {"gpu": {"name": "NVIDIA H200", "memory_source": "process list", "energy_source": "counter"}}
    outcomes = [ok(1), ok(1, gauges=told, warnings=("a", "b")), ok(1, gauges=told, warnings=("a",))]
    row = study(tmp_path, outcomes, [cell()], repeats=3).frame.iloc[0]
    assert (row["gpu_name"], row["gpu_memory_source"], row["gpu_energy_source"]) == (
        "NVIDIA H200", "process list", "counter",
    )  # fmt: skip
    assert row["warnings"] == "a; b"
    gpu = {"utilization_window": "a second", "utilization_period_s": 0.2, "reason": "no readings"}
    told = {"gpu": gpu, "host_energy": {"source": None, "reason": "there is no package"}}
    row = study(tmp_path / "window", [ok(1), ok(1, gauges=told)], [cell()], repeats=2).frame.iloc[0]
    assert (row["gpu_utilization_window"], row["gpu_utilization_period_s"]) == ("a second", 0.2)
    assert (row["gpu_reason"], row["host_energy_reason"]) == ("no readings", "there is no package")


@pytest.mark.parametrize("told", [None, True, "0.2", [], float("inf")], ids=str)
def test_a_period_that_is_no_number_of_seconds_is_none(told):
    row = {"gauges": {"gpu": {"utilization_period_s": told, "utilization_window": 7}, "host_energy": "?"}}
    found = columns.reported([row], dict.fromkeys(METRICS))
    assert set(found) == set(columns.REPORTED) and set(found.values()) == {None}
