"""compare() from end to end with the test framework in real worker processes."""

import dataclasses
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from stored_study import selected

from framework_compare import Comparison, compare, dry_run, ladder, largest_batch, registry, stability_sweep
from framework_compare.api import compare_file
from framework_compare.datasets import diabetes
from framework_compare.errors import UsageError
from framework_compare.plan import planning
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Run
from framework_compare.study.progress import PlainWatcher, RichWatcher

QUICK = dict(batch_size=4, epochs=2, threads=1, loader_workers=1, image_size=32, learning_rate=0.5)


def test_a_cell_trains_in_phases_and_its_row_says_how(trained):
    row = trained.frame.iloc[0]
    assert (row.framework, row.model, row.dataset, row.device) == ("tiny", "linear", "colours", "cpu")
    assert (row.status, row.parameters, row.batch_size, row.images) == ("ok", 12, 4, 13)
    assert row.loss_last < row.loss_first
    assert row.epoch_s > 0 and row.images_per_s == pytest.approx(13 / row.epoch_s)
    assert row.framework_version == "1.0"
    assert list(trained.epochs.images) == [13, 13] and list(trained.epochs.steps) == [4, 4]
    phases = trained.phases
    order = ["spawn", "import", "build", "load-weights", "open-data", "first-step", "warm-up", "epochs", "release"]
    assert list(phases.phase) == order
    assert (phases.start_s.diff().dropna() > 0).all()
    assert phases[phases.phase == "epochs"].pss_bytes.item() > 1e6


def test_a_study_is_loaded_as_it_was_and_keeps_all_but_initial_weights(trained):
    again = Comparison.load(trained.folder)
    assert again.frame.equals(trained.frame) and again.epochs.equals(trained.epochs)
    assert not (trained.folder / "weights").exists()
    job = json.loads((trained.folder / "runs" / "00001-tiny-linear-cpu" / "job.json").read_text())
    assert job["weights"].endswith("linear-3-32-0.npy")
    listing = json.loads(Path(job["images"]).read_text())
    assert listing["classes"] == ["fire", "smoke", "no_fire"] and len(listing["paths"]) == 13
    gauges = json.loads(selected(trained.folder, "SELECT gauges FROM run")[0][0])
    assert set(gauges) == {"host_energy", "load", "parent"}
    assert gauges["load"]["before"] >= 0
    assert bool(gauges["host_energy"]["source"]) != bool(gauges["host_energy"]["reason"])


