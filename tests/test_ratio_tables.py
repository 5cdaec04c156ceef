"""Speed-ups, ladders, scaling and energy as tables, from studies with known figures."""

import dataclasses
import itertools
import math

import gpu_study
import pytest
import stored_study
from gpu_study import OOM, ok
from stored_study import recorded
from table_study import csv_rows, rows

from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Phase, Run
from framework_compare.report import study_table
from framework_compare.report.kinds import KINDS
from framework_compare.report.time_tables import steps_until_paid

STYLES = tuple(study_table.STYLES)
NEW = ("speedup", "precision", "scaling", "energy")


def study(place, *given, **settings):
    """One in a folder of its own."""
    return gpu_study.study(place / str(len([*place.iterdir()])), *given, **settings)


def test_a_study_without_cells_or_kinds_or_in_which_all_failed_can_be_shown(tmp_path):
    comparison = study(tmp_path, [])
    for kind, style in itertools.product(("time", "resources", *NEW), STYLES):
        text = comparison.table(kind, style)
        assert text.startswith("framework,") if style == "csv" else "No cells" in text, (kind, style)
    varied = itertools.product(("cpu", "cuda"), (1, 2), ("fp32", "bf16"))
    settings = [{"device": device, "batch_size": size, "precision": name} for device, size, name in varied]
    comparison = study(tmp_path, [("torch", one, Run("failed", "no driver")) for one in settings])
    for kind, style in itertools.product(NEW, STYLES):
        text = comparison.table(kind, style)
        words = ["Energy not measured"] if kind == "energy" and style != "csv" else ["failed", "no driver"]
        assert all(word in text for word in words), (kind, style)
    comparison = study(tmp_path, [("torch", {}, ok(1, 1, 1)), ("jax", {}, ok(2, 2, 2))])
    for kind, style in itertools.product(NEW, STYLES):
        if style != "csv":
            (line,) = comparison.table(kind, style).splitlines()
            assert line.rstrip().removesuffix("</p>").endswith("."), (kind, style)
            assert line.startswith("% ") == (style == "latex"), (kind, style)
    assert comparison.kinds == ["time", "resources", "startup", "roofline"]
    assert all(name in comparison.frame for kind in OF_CELLS for name in KINDS[kind].figures)


# Those of other frames are in test_profile.py and test_roofline.py, those of tasks in test_workloads.py.
OF_CELLS = [kind for kind in KINDS if KINDS[kind].frame == "frame" and kind != "inference"]


def test_devices_are_compared_with_one_of_their_kind_in_two_ways(tmp_path):
    """Weak: batch 8 on one and on each of two. Strong: batch 16 on one, 8 on each of two."""
    outcomes = [
        ("torch", {"batch_size": 8}, ok(100, 100, 100)),
        ("torch", {"batch_size": 8, "device": "cuda"}, ok(10, 10, 10)),
        ("torch", {"batch_size": 16, "device": "cuda"}, ok(8, 8, 8)),
        ("torch", {"batch_size": 8, "device": "cuda:0,1"}, ok(5, 5, 5)),
        ("torch", {"batch_size": 8, "device": "cuda:0,1,2,3"}, OOM),
    ]
    table = rows(study(tmp_path, outcomes).table("devices", "markdown"))
    assert [row[2:] for row in table] == [
        ["8", "cuda", "10.0", "-", "-", "-"],
        ["8", "cuda:0,1", "20.0", "2.00", "100", "80"],
        ["8", "cuda:0,1,2,3", "out-of-memory (1)", "-", "-", "-"],
    ]
    # Twice as fast in 90 of 100 images is 1.8 times, weak, and strong.
    whole = ok(10, 10, 10)
    fewer = tuple(dataclasses.replace(epoch, images=90) for epoch in ok(5, 5, 5).epochs)
    outcomes = [
        ("torch", {"batch_size": 8, "device": "cuda"}, whole),
        ("torch", {"batch_size": 16, "device": "cuda"}, whole),
        ("torch", {"batch_size": 8, "device": "cuda:0,1"}, dataclasses.replace(whole, epochs=fewer)),
    ]
    table = rows(study(tmp_path, outcomes).table("devices", "markdown"))
    assert [row[3:] for row in table if row[3] == "cuda:0,1"] == [["cuda:0,1", "18.0", "1.80", "90", "90"]]


def test_strong_scaling_is_of_equal_settings_within_blocks(tmp_path):
    """20 s over 10 s in one block, 10 s over 30 s in the other; the first cell has other loader workers."""
    seconds = {("cuda", 16, 1): (99, 99), ("cuda", 16, 2): (20, 10), ("cuda", 8, 2): (24, 12)}
    seconds["cuda:0,1", 8, 2] = (10, 30)
    planned = [
        Cell("torch", "alexnet", "small", device, TrainConfig(device=device, batch_size=size, loader_workers=workers))
        for device, size, workers in seconds
    ]

    def run_of(cell, turn):
        one = seconds[cell.device, cell.config.batch_size, cell.config.loader_workers][turn - 1]
        return ok(one, one)

    table = rows(recorded(tmp_path, planned, run_of, repeats=2).table("devices", "markdown"))
    assert [row[-1] for row in table if "cuda:0,1" in row] == [f"{100 * (20 / 10 * 10 / 30) ** 0.5 / 2:.0f}"]


def test_nodes_count_as_devices_do(tmp_path):
    outcomes = [
        ("torch", {"batch_size": 8, "device": "cuda"}, ok(10, 10, 10)),
        ("torch", {"batch_size": 8, "device": "cuda", "nodes": 2}, ok(6, 6, 6)),
        ("torch", {"batch_size": 8, "device": "cuda:0,1", "nodes": 2}, ok(5, 5, 5)),
    ]
    table = rows(study(tmp_path, outcomes).table("devices", "markdown"))
    assert [row[2:8] for row in table] == [
        ["8", "cuda", "1", "10.0", "-", "-"],
        ["8", "cuda", "2", "16.7", "1.67", "83"],
        ["8", "cuda:0,1", "2", "20.0", "2.00", "50"],
    ]


def test_speed_up_is_the_cpus_median_epoch_over_the_gpus(tmp_path):
    outcomes = [
        ("torch", {}, ok(10, 10, 12)),
        ("torch", {"device": "cuda"}, ok(0.5, 0.5, 0.5)),
        ("torch", {"device": "cuda:1"}, ok(2, 2, 2)),
    ]
    comparison = study(tmp_path, outcomes, repeats=2)
    text = comparison.table("speedup", "markdown")
    ((framework, model, *figures),) = rows(text)
    assert (framework, model) == ("PyTorch", "AlexNet")
    assert figures == ["10.0", "0.500", "20.0 ±0.0", "10.0", "2.00", "5.00 ±0.00"]
    assert "cuda:1 / speed-up" in text
    outcomes = [("torch", {}, ok(8, 8)), ("torch", {"device": "cuda"}, ok(1, 1))]
    assert rows(study(tmp_path, outcomes).table("speedup", "markdown"))[0][-1] == "8.00"
    outcomes = [("mxnet", {}, ok(1, 1, 1)), ("mxnet", {"device": "cuda"}, OOM)]
    text = study(tmp_path, outcomes).table("speedup", "markdown")
    assert rows(text) == [["MXNet", "AlexNet", "1.00", "out-of-memory (1)", "-"]]
    assert "(1) torch.OutOfMemoryError" in text
    assert "No model ran on both the CPU and another device" in study(tmp_path, [("torch", {}, ok(1))]).table("speedup")


def test_speed_up_holds_equal_settings_against_each_other_and_names_threads_that_differ(tmp_path):
    outcomes = [
        ("torch", {"batch_size": 1}, ok(30, 30, 30)),
        ("torch", {"batch_size": 100}, ok(10, 10, 10)),
        ("torch", {"batch_size": 100, "device": "cuda"}, ok(1, 1, 1)),
        ("torch", {"batch_size": 1, "device": "cuda"}, ok(10, 10, 10)),
        ("torch", {"batch_size": 1, "device": "cuda", "precision": "bf16"}, ok(5, 5, 5)),
    ]
    text = study(tmp_path, outcomes, repeats=2).table("speedup", "markdown")
    assert [row[2:] for row in rows(text[: text.index("batch 100")])] == [["30.0", "10.0", "3.00 ±0.00"]]
    assert [row[2:] for row in rows(text[text.index("batch 100") :])] == [["10.0", "1.00", "10.0 ±0.0"]]
    outcomes = [
        ("torch", {"threads": 1}, ok(20, 20, 20)),
        ("torch", {"threads": 8}, ok(10, 10, 10)),
        ("torch", {"threads": 4, "device": "cuda"}, ok(1, 1, 1)),
    ]
    text = study(tmp_path, outcomes, repeats=2).table("speedup", "markdown")
    assert rows(text) == [["PyTorch", "AlexNet", "10.0", "1.00", "10.0 ±0.0 (1)"]]
    assert "(1) 8 threads on the CPU, 4 with the device" in text