def test_the_first_loss_is_that_of_the_initial_weights(tiny, images, own_cache, tmp_path):
    """Warm-up steps leave no trace: the epoch begins with the seeded weights again."""
    losses = []
    for warmup_steps in (0, 20):
        settings = {**QUICK, "warmup_steps": warmup_steps, "pipeline": "shared"}
        out = tmp_path / str(warmup_steps)
        losses.append(compare(tiny, "linear", dataset=images, out=out, **settings).epochs.loss.tolist())
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    "change, said",
    [
        (dict(frameworks="caffe"), r"unknown framework 'caffe'; allowed: torch, tensorflow"),
        (dict(frameworks=[]), "no framework is given"),
        (dict(frameworks=["tiny", "tiny"]), "framework 'tiny' is given twice"),
        (dict(models="lenet"), r"unknown model 'lenet' \(did you mean 'alexnet'\?\); allowed: alexnet"),
        (dict(device="tpu"), "unknown device 'tpu'; allowed: cpu, cuda, cuda:N"),
        (dict(device="cuda:01"), "unknown device 'cuda:01' .did you mean 'cuda:N'..; allowed: cpu, cuda, cuda:N"),
        (dict(device=["cpu", "cpu"]), "device 'cpu' is given twice"),
        (dict(device=["cuda", "cuda:0"]), "device 'cuda' is given twice"),
        (dict(dataset="fire-smoke-huge"), "'fire-smoke-huge' .did you mean 'fire-smoke-big'..; allowed: "),
        (dict(batch_size=[]), "batch_size is an empty list"),
        (dict(epochs=1.5), "epochs is 1.5"),
        (
            dict(speed="high"),
            "unknown option 'speed' .did you mean 'seed'..; allowed: frameworks, models, device, dataset, out, retry, extend",
        ),
        (dict(limit=0), "limit is 0"),
        (dict(classes=["fire", "flood"]), "flood"),
        (dict(timeout_s=0), "timeout_s is 0"),
        (dict(python={"caffe": "/usr/bin/python3"}), "unknown framework 'caffe'"),
        (dict(python={"tiny": "/no/python"}), "python of tiny is '/no/python', which does not exist"),
        (dict(repeats=0), "repeats is 0; allowed: a whole number of at least 1"),
        (dict(repeats=True), "repeats is True; allowed: a whole number of at least 1"),
        (dict(limit=True), "limit is True; allowed: a whole number of at least 1 and at most 1000000000, or None"),
        (dict(sampling_hz="5"), "sampling_hz is '5'; allowed: 0 .off., or 0.01 to 100"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_wrong_request_is_one_clear_line_and_writes_nothing(change, said, tiny, images, own_cache, tmp_path):
    request = {**QUICK, "frameworks": "tiny", "models": "linear", "device": "cpu", "dataset": images, **change}
    with pytest.raises(UsageError, match=re.escape(said) if "allowed" not in said else said) as error:
        compare(out=tmp_path / "study", **request)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "study").exists()


CALLS = {
    compare: {"extnd": "extend", "repeat": "repeats", "dataste": "dataset", "rung": "rungs"},
    dry_run: {"limt": "limit", "bugdet": "budget", "batchsize": "batch_size"},
    largest_batch: {"btch_sizes": "batch_sizes", "timeout": "timeout_s"},
    stability_sweep.dry_run: {"serach": "search", "epoch": "epochs"},
    ladder: {"one_at_time": "one_at_a_time", "weight": "weights"},
}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.__module__}.{call.__name__}")
def test_an_unknown_option_is_told_with_the_nearest_that_the_call_takes(call):
    for name, meant in CALLS[call].items():
        with pytest.raises(UsageError) as error:
            call("torch", "alexnet", **{name: 1})
        said, _, allowed = str(error.value).partition("; allowed: ")
        assert said == f"unknown option {name!r} (did you mean {meant!r}?)"
        assert {"limit", "budget", "dataset", "accumulation", meant} <= set(allowed.split(", "))


def test_an_option_of_another_call_is_unknown():
    with pytest.raises(
        UsageError, match="unknown option 'out'; allowed: frameworks, models, device, dataset, executor"
    ):
        dry_run("torch", "alexnet", out="study")


def test_an_unknown_option_beside_a_file_is_told_before_the_file_is_read(tmp_path):
    with pytest.raises(UsageError, match="unknown option 'model' .did you mean 'models'..; allowed: path, out, retry"):
        compare_file(tmp_path / "study.toml", model="alexnet")


def test_a_framework_that_cannot_be_installed_is_a_row(tiny, images, own_cache, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    for variable in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_RETRIES", "0")
    entry = registry.Framework("absent", registry.FRAMEWORKS["tiny"].trainer, "mxnet.txt", "mxnet", ((3, 8), (3, 99)))
    monkeypatch.setitem(registry.FRAMEWORKS, "absent", entry)
    frame = compare(["absent", tiny], "linear", dataset=images, out=tmp_path / "s", **QUICK).frame
    assert list(frame.status) == ["not-installed", "ok"]
    assert "absent" in frame.reason[0] and "\n" not in frame.reason[0]


def test_progress_is_a_line_a_cell_and_what_a_framework_prints_in_its_log(tiny, images, own_cache, tmp_path, capfd):
    result = compare(tiny, "linear", dataset=images, out=tmp_path / "s", watcher=PlainWatcher(sys.stderr), **QUICK)
    assert "a banner on stdout" in (result.folder / result.frame.log_path[0]).read_text()
    said = capfd.readouterr()
    lines = said.err.splitlines()
    assert "banner" not in said.out and lines[0] == "colours: 13 images (fire 5, smoke 4, no_fire 4)"
    assert re.fullmatch(r"tiny-linear-cpu, batch \d+: .* s per epoch, .* images/s.*", lines[-1])


def test_each_line_of_progress_counts_one_more_run():
    """Runs that take turns begin together; their lines are numbered one by one, in the order in which they end."""
    stream, cell = io.StringIO(), Cell("torch", "linear", "colours", "cpu", TrainConfig())
    watcher = PlainWatcher(stream)
    watcher.end(cell, Run("failed", "it could not begin"))
    for number in (1, 2, 3):
        watcher.begin(cell, number, 3)
    for _ in range(3):
        watcher.end(cell, Run("failed", "no driver"))
    begins = [line.partition(" ")[0] for line in stream.getvalue().splitlines()]
    assert begins == ["torch-linear-cpu,", "[1/3]", "[2/3]", "[3/3]"]


def test_the_bar_of_a_study_never_counts_more_runs_than_there_are():
    watcher, cell, done = RichWatcher(), Cell("torch", "linear", "colours", "cpu", TrainConfig()), []
    watcher.end(cell, Run("failed", "it could not begin"))
    with watcher:
        for number in (1, 2, 3):
            watcher.begin(cell, number, 3)
        for _ in range(3):
            (bar,) = watcher._bars.tasks
            done.append((bar.completed, bar.total))
            watcher.end(cell, Run("failed", "no driver"))
        done.append((bar.completed, bar.total))
    assert done == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, framework_compare as f; assert f.__version__; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "pandas", "psutil", "rich"} & set(loaded)