def test_ladder_has_fp32_eager_as_one_and_says_where_that_failed(tmp_path):
    gpu = {"device": "cuda", "batch_size": 64}
    outcomes = [
        ("torch", {**gpu, "execution": "eager"}, ok(4, 4, 4)),
        ("torch", {**gpu, "execution": "graph"}, ok(2, 2, 2)),
        ("torch", {**gpu, "execution": "eager", "precision": "bf16"}, ok(1, 1, 1)),
        ("torch", {**gpu, "execution": "graph", "precision": "bf16"}, OOM),
        ("jax", {**gpu, "execution": "graph"}, ok(1, 1, 1)),
    ]
    text = study(tmp_path, outcomes, repeats=2).table("precision", "markdown")
    assert "| framework | model | batch_size | fp32 / eager | fp32 / graph | bf16 / eager | bf16 / graph |" in text
    assert rows(text) == [
        ["PyTorch", "AlexNet", "64", "1", "2.00 ±0.00", "4.00 ±0.00", "out-of-memory (1)"],
        ["JAX", "AlexNet", "64", "-", "- (2)", "-", "-"],
    ]
    assert "(2) no fp32 eager baseline in this study" in text
    lost, outcomes = Run("crashed", "SIGSEGV"), {"eager": None, "graph": ok(1, 1, 1)}
    outcomes = [("torch", {"execution": execution}, run or lost) for execution, run in outcomes.items()]
    text = study(tmp_path, outcomes).table("precision", "markdown")
    assert rows(text)[0][3:] == ["crashed (1)", "- (2)"]
    assert "its baseline, fp32 eager, is crashed" in text


def test_scaling_names_the_largest_batch_that_worked(tmp_path):
    gpu = {"device": "cuda"}
    outcomes = [
        ("torch", {**gpu, "batch_size": 256}, OOM),
        ("torch", {**gpu, "batch_size": 64}, ok(1, 1, own=3 * 2**30)),
        ("torch", {**gpu, "batch_size": 128}, ok(0.5, 0.5, own=6 * 2**30)),
        ("torch", {**gpu, "batch_size": 512}, Run("out-of-memory", "CUDA out of memory")),
        ("jax", {**gpu, "batch_size": 64}, ok(2, 2, own=2**30)),
    ]
    text = study(tmp_path, outcomes).table("scaling", "markdown")
    assert rows(text) == [
        ["PyTorch", "AlexNet", "64", "100", "3.00"],
        ["PyTorch", "AlexNet", "128", "200", "6.00"],
        ["PyTorch", "AlexNet", "256", "out-of-memory (1)", "-"],
        ["PyTorch", "AlexNet", "512", "out-of-memory (2)", "-"],
        ["JAX", "AlexNet", "64", "50.0", "1.00"],
    ]
    assert "PyTorch AlexNet: the largest batch that worked is 128; 256 ended out-of-memory." in text
    assert "JAX AlexNet:" not in text and "peak GPU memory, GiB" in text
    outcomes = [("torch", {}, ok(1)), ("torch", {"batch_size": 1}, ok(1)), ("paddle", {}, Run("crashed"))]
    text = study(tmp_path, outcomes).table("scaling", "markdown")
    assert ["PyTorch", "AlexNet", "16", "100", "-", "2.00"] in rows(text)
    assert "PaddlePaddle AlexNet: no batch size worked; 16 ended crashed." in text


def test_scaling_says_how_many_images_a_step_was_really_on(tmp_path):
    outcomes = [("torch", {"batch_size": size}, ok(1)) for size in (2, 6, 64)]
    comparison = study(tmp_path, outcomes, images=6)
    assert [row[2] for row in rows(comparison.table("scaling", "markdown"))] == ["2", "6", "64, steps of 6"]
    read = csv_rows(comparison.table("scaling", "csv"))
    assert [(row["batch_size"], row["images"]) for row in read] == [("2", "6"), ("6", "6"), ("64", "6")]
    outcomes = [("torch", {"batch_size": size}, run) for size, run in ((2, ok(1)), (64, ok(1)), (128, Run("crashed")))]
    text = study(tmp_path, outcomes, images=6).table("scaling", "markdown")
    assert "PyTorch AlexNet: the largest batch that worked is 6; 128, steps of 6, ended crashed." in text


def test_each_framework_is_shown_in_its_best_mode(tmp_path):
    outcomes = [
        *(("torch", {}, ok(4, 4)), ("torch", {"execution": "compiled"}, ok(2, 2)), ("jax", {}, ok(3, 3))),
        *(("jax", {"execution": "eager"}, ok(9, 9)), ("mxnet", {"execution": "compiled"}, OOM)),
    ]
    text = study(tmp_path, outcomes, repeats=2).table("modes", "markdown")
    assert [row[:1] + row[3:] for row in rows(text)] == [
        ["PyTorch", "compiled", "2.00", "2.00 ±0.00", "1"],
        ["JAX", "default", "3.00", "1", "1.50 ±0.00"],
    ]


def test_a_library_is_compared_with_the_framework_below_it(tmp_path):
    outcomes = [
        ("torch", {}, ok(2, 2)),
        ("keras-torch", {}, ok(5, 5)),
        ("keras-torch", {"execution": "fit"}, ok(4, 4)),
        ("torch", {"execution": "fit"}, Run("unsupported", "no execution 'fit'")),  # of both executions in one run
        ("keras-torch@3.14.0", {}, ok(8, 8)),
        ("keras-jax", {}, ok(9, 9)),
    ]
    text = study(tmp_path, outcomes, repeats=2).table("stack", "csv")
    rows = csv_rows(text)
    ratios = {(row["framework"], row["execution"]): row["ratio"] for row in rows}
    # speed relative to PyTorch's 2 s; no JAX below Keras on JAX
    assert ratios["keras-torch", "default"] == "0.4" and ratios["keras-torch", "fit"] == "0.5", text
    assert ratios["keras-torch@3.14.0", "default"] == "0.25", text
    assert ratios["torch", "default"] == ratios["keras-jax", "default"] == "", text


def test_a_library_is_compared_only_with_the_version_that_it_ran_on(tmp_path):
    def of(version, *seconds, on=None):
        settings = {"backend": on} if on else {}
        return dataclasses.replace(ok(*seconds), framework_version=version, settings=settings)

    outcomes = [
        ("jax@0.9.2", {}, of("0.9.2", 2, 2)),
        ("jax@0.10.2", {}, of("0.10.2", 4, 4)),
        ("torch@2.14.1", {}, of("2.14.1", 2, 2)),
        ("keras-jax", {}, of("3.15.1", 8, 8, on="jax 0.10.2")),
        ("keras-torch", {}, of("3.15.1", 8, 8, on="torch 2.13.0+cpu")),
    ]
    found = study(tmp_path, outcomes, repeats=2)
    read = csv_rows(found.table("stack", "csv"))
    ratios = {row["framework"]: row["ratio"] for row in read}
    assert ratios["keras-jax"] == "0.5", "not 0.25, the ratio to version 0.9.2"
    assert ratios["keras-torch"] == ""
    assert found.frame["backend"].dropna().tolist() == ["jax 0.10.2", "torch 2.13.0+cpu"]
    text = found.table("stack", "markdown")
    assert [row[0] for row in rows(text)] == ["Keras (JAX)"]
    assert "Keras (PyTorch) is left out: it ran on PyTorch 2.13.0+cpu, which was not measured" in text


def test_what_the_table_of_libraries_lacks_is_named_as_it_is(tmp_path):
    on = {"framework_version": "3.15.1", "settings": {"backend": "jax 0.10.2"}}
    library = dataclasses.replace(ok(8, 8), **on)
    outcomes = [
        ("jax@0.10.2", {"batch_size": 32}, Run("failed", "no memory")),
        ("jax@0.10.2", {}, dataclasses.replace(ok(4, 4), framework_version="0.10.2")),
        ("jax@0.9.2", {"batch_size": 32}, dataclasses.replace(ok(2, 2), framework_version="0.9.2")),
        ("keras-jax", {"execution": "fit"}, library),
        ("keras-jax", {"batch_size": 32}, library),
        ("keras-jax", {"batch_size": 64}, library),
    ]
    text = study(tmp_path, outcomes, repeats=2).table("stack", "markdown")
    shown = {row[2]: row[4:7] for row in rows(text)}
    assert set(shown) == {"16", "32"} and shown["32"][:2] == ["JAX 0.10.2", "failed (2)"], "the version of its name"
    assert "(1) JAX 0.10.2 in default" in text
    assert "Keras (JAX) lacks cells: they ran on JAX 0.10.2, which was not measured with the same settings." in text