def test_samples_fall_into_the_run(tiny, images, own_cache, tmp_path):
    settings = {**QUICK, "epochs": 300}
    result = compare(tiny, "linear", dataset=images, out=tmp_path / "s", sampling_hz=50, **settings)
    samples = result.samples
    assert len(samples) > 3 and (np.diff(samples.t_s) > 0).all()
    assert result.frame.threads_max[0] >= 1 and result.frame.peak_rss_bytes[0] > 1e7


def test_what_is_of_another_kind_is_refused_before_anything_is_written(tiny, images, own_cache, tmp_path):
    for given in (
        *(dict(retry=5), dict(python="x"), dict(python=[1]), dict(index=[1]), dict(dataset=5), dict(dataset=[5])),
        *(dict(out=5), dict(profile="x"), dict(classes=5), dict(device=None), dict(models=None), dict(frameworks=5)),
    ):
        request = dict(frameworks=tiny, models="linear", dataset=images, out=tmp_path / "study", **QUICK)
        with pytest.raises(UsageError, match="allowed|must be"):
            compare(**{**request, **given})
        assert not (tmp_path / "study").exists()


def test_a_batch_of_more_images_than_there_are_is_told(tiny, images, own_cache, tmp_path, capsys):
    request = dict(dataset=images, out=tmp_path / "study", **{**QUICK, "batch_size": [4, 10**6]})
    result = compare(tiny, "linear", watcher=PlainWatcher(), **request)
    said = "batch size 1000000 is larger than colours, which has 13 images: each step trains on 13"
    assert said in capsys.readouterr().err and said in " ".join(str(result.table()).split())
    assert list(result.frame.warnings) == ["", said]


def test_loader_workers_that_have_no_batch_to_make_are_a_warning(tiny, images, own_cache, tmp_path, monkeypatch):
    said = "2 of 6 loader workers are idle, because each makes whole batches"
    for least, workers, words in ((1, [4, 6], ["", said]), (7, 6, [""]), (0, 6, [""])):
        entry = dataclasses.replace(registry.FRAMEWORKS[tiny], whole_batches_from=least)
        monkeypatch.setitem(registry.FRAMEWORKS, tiny, entry)
        settings = {**QUICK, "loader_workers": workers, "pipeline": "native" if least != 1 else ["native", "memory"]}
        study = compare(tiny, "linear", dataset=images, out=tmp_path / f"{least}", **settings).frame
        assert [text[: len(said)] for text in study[study.pipeline == "native"].warnings] == words
        assert not study[study.pipeline == "memory"].warnings.any()


@pytest.fixture
def plan(tiny, images, own_cache):
    def planned(dataset=None, models=("linear", "diabetes_ann"), **settings):
        return planning.plan("torch", models, "cpu", dataset, {"threads": 1, **settings}, make=False)

    return planned


def test_each_model_trains_on_the_data_it_is_for(plan):
    found = plan()
    assert [(cell.model, cell.dataset) for cell in found.cells] == [
        ("linear", "fire-smoke-small"),
        ("diabetes_ann", "diabetes"),
    ]
    assert {name: len(data) for name, data in found.datasets.items()} == {"fire-smoke-small": 791, "diabetes": 614}
    images, rows = (cell.config for cell in found.cells)
    assert (images.optimizer, images.loss, images.pipeline) == ("sgd", "cross_entropy", "native")
    assert (rows.optimizer, rows.loss, rows.pipeline) == ("adam", "binary_cross_entropy", "shared")
    found = plan(models=["lstm_ibm", "gru_ibm", "linear"])
    assert list(found.datasets) == ["ibm-prices", "fire-smoke-small"]
    assert [cell.dataset for cell in found.cells] == ["ibm-prices", "ibm-prices", "fire-smoke-small"]


def test_data_sets_and_settings_go_to_the_models_that_have_a_use_for_them(plan):
    cells = plan(["fire-smoke-tiny", "diabetes"]).cells
    assert [(one.model, one.dataset) for one in cells] == [("linear", "fire-smoke-tiny"), ("diabetes_ann", "diabetes")]
    images, rows = plan(image_size=32, flip="none", epochs=2).cells
    assert (images.config.image_size, images.config.flip, images.config.epochs) == (32, "none", 2)
    assert (rows.config.image_size, rows.config.epochs) == (0, 2)
    with pytest.raises(UsageError, match="image_size is 32; diabetes_ann does not use it"):
        plan(models=["diabetes_ann", "lstm_ibm"], image_size=32)


@pytest.fixture
def rows(tmp_path):
    """A file as `diabetes` has it."""
    header = [*diabetes.COLUMNS, diabetes.OUTCOME]
    lines = [",".join(str(n * k % 17 + 1) for k in range(2, 10)) + f",{n % 2}" for n in range(1, 31)]
    (tmp_path / "people").mkdir()
    (tmp_path / "people" / "pima.csv").write_text("\n".join([",".join(header), *lines]) + "\n")
    return tmp_path / "people" / "pima.csv"


def test_a_path_goes_to_the_models_of_images_or_to_those_of_arrays(plan, images, rows):
    for first, second in (
        ("fire-smoke-tiny", rows),
        (images, "diabetes"),
        (images, str(rows)),
        (images, rows.parent),
    ):
        names = [Path(first).stem, Path(second).stem]
        for given in ([first, second], [second, first]):
            assert [(cell.model, cell.dataset) for cell in plan(given).cells] == list(
                zip(("linear", "diabetes_ann"), names)
            )


def test_folders_of_images_go_also_to_the_workloads_that_read_them(plan, images, rows, tmp_path):
    for split in ("train", "valid"):
        shutil.copytree(images, tmp_path / "leaves" / split)
    cells = plan([tmp_path / "leaves", rows], models=["guava_cnn", "diabetes_ann"]).cells
    assert [(one.model, one.dataset) for one in cells] == [("guava_cnn", "leaves"), ("diabetes_ann", "pima")]


def test_a_path_that_suits_no_model_or_leaves_one_without_data_is_told(plan, images, rows):
    for dataset, models, said in (
        (images, ["linear", "diabetes_ann"], f"{images!r} is not for diabetes_ann; allowed: diabetes, or the path of"),
        (rows, ["linear", "diabetes_ann"], f"{rows!r} is not for linear; allowed: fire-smoke-small, or the path of"),
        ([images, rows], ["linear"], f"data set {str(rows)!r} is a file; a folder with one folder of images per class"),
        ([images, rows], ["diabetes_ann"], f"folder {str(images)!r}: the table must be one file like *.csv"),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            plan(dataset, models)


def test_no_model_and_no_data_set_is_left_out_in_silence(plan):
    for dataset, said in (
        ("fire-smoke-tiny", "data set 'fire-smoke-tiny' is not for diabetes_ann; allowed: diabetes, or the path"),
        ("diabetes", "data set 'diabetes' is not for linear; allowed: fire-smoke-small, or the path"),
        (["fire-smoke-tiny", "diabetes", "mnist"], "'mnist' is not used by any of the models linear, diabetes_ann"),
    ):
        with pytest.raises(UsageError, match=said):
            plan(dataset)