def test_a_warning_stands_below_every_table(tmp_path):
    text = "another process is on the GPU: pid 4321, 0.50 GiB"
    outcomes = [
        ("torch", {"execution": "eager"}, ok(1, 1, 1)),
        ("torch", {"device": "cuda", "execution": "eager"}, ok(1, 1, 1, power_w=300.0, warnings=(text,))),
        ("torch", {"device": "cuda", "execution": "eager", "precision": "bf16", "batch_size": 1}, ok(1, 1, 1)),
        ("torch", {"device": "cuda:0,1", "execution": "eager"}, ok(1, 1, 1)),
    ]
    comparison = study(tmp_path, outcomes)
    for kind in set(OF_CELLS) - {"stack", "modes"}:  # of libraries, of executions
        assert f"Warning, PyTorch AlexNet: {text}" in comparison.table(kind, "markdown"), kind
    assert comparison.warnings == [f"torch-alexnet-cuda: {text}"]


SECOND = 1_000_000_000
IMAGES, BATCH = 100, 10


def run_of(startup_s, epoch_s):
    """A process of two epochs of ten steps; half of its start-up is the first step."""
    begin = round(startup_s * SECOND)
    epochs = stored_study.epochs(epoch_s, epoch_s, start_ns=begin, images=IMAGES)
    end = epochs[-1].end_ns
    phases = (Phase("spawn", 0, begin // 2), Phase("first-step", begin // 2, begin), Phase("epochs", begin, end))
    return Run("ok", phases=phases, epochs=epochs)


def startup_study(folder, runs):
    """`runs` maps (framework, execution) to a Run."""
    cells = [
        Cell(name, "alexnet", "small", "cpu", TrainConfig(execution=execution, batch_size=BATCH))
        for name, execution in runs
    ]
    settings = {"datasets": {"small": {"images": IMAGES}}}
    return stored_study.recorded(folder, cells, runs.values(), settings=settings)


def test_an_execution_pays_after_the_steps_that_make_up_for_its_start(tmp_path):
    runs = {
        ("torch", "eager"): run_of(4, 2.0),
        ("torch", "compiled"): run_of(34, 1.5),
        ("torch", "graph"): run_of(6, 2.5),
        ("jax", "graph"): run_of(8, 1.0),
        ("mxnet", "eager"): Run("crashed", "SIGSEGV"),
    }
    comparison = startup_study(tmp_path, runs)
    assert comparison.frame.startup_s.tolist()[:4] == [4, 34, 6, 8]
    assert rows(comparison.table("startup", "markdown")) == [
        ["PyTorch", "AlexNet", "eager", "4.00", "2.00", "2.00", "-", "-"],
        # 30 s more for steps that are 0.05 s shorter: 600 steps, of which ten are an epoch
        ["PyTorch", "AlexNet", "compiled", "34.0", "17.0", "1.50", "600", "60.0"],
        ["PyTorch", "AlexNet", "graph", "6.00", "3.00", "2.50", "never", "never"],
        ["JAX", "AlexNet", "graph", "8.00", "4.00", "1.00", "-", "-"],
        ["MXNet", "AlexNet", "eager", "crashed (1)", "-", "-", "-", "-"],
    ]
    assert "startup_s" in comparison.table("startup", "csv")


@pytest.mark.parametrize(
    ("start", "step", "paid"),
    [(10, 0.5, 0), (12, 0.5, 4), (12.1, 0.5, 5), (12, 1, math.inf), (9, 1.5, math.inf), (9, 1, 0), (math.nan, 1, None)],
)
def test_steps_until_a_start_has_paid(start, step, paid):
    found = steps_until_paid(start, step, 10, 1)
    assert math.isnan(found) if paid is None else found == paid
